/*
 * A fork while another thread is in the first connect of the process: whatever
 * that fills in for good is either done or not begun in the child, whose own
 * client works.
 *
 *   firstfork URL ROUNDS
 */

#include <pthread.h>
#include <sys/wait.h>

#include "support.h"

static const char *url;

/* Opens a client and talks to the server, which nobody has done before. */
static void *first(void *unused) {
    (void)unused;
    dl_client *client = open_client(url);
    dl_error *error = NULL;
    EXPECT(DL_STATUS_OK, dl_client_ping(client, 20000, &error));
    dl_client_close(client);
    return NULL;
}

static void ended_well(pid_t pid, const char *who) {
    int status = 0;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    if (status != 0) fail_at(__FILE__, __LINE__, "%s ended with wait status %#x", who, status);
}

/* A process that has not used the library yet. */
static void fresh(unsigned round) {
    pthread_t thread;
    alarm(getenv("DLEASE_SLOW") ? 120 : 20); /* ends one that hangs */
    CHECK(pthread_create(&thread, NULL, first, NULL) == 0);
    const struct timespec pause = {0, (long)(round % 100) * 50000};
    nanosleep(&pause, NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(getenv("DLEASE_SLOW") ? 60 : 10);
        first(NULL);
        _exit(0);
    }
    ended_well(pid, "a child");
    CHECK(pthread_join(thread, NULL) == 0);
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    url = argv[1];
    for (unsigned round = 0; round < (unsigned)atoi(argv[2]); round++) {
        const pid_t pid = fork();
        if (pid == 0) fresh(round);
        ended_well(pid, "a round");
    }
    return 0;
}
