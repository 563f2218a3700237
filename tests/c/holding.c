/*
 * While a lock is held: renewal by the library, waiting for the loss, events of
 * it, the guard's text, peek and force.
 */

#include <pthread.h>

#include "support.h"

static dl_lock *take(dl_client *client, const char *key, uint64_t ttl_ms, uint32_t flags) {
    dl_lock *lock = NULL;
    dl_error *error = NULL;
    dl_acquire_options options = DL_ACQUIRE_OPTIONS_INIT;
    options.wait_ms = 10000;
    options.ttl_ms = ttl_ms;
    options.flags = flags;
    EXPECT(DL_STATUS_OK, dl_acquire(client, key, &options, &lock, &error));
    return lock;
}

static void renewed(dl_client *client, dl_client *other) {
    const char *key = new_key("renewed");
    dl_error *error = NULL;
    dl_lock *lock = take(client, key, 1500, 0);
    dl_lock *none = NULL;
    sleep_ms(4000);
    CHECK(dl_lock_state(lock) == DL_STATUS_OK);
    CHECK(dl_acquire(other, key, NULL, &none, &error) == DL_STATUS_NOT_ACQUIRED);
    EXPECT(DL_STATUS_OK, dl_release(lock, &error));
    CHECK(dl_lock_wait_lost(lock, 0) == DL_STATUS_NOT_HELD);
    dl_lock_free(lock);
}

static void lost(dl_client *client) {
    dl_lock *lock = take(client, new_key("lost"), 1500, DL_ACQUIRE_MANUAL_RENEW);
    CHECK(dl_lock_wait_lost(lock, 0) == DL_STATUS_TIMED_OUT);
    CHECK(dl_lock_wait_lost(lock, 50) == DL_STATUS_TIMED_OUT);
    CHECK(dl_lock_lost_cause(lock) == DL_LOST_NOT);
    CHECK(dl_lock_wait_lost(lock, DL_WAIT_FOREVER) == DL_STATUS_OK);
    CHECK(dl_lock_lost_cause(lock) == DL_LOST_EXPIRED);
    CHECK(dl_lock_state(lock) == DL_STATUS_NOT_HELD);
    dl_error *error = NULL;
    CHECK(dl_release(lock, &error) == DL_STATUS_NOT_HELD && error == NULL);
    dl_lock_free(lock);
    CHECK(dl_lock_wait_lost(NULL, 10) == DL_STATUS_NOT_HELD);
}

static void *wait_for_it(void *lock) {
    return (void *)(intptr_t)dl_lock_wait_lost(lock, DL_WAIT_FOREVER);
}

static void released_meanwhile(dl_client *client) {
    dl_lock *lock = take(client, new_key("meanwhile"), 0, 0);
    dl_error *error = NULL;
    pthread_t thread;
    void *status = NULL;
    CHECK(pthread_create(&thread, NULL, wait_for_it, lock) == 0);
    sleep_ms(100);
    EXPECT(DL_STATUS_OK, dl_release(lock, &error));
    CHECK(pthread_join(thread, &status) == 0);
    CHECK((intptr_t)status == DL_STATUS_NOT_HELD);
    dl_lock_free(lock);
}

static dl_event next(dl_client *client, uint64_t tag, int32_t type) {
    dl_event event = DL_EVENT_INIT;
    CHECK(dl_client_next_event(client, 10000 + slack_ms(), &event) == DL_STATUS_OK);
    CHECK(event.tag == tag && event.type == type);
    return event;
}

static void events(dl_client *client) {
    dl_error *error = NULL;
    dl_acquire_options options = DL_ACQUIRE_OPTIONS_INIT;
    options.ttl_ms = 1500;
    options.flags = DL_ACQUIRE_MANUAL_RENEW;
    EXPECT(DL_STATUS_OK, dl_acquire_async(client, new_key("event"), &options, 7, &error));
    dl_lock *lock = next(client, 7, DL_EVENT_ACQUIRED).lock;
    dl_event event = next(client, 7, DL_EVENT_LOST);
    CHECK(event.lock == lock && event.error == NULL);
    CHECK(event.status == DL_STATUS_NOT_HELD && event.cause == DL_LOST_EXPIRED);
    dl_lock_free(lock);

    /* None once it is freed, also where the loss was an event already. */
    EXPECT(DL_STATUS_OK, dl_acquire_async(client, new_key("freed"), &options, 8, &error));
    lock = next(client, 8, DL_EVENT_ACQUIRED).lock;
    CHECK(dl_lock_wait_lost(lock, DL_WAIT_FOREVER) == DL_STATUS_OK);
    sleep_ms(200);
    dl_lock_free(lock);
    CHECK(dl_client_next_event(client, 0, &event) == DL_STATUS_TIMED_OUT);

    /* Nor once it is released. */
    EXPECT(DL_STATUS_OK, dl_acquire_async(client, new_key("released"), &options, 9, &error));
    lock = next(client, 9, DL_EVENT_ACQUIRED).lock;
    EXPECT(DL_STATUS_OK, dl_release(lock, &error));
    CHECK(dl_client_next_event(client, 2000, &event) == DL_STATUS_TIMED_OUT);
    dl_lock_free(lock);
}

static void guard(dl_client *client) {
    dl_lock *lock = take(client, new_key("guard"), 0, 0);
    dl_error *error = NULL;
    size_t length = 1;
    CHECK(dl_lock_guard_sql(lock, NULL, 0, &length, NULL) == DL_STATUS_INVALID_ARGUMENT);
    CHECK(length > 50);
    char text[2048], token[32];
    size_t again = 0;
    memset(text, 'x', sizeof text);
    CHECK(dl_lock_guard_sql(lock, text, length, &again, &error) == DL_STATUS_INVALID_ARGUMENT);
    CHECK(again == length && text[0] == 'x' && error != NULL);
    dl_error_free(error);
    EXPECT(DL_STATUS_OK, dl_lock_guard_sql(lock, text, length + 1, &again, &error));
    CHECK(again == length && strlen(text) == length && text[length + 1] == 'x');
    snprintf(token, sizeof token, "%llu", (unsigned long long)dl_lock_token(lock));
    CHECK(strstr(text, token) != NULL && strstr(text, "LOCK IN SHARE MODE") != NULL);
    EXPECT(DL_STATUS_OK, dl_release(lock, &error));
    CHECK(dl_lock_guard_sql(lock, text, sizeof text, &again, &error) == DL_STATUS_NOT_HELD);
    CHECK(again == 0 && error == NULL);
    dl_lock_free(lock);
}

static void operate(dl_client *client, dl_client *other) {
    const char *key = new_key("operate");
    dl_error *error = NULL;
    dl_holder holder = DL_HOLDER_INIT;
    holder.token = 7;
    CHECK(dl_peek(other, key, DL_KIND_LEASE, &holder, &error) == DL_STATUS_NOT_HELD);
    CHECK(holder.token == 0 && holder.size == sizeof holder);
    CHECK(dl_force_release(other, key, DL_KIND_LEASE, &error) == DL_STATUS_NOT_HELD);
    dl_lock *lock = take(client, key, 3000, 0);
    EXPECT(DL_STATUS_OK, dl_peek(other, key, DL_KIND_LEASE, &holder, &error));
    CHECK(holder.token == dl_lock_token(lock) && holder.pid == (uint32_t)getpid());
    CHECK(holder.ttl_ms == 3000 && holder.remaining_ms <= 3000 && holder.holds == 1);
    CHECK(holder.owner[0] == '\0' && holder.host[0] != '\0');
    EXPECT(DL_STATUS_OK, dl_force_release(other, key, DL_KIND_LEASE, &error));
    CHECK(dl_lock_wait_lost(lock, 10000) == DL_STATUS_OK);
    CHECK(dl_lock_lost_cause(lock) == DL_LOST_FORCED);
    dl_lock_free(lock);
    CHECK(dl_peek(other, key, DL_KIND_NAMED, &holder, &error) == DL_STATUS_UNSUPPORTED);
    dl_error_free(error);
    CHECK(dl_peek(other, key, 9, &holder, NULL) == DL_STATUS_INVALID_ARGUMENT);
    CHECK(dl_peek(other, key, 0, NULL, NULL) == DL_STATUS_INVALID_ARGUMENT);
    CHECK(dl_peek(NULL, key, 0, &holder, NULL) == DL_STATUS_INVALID_ARGUMENT);
    CHECK(dl_force_release(other, "", 0, NULL) == DL_STATUS_INVALID_ARGUMENT);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    dl_client *client = open_client(argv[1]), *other = open_client(argv[1]);
    renewed(client, other);
    lost(client);
    released_meanwhile(client);
    events(client);
    guard(client);
    operate(client, other);
    dl_client_close(other);
    dl_client_close(client);
    return 0;
}
