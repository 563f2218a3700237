// What the C++ tests share. Each is a program of its own that takes the URL of
// a server; exit status: 0 passed, 1 failed, with the line told on standard
// error. DLEASE_SLOW is set where it runs under valgrind.

#ifndef SUPPORT_HPP
#define SUPPORT_HPP

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dlease.hpp>
#include <string>
#include <typeinfo>

using namespace std::chrono_literals;

#define CHECK(...) \
    do { \
        if (!(__VA_ARGS__)) { \
            std::fprintf(stderr, "%s:%d: this is not so: %s\n", __FILE__, __LINE__, #__VA_ARGS__); \
            ::_exit(1); \
        } \
    } while (0)

// The expression throws exactly this exception.
#define THROWS(type, expression) \
    do { \
        bool thrown = false; \
        try { \
            (void)(expression); \
        } catch (const dlease::error &error) { \
            thrown = typeid(error) == typeid(type); \
            if (!thrown) std::fprintf(stderr, "%s: %s\n", typeid(error).name(), error.what()); \
        } \
        CHECK(thrown && "throws " #type && #expression); \
    } while (0)

// A key that no other test uses.
inline std::string new_key(const std::string &name) {
    static std::atomic<unsigned> count{0};
    return "cpp-" + name + "-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
}

inline dlease::milliseconds slack() { return std::getenv("DLEASE_SLOW") ? 5000ms : 500ms; }

using stopwatch = std::chrono::steady_clock;

inline dlease::milliseconds since(stopwatch::time_point begin) {
    return std::chrono::duration_cast<dlease::milliseconds>(stopwatch::now() - begin);
}

#endif
