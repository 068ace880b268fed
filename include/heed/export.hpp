// What the shared library shows: symbols are hidden unless marked. With a static library (HEED_STATIC, which
// the build systems set) there is nothing to show.
#pragma once

#if defined(_WIN32) || defined(HEED_STATIC)
#define HEED_API
#define HEED_HIDDEN
#else
#define HEED_API __attribute__((visibility("default")))
#define HEED_HIDDEN __attribute__((visibility("hidden")))  // of a member of a class that is shown
#endif
