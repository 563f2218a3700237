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

#define _POSIX_C_SOURCE 200809L

#include <dlease.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NOT_HELD = 1, FAILED = 2, BROKEN = 3 };

/* Tells what went wrong, frees the error, and gives the exit status. */
static int failed(dl_status status, dl_error *error) {
    fprintf(stderr, "contend: %s\n", error ? dl_error_message(error) : dl_status_name(status));
    dl_error_free(error);
    return status > 0 ? NOT_HELD : FAILED;
}

static int failed_at(const char *path) {
    fprintf(stderr, "contend: %s: %s\n", path, strerror(errno));
    return FAILED;
}

/* Compares the token with the last one in the log, and appends it. */
static int log_token(const char *path, uint64_t token) {
    FILE *log = fopen(path, "a+");
    if (log == NULL) return failed_at(path);
    uint64_t last = 0;
    rewind(log);
    while (fscanf(log, "%" SCNu64, &last) == 1) {
    }
    if (last >= token) {
        fprintf(stderr, "contend: exclusion broken: token %" PRIu64 " after %" PRIu64 "\n", token, last);
        fclose(log);
        return BROKEN;
    }
    fseek(log, 0, SEEK_END); /* from reading to writing */
    fprintf(log, "%" PRIu64 "\n", token);
    return fclose(log) == 0 ? 0 : failed_at(path);
}

/* What only one of all may be in at a time. */
static int critical_section(const char *path, const char *log_path, uint64_t token) {
    int file = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (file < 0 && errno == EEXIST) {
        fprintf(stderr, "contend: exclusion broken: %s is there\n", path);
        return BROKEN;
    }
    if (file < 0) return failed_at(path);
    close(file);
    int result = log_token(log_path, token);
    if (unlink(path) != 0 && result == 0) result = failed_at(path);
    return result;
}

static int play_round(dl_client *client, const char *key, const char *path, const char *log_path) {
    dl_lock *lock = NULL;
    dl_error *error = NULL;
    dl_acquire_options options = DL_ACQUIRE_OPTIONS_INIT;
    options.wait_ms = 60000;
    options.ttl_ms = 10000;
    dl_status status = dl_acquire(client, key, &options, &lock, &error);
    if (status != DL_STATUS_OK) return failed(status, error);

    int result = critical_section(path, log_path, dl_lock_token(lock));
    status = dl_release(lock, &error);
    dl_lock_free(lock);
    if (result == 0 && status != DL_STATUS_OK) return failed(status, error);
    dl_error_free(error);
    return result;
}

int main(int argc, char **argv) {
    char *end = "";
    long rounds = argc == 5 ? strtol(argv[3], &end, 10) : 0;
    if (rounds < 1 || *end != '\0') {
        fprintf(stderr, "usage: contend URL KEY ROUNDS FILE\n");
        return FAILED;
    }
    char log_path[4096];
    if (snprintf(log_path, sizeof log_path, "%s.log", argv[4]) >= (int)sizeof log_path) {
        fprintf(stderr, "contend: the path of FILE is too long\n");
        return FAILED;
    }
    dl_client *client = NULL;
    dl_error *error = NULL;
    dl_status status = dl_client_open(argv[1], NULL, &client, &error);
    if (status != DL_STATUS_OK) return failed(status, error);
    int result = 0;
    while (result == 0 && rounds-- > 0) result = play_round(client, argv[2], argv[4], log_path);
    dl_client_close(client);
    return result;
}
