/*
 * A process that holds locks and has not closed its client ends within 2 s and
 * with its own exit status, however it ends and whatever the server does.
 *
 *   exits URL return|exit|thread|unload|close|atexit
 *
 * Takes 50 locks, says `ready`, waits for a line on standard input (the server
 * may be stopped meanwhile), and ends: by return from main, by exit(), by
 * exit() in a thread, after dlclose(), after dl_client_close(), or with that in
 * an atexit hook. Exit status 7 if all is well.
 */

#include "loaded.h"

#include <pthread.h>

enum { LOCKS = 50, WELL = 7 };

static dl_client *client;

static void close_client(void) {
    FUNCTION(dl_client_close);
    dl_client_close_(client);
}

static void *call_exit(void *argument) {
    (void)argument;
    exit(WELL);
}

int main(int argc, char **argv) {
    char line[16];
    if (argc != 3) return 2;
    const char *how = argv[2];
    load_library();
    FUNCTION(dl_client_open);
    FUNCTION(dl_acquire);
    CHECK(dl_client_open_(argv[1], NULL, &client, NULL) == DL_STATUS_OK);
    for (int i = 0; i < LOCKS; i++) {
        dl_lock *lock = NULL;
        CHECK(dl_acquire_(client, new_key("exits"), NULL, &lock, NULL) == DL_STATUS_OK);
    }
    puts("ready");
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin) != NULL);

    if (strcmp(how, "exit") == 0) exit(WELL);
    if (strcmp(how, "thread") == 0) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, call_exit, NULL) == 0);
        pthread_join(thread, NULL);
    }
    if (strcmp(how, "unload") == 0) {
        CHECK(dlclose(library) == 0);
        sleep_ms(500); /* for threads that would run where no code is any more */
    }
    if (strcmp(how, "close") == 0) close_client();
    if (strcmp(how, "atexit") == 0) CHECK(atexit(close_client) == 0);
    return WELL;
}
