/* The numbers of the statuses are frozen, and so are their names. */

#include "support.h"

static void is(dl_status status, const char *name) {
    if (strcmp(dl_status_name(status), name) != 0) {
        fail_at(__FILE__, __LINE__, "%d is %s and not %s", (int)status, dl_status_name(status), name);
    }
}

int main(void) {
    is(0, "OK");
    is(1, "NOT_ACQUIRED");
    is(2, "TIMED_OUT");
    is(3, "CANCELLED");
    is(4, "NOT_HELD");
    is(5, "CONFLICT");
    is(-1, "INVALID_ARGUMENT");
    is(-2, "UNAVAILABLE");
    is(-3, "SERVER");
    is(-4, "CLOSED");
    is(-5, "FORKED");
    is(-6, "CONFIG");
    is(-7, "UNSUPPORTED");
    is(-98, "INTERNAL");
    is(-99, "PANIC");
    const int32_t none[] = {6, 7, 1000, INT32_MAX, -8, -97, -100, INT32_MIN};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) is(none[i], "UNKNOWN");

    CHECK(DL_STATUS_OK == 0 && DL_STATUS_NOT_ACQUIRED == 1 && DL_STATUS_TIMED_OUT == 2);
    CHECK(DL_STATUS_CANCELLED == 3 && DL_STATUS_NOT_HELD == 4 && DL_STATUS_CONFLICT == 5);
    CHECK(DL_STATUS_INVALID_ARGUMENT == -1 && DL_STATUS_UNAVAILABLE == -2 && DL_STATUS_SERVER == -3);
    CHECK(DL_STATUS_CLOSED == -4 && DL_STATUS_FORKED == -5 && DL_STATUS_CONFIG == -6);
    CHECK(DL_STATUS_UNSUPPORTED == -7 && DL_STATUS_INTERNAL == -98 && DL_STATUS_PANIC == -99);

    CHECK(DL_LOST_NOT == 0 && DL_LOST_EXPIRED == 1 && DL_LOST_UNREACHABLE == 2 && DL_LOST_TAKEN == 3);
    CHECK(DL_LOST_FORCED == 4 && DL_LOST_ROW_GONE == 5 && DL_LOST_CONNECTION == 6);
    CHECK(DL_LOST_FORKED == 7 && DL_LOST_CLOSED == 8 && DL_LOST_MAX_HOLD == 9);
    CHECK(DL_KIND_LEASE == 0 && DL_KIND_ROW == 1 && DL_KIND_NAMED == 2);
    CHECK(DL_ACQUIRE_MANUAL_RENEW == 1 && DL_ACQUIRE_UNFAIR == 2 && DL_ACQUIRE_LAZY_RELEASE == 4);
    CHECK(DL_WAIT_FOREVER == UINT64_MAX);
    return 0;
}
