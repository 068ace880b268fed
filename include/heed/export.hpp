// Symbol visibility of the shared library: symbols are hidden unless marked. With a static library
// (HEED_STATIC, which the build systems set) the marks are empty.
#pragma once

#if defined(_WIN32) || defined(HEED_STATIC)
#define HEED_API
#define HEED_HIDDEN
#else
#define HEED_API __attribute__((visibility("default")))
#define HEED_HIDDEN __attribute__((visibility("hidden")))  // for a member of an exported class
#endif
