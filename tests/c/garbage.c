/*
 * Whatever text comes as a URL, opening gives a client or INVALID_ARGUMENT, and
 * no message shows the password.
 *
 *   garbage COUNT
 */

#include "support.h"

static uint64_t state = 88172645463325252u; /* the same texts every time */

static unsigned random_below(unsigned limit) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 33) % limit;
}

static const char *const pieces[] = {
    "mysql://", "mysql:", "//",     "/",     ":",     "@",      "?",        "&",          "=",    "%",
    "%00",      "%2",   "%zz",    "%ff",   "[::1]", "[",      "]",        "127.0.0.1",  ",",    "host",
    "65535",    "65536", "-1",    "tls",   "off",   "socket", "/tmp/s",   "namespace",  "x",    "\xc3\xa4",
    "\xff",     "tls_ca", "io_timeout_ms", "99999999999999999999", "create_schema", "yes", "#", " ", "\n", "\\",
};

/* Any bytes at all. */
static void noise(char *url) {
    const unsigned length = random_below(200);
    for (unsigned i = 0; i < length; i++) url[i] = (char)(1 + random_below(255));
    url[length] = '\0';
}

/* What URLs are made of, in no order. */
static void shuffled(char *url) {
    *url = '\0';
    for (unsigned left = random_below(20); left > 0; left--) {
        strcat(url, pieces[random_below(sizeof pieces / sizeof *pieces)]);
    }
}

/* A good URL with a few bytes changed, taken away or doubled. */
static void damaged(char *url) {
    strcpy(url, "mysql://user:hidden%20word@host:3306,[::1]:3307/app?namespace=a%20b&tls=required"
                "&connect_timeout_ms=100&max_connections=4&create_schema=no&table_prefix=t_");
    for (unsigned left = random_below(4); left > 0; left--) {
        char *at = url + random_below((unsigned)strlen(url));
        switch (random_below(3)) {
        case 0: *at = (char)(1 + random_below(255)); break;
        case 1: memmove(at, at + 1, strlen(at)); break;
        case 2: memmove(at + 1, at, strlen(at) + 1); break;
        }
    }
}

int main(int argc, char **argv) {
    unsigned opened = 0;
    if (argc != 2) return 2;
    for (int count = atoi(argv[1]); count > 0; count--) {
        char url[1024];
        dl_client *client = JUNK(dl_client);
        dl_error *error = JUNK(dl_error);
        (count % 3 == 0 ? noise : count % 3 == 1 ? shuffled : damaged)(url);
        const dl_status status = dl_client_open(url, NULL, &client, &error);
        CHECK(strstr(dl_error_message(error), "hidden") == NULL);
        CHECK(status == DL_STATUS_OK || status == DL_STATUS_INVALID_ARGUMENT);
        CHECK((status == DL_STATUS_OK) == (client != NULL) && (client == NULL) == (error != NULL));
        opened += client != NULL;
        dl_client_close(client);
        dl_error_free(error);
    }
    CHECK(opened > 0); /* else the damage is too great to test much */
    return 0;
}
