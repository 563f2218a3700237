/*
 * Every argument outside of what a call takes is INVALID_ARGUMENT, and nothing
 * worse: NULL for each pointer, every length, every option, every duration.
 */

#include "support.h"

static const uint64_t days_366 = UINT64_C(366) * 24 * 60 * 60 * 1000;

/* `length` times `byte`; valid until eight more were made. */
static const char *text(size_t length, char byte) {
    static char texts[8][512];
    static unsigned count;
    char *made = texts[count++ % 8];
    memset(made, byte, length);
    made[length] = '\0';
    return made;
}

/* ---- NULL in each place ---- */

static void null_for_open(const char *url) {
    dl_client *client = JUNK(dl_client);
    dl_error *error = JUNK(dl_error);
    EXPECT(DL_STATUS_INVALID_ARGUMENT, dl_client_open(NULL, NULL, &client, &error));
    CHECK(client == NULL);
    error = JUNK(dl_error);
    EXPECT(DL_STATUS_INVALID_ARGUMENT, dl_client_open(url, NULL, NULL, &error));
    CHECK(dl_client_open(NULL, NULL, NULL, NULL) == DL_STATUS_INVALID_ARGUMENT);
    CHECK(dl_client_open(url, NULL, &client, NULL) == DL_STATUS_OK);
    dl_client_close(client);
    dl_client_close(NULL);
}

static void null_for_calls(dl_client *client) {
    dl_lock *lock = JUNK(dl_lock);
    dl_error *error = JUNK(dl_error);
    EXPECT(DL_STATUS_INVALID_ARGUMENT, dl_client_ping(NULL, 1000, &error));
    CHECK(dl_client_ping(NULL, 1000, NULL) == DL_STATUS_INVALID_ARGUMENT);
    error = JUNK(dl_error);
    EXPECT(DL_STATUS_INVALID_ARGUMENT, dl_acquire(NULL, "k", NULL, &lock, &error));
    CHECK(lock == NULL);
    lock = JUNK(dl_lock);
    EXPECT(DL_STATUS_INVALID_ARGUMENT, dl_acquire(client, NULL, NULL, &lock, &error));
    CHECK(lock == NULL);
    EXPECT(DL_STATUS_INVALID_ARGUMENT, dl_acquire(client, "k", NULL, NULL, &error));
    CHECK(dl_acquire(NULL, NULL, NULL, NULL, NULL) == DL_STATUS_INVALID_ARGUMENT);
    error = JUNK(dl_error);
    EXPECT(DL_STATUS_INVALID_ARGUMENT, dl_renew(NULL, 0, &error));
    CHECK(dl_renew(NULL, 0, NULL) == DL_STATUS_INVALID_ARGUMENT);
    error = JUNK(dl_error);
    EXPECT(DL_STATUS_INVALID_ARGUMENT, dl_release(NULL, &error));
    CHECK(dl_release(NULL, NULL) == DL_STATUS_INVALID_ARGUMENT);

    /* No error is asked for, and no options are given. */
    CHECK(dl_acquire(client, new_key("null"), NULL, &lock, NULL) == DL_STATUS_OK);
    CHECK(dl_renew(lock, 0, NULL) == DL_STATUS_OK);
    CHECK(dl_release(lock, NULL) == DL_STATUS_OK);
    dl_lock_free(lock);
}

static void null_for_readers(void) {
    CHECK(dl_lock_token(NULL) == 0);
    CHECK(strcmp(dl_lock_key(NULL), "") == 0);
    CHECK(dl_lock_remaining_ms(NULL) == 0);
    CHECK(dl_lock_state(NULL) == DL_STATUS_NOT_HELD);
    CHECK(dl_lock_lost_cause(NULL) == DL_LOST_NOT);
    CHECK(dl_error_status(NULL) == DL_STATUS_INVALID_ARGUMENT);
    CHECK(strcmp(dl_error_message(NULL), "") == 0);
    CHECK(dl_error_server_errno(NULL) == 0);
    CHECK(strcmp(dl_error_sqlstate(NULL), "") == 0);
    CHECK(dl_error_is_retriable(NULL) == 0);
    dl_lock_free(NULL);
    dl_error_free(NULL);
    dl_cancel_fire(NULL);
    dl_cancel_free(NULL);
}

/* ---- the client's options ---- */

static void opens(int line, const char *url, const dl_client_options *options, dl_status wanted) {
    dl_client *client = JUNK(dl_client);
    dl_error *error = JUNK(dl_error);
    expect_at(__FILE__, line, "dl_client_open", wanted, dl_client_open(url, options, &client, &error), &error);
    if ((wanted == DL_STATUS_OK) != (client != NULL)) fail_at(__FILE__, line, "a client on success alone");
    dl_client_close(client);
}

#define OPENS(field, value, wanted) \
    do { \
        dl_client_options options = DL_CLIENT_OPTIONS_INIT; \
        options.field = (value); \
        opens(__LINE__, url, &options, (wanted)); \
    } while (0)

enum { OK = DL_STATUS_OK, INVALID = DL_STATUS_INVALID_ARGUMENT };

static void client_options(const char *url) {
    OPENS(application, "", OK);
    OPENS(application, text(64, 'a'), OK);
    OPENS(application, text(65, 'a'), INVALID);
    OPENS(application, text(300, 'a'), INVALID);
    OPENS(name_space, "", OK);
    OPENS(name_space, text(64, '\xff'), OK);
    OPENS(name_space, text(65, 'n'), INVALID);
    OPENS(table_prefix, text(50, 'p'), OK);
    OPENS(table_prefix, text(51, 'p'), INVALID);
    OPENS(table_prefix, "\xff", INVALID);
    OPENS(default_ttl_ms, 1, INVALID);
    OPENS(default_ttl_ms, 9, INVALID);
    OPENS(default_ttl_ms, 10, OK);
    OPENS(default_ttl_ms, days_366, OK);
    OPENS(default_ttl_ms, days_366 + 1, INVALID);
    OPENS(default_ttl_ms, UINT64_C(1) << 63, INVALID);
    OPENS(default_ttl_ms, UINT64_MAX, INVALID);
    OPENS(connect_timeout_ms, 1, OK);
    OPENS(connect_timeout_ms, UINT64_MAX, INVALID);
    OPENS(io_timeout_ms, 1, OK);
    OPENS(io_timeout_ms, UINT64_MAX, INVALID);
    OPENS(max_connections, 1, OK);
    OPENS(max_connections, 10000, OK);
    OPENS(max_connections, 10001, INVALID);
    OPENS(max_connections, UINT32_MAX, INVALID);
    OPENS(max_waiting_connections, 10000, OK);
    OPENS(max_waiting_connections, 10001, INVALID);
    OPENS(fairness_ms, UINT32_MAX, OK);
    OPENS(create_schema, 1, OK);
    OPENS(create_schema, 2, OK);
    OPENS(create_schema, 3, INVALID);
    OPENS(create_schema, -1, INVALID);
    OPENS(size, 0, INVALID);
    OPENS(size, 1, INVALID);
    OPENS(size, sizeof(size_t) + 4, INVALID);
    OPENS(size, sizeof(dl_client_options) - 1, INVALID);
    OPENS(size, SIZE_MAX, INVALID);
}

/* A program that was built with a later header: what it leaves at zero is not
 * asked for, and anything else cannot be done here. */
static void later_options(const char *url, dl_client *client) {
    struct {
        dl_client_options known;
        char tail[64];
    } later = {DL_CLIENT_OPTIONS_INIT, {0}};
    later.known.size = sizeof later;
    opens(__LINE__, url, &later.known, OK);
    for (size_t i = 0; i < sizeof later.tail; i += 21) {
        memset(later.tail, 0, sizeof later.tail);
        later.tail[i] = 1;
        opens(__LINE__, url, &later.known, INVALID);
    }

    struct {
        dl_acquire_options known;
        char tail[64];
    } acquire_later = {DL_ACQUIRE_OPTIONS_INIT, {0}};
    dl_lock *lock = NULL;
    dl_error *error = NULL;
    const char *key = new_key("later");
    acquire_later.known.size = sizeof acquire_later;
    EXPECT(OK, dl_acquire(client, key, &acquire_later.known, &lock, &error));
    EXPECT(OK, dl_release(lock, &error));
    dl_lock_free(lock);
    for (size_t i = 0; i < sizeof acquire_later.tail; i += 21) {
        memset(acquire_later.tail, 0, sizeof acquire_later.tail);
        acquire_later.tail[i] = 1;
        EXPECT(INVALID, dl_acquire(client, key, &acquire_later.known, &lock, &error));
        CHECK(lock == NULL);
    }
}

/* ---- an acquire's arguments ---- */

static void acquires(int line, dl_client *client, const char *key, const dl_acquire_options *options,
                     dl_status wanted) {
    dl_lock *lock = JUNK(dl_lock);
    dl_error *error = JUNK(dl_error);
    expect_at(__FILE__, line, "dl_acquire", wanted, dl_acquire(client, key, options, &lock, &error), &error);
    if ((wanted == DL_STATUS_OK) != (lock != NULL)) fail_at(__FILE__, line, "a lock on success alone");
    if (lock == NULL) return;
    if (strcmp(dl_lock_key(lock), key) != 0) fail_at(__FILE__, line, "the key was changed");
    /* One of 10 ms may be over by now. */
    const dl_status released = dl_release(lock, NULL);
    if (released != DL_STATUS_OK && options->ttl_ms != 10) {
        fail_at(__FILE__, line, "dl_release gives %s", dl_status_name(released));
    }
    dl_lock_free(lock);
}

#define ACQUIRES(field, value, wanted) \
    do { \
        dl_acquire_options options = DL_ACQUIRE_OPTIONS_INIT; \
        options.field = (value); \
        acquires(__LINE__, client, new_key("argument"), &options, (wanted)); \
    } while (0)

static void acquire_options(dl_client *client) {
    ACQUIRES(ttl_ms, 0, OK);
    ACQUIRES(ttl_ms, 1, INVALID);
    ACQUIRES(ttl_ms, 9, INVALID);
    ACQUIRES(ttl_ms, days_366, OK);
    ACQUIRES(ttl_ms, days_366 + 1, INVALID);
    ACQUIRES(ttl_ms, UINT64_C(1) << 63, INVALID);
    ACQUIRES(ttl_ms, UINT64_MAX, INVALID);
    ACQUIRES(wait_ms, 1000, OK);
    ACQUIRES(wait_ms, UINT64_C(1) << 63, OK);
    ACQUIRES(wait_ms, DL_WAIT_FOREVER - 1, OK);
    ACQUIRES(wait_ms, DL_WAIT_FOREVER, OK);
    ACQUIRES(max_hold_ms, UINT64_MAX, OK);
    ACQUIRES(owner, "", INVALID);
    ACQUIRES(owner, "o", OK);
    ACQUIRES(owner, text(255, '\xff'), OK);
    ACQUIRES(owner, text(256, 'o'), INVALID);
    ACQUIRES(note, "", OK);
    ACQUIRES(note, text(255, '\xff'), OK);
    ACQUIRES(note, text(256, 'n'), INVALID);
    ACQUIRES(kind, DL_KIND_ROW, DL_STATUS_UNSUPPORTED);
    ACQUIRES(kind, DL_KIND_NAMED, DL_STATUS_UNSUPPORTED);
    ACQUIRES(kind, 3, INVALID);
    ACQUIRES(kind, -1, INVALID);
    ACQUIRES(kind, INT32_MIN, INVALID);
    ACQUIRES(kind, INT32_MAX, INVALID);
    ACQUIRES(flags, DL_ACQUIRE_MANUAL_RENEW | DL_ACQUIRE_UNFAIR | DL_ACQUIRE_LAZY_RELEASE, OK);
    for (unsigned bit = 3; bit < 32; bit++) ACQUIRES(flags, UINT32_C(1) << bit, INVALID);
    ACQUIRES(size, 0, INVALID);
    ACQUIRES(size, 1, INVALID);
    ACQUIRES(size, sizeof(size_t) + 4, INVALID);
    ACQUIRES(size, sizeof(dl_acquire_options) - 1, INVALID);
    ACQUIRES(size, SIZE_MAX, INVALID);

    dl_acquire_options shortest = DL_ACQUIRE_OPTIONS_INIT;
    shortest.ttl_ms = 10;
    dl_lock *lock = NULL;
    dl_error *error = NULL;
    /* On a slow machine the lease may be over before its grant is known. */
    const dl_status status = dl_acquire(client, new_key("shortest"), &shortest, &lock, &error);
    CHECK(status == DL_STATUS_OK || status == DL_STATUS_UNAVAILABLE);
    dl_error_free(error);
    dl_lock_free(lock);
}

static void keys(dl_client *client) {
    const dl_acquire_options options = DL_ACQUIRE_OPTIONS_INIT;
    acquires(__LINE__, client, "", &options, INVALID);
    acquires(__LINE__, client, "k", &options, OK);
    acquires(__LINE__, client, text(255, 'k'), &options, OK);
    acquires(__LINE__, client, text(255, '\xff'), &options, OK);
    acquires(__LINE__, client, "'\"\\`%_;--\n\r\x1a\x01 \xc3(", &options, OK);
    acquires(__LINE__, client, text(256, 'k'), &options, INVALID);
    acquires(__LINE__, client, text(500, 'k'), &options, INVALID);
}

static void renewals(dl_client *client) {
    dl_lock *lock = acquire(client, new_key("renew"), 0, 20000);
    dl_error *error = NULL;
    const uint64_t invalid[] = {1, 9, days_366 + 1, UINT64_C(1) << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++) {
        error = JUNK(dl_error);
        EXPECT(INVALID, dl_renew(lock, invalid[i], &error));
        CHECK(dl_lock_state(lock) == DL_STATUS_OK);
    }
    EXPECT(OK, dl_renew(lock, 0, &error));
    EXPECT(OK, dl_renew(lock, days_366, &error));
    CHECK(dl_lock_remaining_ms(lock) > days_366 / 10 * 9);
    EXPECT(OK, dl_release(lock, &error));
    dl_lock_free(lock);
}

static void pings(dl_client *client) {
    dl_error *error = NULL;
    EXPECT(OK, dl_client_ping(client, 5000, &error));
    EXPECT(OK, dl_client_ping(client, UINT64_MAX, &error));
    const dl_status status = dl_client_ping(client, 0, NULL);
    CHECK(status == DL_STATUS_OK || status == DL_STATUS_UNAVAILABLE);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    dl_client *client = open_client(argv[1]);
    null_for_open(argv[1]);
    null_for_calls(client);
    null_for_readers();
    client_options(argv[1]);
    later_options(argv[1], client);
    acquire_options(client);
    keys(client);
    renewals(client);
    pings(client);
    dl_client_close(client);
    return 0;
}
