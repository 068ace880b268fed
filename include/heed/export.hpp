// What the shared library shows: symbols are hidden unless marked. With a static library (HEED_STATIC, which
// the build systems set) there is nothing to show.
#pragma once

#if defined(_WIN32) || defined(HEED_STATIC)
#define HEED_API
#else
#define HEED_API __attribute__((visibility("default")))
#endif
