// dlease.hpp alone, twice, and with every template in use.

#include <dlease.hpp>
#include <dlease.hpp>

bool use(dlease::mutex &mutex);
bool use(dlease::mutex &mutex) {
    return mutex.try_lock_for(std::chrono::seconds(1)) || mutex.try_lock_for(std::chrono::duration<float>(0.1F)) ||
           mutex.try_lock_until(std::chrono::steady_clock::now()) ||
           mutex.try_lock_until(std::chrono::system_clock::now());
}
