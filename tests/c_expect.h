/* Shared by the tests in C: conditions, whose failures are counted. */
#ifndef HEED_TESTS_C_EXPECT_H_
#define HEED_TESTS_C_EXPECT_H_

#include <stdio.h>
#include <string.h>

#include "heed/heed.h"

static int failures = 0;

static void expect(int holds, const char* what, int line) {
  if (holds) return;
  fprintf(stderr, "line %d: %s does not hold; last error: %s\n", line, what, heed_last_error());
  ++failures;
}
#define EXPECT(condition) expect((condition), #condition, __LINE__)

static void expect_failure(heed_status status, heed_status expected, const char* text, int line) {
  if (status == expected && strcmp(heed_last_error(), text) == 0) return;
  fprintf(stderr, "line %d: status %d, \"%s\"; expected %d, \"%s\"\n", line, (int)status, heed_last_error(),
          (int)expected, text);
  ++failures;
}
#define EXPECT_FAILURE(status, text) expect_failure((status), HEED_INVALID_ARGUMENT, (text), __LINE__)

#endif
