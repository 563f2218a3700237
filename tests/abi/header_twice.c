/* dlease.h may be included twice. */

#include <dlease.h>
#include <dlease.h>

const char *version(void);
const char *version(void) { return DL_VERSION_STRING; }
