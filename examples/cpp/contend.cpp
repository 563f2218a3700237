/*
 * Proves that a lock excludes: run several at a time, in any languages.
 *
 *   contend URL KEY ROUNDS FILE
 *
 * Each round acquires the lock, and inside creates FILE, which must not be
 * there; sees that the last token in FILE.log is less than its own; appends its
 * own; and removes FILE. Exit status: 0 done, 1 not acquired or lost, 2 usage
 * or error, 3 exclusion broken.
 */

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <dlease.hpp>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <system_error>

namespace {

struct exclusion_broken : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// There while the object lives; must not be there before.
class exclusive_file {
public:
    explicit exclusive_file(const std::string &path) : path_(path) {
        const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
        if (file < 0 && errno == EEXIST) throw exclusion_broken(path + " is there");
        if (file < 0) throw std::system_error(errno, std::generic_category(), path);
        ::close(file);
    }
    exclusive_file(const exclusive_file &) = delete;
    exclusive_file &operator=(const exclusive_file &) = delete;
    ~exclusive_file() { ::unlink(path_.c_str()); }

private:
    std::string path_;
};

// Compares the token with the last one in the log, and appends it.
void log_token(const std::string &path, std::uint64_t token) {
    std::uint64_t last = 0;
    std::ifstream old(path);
    for (std::uint64_t each = 0; old >> each;) last = each;
    if (last >= token) {
        throw exclusion_broken("token " + std::to_string(token) + " after " + std::to_string(last));
    }
    std::ofstream log(path, std::ios::app);
    log << token << std::endl;
    if (!log) throw std::runtime_error(path + " cannot be written");
}

void contend(const char *url, const char *key, int rounds, const std::string &path) {
    dlease::client client(url);
    dlease::acquire_options options;
    options.wait = std::chrono::seconds(60);
    options.ttl = std::chrono::seconds(10);
    while (rounds-- > 0) {
        dlease::lock lock = client.acquire(key, options);
        {
            const exclusive_file file(path);
            log_token(path + ".log", lock.token());
        }
        lock.release();
    }
}

int rounds_of(const std::string &text) {
    std::size_t length = 0;
    const int rounds = std::stoi(text, &length);
    if (rounds < 1 || length != text.size()) throw std::out_of_range(text);
    return rounds;
}

}  // namespace

int main(int argc, char **argv) {
    int rounds = 0;
    try {
        if (argc != 5) throw std::out_of_range("arguments");
        rounds = rounds_of(argv[3]);
    } catch (const std::logic_error &) {
        std::cerr << "usage: contend URL KEY ROUNDS FILE\n";
        return 2;
    }
    try {
        contend(argv[1], argv[2], rounds, argv[4]);
    } catch (const exclusion_broken &what) {
        std::cerr << "contend: exclusion broken: " << what.what() << '\n';
        return 3;
    } catch (const dlease::error &error) {
        std::cerr << "contend: " << error.what() << '\n';
        return error.status() > 0 ? 1 : 2;
    } catch (const std::exception &error) {
        std::cerr << "contend: " << error.what() << '\n';
        return 2;
    }
}
