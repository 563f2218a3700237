/*
 * versions CRATE: the header that this is compiled with and the library that
 * it runs with are of the crate's version. Exit status 0 if so.
 */

#include <dlease.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    char numbers[64];
    snprintf(numbers, sizeof numbers, "%d.%d.%d", DL_VERSION_MAJOR, DL_VERSION_MINOR, DL_VERSION_PATCH);
    printf("header %s (%s), library %s, ABI %d and %u\n", DL_VERSION_STRING, numbers, dl_version(),
           DL_ABI_VERSION, (unsigned)dl_abi_version());
    return argc != 2 || strcmp(DL_VERSION_STRING, argv[1]) != 0 || strcmp(numbers, argv[1]) != 0 ||
           strcmp(dl_version(), argv[1]) != 0 || dl_abi_version() != DL_ABI_VERSION;
}
