/*
 * After a fork the child's handles answer FORKED and can be freed, without a
 * hang whatever the parent's threads were doing; the parent loses nothing.
 *
 *   fork URL FORKS
 */

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "support.h"

enum { THREADS = 4 };

static atomic_bool stop;

struct parent {
    const char *url;
    dl_client *client;
    dl_lock *lock;
    dl_cancel *cancel;
};

/* Acquires and releases for as long as the children come. */
static void *busy(void *argument) {
    dl_client *client = argument;
    const char *key;
    char text[64];
    static atomic_uint number;
    snprintf(text, sizeof text, "c-fork-busy-%ld-%u", (long)getpid(), atomic_fetch_add(&number, 1));
    key = text;
    while (!stop) {
        dl_error *error = NULL;
        dl_lock *lock = acquire(client, key, 0, 20000);
        EXPECT(DL_STATUS_OK, dl_renew(lock, 0, &error));
        EXPECT(DL_STATUS_OK, dl_release(lock, &error));
        dl_lock_free(lock);
    }
    return NULL;
}

/* What the parent made answers FORKED, at once. */
static void the_parents(const struct parent *parent) {
    dl_error *error = NULL;
    dl_lock *lock = JUNK(dl_lock);
    dl_acquire_options options = DL_ACQUIRE_OPTIONS_INIT;
    options.wait_ms = DL_WAIT_FOREVER;
    CHECK(strcmp(dl_version(), DL_VERSION_STRING) == 0);
    EXPECT(DL_STATUS_FORKED, dl_acquire(parent->client, "k", &options, &lock, &error));
    CHECK(lock == NULL);
    EXPECT(DL_STATUS_FORKED, dl_client_ping(parent->client, 1000, &error));
    dl_event event = DL_EVENT_INIT;
    dl_stats stats = DL_STATS_INIT;
    EXPECT(DL_STATUS_FORKED, dl_acquire_async(parent->client, "k", &options, 1, &error));
    CHECK(dl_client_next_event(parent->client, DL_WAIT_FOREVER, &event) == DL_STATUS_FORKED);
    CHECK(dl_client_event_fd(parent->client) == -1);
    CHECK(dl_client_stats(parent->client, &stats) == DL_STATUS_OK && stats.grants == 0);
    EXPECT(DL_STATUS_FORKED, dl_renew(parent->lock, 0, &error));
    EXPECT(DL_STATUS_FORKED, dl_release(parent->lock, &error));
    CHECK(dl_lock_state(parent->lock) == DL_STATUS_NOT_HELD);
    CHECK(dl_lock_lost_cause(parent->lock) == DL_LOST_FORKED);
    CHECK(dl_lock_remaining_ms(parent->lock) == 0);
    CHECK(dl_lock_token(parent->lock) != 0);
    CHECK(strncmp(dl_lock_key(parent->lock), "c-fork", 6) == 0);
    dl_cancel_fire(parent->cancel);
}

/* A client of the child's own works. */
static void its_own(const struct parent *parent) {
    dl_client *client = open_client(parent->url);
    dl_error *error = NULL;
    dl_lock *lock = NULL;
    EXPECT(DL_STATUS_NOT_ACQUIRED, dl_acquire(client, dl_lock_key(parent->lock), NULL, &lock, &error));
    lock = acquire(client, new_key("child"), 0, 20000);
    EXPECT(DL_STATUS_OK, dl_release(lock, &error));
    dl_lock_free(lock);
    /* The parent's token is not of this process. */
    dl_acquire_options options = DL_ACQUIRE_OPTIONS_INIT;
    options.cancel = parent->cancel;
    EXPECT(DL_STATUS_FORKED, dl_acquire(client, "k", &options, &lock, &error));
    dl_client_close(client);
}

static void child(const struct parent *parent, unsigned number) {
    alarm(getenv("DLEASE_SLOW") ? 60 : 5); /* ends a child that hangs */
    the_parents(parent);
    if (number % 10 == 0) its_own(parent);
    /* Either order of frees, and none. */
    if (number % 3 == 1) {
        dl_lock_free(parent->lock);
        dl_client_close(parent->client);
        dl_cancel_free(parent->cancel);
    } else if (number % 3 == 2) {
        dl_client_close(parent->client);
        dl_lock_free(parent->lock);
    }
    if (number % 2) exit(0); /* with what atexit has to do */
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const unsigned forks = (unsigned)atoi(argv[2]);
    struct parent parent = {argv[1], open_client(argv[1]), NULL, dl_cancel_new()};
    dl_error *error = NULL;
    pthread_t threads[THREADS];
    parent.lock = acquire(parent.client, new_key("fork"), 0, 60000);
    const uint64_t token = dl_lock_token(parent.lock);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, busy, parent.client) == 0);

    for (unsigned number = 0; number < forks; number++) {
        int status = 0;
        const pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) child(&parent, number);
        CHECK(waitpid(pid, &status, 0) == pid);
        if (status != 0) fail_at(__FILE__, __LINE__, "child %u ended with wait status %#x", number, status);
        CHECK(dl_lock_state(parent.lock) == DL_STATUS_OK);
        if (number % 10 == 0) EXPECT(DL_STATUS_OK, dl_renew(parent.lock, 0, &error));
    }

    stop = 1;
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    /* Nor has any child taken it from the parent at the server, or fired its token. */
    dl_lock *lock = NULL;
    dl_acquire_options options = DL_ACQUIRE_OPTIONS_INIT;
    options.cancel = parent.cancel;
    EXPECT(DL_STATUS_NOT_ACQUIRED, dl_acquire(parent.client, dl_lock_key(parent.lock), &options, &lock, &error));
    EXPECT(DL_STATUS_OK, dl_renew(parent.lock, 0, &error));
    CHECK(dl_lock_token(parent.lock) == token);
    EXPECT(DL_STATUS_OK, dl_release(parent.lock, &error));
    dl_lock_free(parent.lock);
    dl_client_close(parent.client);
    dl_cancel_free(parent.cancel);
    return 0;
}
