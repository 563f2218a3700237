/* dlease.h alone, before any other header; valid as C99 and as C++11. */

#include <dlease.h>

dl_client_options client_options(void);
dl_client_options client_options(void) {
    dl_client_options options = DL_CLIENT_OPTIONS_INIT;
    return options;
}

dl_acquire_options acquire_options(void);
dl_acquire_options acquire_options(void) {
    dl_acquire_options options = DL_ACQUIRE_OPTIONS_INIT;
    options.wait_ms = DL_WAIT_FOREVER;
    options.kind = DL_KIND_LEASE;
    options.flags = DL_ACQUIRE_MANUAL_RENEW | DL_ACQUIRE_UNFAIR;
    return options;
}
