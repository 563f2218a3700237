/*
 * A server that dies under a host with the default SIGPIPE costs it errors and
 * not its life, and the client works again when the server is back.
 *
 *   sigpipe URL
 *
 * Ten threads each renew a lock of theirs. Says `ready` when all have begun,
 * `failed` when each has had an error (the server is to be killed in between),
 * and then waits for a line on standard input (the server is to be back).
 */

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "support.h"

enum { THREADS = 10 };

static pthread_barrier_t all_have_begun;

/* Renews until that fails; then goes on calling, on broken connections. */
static void *renew(void *client) {
    char key[64];
    static atomic_uint number;
    snprintf(key, sizeof key, "c-sigpipe-%ld-%u", (long)getpid(), atomic_fetch_add(&number, 1));
    dl_lock *lock = acquire(client, key, 10000, 5000);
    dl_status status;
    pthread_barrier_wait(&all_have_begun);
    do {
        status = dl_renew(lock, 0, NULL);
    } while (status == DL_STATUS_OK);
    CHECK(status == DL_STATUS_UNAVAILABLE || status == DL_STATUS_NOT_HELD);
    for (int times = 0; times < 3; times++) {
        status = dl_release(lock, NULL);
        CHECK(status == DL_STATUS_UNAVAILABLE || status == DL_STATUS_NOT_HELD);
    }
    dl_lock_free(lock);
    return NULL;
}

int main(int argc, char **argv) {
    char line[16];
    pthread_t threads[THREADS];
    if (argc != 2) return 2;
    signal(SIGPIPE, SIG_DFL);
    dl_client *client = NULL;
    dl_client_options options = DL_CLIENT_OPTIONS_INIT;
    dl_error *error = NULL;
    options.max_connections = THREADS;
    options.io_timeout_ms = 1000;
    EXPECT(DL_STATUS_OK, dl_client_open(argv[1], &options, &client, &error));

    CHECK(pthread_barrier_init(&all_have_begun, NULL, THREADS + 1) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, renew, client) == 0);
    pthread_barrier_wait(&all_have_begun);
    puts("ready");
    fflush(stdout);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    puts("failed");
    fflush(stdout);

    CHECK(fgets(line, sizeof line, stdin) != NULL);
    dl_lock *lock = acquire(client, new_key("sigpipe"), 10000, 20000);
    EXPECT(DL_STATUS_OK, dl_release(lock, &error));
    dl_lock_free(lock);
    dl_client_close(client);
    return 0;
}
