// What the shared library shows: symbols are hidden unless marked.
#pragma once

#if defined(_WIN32)
#define HEED_API
#else
#define HEED_API __attribute__((visibility("default")))
#endif
