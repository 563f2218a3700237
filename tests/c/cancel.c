/*
 * A cancel token ends the calls that carry it, at once, and leaves nothing
 * held: fired before or during a call, for one call or for many.
 */

#include <pthread.h>

#include "support.h"

enum { CALLS = 4 };

struct call {
    dl_client *client;
    const char *key;
    dl_cancel *cancel;
    uint64_t wait_ms;
    dl_status status;
    uint64_t ended_ms;
    pthread_t thread;
};

static void *make_call(void *argument) {
    struct call *call = argument;
    dl_acquire_options options = DL_ACQUIRE_OPTIONS_INIT;
    dl_lock *lock = JUNK(dl_lock);
    dl_error *error = JUNK(dl_error);
    options.wait_ms = call->wait_ms;
    options.ttl_ms = 60000;
    options.cancel = call->cancel;
    call->status = dl_acquire(call->client, call->key, &options, &lock, &error);
    call->ended_ms = now_ms();
    CHECK(lock == NULL);
    CHECK((error == NULL) == (call->status > 0));
    dl_error_free(error);
    return NULL;
}

static void begin_call(struct call *call) {
    CHECK(pthread_create(&call->thread, NULL, make_call, call) == 0);
}

static void fired_before(dl_client *client) {
    dl_cancel *cancel = dl_cancel_new();
    CHECK(cancel != NULL);
    dl_cancel_fire(cancel);
    dl_cancel_fire(cancel);
    /* It stays fired, whether the lock is free or not. */
    const char *key = new_key("before");
    const uint64_t waits[] = {0, 10000, DL_WAIT_FOREVER};
    for (int i = 0; i < 3; i++) {
        struct call call = {client, key, cancel, waits[i], 0, 0, 0};
        const uint64_t begin = now_ms();
        make_call(&call);
        CHECK(call.status == DL_STATUS_CANCELLED);
        CHECK(now_ms() - begin < slack_ms());
    }
    dl_cancel_free(cancel);
    dl_lock *lock = acquire(client, key, 0, 60000); /* nothing was left held */
    dl_release(lock, NULL);
    dl_lock_free(lock);
}

static void fired_during(dl_client *client, dl_client *other) {
    const char *key = new_key("during");
    dl_lock *holder = acquire(other, key, 0, 60000);
    dl_cancel *cancel = dl_cancel_new();
    struct call calls[CALLS];
    for (int i = 0; i < CALLS; i++) {
        calls[i] = (struct call){client, key, cancel, i % 2 ? DL_WAIT_FOREVER : 60000, 0, 0, 0};
        begin_call(&calls[i]);
    }
    sleep_ms(300);
    const uint64_t fired_ms = now_ms();
    dl_cancel_fire(cancel);
    for (int i = 0; i < CALLS; i++) {
        CHECK(pthread_join(calls[i].thread, NULL) == 0);
        CHECK(calls[i].status == DL_STATUS_CANCELLED);
        CHECK(calls[i].ended_ms - fired_ms < slack_ms());
    }
    dl_cancel_free(cancel);

    /* None of them is granted the lock any more. */
    dl_release(holder, NULL);
    dl_lock_free(holder);
    dl_lock *lock = acquire(client, key, 0, 60000);
    dl_release(lock, NULL);
    dl_lock_free(lock);
}

static void freed_during(dl_client *client, dl_client *other) {
    const char *key = new_key("token-freed");
    dl_lock *holder = acquire(other, key, 0, 60000);
    struct call call = {client, key, dl_cancel_new(), 600, 0, 0, 0};
    const uint64_t begin = now_ms();
    begin_call(&call);
    sleep_ms(300);
    dl_cancel_free(call.cancel);
    CHECK(pthread_join(call.thread, NULL) == 0);
    CHECK(call.status == DL_STATUS_TIMED_OUT);
    CHECK(call.ended_ms - begin >= 599);
    dl_release(holder, NULL);
    dl_lock_free(holder);
}

static void *fire(void *cancel) {
    dl_cancel_fire(cancel);
    return NULL;
}

/* At any moment of a call: it ends in a lock or in CANCELLED, never in both. */
static void fired_at_any_moment(dl_client *client) {
    const char *key = new_key("moment");
    for (unsigned round = 0; round < 100; round++) {
        dl_cancel *cancel = dl_cancel_new();
        dl_acquire_options options = DL_ACQUIRE_OPTIONS_INIT;
        dl_lock *lock = NULL;
        pthread_t thread;
        options.cancel = cancel;
        options.ttl_ms = 60000;
        options.wait_ms = 10000;
        CHECK(pthread_create(&thread, NULL, fire, cancel) == 0);
        for (volatile unsigned spin = 0; spin < round * 2000; spin++) {
        }
        const dl_status status = dl_acquire(client, key, &options, &lock, NULL);
        CHECK(status == DL_STATUS_OK || status == DL_STATUS_CANCELLED);
        CHECK((status == DL_STATUS_OK) == (lock != NULL));
        CHECK(pthread_join(thread, NULL) == 0);
        if (lock != NULL) CHECK(dl_release(lock, NULL) == DL_STATUS_OK);
        dl_lock_free(lock);
        dl_cancel_free(cancel);
    }
    dl_lock *lock = acquire(client, key, 5000, 60000);
    dl_release(lock, NULL);
    dl_lock_free(lock);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    dl_client *client = open_client(argv[1]), *other = open_client(argv[1]);
    fired_before(client);
    fired_during(client, other);
    freed_during(client, other);
    fired_at_any_moment(client);
    dl_client_close(client);
    dl_client_close(other);
    return 0;
}
