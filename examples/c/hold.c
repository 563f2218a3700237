/*
 * Holds a lock for a while.
 *
 *   hold URL KEY SECONDS [TTL_MS]
 *
 * Makes one try, prints `token=N remaining_ms=N`, and releases after SECONDS,
 * which may be a fraction. Exit status: 0 held to the end, 1 not acquired or
 * lost, 2 usage or error.
 */

#define _POSIX_C_SOURCE 200809L

#include <dlease.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Tells what went wrong, frees the error, and gives the exit status. */
static int failed(dl_status status, dl_error *error) {
    fprintf(stderr, "hold: %s\n", error ? dl_error_message(error) : dl_status_name(status));
    dl_error_free(error);
    return status > 0 ? 1 : 2;
}

static void sleep_for(double seconds) {
    struct timespec left;
    left.tv_sec = (time_t)seconds;
    left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

static int hold(dl_client *client, const char *key, double seconds, uint64_t ttl_ms) {
    dl_lock *lock = NULL;
    dl_error *error = NULL;
    dl_acquire_options options = DL_ACQUIRE_OPTIONS_INIT; /* a wait of 0: one try */
    options.ttl_ms = ttl_ms;
    if (ttl_ms != 0) options.flags = DL_ACQUIRE_MANUAL_RENEW; /* it is to end */
    dl_status status = dl_acquire(client, key, &options, &lock, &error);
    if (status != DL_STATUS_OK) return failed(status, error);

    printf("token=%" PRIu64 " remaining_ms=%" PRIu64 "\n", dl_lock_token(lock), dl_lock_remaining_ms(lock));
    fflush(stdout);
    sleep_for(seconds);

    status = dl_release(lock, &error);
    dl_lock_free(lock);
    return status == DL_STATUS_OK ? 0 : failed(status, error);
}

int main(int argc, char **argv) {
    char *end_of_seconds = "", *end_of_ttl = "";
    double seconds = argc > 3 ? strtod(argv[3], &end_of_seconds) : -1;
    unsigned long long ttl_ms = argc > 4 ? strtoull(argv[4], &end_of_ttl, 10) : 0;
    int ttl_is_bad = argc > 4 && (ttl_ms == 0 || *end_of_ttl != '\0' || strchr(argv[4], '-') != NULL);
    if (argc < 4 || argc > 5 || *end_of_seconds != '\0' || !isfinite(seconds) || seconds < 0 || ttl_is_bad) {
        fprintf(stderr, "usage: hold URL KEY SECONDS [TTL_MS]\n");
        return 2;
    }
    dl_client *client = NULL;
    dl_error *error = NULL;
    dl_status status = dl_client_open(argv[1], NULL, &client, &error);
    if (status != DL_STATUS_OK) return failed(status, error);
    int result = hold(client, argv[2], seconds, ttl_ms);
    dl_client_close(client);
    return result;
}
