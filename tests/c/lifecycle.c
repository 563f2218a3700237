/*
 * A lock from its acquire to its end: what its readers say at each point, and
 * every order in which handles may be released, freed and closed.
 */

#include <pthread.h>

#include "support.h"

static const char *url;

static void held_and_released(dl_client *client, dl_client *other) {
    const char *key = new_key("held");
    dl_lock *refused = JUNK(dl_lock);
    dl_error *error = JUNK(dl_error);
    dl_lock *lock = acquire(client, key, 0, 20000);
    const uint64_t token = dl_lock_token(lock);
    CHECK(strcmp(dl_lock_key(lock), key) == 0 && dl_lock_key(lock) != key);
    CHECK(dl_lock_state(lock) == DL_STATUS_OK);
    CHECK(dl_lock_lost_cause(lock) == DL_LOST_NOT);
    CHECK(dl_lock_remaining_ms(lock) <= 20000 && dl_lock_remaining_ms(lock) > 10000);

    /* Nobody else has it, in this client or another. */
    EXPECT(DL_STATUS_NOT_ACQUIRED, dl_acquire(client, key, NULL, &refused, &error));
    CHECK(refused == NULL);
    EXPECT(DL_STATUS_NOT_ACQUIRED, dl_acquire(other, key, NULL, &refused, &error));
    dl_acquire_options options = DL_ACQUIRE_OPTIONS_INIT;
    options.wait_ms = 200;
    const uint64_t begin = now_ms();
    error = JUNK(dl_error);
    EXPECT(DL_STATUS_TIMED_OUT, dl_acquire(other, key, &options, &refused, &error));
    CHECK(now_ms() - begin >= 199 && now_ms() - begin < 200 + slack_ms());
    CHECK(refused == NULL);

    EXPECT(DL_STATUS_OK, dl_renew(lock, 40000, &error));
    CHECK(dl_lock_remaining_ms(lock) > 20000);
    CHECK(dl_lock_token(lock) == token);

    EXPECT(DL_STATUS_OK, dl_release(lock, &error));
    for (int times = 0; times < 3; times++) {
        EXPECT(DL_STATUS_NOT_HELD, dl_release(lock, &error));
        EXPECT(DL_STATUS_NOT_HELD, dl_renew(lock, 0, &error));
    }
    CHECK(dl_lock_state(lock) == DL_STATUS_NOT_HELD);
    CHECK(dl_lock_lost_cause(lock) == DL_LOST_NOT);
    CHECK(dl_lock_remaining_ms(lock) == 0);
    CHECK(dl_lock_token(lock) == token);
    CHECK(strcmp(dl_lock_key(lock), key) == 0);

    /* A release of the past touches nothing of the present. */
    dl_lock *next = acquire(other, key, 0, 20000);
    CHECK(dl_lock_token(next) > token);
    EXPECT(DL_STATUS_NOT_HELD, dl_release(lock, &error));
    EXPECT(DL_STATUS_OK, dl_renew(next, 0, &error));
    EXPECT(DL_STATUS_OK, dl_release(next, &error));
    dl_lock_free(lock);
    dl_lock_free(next);
}

static void expired(dl_client *client, dl_client *other) {
    const char *key = new_key("expired");
    dl_error *error = NULL;
    dl_lock *lock = acquire(client, key, 0, 300);
    sleep_ms(310);
    CHECK(dl_lock_state(lock) == DL_STATUS_NOT_HELD);
    CHECK(dl_lock_lost_cause(lock) == DL_LOST_EXPIRED);
    CHECK(dl_lock_remaining_ms(lock) == 0);
    dl_lock *next = acquire(other, key, 1000, 20000);
    CHECK(dl_lock_token(next) > dl_lock_token(lock));
    EXPECT(DL_STATUS_NOT_HELD, dl_renew(lock, 0, &error));
    EXPECT(DL_STATUS_NOT_HELD, dl_release(lock, &error));
    CHECK(dl_lock_state(next) == DL_STATUS_OK);
    EXPECT(DL_STATUS_OK, dl_release(next, &error));
    dl_lock_free(lock);
    dl_lock_free(next);
}

/* The client's own thread releases what was freed. */
static void freed_while_held(dl_client *client, dl_client *other) {
    const char *key = new_key("freed");
    const uint64_t begin = now_ms();
    dl_lock_free(acquire(client, key, 0, 60000));
    dl_lock *lock = acquire(other, key, 1000 + slack_ms(), 60000);
    CHECK(now_ms() - begin < 1000 + slack_ms());
    dl_release(lock, NULL);
    dl_lock_free(lock);
}

/* Five handles, let go in each of the 120 orders. */
static void every_order_of_frees(dl_client *other) {
    const unsigned step = getenv("DLEASE_SLOW") ? 7 : 1;
    for (unsigned order = 0; order < 120; order += step) {
        char left[] = "chrte"; /* client, held and released lock, token, error */
        const char *held_key = new_key("order-held"), *released_key = new_key("order-released");
        dl_client *client = open_client(url);
        dl_cancel *cancel = dl_cancel_new();
        dl_acquire_options options = DL_ACQUIRE_OPTIONS_INIT;
        dl_lock *held = NULL;
        dl_error *error = NULL;
        options.cancel = cancel;
        options.ttl_ms = 60000;
        EXPECT(DL_STATUS_OK, dl_acquire(client, held_key, &options, &held, &error));
        dl_lock *released = acquire(client, released_key, 0, 60000);
        CHECK(dl_release(released, NULL) == DL_STATUS_OK);
        CHECK(dl_renew(held, 1, &error) == DL_STATUS_INVALID_ARGUMENT);

        for (unsigned choices = 5, rest = order; choices > 0; rest /= choices, choices--) {
            char *chosen = left + rest % choices;
            switch (*chosen) {
            case 'c':
                dl_client_close(client);
                client = NULL;
                if (held != NULL) {
                    CHECK(dl_lock_state(held) == DL_STATUS_NOT_HELD);
                    CHECK(dl_lock_lost_cause(held) == DL_LOST_CLOSED);
                    CHECK(strcmp(dl_lock_key(held), held_key) == 0);
                    CHECK(dl_release(held, NULL) == DL_STATUS_CLOSED);
                    CHECK(dl_renew(held, 0, NULL) == DL_STATUS_CLOSED);
                }
                break;
            case 'h':
                dl_lock_free(held);
                held = NULL;
                break;
            case 'r':
                dl_lock_free(released);
                break;
            case 'e':
                CHECK(dl_error_status(error) == DL_STATUS_INVALID_ARGUMENT);
                CHECK(*dl_error_message(error) != '\0');
                dl_error_free(error);
                break;
            case 't':
                dl_cancel_free(cancel);
                break;
            }
            memmove(chosen, chosen + 1, strlen(chosen));
        }
        dl_lock_free(acquire(other, held_key, 1000 + slack_ms(), 60000));
    }
}

/* ---- nothing is tied to a thread ---- */

static void *acquire_there(void *client) { return acquire(client, new_key("threads"), 0, 20000); }

static void *renew_there(void *lock) {
    dl_error *error = NULL;
    EXPECT(DL_STATUS_OK, dl_renew(lock, 0, &error));
    return lock;
}

static void *release_there(void *lock) {
    dl_error *error = NULL;
    EXPECT(DL_STATUS_OK, dl_release(lock, &error));
    dl_lock_free(lock);
    return NULL;
}

static void *in_a_thread(void *(*body)(void *), void *argument) {
    pthread_t thread;
    void *result = NULL;
    CHECK(pthread_create(&thread, NULL, body, argument) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    return result;
}

static void from_thread_to_thread(dl_client *client) {
    dl_lock *lock = in_a_thread(acquire_there, client);
    in_a_thread(renew_there, lock);
    in_a_thread(release_there, lock);
}

/* ---- closing ends the calls that wait ---- */

struct waiting {
    dl_client *client;
    const char *key;
    dl_status status;
    uint64_t ended_ms;
};

static void *wait_there(void *argument) {
    struct waiting *waiting = argument;
    dl_acquire_options options = DL_ACQUIRE_OPTIONS_INIT;
    dl_lock *lock = NULL;
    options.wait_ms = DL_WAIT_FOREVER;
    waiting->status = dl_acquire(waiting->client, waiting->key, &options, &lock, NULL);
    waiting->ended_ms = now_ms();
    dl_lock_free(lock);
    return NULL;
}

static void closed_while_waiting(dl_client *other) {
    const char *key = new_key("closed");
    dl_lock *lock = acquire(other, key, 0, 60000);
    struct waiting waiting = {open_client(url), key, DL_STATUS_OK, 0};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, wait_there, &waiting) == 0);
    sleep_ms(300);
    const uint64_t begin = now_ms();
    dl_client_close(waiting.client);
    CHECK(now_ms() - begin < 2000 + slack_ms());
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(waiting.status == DL_STATUS_CLOSED);
    CHECK(waiting.ended_ms - begin < slack_ms());
    dl_release(lock, NULL);
    dl_lock_free(lock);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    url = argv[1];
    dl_client *client = open_client(url), *other = open_client(url);
    held_and_released(client, other);
    expired(client, other);
    freed_while_held(client, other);
    every_order_of_frees(other);
    from_thread_to_thread(client);
    closed_while_waiting(other);
    dl_client_close(client);
    dl_client_close(other);
    return 0;
}
