/*
 * The library as a host loads it at run time, by dlopen: for tests of what
 * loading and unloading do. Its functions under their own names.
 */

#ifndef LOADED_H
#define LOADED_H

#include <dlfcn.h>

#include "support.h"

static void *library;

/* A pointer to the function of this name; ISO C has no cast from void *. */
#define FUNCTION(name) \
    __typeof__(name) *name##_; \
    *(void **)&name##_ = dlsym(library, #name); \
    CHECK(name##_ != NULL)

static inline void load_library(void) {
    const char *path = getenv("DLEASE_LIBRARY");
    library = dlopen(path ? path : "libdlease.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) fail_at(__FILE__, __LINE__, "%s", dlerror());
}

#endif
