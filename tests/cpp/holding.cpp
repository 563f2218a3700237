// While a lock is held: renewal by the library, waiting for the loss, the guard's
// text, peek and force.

#include <thread>

#include "support.hpp"

namespace {

void renewed_and_lost(dlease::client &client, dlease::client &other) {
    const std::string key = new_key("renewed");
    dlease::acquire_options options;
    options.ttl = 1500ms;
    dlease::lock lock = client.acquire(key, options);
    CHECK(!lock.wait_lost(3s) && lock.held());
    CHECK(!other.try_acquire(key).has_value());
    std::thread waiting([&] { CHECK(lock.wait_lost(dlease::forever, std::nothrow) == DL_STATUS_NOT_HELD); });
    std::this_thread::sleep_for(100ms);
    lock.release();
    waiting.join();
    try {
        (void)lock.wait_lost(0ms);
        CHECK(!"it is released");
    } catch (const dlease::not_held &) {
    }

    options.flags = DL_ACQUIRE_MANUAL_RENEW;
    dlease::lock lapsing = client.acquire(new_key("lapsing"), options);
    CHECK(lapsing.wait_lost(10ms, std::nothrow) == DL_STATUS_TIMED_OUT);
    CHECK(lapsing.wait_lost());
    CHECK(lapsing.lost_cause() == DL_LOST_EXPIRED);

    options.flags = 0;
    options.max_hold = 2s;
    dlease::lock bounded = client.acquire(new_key("bounded"), options);
    CHECK(bounded.wait_lost(10s + slack()));
    CHECK(bounded.lost_cause() == DL_LOST_MAX_HOLD);
}

void guard(dlease::client &client) {
    dlease::lock lock = client.acquire(new_key("guard"));
    const std::string text = lock.guard_sql();
    CHECK(text.find(std::to_string(lock.token())) != std::string::npos && text.back() != '\0');
    lock.release();
    try {
        (void)lock.guard_sql();
        CHECK(!"it is released");
    } catch (const dlease::not_held &) {
    }
}

void operate(dlease::client &client, dlease::client &other) {
    const std::string key = new_key("operate");
    CHECK(!other.peek(key).has_value() && !other.force_release(key));
    dlease::acquire_options options;
    options.ttl = 3s;
    options.owner = "me";
    dlease::lock lock = client.acquire(key, options);
    const auto holder = other.peek(key);
    CHECK(holder.has_value() && holder->token == lock.token() && std::string(holder->owner) == "me");
    CHECK(other.force_release(key));
    CHECK(lock.wait_lost(10s) && lock.lost_cause() == DL_LOST_FORCED);
    try {
        (void)other.peek(std::string("a\0b", 3));
        CHECK(!"it has a NUL");
    } catch (const dlease::invalid_argument &) {
    }
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    dlease::client client(argv[1]), other(argv[1]);
    renewed_and_lost(client, other);
    guard(client);
    operate(client, other);
}
