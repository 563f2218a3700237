/*
 * dlease for C++17: what dlease.h offers, with objects, durations and
 * exceptions. Header only; link with libdlease.
 *
 *   dlease::client client("mysql://user:password@host/database");
 *   dlease::lock lock = client.acquire("report");
 *   ... the work, and its writes with lock.token() ...
 *   lock.release();
 *
 * or, as a mutex:
 *
 *   dlease::mutex mutex(client, "report");
 *   std::lock_guard<dlease::mutex> guard(mutex);
 *
 * A client and its locks may be destroyed in any order. Unless it says
 * otherwise, a function may be called from any thread, and at the same time as
 * others on the same object; moving, assigning and destroying may not. Texts
 * go in without a NUL in them. In a forked child the parent's objects throw
 * dlease::forked, and destroying them there takes nothing from the parent.
 *
 * Every exception is a dlease::error. Functions that take std::nothrow return
 * the status instead, and put what went wrong into *message if that is given.
 */

#ifndef DLEASE_HPP
#define DLEASE_HPP

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

#include "dlease.h"

namespace dlease {

using std::chrono::milliseconds;

/// For acquire_options::wait: wait for ever.
inline constexpr milliseconds forever = milliseconds::max();

class cancel;

/// Options of a client. What is left empty or zero has its default, or what
/// the URL says under the same name.
struct client_options {
    /// The program's name, for people who look at the table; at most 64 bytes.
    std::optional<std::string> application{};
    /// Keys of different name spaces are different locks; at most 64 bytes.
    std::optional<std::string> name_space{};
    /// What the tables' names begin with; at most 50 bytes; "dl_" by default.
    std::optional<std::string> table_prefix{};
    /// How long a connect, and each step of a log-in, may take; 5 s.
    milliseconds connect_timeout{0};
    /// How long one reply is waited for; 5 s.
    milliseconds io_timeout{0};
    /// The TTL of leases that name none, 10 ms to 366 days; 30 s.
    milliseconds default_ttl{0};
    /// The most connections at a time, 1 to 10000; 8.
    std::uint32_t max_connections = 0;
    /// The most connections that wait for a lock, apart from those, one for each key
    /// that is waited for; 8. Beyond them rows are looked at now and then, order is
    /// not kept, and who waits so may wait for as long as others queue.
    std::uint32_t max_waiting_connections = 0;
    /// How long a process may serve its own callers before the next process
    /// has its turn, at most UINT32_MAX ms; 200 ms.
    milliseconds fairness{0};
    /// Whether missing tables are made; yes.
    std::optional<bool> create_schema{};
};

/// Options of an acquire.
struct acquire_options {
    /// How long to wait; zero makes one try. try_acquire() and dlease::mutex
    /// wait for what their names say instead.
    milliseconds wait = forever;
    /// The length of the lease, 10 ms to 366 days; zero: the client's default.
    milliseconds ttl{0};
    /// The library renews the lease no longer than this: then it ends, and the lock
    /// is lost. Zero: for ever.
    milliseconds max_hold{0};
    /// The owner, 1 to 255 bytes: an acquire of the same key by the same owner
    /// shares the grant. Each handle is released once, the last one frees the
    /// key, and a loss ends all. Without one every acquire is its own owner.
    std::optional<std::string> owner{};
    /// A note for people who look at the table, at most 255 bytes.
    std::string note{};
    /// Ends the call when it is fired; has to live as long as the call.
    const dlease::cancel *cancel = nullptr;
    /// DL_KIND_…
    std::int32_t kind = DL_KIND_LEASE;
    /// DL_ACQUIRE_…, or-ed.
    std::uint32_t flags = 0;
};

namespace detail {

struct closer {
    void operator()(dl_client *client) const noexcept { dl_client_close(client); }
    void operator()(dl_lock *lock) const noexcept { dl_lock_free(lock); }
    void operator()(dl_cancel *cancel) const noexcept { dl_cancel_free(cancel); }
    void operator()(dl_error *error) const noexcept { dl_error_free(error); }
};

template <class T>
using handle = std::unique_ptr<T, closer>;

/// How a call ended.
struct outcome {
    dl_status status = DL_STATUS_OK;
    handle<dl_error> error = nullptr;
    /// The text of what is refused here, before the library is asked.
    const char *refusal = nullptr;

    const char *text() const noexcept {
        if (refusal != nullptr) return refusal;
        return error ? dl_error_message(error.get()) : dl_status_name(status);
    }
};

inline outcome refused(const char *text) noexcept {
    return {DL_STATUS_INVALID_ARGUMENT, nullptr, text};
}

}  // namespace detail

/// What every function here throws; its type tells the status. Copying it does
/// not throw. Nothing in it blocks, and all of it works after a fork.
class error : public std::runtime_error {
public:
    explicit error(const detail::outcome &outcome)
        : std::runtime_error(outcome.text()),
          status_(outcome.status),
          server_errno_(dl_error_server_errno(outcome.error.get())),
          retriable_(dl_error_is_retriable(outcome.error.get()) != 0) {
        const std::string state = dl_error_sqlstate(outcome.error.get());
        state.copy(sqlstate_, sizeof sqlstate_ - 1);
    }

    /// DL_STATUS_…
    dl_status status() const noexcept { return status_; }
    /// The server's error number, 0 if it sent none.
    std::uint32_t server_errno() const noexcept { return server_errno_; }
    /// The server's SQLSTATE, "" if it sent none.
    const char *sqlstate() const noexcept { return sqlstate_; }
    /// Whether the same call may succeed later without anybody's help.
    bool retriable() const noexcept { return retriable_; }

private:
    dl_status status_;
    std::uint32_t server_errno_;
    char sqlstate_[6] = "";
    bool retriable_;
};

/// One try was made, and someone else has the lock.
struct not_acquired : error { using error::error; };
/// The deadline passed while someone else had the lock.
struct timed_out : error { using error::error; };
/// The call was ended by its dlease::cancel.
struct cancelled : error { using error::error; };
/// The lock is not held: lost, taken over, or already released.
struct not_held : error { using error::error; };
/// The version has moved on.
struct conflict : error { using error::error; };
/// An argument is outside of what the call takes.
struct invalid_argument : error { using error::error; };
/// The server cannot be reached, or cannot serve now.
struct unavailable : error { using error::error; };
/// The server refused; see server_errno() and sqlstate().
struct server_error : error { using error::error; };
/// The client was closed.
struct closed : error { using error::error; };
/// The object was made before a fork, in the parent.
struct forked : error { using error::error; };
/// Password, rights, schema or server are wrong: trying again cannot help.
struct config_error : error { using error::error; };
/// This server or kind of lock cannot do what was asked.
struct unsupported : error { using error::error; };
/// The library is in a state it should never be in: close the client.
struct internal_error : error { using error::error; };

namespace detail {

/// Throws what a status stands for, unless that is OK.
inline void check(const outcome &outcome) {
    switch (outcome.status) {
    case DL_STATUS_OK: return;
    case DL_STATUS_NOT_ACQUIRED: throw not_acquired(outcome);
    case DL_STATUS_TIMED_OUT: throw timed_out(outcome);
    case DL_STATUS_CANCELLED: throw cancelled(outcome);
    case DL_STATUS_NOT_HELD: throw not_held(outcome);
    case DL_STATUS_CONFLICT: throw conflict(outcome);
    case DL_STATUS_INVALID_ARGUMENT: throw invalid_argument(outcome);
    case DL_STATUS_UNAVAILABLE: throw unavailable(outcome);
    case DL_STATUS_SERVER: throw server_error(outcome);
    case DL_STATUS_CLOSED: throw closed(outcome);
    case DL_STATUS_FORKED: throw forked(outcome);
    case DL_STATUS_CONFIG: throw config_error(outcome);
    case DL_STATUS_UNSUPPORTED: throw unsupported(outcome);
    case DL_STATUS_INTERNAL:
    case DL_STATUS_PANIC: throw internal_error(outcome);
    default: throw error(outcome);
    }
}

/// The status, for a caller who wants no exception.
inline dl_status tell(const outcome &outcome, std::string *message) noexcept {
    if (message != nullptr) {
        message->clear();
        try {
            if (outcome.status != DL_STATUS_OK) *message = outcome.text();
        } catch (const std::exception &) {
            // No memory for the text; the status tells enough.
        }
    }
    return outcome.status;
}

/// C would read a text up to its first NUL: another key than was given.
inline bool has_nul(const std::string &text) noexcept {
    return text.find('\0') != std::string::npos;
}
inline bool has_nul(const std::optional<std::string> &text) noexcept {
    return text && has_nul(*text);
}
inline const char *c_text(const std::optional<std::string> &text) noexcept {
    return text ? text->c_str() : nullptr;
}
inline std::uint64_t c_time(milliseconds time) noexcept {
    return static_cast<std::uint64_t>(time.count());
}

/// Any duration as a wait: rounded up, never below zero, `forever` if it is
/// longer than milliseconds can say.
template <class Rep, class Period>
milliseconds to_wait(const std::chrono::duration<Rep, Period> &time) {
    using approximate = std::chrono::duration<double, std::milli>;
    if (!(time > time.zero())) return milliseconds(0);
    if (approximate(time) >= approximate(forever)) return forever;
    return std::chrono::ceil<milliseconds>(time);
}

}  // namespace detail

/// A token that ends calls from another thread. May be given to any number of
/// calls; once fired it stays fired, and ends those that come later too. Can be
/// moved, not copied. Must outlive the start of a call that it is given to.
class cancel {
public:
    /// Makes a token. Throws internal_error. Blocks: no. After fork: works.
    cancel() : handle_(dl_cancel_new()) {
        if (!handle_) detail::check({DL_STATUS_PANIC, nullptr, nullptr});
    }

    /// Ends every call that carries the token: each throws cancelled at once.
    /// May be called again, which does nothing.
    /// Blocks: no. After fork: does nothing for a token of the parent's.
    void fire() const noexcept { dl_cancel_fire(handle_.get()); }

    /// For the functions of dlease.h; stays this object's.
    dl_cancel *native_handle() const noexcept { return handle_.get(); }

private:
    detail::handle<dl_cancel> handle_;
};

/// A lock that was acquired. Can be moved, not copied, and is not bound to the
/// thread that acquired it. Destroying it does not block: one that is still
/// held is then left to the client's own thread for release, and lapses by its
/// TTL where the process ends before that is done.
class [[nodiscard]] lock {
public:
    /// No lock: not held, with the token 0 and the key "".
    lock() noexcept = default;

    /// The fencing token: greater than that of every earlier grant of the key.
    /// Kept after the lock has ended. Blocks: no. After fork: works.
    std::uint64_t token() const noexcept { return dl_lock_token(handle_.get()); }

    /// The key. Lives as long as the lock. Blocks: no. After fork: works.
    const char *key() const noexcept { return dl_lock_key(handle_.get()); }

    /// How much of the lease is left by the server's clock at least; 0 once it
    /// is not held. Needs no network. Blocks: no. After fork: 0.
    milliseconds remaining() const noexcept {
        const std::uint64_t longest = static_cast<std::uint64_t>(forever.count());
        return milliseconds(std::min(dl_lock_remaining_ms(handle_.get()), longest));
    }

    /// Whether the lock is held, exactly and at any moment. Needs no network.
    /// Blocks: no. After fork: false.
    bool held() const noexcept { return dl_lock_state(handle_.get()) == DL_STATUS_OK; }

    /// Why the lock was lost: DL_LOST_…; DL_LOST_NOT while it is held, and
    /// once it was released. Blocks: no. After fork: DL_LOST_FORKED.
    std::int32_t lost_cause() const noexcept { return dl_lock_lost_cause(handle_.get()); }

    /// Waits until the lock is lost: true if it is. Needs no network.
    /// timeout: how long to wait; `forever` has no end.
    /// Throws not_held once it is released, also by another thread meanwhile.
    /// Blocks: up to the timeout. After fork: true.
    bool wait_lost(milliseconds timeout = forever) const {
        const dl_status status = dl_lock_wait_lost(handle_.get(), wait_ms(timeout));
        if (status != DL_STATUS_TIMED_OUT) detail::check({status, nullptr, nullptr});
        return status == DL_STATUS_OK;
    }
    /// The same, with the status in place of an exception: OK if it is lost,
    /// TIMED_OUT, NOT_HELD.
    [[nodiscard]] dl_status wait_lost(milliseconds timeout, const std::nothrow_t &) const noexcept {
        return dl_lock_wait_lost(handle_.get(), wait_ms(timeout));
    }

    /// The text of the guard: one locking read, for an open transaction of the
    /// caller's own, first thing in it. One row comes back if this lock is still the
    /// last grant of its key, and until that transaction ends no later grant can be
    /// made. No row: roll back at once. See dl_lock_guard_sql().
    /// Throws not_held if the lock is lost or released; forked, internal_error.
    /// Blocks: no. After fork: throws forked.
    std::string guard_sql() const {
        // Twice where the first buffer is too small: the length is told then.
        for (std::size_t length = 1024;;) {
            std::string text(length + 1, '\0');
            const std::size_t room = text.size();
            dl_error *error = nullptr;
            const dl_status status = dl_lock_guard_sql(handle_.get(), text.data(), room, &length, &error);
            detail::outcome outcome{status, detail::handle<dl_error>(error), nullptr};
            if (status == DL_STATUS_INVALID_ARGUMENT && length >= room) continue;
            detail::check(std::move(outcome));
            text.resize(length);
            return text;
        }
    }

    /// Renews the lease: it runs for the TTL from now. One with an owner is
    /// never shortened.
    /// ttl: 10 ms to 366 days; zero: the grant's own.
    /// Throws not_held if the lock is lost or released; unavailable if the
    /// server was not reached, with the lease as it was; server_error,
    /// config_error, invalid_argument, closed, forked, internal_error.
    /// Blocks: for a round trip; up to io_timeout, and not past the lease.
    /// After fork: throws forked.
    void renew(milliseconds ttl = milliseconds(0)) { detail::check(try_renew(ttl)); }
    /// The same, with the status in place of an exception.
    [[nodiscard]] dl_status renew(milliseconds ttl, const std::nothrow_t &, std::string *message = nullptr) noexcept {
        return detail::tell(try_renew(ttl), message);
    }
    [[nodiscard]] dl_status renew(const std::nothrow_t &, std::string *message = nullptr) noexcept {
        return renew(milliseconds(0), std::nothrow, message);
    }

    /// Releases the lock. Its readers still answer.
    /// Throws not_held every time but the first, without effect, and if the
    /// lock had been lost before; unavailable if the server was not reached:
    /// release may be called again; server_error, config_error,
    /// invalid_argument, closed, forked, internal_error.
    /// Blocks: for a round trip; up to io_timeout. After fork: throws forked.
    void release() { detail::check(try_release()); }
    /// The same, with the status in place of an exception.
    dl_status release(const std::nothrow_t &, std::string *message = nullptr) noexcept {
        return detail::tell(try_release(), message);
    }

    /// For the functions of dlease.h; stays this object's.
    dl_lock *native_handle() const noexcept { return handle_.get(); }

private:
    friend class client;

    static std::uint64_t wait_ms(milliseconds timeout) noexcept {
        return timeout >= forever ? DL_WAIT_FOREVER : detail::c_time(std::max(timeout, milliseconds(0)));
    }

    detail::outcome try_renew(milliseconds ttl) noexcept {
        if (ttl < ttl.zero()) return detail::refused("invalid ttl: it is negative");
        dl_error *error = nullptr;
        const dl_status status = dl_renew(handle_.get(), detail::c_time(ttl), &error);
        return {status, detail::handle<dl_error>(error), nullptr};
    }

    detail::outcome try_release() noexcept {
        dl_error *error = nullptr;
        const dl_status status = dl_release(handle_.get(), &error);
        return {status, detail::handle<dl_error>(error), nullptr};
    }

    detail::handle<dl_lock> handle_;
};

/// A client of one database: connections, and whatever was acquired through
/// them. One for a process is enough. Can be moved, not copied.
///
/// Destroying it closes it: what it holds is released, calls that wait in it
/// end with closed, and its threads are joined, which blocks up to 2 s. Locks
/// may be destroyed before or after; from then on they are lost.
class client {
public:
    /// No client: its functions throw invalid_argument.
    client() noexcept = default;

    /// Opens a client. Talks to no server: a wrong address, password or schema
    /// shows at the first call that needs it.
    /// url: as dl_client_open() takes it.
    /// Throws invalid_argument, internal_error. Blocks: no. After fork: works;
    /// a child may open its own.
    explicit client(const std::string &url, const client_options &options = {}) {
        detail::check(try_open(url, options));
    }
    /// Opens a client into client_out, with the status in place of an
    /// exception. Whatever client_out was is closed first, also on failure.
    [[nodiscard]] static dl_status open(const std::string &url, const client_options &options,
                                        client &client_out, const std::nothrow_t &,
                                        std::string *message = nullptr) noexcept {
        return detail::tell(client_out.try_open(url, options), message);
    }

    /// Acquires a lock, waiting as long as the options say; by default for
    /// ever, with the client's TTL.
    /// key: 1 to 255 bytes, any but NUL, compared byte for byte.
    /// Throws not_acquired if someone else has it and the wait is zero;
    /// timed_out if it was not to be had until the deadline, and someone else was
    /// seen to have it; cancelled; unavailable if the server was not reached;
    /// server_error if it refused; config_error, invalid_argument and
    /// unsupported at once; closed, forked, internal_error.
    /// Blocks: for the wait; with zero up to the lesser of io_timeout and the
    /// TTL. After fork: throws forked.
    lock acquire(const std::string &key, const acquire_options &options = {}) {
        lock got;
        detail::check(try_acquire(key, options, options.wait, got));
        return got;
    }
    /// The same, with the status in place of an exception. Whatever lock_out
    /// was is freed first, also on failure.
    [[nodiscard]] dl_status acquire(const std::string &key, const acquire_options &options, lock &lock_out,
                                    const std::nothrow_t &, std::string *message = nullptr) noexcept {
        return detail::tell(try_acquire(key, options, options.wait, lock_out), message);
    }

    /// Makes one try, whatever the options' wait: nothing if someone else has
    /// the lock. Throws and blocks as acquire() with a wait of zero.
    [[nodiscard]] std::optional<lock> try_acquire(const std::string &key, const acquire_options &options = {}) {
        return acquire_within(milliseconds(0), key, options);
    }

    /// Who holds the lock of this key; nothing if nobody does.
    /// Throws unavailable, server_error, config_error, invalid_argument, unsupported,
    /// closed, forked, internal_error.
    /// Blocks: for a round trip; up to io_timeout. After fork: throws forked.
    [[nodiscard]] std::optional<dl_holder> peek(const std::string &key, std::int32_t kind = DL_KIND_LEASE) {
        dl_holder holder = DL_HOLDER_INIT;
        if (detail::has_nul(key)) detail::check(detail::refused("invalid key: it has a NUL"));
        dl_error *error = nullptr;
        const dl_status status = dl_peek(handle_.get(), key.c_str(), kind, &holder, &error);
        if (status == DL_STATUS_NOT_HELD) return std::nullopt;
        detail::check({status, detail::handle<dl_error>(error), nullptr});
        return holder;
    }

    /// Releases the lock of this key, whoever holds it: true if somebody did. Its
    /// token is no longer valid, no guard with it passes, and its holder is told at
    /// its next renewal at the latest. Throws as peek().
    /// Blocks: for a few round trips; up to io_timeout. After fork: throws forked.
    bool force_release(const std::string &key, std::int32_t kind = DL_KIND_LEASE) {
        if (detail::has_nul(key)) detail::check(detail::refused("invalid key: it has a NUL"));
        dl_error *error = nullptr;
        const dl_status status = dl_force_release(handle_.get(), key.c_str(), kind, &error);
        if (status == DL_STATUS_NOT_HELD) return false;
        detail::check({status, detail::handle<dl_error>(error), nullptr});
        return true;
    }

    /// Makes one round trip to the server.
    /// timeout: how long it may take.
    /// Throws unavailable if the server was not reached in time; config_error
    /// if it does not let us in, is too old, or its tables are not ours;
    /// server_error, closed, forked, invalid_argument, internal_error.
    /// Blocks: up to the timeout. After fork: throws forked.
    void ping(milliseconds timeout) { detail::check(try_ping(timeout)); }
    /// The same, with the status in place of an exception.
    [[nodiscard]] dl_status ping(milliseconds timeout, const std::nothrow_t &, std::string *message = nullptr) noexcept {
        return detail::tell(try_ping(timeout), message);
    }

    /// Counters of what the client did and has open: see dl_stats. All 0 for
    /// what is no client.
    /// Throws nothing. Blocks: no. After fork: all 0.
    dl_stats stats() const noexcept {
        dl_stats stats = DL_STATS_INIT;
        if (handle_) dl_client_stats(handle_.get(), &stats);
        return stats;
    }

    /// Closes the client as destroying it does; then it is no client.
    /// Blocks: up to 2 s. Threads: one, and no call begins on it any more.
    void close() noexcept { handle_.reset(); }

    /// For the functions of dlease.h; stays this object's.
    dl_client *native_handle() const noexcept { return handle_.get(); }

private:
    friend class mutex;

    detail::outcome try_open(const std::string &url, const client_options &options) noexcept {
        handle_.reset();
        if (detail::has_nul(url)) return detail::refused("invalid url: it has a NUL");
        for (const auto *text : {&options.application, &options.name_space, &options.table_prefix}) {
            if (detail::has_nul(*text)) return detail::refused("invalid option: it has a NUL");
        }
        for (const auto time : {options.connect_timeout, options.io_timeout, options.default_ttl,
                                options.fairness}) {
            if (time < time.zero()) return detail::refused("invalid option: it is negative");
        }
        if (detail::c_time(options.fairness) > std::numeric_limits<std::uint32_t>::max()) {
            return detail::refused("invalid fairness: it is at most 4294967295 ms");
        }
        dl_client_options c = DL_CLIENT_OPTIONS_INIT;
        c.application = detail::c_text(options.application);
        c.name_space = detail::c_text(options.name_space);
        c.table_prefix = detail::c_text(options.table_prefix);
        c.connect_timeout_ms = detail::c_time(options.connect_timeout);
        c.io_timeout_ms = detail::c_time(options.io_timeout);
        c.default_ttl_ms = detail::c_time(options.default_ttl);
        c.max_connections = options.max_connections;
        c.max_waiting_connections = options.max_waiting_connections;
        c.fairness_ms = static_cast<std::uint32_t>(options.fairness.count());
        if (options.create_schema) c.create_schema = *options.create_schema ? 1 : 2;
        dl_client *made = nullptr;
        dl_error *error = nullptr;
        const dl_status status = dl_client_open(url.c_str(), &c, &made, &error);
        handle_.reset(made);
        return {status, detail::handle<dl_error>(error), nullptr};
    }

    detail::outcome try_acquire(const std::string &key, const acquire_options &options, milliseconds wait,
                                lock &lock_out) noexcept {
        lock_out.handle_.reset();
        if (detail::has_nul(key)) return detail::refused("invalid key: it has a NUL");
        if (detail::has_nul(options.owner)) return detail::refused("invalid owner: it has a NUL");
        if (detail::has_nul(options.note)) return detail::refused("invalid note: it has a NUL");
        for (const auto time : {wait, options.ttl, options.max_hold}) {
            if (time < time.zero()) return detail::refused("invalid option: it is negative");
        }
        dl_acquire_options c = DL_ACQUIRE_OPTIONS_INIT;
        c.wait_ms = wait == forever ? DL_WAIT_FOREVER : detail::c_time(wait);
        c.ttl_ms = detail::c_time(options.ttl);
        c.max_hold_ms = detail::c_time(options.max_hold);
        c.owner = detail::c_text(options.owner);
        c.note = options.note.c_str();
        if (options.cancel != nullptr) c.cancel = options.cancel->native_handle();
        c.kind = options.kind;
        c.flags = options.flags;
        dl_lock *got = nullptr;
        dl_error *error = nullptr;
        const dl_status status = dl_acquire(handle_.get(), key.c_str(), &c, &got, &error);
        lock_out.handle_.reset(got);
        return {status, detail::handle<dl_error>(error), nullptr};
    }

    std::optional<lock> acquire_within(milliseconds wait, const std::string &key,
                                       const acquire_options &options) {
        lock got;
        const detail::outcome outcome = try_acquire(key, options, wait, got);
        if (outcome.status == DL_STATUS_NOT_ACQUIRED || outcome.status == DL_STATUS_TIMED_OUT) {
            return std::nullopt;
        }
        detail::check(outcome);
        return got;
    }

    detail::outcome try_ping(milliseconds timeout) noexcept {
        if (timeout < timeout.zero()) return detail::refused("invalid timeout: it is negative");
        dl_error *error = nullptr;
        const dl_status status = dl_client_ping(handle_.get(), detail::c_time(timeout), &error);
        return {status, detail::handle<dl_error>(error), nullptr};
    }

    detail::handle<dl_client> handle_;
};

/// A key as a mutex that meets TimedLockable, for std::unique_lock,
/// std::lock_guard, std::scoped_lock and std::lock. Excludes the threads that
/// share it, and everybody else who acquires the key.
///
/// As with std::mutex, the thread that locked it unlocks it. Unlike there, a
/// lease can be lost: held() tells, and writes should carry token().
class mutex {
public:
    /// Takes no lock yet.
    /// client: has to outlive this, and to stay where it is.
    /// options: for every acquire. With an owner, all who give the same text
    /// share the lock, these threads too.
    /// Throws nothing of its own. Blocks: no. After fork: works.
    mutex(dlease::client &client, std::string key, acquire_options options = {})
        : client_(&client), key_(std::move(key)), options_(std::move(options)) {}

    mutex(const mutex &) = delete;
    mutex &operator=(const mutex &) = delete;

    /// Waits for the lock without end.
    /// Throws what client::acquire() does, but for not_acquired and timed_out.
    /// Blocks: until it is there. After fork: throws forked.
    void lock() { lock_within(forever); }

    /// Makes one try; false if someone else has the lock. Throws and blocks as
    /// client::try_acquire(). After fork: throws forked.
    bool try_lock() { return lock_within(milliseconds(0)); }

    /// Waits at most this long, rounded up to milliseconds; false if someone
    /// else had the lock until then. Throws what lock() does.
    /// Blocks: up to the time. After fork: throws forked.
    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &time) {
        return lock_within(detail::to_wait(time));
    }

    /// Waits until this time at most, as try_lock_for() from now on: a clock
    /// that is set meanwhile moves nothing.
    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &time) {
        return try_lock_for(time - Clock::now());
    }

    /// Releases what this thread locked last. Never throws, since guards call
    /// it on destruction: if the server is not reached, the client's own
    /// thread goes on trying; if the lock was lost or this thread has none,
    /// nothing happens. Blocks: up to io_timeout. After fork: leaves the
    /// parent's lock alone.
    void unlock() noexcept {
        if (is_forked()) return;
        dlease::lock mine = take();
        mine.release(std::nothrow);
    }

    /// The fencing token of what this thread locked last, 0 if it has nothing.
    /// Blocks: no. After fork: 0.
    std::uint64_t token() const noexcept {
        if (is_forked()) return 0;
        const std::lock_guard<std::mutex> guard(list_);
        const auto found = find();
        return found == held_.rend() ? 0 : found->lock.token();
    }

    /// Whether this thread holds the lock at this moment. Needs no network.
    /// Blocks: no. After fork: false.
    bool held() const noexcept {
        if (is_forked()) return false;
        const std::lock_guard<std::mutex> guard(list_);
        const auto found = find();
        return found != held_.rend() && found->lock.held();
    }

private:
    // One entry for each lock and not yet unlock: one in all, but for those
    // whose lease was lost and granted to another thread, and for re-entrance.
    struct entry {
        std::thread::id thread;
        dlease::lock lock;
    };

    // In a child list_ may stay locked for ever, by a thread that is not there.
    bool is_forked() const noexcept { return ::getpid() != process_; }

    bool lock_within(milliseconds wait) {
        std::optional<dlease::lock> got = client_->acquire_within(wait, key_, options_);
        if (!got) return false;
        const std::lock_guard<std::mutex> guard(list_);
        held_.push_back({std::this_thread::get_id(), std::move(*got)});
        return true;
    }

    std::vector<entry>::const_reverse_iterator find() const noexcept {
        const std::thread::id me = std::this_thread::get_id();
        return std::find_if(held_.rbegin(), held_.rend(),
                            [me](const entry &each) { return each.thread == me; });
    }

    dlease::lock take() noexcept {
        const std::lock_guard<std::mutex> guard(list_);
        const auto found = find();
        if (found == held_.rend()) return {};
        const auto at = held_.begin() + (held_.rend() - found - 1);
        dlease::lock mine = std::move(at->lock);
        held_.erase(at);
        return mine;
    }

    dlease::client *client_;
    std::string key_;
    acquire_options options_;
    ::pid_t process_ = ::getpid();
    mutable std::mutex list_;  // guards held_, and no call to the server
    std::vector<entry> held_;
};

}  // namespace dlease

#endif  // DLEASE_HPP
