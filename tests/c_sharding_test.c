/* Shardings from C: compiled as C99, linked with the library. */
#include <stdlib.h>

#include "c_expect.h"

/* The positions of a rank's rows, as the digits of a number that begins with 1. */
static int64_t positions(const heed_sharding* sharding, int32_t rank) {
  int64_t rows = 0, digits = 1, n;
  EXPECT(heed_sharding_rows(sharding, rank, &rows) == HEED_OK);
  for (n = 0; n < rows; ++n) {
    int64_t position = -1, row = -1;
    int32_t at = -1;
    EXPECT(heed_sharding_position(sharding, rank, n, &position) == HEED_OK);
    EXPECT(heed_sharding_row(sharding, position, &at, &row) == HEED_OK);
    EXPECT(at == rank && row == n);
    digits = 10 * digits + position;
  }
  return digits;
}

#define EXPECT_POSITIONS(call, rank, digits)     \
  do {                                           \
    EXPECT((call) == HEED_OK);                   \
    EXPECT(positions(made, (rank)) == (digits)); \
    heed_sharding_free(made);                    \
  } while (0)

static void each_kind_says_which_positions_a_rank_has(void) {
  const heed_sharding_range ranges[] = {{4, 6, 0}, {0, 3, 2}, {3, 4, 0}, {6, 7, 2}};
  heed_sharding* made = NULL;
  EXPECT_POSITIONS(heed_sharding_contiguous(7, 3, &made), 1, 134);
  EXPECT_POSITIONS(heed_sharding_zigzag(7, 3, &made), 0, 1016);
  EXPECT_POSITIONS(heed_sharding_striped(7, 2, 2, &made), 1, 1236);
  EXPECT_POSITIONS(heed_sharding_from_ranges(ranges, 4, 3, &made), 0, 1345);
  EXPECT_POSITIONS(heed_sharding_from_ranges(ranges, 4, 3, &made), 1, 1);
  EXPECT_POSITIONS(heed_sharding_from_ranges(NULL, 0, 3, &made), 2, 1);
}

static void what_is_wrong_with_a_sharding_is_said(void) {
  const heed_sharding_range foreign = {0, 3, 2}, late = {1, 3, 0};
  heed_sharding* made = NULL;
  int64_t number = 0;
  int32_t rank = 0;
  EXPECT_FAILURE(heed_sharding_contiguous(7, 0, &made), "ranks is 0; at least 1 is expected");
  EXPECT_FAILURE(heed_sharding_zigzag(-1, 2, &made), "length is -1; at least 0 is expected");
  EXPECT_FAILURE(heed_sharding_striped(7, 2, 0, &made), "stripe is 0; at least 1 is expected");
  EXPECT_FAILURE(heed_sharding_from_ranges(&late, 1, 0, &made), "ranks is 0; at least 1 is expected");
  EXPECT_FAILURE(heed_sharding_from_ranges(&late, 1, INT32_MAX, &made),
                 "ranks is 2147483647; at most 4194304 is expected");
  EXPECT_FAILURE(heed_sharding_from_ranges(NULL, 1, 2, &made), "ranges is NULL");
  EXPECT_FAILURE(heed_sharding_from_ranges(&foreign, 1, 2, &made), "ranges[0].rank is 2; 0 to 1 is expected");
  EXPECT_FAILURE(heed_sharding_from_ranges(&late, 1, 2, &made),
                 "position 0 is on no rank; each position on one rank is expected");
  EXPECT(made == NULL);
  EXPECT_FAILURE(heed_sharding_contiguous(7, 2, NULL), "sharding is NULL");
  EXPECT(heed_sharding_contiguous(7, 2, &made) == HEED_OK);
  EXPECT_FAILURE(heed_sharding_rows(NULL, 0, &number), "sharding is NULL");
  EXPECT_FAILURE(heed_sharding_rows(made, 0, NULL), "rows is NULL");
  EXPECT_FAILURE(heed_sharding_position(NULL, 0, 0, &number), "sharding is NULL");
  EXPECT_FAILURE(heed_sharding_position(made, 0, 0, NULL), "position is NULL");
  EXPECT_FAILURE(heed_sharding_row(NULL, 0, &rank, &number), "sharding is NULL");
  EXPECT_FAILURE(heed_sharding_row(made, 0, NULL, &number), "rank is NULL");
  EXPECT_FAILURE(heed_sharding_row(made, 0, &rank, NULL), "row is NULL");
  EXPECT(heed_sharding_rows(made, 2, &number) == HEED_INVALID_ARGUMENT);
  EXPECT(heed_sharding_position(made, 1, 3, &number) == HEED_INVALID_ARGUMENT);
  EXPECT(heed_sharding_row(made, 7, &rank, &number) == HEED_INVALID_ARGUMENT);
  heed_sharding_free(made);
  heed_sharding_free(NULL);
}

static void a_library_over_this_one_can_leave_a_message(void) {
  EXPECT(heed_set_last_error(HEED_IO, "the file is gone") == HEED_IO);
  EXPECT(strcmp(heed_last_error(), "the file is gone") == 0);
  EXPECT(heed_set_last_error(HEED_OK, NULL) == HEED_OK);
  EXPECT(strcmp(heed_last_error(), "") == 0);
}

int main(void) {
  each_kind_says_which_positions_a_rank_has();
  what_is_wrong_with_a_sharding_is_said();
  a_library_over_this_one_can_leave_a_message();
  if (failures > 0) fprintf(stderr, "%d failures\n", failures);
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
