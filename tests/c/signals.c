/*
 * The library leaves the host's signals alone: no handler and no mask changes
 * by loading and using it, its threads take no signal, and it writes nothing.
 */

#include "loaded.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

enum { SIGNALS = 65 };

struct handling {
    struct sigaction actions[SIGNALS];
    sigset_t mask, pending;
};

static void read_handling(struct handling *handling) {
    memset(handling, 0, sizeof *handling);
    for (int number = 1; number < SIGNALS; number++) sigaction(number, NULL, &handling->actions[number]);
    CHECK(sigprocmask(SIG_BLOCK, NULL, &handling->mask) == 0);
    CHECK(sigpending(&handling->pending) == 0);
}

/* The sets' bytes may differ beyond what the kernel knows. */
static int are_equal(const sigset_t *a, const sigset_t *b) {
    for (int number = 1; number < SIGNALS; number++) {
        if (sigismember(a, number) != sigismember(b, number)) return 0;
    }
    return 1;
}

static void is_unchanged(const struct handling *before) {
    struct handling now;
    read_handling(&now);
    for (int number = 1; number < SIGNALS; number++) {
        const struct sigaction *was = &before->actions[number], *is = &now.actions[number];
        if (was->sa_handler != is->sa_handler || was->sa_flags != is->sa_flags ||
            !are_equal(&was->sa_mask, &is->sa_mask)) {
            fail_at(__FILE__, __LINE__, "the handling of signal %d has changed", number);
        }
    }
    CHECK(are_equal(&before->mask, &now.mask));
    CHECK(are_equal(&before->pending, &now.pending));
}

/* Every thread but this one blocks all signals that can be blocked. Returns how
 * many there are. */
static int look_at_other_threads(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        char path[300], line[200];
        if (*task->d_name == '.' || atol(task->d_name) == (long)getpid()) continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *status = fopen(path, "r");
        if (status == NULL) continue; /* it has just ended */
        while (fgets(line, sizeof line, status) != NULL) {
            uint64_t blocked;
            if (sscanf(line, "SigBlk: %" SCNx64, &blocked) != 1) continue;
            for (int number = 1; number < 32; number++) {
                const int may_pass = number == SIGKILL || number == SIGSTOP;
                if (!may_pass && !(blocked >> (number - 1) & 1)) {
                    fail_at(__FILE__, __LINE__, "a thread of the library takes signal %d", number);
                }
            }
            count++;
        }
        fclose(status);
    }
    closedir(tasks);
    return count;
}

/* From here on what goes to standard output and error is counted, but for what
 * this program says of failures. */
static int caught_output(void) {
    char path[] = "/tmp/dlease-signals-XXXXXX";
    const int file = mkstemp(path);
    CHECK(file >= 0);
    unlink(path);
    stderr = fdopen(dup(STDERR_FILENO), "w"); /* glibc allows that */
    CHECK(stderr != NULL);
    setvbuf(stderr, NULL, _IONBF, 0);
    CHECK(dup2(file, STDOUT_FILENO) >= 0 && dup2(file, STDERR_FILENO) >= 0);
    return file;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    struct handling before;
    struct stat output;
    read_handling(&before);
    const int file = caught_output();

    load_library();
    FUNCTION(dl_client_open);
    FUNCTION(dl_client_close);
    FUNCTION(dl_acquire);
    FUNCTION(dl_renew);
    FUNCTION(dl_release);
    FUNCTION(dl_lock_free);
    is_unchanged(&before);

    dl_client *client = NULL, *other = NULL;
    dl_lock *lock = NULL, *none = NULL;
    dl_acquire_options options = DL_ACQUIRE_OPTIONS_INIT;
    CHECK(dl_client_open_(argv[1], NULL, &client, NULL) == DL_STATUS_OK);
    CHECK(dl_client_open_(argv[1], NULL, &other, NULL) == DL_STATUS_OK);
    CHECK(dl_acquire_(client, new_key("signals"), &options, &lock, NULL) == DL_STATUS_OK);
    is_unchanged(&before);
    options.wait_ms = 300;
    CHECK(dl_acquire_(other, new_key("signals"), &options, &none, NULL) == DL_STATUS_OK);
    dl_lock_free_(none); /* left to a thread of the library */
    int seen = 0;
    for (int times = 0; times < 100; times++, sleep_ms(1)) seen += look_at_other_threads();
    CHECK(dl_renew_(lock, 0, NULL) == DL_STATUS_OK);
    CHECK(dl_release_(lock, NULL) == DL_STATUS_OK);
    dl_client_close_(other);
    dl_client_close_(client);
    dl_lock_free_(lock);
    is_unchanged(&before);
    dlclose(library);
    is_unchanged(&before);

    CHECK(fstat(file, &output) == 0);
    CHECK(output.st_size == 0);
    CHECK(seen > 0); /* else nothing was looked at */
    return 0;
}
