/*
 * Holds a lock for a while.
 *
 *   hold URL KEY SECONDS [TTL_MS]
 *
 * Makes one try, prints `token=N remaining_ms=N`, and releases after SECONDS,
 * which may be a fraction. Exit status: 0 held to the end, 1 not acquired or
 * lost, 2 usage or error.
 */

#include <chrono>
#include <cmath>
#include <dlease.hpp>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

// The whole text as a number of at least `least`; throws std::logic_error.
template <class Number>
Number number(const char *text, Number (*parse)(const std::string &, std::size_t *), Number least) {
    std::size_t length = 0;
    const Number value = parse(text, &length);
    if (text[length] != '\0' || !(value >= least) || !std::isfinite(value)) throw std::out_of_range(text);
    return value;
}

double seconds(const std::string &text, std::size_t *length) { return std::stod(text, length); }
long long milliseconds(const std::string &text, std::size_t *length) { return std::stoll(text, length); }

void hold(const char *url, const char *key, double time, const dlease::acquire_options &options) {
    dlease::client client(url);
    dlease::lock lock = client.acquire(key, options);
    std::cout << "token=" << lock.token() << " remaining_ms=" << lock.remaining().count() << std::endl;
    std::this_thread::sleep_for(std::chrono::duration<double>(time));
    lock.release();
}

}  // namespace

int main(int argc, char **argv) {
    double time = 0;
    dlease::acquire_options options;
    options.wait = dlease::milliseconds(0);  // one try
    try {
        if (argc < 4 || argc > 5) throw std::out_of_range("arguments");
        time = number(argv[3], seconds, 0.0);
        if (argc == 5) {
            options.ttl = dlease::milliseconds(number(argv[4], milliseconds, 1LL));
            options.flags = DL_ACQUIRE_MANUAL_RENEW;  // it is to end
        }
    } catch (const std::logic_error &) {
        std::cerr << "usage: hold URL KEY SECONDS [TTL_MS]\n";
        return 2;
    }
    try {
        hold(argv[1], argv[2], time, options);
    } catch (const dlease::error &error) {
        std::cerr << "hold: " << error.what() << '\n';
        return error.status() > 0 ? 1 : 2;
    }
}
