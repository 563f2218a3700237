/*
 * Acquires that take no thread: begun, their events taken one by one, by a
 * descriptor and by waiting; cancelled, closed, and freed untaken.
 */

#include <poll.h>
#include <pthread.h>

#include "support.h"

static const char *url;

static int is_readable(dl_client *client, int timeout_ms) {
    struct pollfd ready = {dl_client_event_fd(client), POLLIN, 0};
    CHECK(ready.fd >= 0);
    return poll(&ready, 1, timeout_ms) == 1;
}

static void begin(dl_client *client, const char *key, uint64_t wait_ms, dl_cancel *cancel, uint64_t tag) {
    dl_error *error = JUNK(dl_error);
    dl_acquire_options options = DL_ACQUIRE_OPTIONS_INIT;
    options.wait_ms = wait_ms;
    options.ttl_ms = 20000;
    options.cancel = cancel;
    EXPECT(DL_STATUS_OK, dl_acquire_async(client, key, &options, tag, &error));
}

/* The next event, of this tag and type. */
static dl_event next(dl_client *client, uint64_t tag, int32_t type) {
    dl_event event = DL_EVENT_INIT;
    event.lock = JUNK(dl_lock);
    event.error = JUNK(dl_error);
    CHECK(dl_client_next_event(client, 10000 + slack_ms(), &event) == DL_STATUS_OK);
    CHECK(event.size == sizeof event && event.tag == tag && event.type == type && event.cause == 0);
    CHECK((event.lock != NULL) == (type == DL_EVENT_ACQUIRED));
    CHECK((event.error != NULL) == (event.status < 0));
    return event;
}

static void none(dl_client *client) {
    dl_event event = DL_EVENT_INIT;
    event.tag = 7;
    CHECK(dl_client_next_event(client, 0, &event) == DL_STATUS_TIMED_OUT);
    CHECK(event.tag == 0 && event.lock == NULL && event.type == 0);
}

static void events(dl_client *client, dl_client *other) {
    const char *key = new_key("async");
    dl_error *error = NULL;
    none(client);
    CHECK(!is_readable(client, 0));
    begin(client, key, 0, NULL, 1);
    CHECK(is_readable(client, 10000));
    dl_event event = next(client, 1, DL_EVENT_ACQUIRED);
    CHECK(!is_readable(client, 0));
    CHECK(strcmp(dl_lock_key(event.lock), key) == 0 && dl_lock_state(event.lock) == DL_STATUS_OK);

    begin(other, key, 0, NULL, 2);
    CHECK(next(other, 2, DL_EVENT_FAILED).status == DL_STATUS_NOT_ACQUIRED);
    begin(other, key, 300, NULL, 3);
    CHECK(next(other, 3, DL_EVENT_FAILED).status == DL_STATUS_TIMED_OUT);

    dl_cancel *cancel = dl_cancel_new();
    begin(other, key, DL_WAIT_FOREVER, cancel, UINT64_MAX);
    none(other);
    dl_cancel_fire(cancel);
    CHECK(next(other, UINT64_MAX, DL_EVENT_FAILED).status == DL_STATUS_CANCELLED);
    dl_cancel_free(cancel);

    begin(other, key, DL_WAIT_FOREVER, NULL, 4);
    sleep_ms(200);
    EXPECT(DL_STATUS_OK, dl_release(event.lock, &error));
    dl_lock_free(event.lock);
    event = next(other, 4, DL_EVENT_ACQUIRED);
    EXPECT(DL_STATUS_OK, dl_release(event.lock, &error));
    dl_lock_free(event.lock);
    none(other);
}

static void arguments(dl_client *client) {
    dl_error *error = JUNK(dl_error);
    dl_event event = DL_EVENT_INIT;
    dl_stats stats = DL_STATS_INIT;
    dl_acquire_options options = DL_ACQUIRE_OPTIONS_INIT;
    EXPECT(DL_STATUS_INVALID_ARGUMENT, dl_acquire_async(NULL, "k", NULL, 0, &error));
    EXPECT(DL_STATUS_INVALID_ARGUMENT, dl_acquire_async(client, NULL, NULL, 0, &error));
    EXPECT(DL_STATUS_INVALID_ARGUMENT, dl_acquire_async(client, "", NULL, 0, &error));
    options.flags = 64;
    EXPECT(DL_STATUS_INVALID_ARGUMENT, dl_acquire_async(client, "k", &options, 0, &error));
    options.flags = 0;
    options.kind = DL_KIND_ROW;
    EXPECT(DL_STATUS_UNSUPPORTED, dl_acquire_async(client, "k", &options, 0, &error));
    CHECK(dl_client_next_event(NULL, 0, &event) == DL_STATUS_INVALID_ARGUMENT);
    CHECK(dl_client_next_event(client, 0, NULL) == DL_STATUS_INVALID_ARGUMENT);
    CHECK(dl_client_event_fd(NULL) == -1);
    CHECK(dl_client_stats(NULL, &stats) == DL_STATUS_INVALID_ARGUMENT);
    CHECK(dl_client_stats(client, NULL) == DL_STATUS_INVALID_ARGUMENT);
    for (size_t size = 0; size < sizeof event; size++) {
        event.size = size;
        CHECK(dl_client_next_event(client, 0, &event) == DL_STATUS_INVALID_ARGUMENT);
    }
    /* What an older program knows is written, and nothing behind it. */
    memset(&stats, 0x55, sizeof stats);
    stats.size = offsetof(dl_stats, waits);
    CHECK(dl_client_stats(client, &stats) == DL_STATUS_OK);
    CHECK(stats.grants != 0x5555555555555555u && stats.waits == 0x5555555555555555u);
    CHECK(stats.size == offsetof(dl_stats, waits));
    none(client); /* what was refused has no event */
}

static void counters(dl_client *client) {
    dl_stats before = DL_STATS_INIT, after = DL_STATS_INIT;
    dl_error *error = NULL;
    CHECK(dl_client_stats(client, &before) == DL_STATUS_OK);
    dl_lock *lock = acquire(client, new_key("counted"), 0, 20000);
    EXPECT(DL_STATUS_OK, dl_release(lock, &error));
    dl_lock_free(lock);
    CHECK(dl_client_stats(client, &after) == DL_STATUS_OK);
    CHECK(after.grants == before.grants + 1 && after.releases == before.releases + 1);
    CHECK(after.connections >= 1 && after.waiting == 0 && after.panics == 0);
}

/* One call, under way when the client is closed: it may not be begun after. */
static void *take_one(void *client) {
    dl_event event = DL_EVENT_INIT;
    const dl_status status = dl_client_next_event(client, DL_WAIT_FOREVER, &event);
    if (status == DL_STATUS_OK) {
        CHECK(event.status == DL_STATUS_CLOSED && event.error != NULL);
        dl_error_free(event.error);
    } else {
        CHECK(status == DL_STATUS_CLOSED);
    }
    return NULL;
}

/* With waiters, with a thread in next_event, and with events that nobody took. */
static void closing(dl_client *holder) {
    pthread_t thread;
    dl_error *error = NULL;
    const char *key = new_key("closing");
    dl_lock *held = acquire(holder, key, 0, 20000);
    dl_client *client = open_client(url);
    for (uint64_t tag = 0; tag < 50; tag++) begin(client, key, DL_WAIT_FOREVER, NULL, tag);
    CHECK(pthread_create(&thread, NULL, take_one, client) == 0);
    sleep_ms(100);
    dl_client_close(client);
    CHECK(pthread_join(thread, NULL) == 0);

    client = open_client(url);
    const char *untaken = new_key("untaken");
    begin(client, untaken, 0, NULL, 1);
    CHECK(is_readable(client, 10000));
    dl_client_close(client);
    dl_lock *lock = acquire(holder, untaken, 10000, 20000);
    EXPECT(DL_STATUS_OK, dl_release(lock, &error));
    EXPECT(DL_STATUS_OK, dl_release(held, &error));
    dl_lock_free(lock);
    dl_lock_free(held);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    url = argv[1];
    dl_client *client = open_client(url), *other = open_client(url);
    events(client, other);
    arguments(client);
    counters(client);
    closing(client);
    dl_client_close(other);
    dl_client_close(client);
    return 0;
}
