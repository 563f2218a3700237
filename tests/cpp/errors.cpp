// Each status is an exception of its own; the std::nothrow forms give the
// status and its text instead.

#include <sys/wait.h>

#include <thread>

#include "support.hpp"

namespace {

template <class Exception>
void is_thrown_for(dl_status status) {
    THROWS(Exception, dlease::detail::check({status, nullptr, nullptr}));
    try {
        dlease::detail::check({status, nullptr, nullptr});
    } catch (const std::runtime_error &error) {
        CHECK(std::string(error.what()) == dl_status_name(status));
        CHECK(dynamic_cast<const dlease::error &>(error).status() == status);
    }
}

void one_exception_for_each_status() {
    dlease::detail::check({DL_STATUS_OK, nullptr, nullptr});
    is_thrown_for<dlease::not_acquired>(DL_STATUS_NOT_ACQUIRED);
    is_thrown_for<dlease::timed_out>(DL_STATUS_TIMED_OUT);
    is_thrown_for<dlease::cancelled>(DL_STATUS_CANCELLED);
    is_thrown_for<dlease::not_held>(DL_STATUS_NOT_HELD);
    is_thrown_for<dlease::conflict>(DL_STATUS_CONFLICT);
    is_thrown_for<dlease::invalid_argument>(DL_STATUS_INVALID_ARGUMENT);
    is_thrown_for<dlease::unavailable>(DL_STATUS_UNAVAILABLE);
    is_thrown_for<dlease::server_error>(DL_STATUS_SERVER);
    is_thrown_for<dlease::closed>(DL_STATUS_CLOSED);
    is_thrown_for<dlease::forked>(DL_STATUS_FORKED);
    is_thrown_for<dlease::config_error>(DL_STATUS_CONFIG);
    is_thrown_for<dlease::unsupported>(DL_STATUS_UNSUPPORTED);
    is_thrown_for<dlease::internal_error>(DL_STATUS_INTERNAL);
    is_thrown_for<dlease::internal_error>(DL_STATUS_PANIC);
    is_thrown_for<dlease::error>(-50);  // of a later version
}

void outcomes(dlease::client &client, dlease::client &other) {
    const std::string key = new_key("outcomes");
    dlease::lock lock = other.acquire(key);
    dlease::acquire_options options;
    options.wait = 0ms;
    THROWS(dlease::not_acquired, client.acquire(key, options));
    options.wait = 100ms;
    THROWS(dlease::timed_out, client.acquire(key, options));
    CHECK(!client.try_acquire(key));

    dlease::cancel cancel;
    options.wait = dlease::forever;
    options.cancel = &cancel;
    std::thread thread([&] {
        std::this_thread::sleep_for(200ms);
        cancel.fire();
    });
    const auto begin = stopwatch::now();
    THROWS(dlease::cancelled, client.acquire(key, options));
    CHECK(since(begin) < 200ms + slack());
    thread.join();
    THROWS(dlease::cancelled, client.try_acquire(key, options));

    lock.release();
    THROWS(dlease::not_held, lock.release());
    THROWS(dlease::not_held, lock.renew());
}

void refusals(dlease::client &client) {
    const std::string key = new_key("refusals");
    dlease::acquire_options options;
    THROWS(dlease::invalid_argument, client.acquire(""));
    THROWS(dlease::invalid_argument, client.acquire(std::string(256, 'k')));
    // C would take "a" for this key, which is another lock.
    THROWS(dlease::invalid_argument, client.acquire(std::string("a\0b", 3)));
    options.owner = std::string("o\0p", 3);
    THROWS(dlease::invalid_argument, client.acquire(key, options));
    options = {};
    options.note = std::string("n\0o", 3);
    THROWS(dlease::invalid_argument, client.acquire(key, options));
    options = {};
    options.ttl = 9ms;
    THROWS(dlease::invalid_argument, client.acquire(key, options));
    options.ttl = -1ms;
    THROWS(dlease::invalid_argument, client.acquire(key, options));
    options = {};
    options.wait = -1ms;  // and not for ever
    THROWS(dlease::invalid_argument, client.acquire(key, options));
    options = {};
    options.kind = DL_KIND_ROW;
    THROWS(dlease::unsupported, client.acquire(key, options));
    THROWS(dlease::invalid_argument, client.ping(-1ms));
    THROWS(dlease::invalid_argument, client.acquire(key).renew(-1ms));
    THROWS(dlease::invalid_argument, dlease::client("nonsense"));
    THROWS(dlease::invalid_argument, dlease::client(std::string("mysql://a:b@c/d\0e", 17)));
    dlease::client_options wrong;
    wrong.default_ttl = 9ms;
    THROWS(dlease::invalid_argument, dlease::client("mysql://a:b@c/d", wrong));
    wrong = {};
    wrong.io_timeout = -5ms;
    THROWS(dlease::invalid_argument, dlease::client("mysql://a:b@c/d", wrong));
    wrong = {};
    wrong.fairness = 24h * 365;
    THROWS(dlease::invalid_argument, dlease::client("mysql://a:b@c/d", wrong));
    wrong = {};
    wrong.name_space = std::string("n\0s", 3);
    THROWS(dlease::invalid_argument, dlease::client("mysql://a:b@c/d", wrong));
    dlease::client none;
    THROWS(dlease::invalid_argument, none.acquire(key));
    THROWS(dlease::invalid_argument, dlease::lock().release());
}

void servers_that_do_not_serve(const std::string &url) {
    dlease::client nobody("mysql://a:b@127.0.0.1:1/d");
    THROWS(dlease::unavailable, nobody.try_acquire("k"));
    try {
        nobody.ping(1s);
    } catch (const dlease::error &error) {
        CHECK(error.retriable() && error.server_errno() == 0 && std::string(error.sqlstate()).empty());
    }
    const std::size_t colon = url.find(':', 8), at = url.find('@');
    dlease::client stranger(url.substr(0, colon + 1) + "wr%6fng" + url.substr(at));
    try {
        stranger.ping(10s);
        CHECK(!"it let a stranger in");
    } catch (const dlease::config_error &error) {
        CHECK(error.server_errno() == 1045 && std::string(error.sqlstate()) == "28000");
        CHECK(!error.retriable());
        CHECK(std::string(error.what()).find("wrong") == std::string::npos);  // the password
        const dlease::config_error copy = error;
        CHECK(std::string(copy.what()) == error.what() && std::string(copy.sqlstate()) == "28000");
    }
}

void closed_and_forked(const std::string &url) {
    dlease::client client(url);
    dlease::lock lock = client.acquire(new_key("ends"));
    const pid_t pid = ::fork();
    if (pid == 0) {
        THROWS(dlease::forked, client.try_acquire("k"));
        THROWS(dlease::forked, lock.release());
        CHECK(!lock.held() && lock.lost_cause() == DL_LOST_FORKED);
        dlease::mutex mutex(client, "k");
        THROWS(dlease::forked, mutex.lock());
        // Another program in its place: what the parent's threads own is lost to
        // this one, and no leak of the library's.
        ::execl("/bin/true", "true", static_cast<char *>(nullptr));
        ::_exit(1);
    }
    int status = 1;
    CHECK(::waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(lock.held());
    client.close();
    CHECK(!lock.held() && lock.lost_cause() == DL_LOST_CLOSED);
    THROWS(dlease::closed, lock.renew());
    THROWS(dlease::closed, lock.release());
}

void nothrow_forms(const std::string &url) {
    dlease::client client, other;
    std::string message = "old";
    CHECK(dlease::client::open("nonsense", {}, client, std::nothrow, &message) == DL_STATUS_INVALID_ARGUMENT);
    CHECK(!message.empty() && message != "old");
    CHECK(dlease::client::open(url, {}, client, std::nothrow, &message) == DL_STATUS_OK);
    CHECK(message.empty());
    CHECK(dlease::client::open(url, {}, other, std::nothrow) == DL_STATUS_OK);
    CHECK(client.ping(10s, std::nothrow) == DL_STATUS_OK);
    CHECK(client.ping(-1s, std::nothrow, &message) == DL_STATUS_INVALID_ARGUMENT && !message.empty());

    const std::string key = new_key("nothrow");
    dlease::acquire_options options;
    options.wait = 0ms;
    dlease::lock lock, second;
    CHECK(client.acquire(key, options, lock, std::nothrow) == DL_STATUS_OK);
    CHECK(lock.held());
    CHECK(other.acquire(key, options, second, std::nothrow, &message) == DL_STATUS_NOT_ACQUIRED);
    CHECK(!second.held() && second.token() == 0 && message == "NOT_ACQUIRED");
    CHECK(lock.renew(std::nothrow) == DL_STATUS_OK);
    CHECK(lock.renew(60s, std::nothrow) == DL_STATUS_OK && lock.remaining() > 50s);
    CHECK(lock.renew(1ms, std::nothrow, &message) == DL_STATUS_INVALID_ARGUMENT && !message.empty());
    CHECK(lock.release(std::nothrow, &message) == DL_STATUS_OK && message.empty());
    CHECK(lock.release(std::nothrow, &message) == DL_STATUS_NOT_HELD && message == "NOT_HELD");
    static_assert(noexcept(lock.release(std::nothrow)) && noexcept(lock.renew(std::nothrow)));
    static_assert(noexcept(client.acquire(key, options, lock, std::nothrow)));
    static_assert(std::is_nothrow_copy_constructible_v<dlease::not_held>);
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    one_exception_for_each_status();
    {
        dlease::client client(argv[1]), other(argv[1]);
        outcomes(client, other);
        refusals(client);
    }
    servers_that_do_not_serve(argv[1]);
    closed_and_forked(argv[1]);
    nothrow_forms(argv[1]);
}
