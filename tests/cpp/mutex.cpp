// dlease::mutex under what the standard library has for mutexes.

#include <mutex>
#include <thread>
#include <vector>

#include "support.hpp"

namespace {

// Threads that share two mutexes and take both, half of them in the other
// order: nobody is let in twice, and nobody waits for ever.
void excludes_under_scoped_lock(dlease::client &client) {
    dlease::mutex one(client, new_key("one")), two(client, new_key("two"));
    std::atomic<int> inside{0};
    int rounds_done = 0;
    std::vector<std::thread> threads;
    for (int number = 0; number < 6; number++) {
        threads.emplace_back([&, number] {
            for (int round = 0; round < 10; round++) {
                dlease::mutex &first = number % 2 ? one : two, &second = number % 2 ? two : one;
                const std::scoped_lock both(first, second);
                CHECK(inside.fetch_add(1) == 0);
                CHECK(one.held() && two.held());
                rounds_done++;
                CHECK(inside.fetch_sub(1) == 1);
            }
        });
    }
    for (std::thread &thread : threads) thread.join();
    CHECK(rounds_done == 60);
    CHECK(!one.held() && !two.held());
}

void tries_for_a_time(dlease::client &client, dlease::client &other) {
    const std::string key = new_key("tries");
    dlease::mutex mine(client, key), theirs(other, key);
    {
        const std::lock_guard<dlease::mutex> guard(theirs);
        std::unique_lock<dlease::mutex> lock(mine, std::defer_lock);
        CHECK(!lock.try_lock());
        CHECK(!lock.try_lock_for(-1s));
        CHECK(!lock.try_lock_for(0s));
        auto begin = stopwatch::now();
        CHECK(!lock.try_lock_for(300ms));
        CHECK(since(begin) >= 299ms && since(begin) < 300ms + slack());
        begin = stopwatch::now();
        CHECK(!lock.try_lock_for(std::chrono::duration<double>(0.2)));
        CHECK(since(begin) >= 199ms);
        begin = stopwatch::now();
        CHECK(!lock.try_lock_until(std::chrono::system_clock::now() + 200ms));
        CHECK(since(begin) >= 190ms && since(begin) < 200ms + slack());
        CHECK(!lock.try_lock_until(std::chrono::steady_clock::now() - 1h));
        CHECK(!lock.owns_lock() && mine.token() == 0);
    }
    // Free again: taken, also where the time is longer than can be said.
    for (int times = 0; times < 2; times++) {
        std::unique_lock<dlease::mutex> lock(mine, std::defer_lock);
        CHECK(times == 0 ? lock.try_lock_for(10s) : lock.try_lock_for(std::chrono::hours::max()));
        CHECK(lock.owns_lock() && mine.held() && mine.token() != 0);
        CHECK(!theirs.try_lock());
    }
    CHECK(theirs.try_lock());
    theirs.unlock();
}

void waits_until_it_is_free(dlease::client &client, dlease::client &other) {
    const std::string key = new_key("waits");
    dlease::mutex mine(client, key), theirs(other, key);
    theirs.lock();
    const std::uint64_t token = theirs.token();
    std::thread thread([&] {
        const std::lock_guard<dlease::mutex> guard(mine);
        CHECK(mine.token() > token);
    });
    std::this_thread::sleep_for(200ms);
    theirs.unlock();
    thread.join();
}

// A thread whose lease was lost does not release that of the next one.
void unlocks_ones_own(dlease::client &client) {
    dlease::acquire_options options;
    options.ttl = 300ms;
    options.flags = DL_ACQUIRE_MANUAL_RENEW;
    const std::string key = new_key("own");
    dlease::mutex mutex(client, key, options);
    mutex.unlock();  // nothing is locked: nothing happens
    mutex.lock();
    std::thread([&] { mutex.unlock(); }).join();  // by another thread: nothing either
    CHECK(mutex.held());
    std::this_thread::sleep_for(310ms);
    CHECK(!mutex.held());
    dlease::mutex longer(client, key);
    std::thread([&] {
        longer.lock();
        std::thread([&] { mutex.unlock(); }).join();
        CHECK(longer.held());
    }).join();
    mutex.unlock();
    CHECK(!mutex.try_lock());  // the other thread has gone without unlocking
}

void shares_by_owner(dlease::client &client) {
    dlease::acquire_options options;
    options.owner = "someone";
    dlease::mutex mutex(client, new_key("owner"), options);
    mutex.lock();
    const std::uint64_t token = mutex.token();
    CHECK(mutex.try_lock());
    CHECK(mutex.token() == token);
    mutex.unlock();
    CHECK(mutex.held());
    mutex.unlock();
    CHECK(!mutex.held() && mutex.token() == 0);
}

static_assert(!std::is_copy_constructible_v<dlease::mutex> && !std::is_move_constructible_v<dlease::mutex>);
static_assert(noexcept(std::declval<dlease::mutex &>().unlock()));

}  // namespace

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    dlease::client client(argv[1]), other(argv[1]);
    excludes_under_scoped_lock(client);
    tries_for_a_time(client, other);
    waits_until_it_is_free(client, other);
    unlocks_ones_own(client);
    shares_by_owner(client);
}
