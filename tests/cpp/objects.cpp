// Clients and locks as objects: moved, destroyed in any order, and made with
// options that reach the library.

#include <memory>
#include <thread>
#include <vector>

#include "support.hpp"

namespace {

static_assert(!std::is_copy_constructible_v<dlease::lock> && !std::is_copy_assignable_v<dlease::lock>);
static_assert(!std::is_copy_constructible_v<dlease::client> && !std::is_copy_constructible_v<dlease::cancel>);
static_assert(std::is_nothrow_move_constructible_v<dlease::lock> && std::is_nothrow_move_assignable_v<dlease::lock>);
static_assert(std::is_nothrow_move_constructible_v<dlease::client>);
static_assert(std::is_nothrow_destructible_v<dlease::lock>);

void locks_move(dlease::client &client) {
    const std::string key = new_key("moves");
    dlease::lock first = client.acquire(key);
    const std::uint64_t token = first.token();
    dlease::lock second = std::move(first);
    CHECK(second.held() && second.token() == token && second.key() == key);
    CHECK(!first.held() && first.token() == 0 && std::string(first.key()).empty());
    CHECK(first.remaining() == 0ms && first.lost_cause() == DL_LOST_NOT);
    std::vector<dlease::lock> locks;
    locks.push_back(std::move(second));
    for (int i = 0; i < 10; i++) locks.push_back(client.acquire(new_key("moves")));
    CHECK(locks.front().held() && locks.front().token() == token);
    first = std::move(locks.front());
    first.release();
    // To another thread, too.
    std::thread([lock = std::move(locks.back())]() mutable { lock.release(); }).join();
}

void clients_move(const std::string &url) {
    dlease::client first(url);
    dlease::lock lock = first.acquire(new_key("client"));
    dlease::client second = std::move(first);
    lock.renew();
    CHECK(first.native_handle() == nullptr);
    dlease::client third(url);
    third = std::move(second);
    lock.release();
}

// The client's own thread releases what was destroyed, assigned to, or thrown away.
void destroyed_while_held(dlease::client &client, dlease::client &other) {
    const std::string one = new_key("destroyed"), two = new_key("assigned");
    { const dlease::lock lock = client.acquire(one); }
    dlease::lock lock = client.acquire(two);
    lock = {};
    dlease::acquire_options options;
    options.wait = 1s + slack();
    other.acquire(one, options).release();
    other.acquire(two, options).release();
}

void in_either_order(const std::string &url) {
    auto client = std::make_unique<dlease::client>(url);
    auto lock = std::make_unique<dlease::lock>(client->acquire(new_key("order")));
    client.reset();
    CHECK(!lock->held());
    lock.reset();
    client = std::make_unique<dlease::client>(url);
    lock = std::make_unique<dlease::lock>(client->acquire(new_key("order")));
    lock.reset();
    client.reset();
}

void options_reach_the_library(const std::string &url) {
    dlease::client_options options;
    options.application = "objects";
    options.name_space = "a space";
    options.table_prefix = "dl_";
    options.connect_timeout = 30s;
    options.io_timeout = 20s;
    options.default_ttl = 45s;
    options.max_connections = 2;
    options.max_waiting_connections = 2;
    options.fairness = 100ms;
    options.create_schema = true;
    dlease::client client(url, options), elsewhere(url);
    const std::string key = new_key("options");
    dlease::lock lock = client.acquire(key);
    CHECK(lock.remaining() > 30s && lock.remaining() <= 45s);
    CHECK(elsewhere.try_acquire(key).has_value());  // in another name space

    dlease::acquire_options as_owner;
    as_owner.ttl = 90s;
    as_owner.owner = "me";
    as_owner.note = "a note";
    as_owner.max_hold = 1h;
    as_owner.flags = DL_ACQUIRE_MANUAL_RENEW;
    const std::string shared_key = new_key("owner");
    dlease::lock one = client.acquire(shared_key, as_owner);
    dlease::lock same = client.acquire(shared_key, as_owner);
    CHECK(one.token() == same.token() && one.remaining() > 60s);
    one.release();
    CHECK(same.held());
    same.release();
    client.ping(20s);
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    dlease::client client(argv[1]), other(argv[1]);
    locks_move(client);
    clients_move(argv[1]);
    destroyed_while_held(client, other);
    in_either_order(argv[1]);
    options_reach_the_library(argv[1]);
}
