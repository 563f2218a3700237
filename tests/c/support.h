/*
 * What the C tests share. Each is a program of its own, named after what it
 * tests; most take the URL of a server. Exit status: 0 passed, 1 failed, with
 * the line told on standard error.
 *
 * DLEASE_SLOW is set where a program runs under valgrind: time-outs that only
 * tell a hang from a delay are then longer.
 */

#ifndef SUPPORT_H
#define SUPPORT_H

#include <dlease.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) fail_at(__FILE__, __LINE__, "this is not so: " #condition); \
    } while (0)

/* The call's status is `wanted`, and the error, of which the call was given the
 * address, is there exactly for failures. Frees it. */
#define EXPECT(wanted, call) expect_at(__FILE__, __LINE__, #call, (wanted), (call), &error)

/* For an output: the library has to overwrite it, also on failure. */
#define JUNK(type) ((type *)(uintptr_t)0xdead)

static inline void fail_at(const char *file, int line, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    _exit(1);
}

static inline void expect_at(const char *file, int line, const char *call, dl_status wanted, dl_status got,
                             dl_error **error) {
    if (*error == JUNK(dl_error)) fail_at(file, line, "%s did not set the error", call);
    if (got != wanted) {
        fail_at(file, line, "%s gives %s (%s) and not %s", call, dl_status_name(got),
                dl_error_message(*error), dl_status_name(wanted));
    }
    if ((got < 0) != (*error != NULL)) fail_at(file, line, "%s: an error object for outcomes below 0 alone", call);
    if (*error != NULL) {
        if (dl_error_status(*error) != got) fail_at(file, line, "%s: the error has another status", call);
        if (*dl_error_message(*error) == '\0') fail_at(file, line, "%s: no message", call);
    }
    dl_error_free(*error);
    *error = NULL;
}

static inline uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static inline void sleep_ms(unsigned ms) {
    struct timespec left = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0) {
    }
}

/* How much later than promised something may come on a busy machine. */
static inline uint64_t slack_ms(void) { return getenv("DLEASE_SLOW") ? 5000 : 500; }

/* A key that no other test uses; valid until eight more were made. */
static inline const char *new_key(const char *name) {
    static char keys[8][64];
    static unsigned count;
    char *key = keys[count++ % 8];
    snprintf(key, sizeof keys[0], "c-%s-%ld-%u", name, (long)getpid(), count);
    return key;
}

static inline dl_client *open_client(const char *url) {
    dl_client *client = NULL;
    dl_error *error = NULL;
    EXPECT(DL_STATUS_OK, dl_client_open(url, NULL, &client, &error));
    CHECK(client != NULL);
    return client;
}

/* Acquires within wait_ms, or fails the test. A lease of a given length is not renewed. */
static inline dl_lock *acquire(dl_client *client, const char *key, uint64_t wait_ms, uint64_t ttl_ms) {
    dl_acquire_options options = DL_ACQUIRE_OPTIONS_INIT;
    dl_lock *lock = NULL;
    dl_error *error = NULL;
    options.wait_ms = wait_ms;
    options.ttl_ms = ttl_ms;
    if (ttl_ms != 0) options.flags = DL_ACQUIRE_MANUAL_RENEW;
    EXPECT(DL_STATUS_OK, dl_acquire(client, key, &options, &lock, &error));
    CHECK(lock != NULL);
    CHECK(dl_lock_token(lock) != 0);
    return lock;
}

#endif
