// The C functions of shardings.
#include <vector>

#include "attention/api/c_support.hpp"
#include "core/message.hpp"

namespace {

using heed::Sharding;
using heed::detail::refuse;
using namespace heed::detail::c_api;

}  // namespace

heed_status heed_sharding_contiguous(std::int64_t length, std::int32_t ranks, heed_sharding** sharding) {
  return make_handle("sharding", sharding, [&] { return Sharding::contiguous(length, ranks); });
}

heed_status heed_sharding_zigzag(std::int64_t length, std::int32_t ranks, heed_sharding** sharding) {
  return make_handle("sharding", sharding, [&] { return Sharding::zigzag(length, ranks); });
}

heed_status heed_sharding_striped(std::int64_t length, std::int32_t ranks, std::int64_t stripe,
                                  heed_sharding** sharding) {
  return make_handle("sharding", sharding, [&] { return Sharding::striped(length, ranks, stripe); });
}

heed_status heed_sharding_from_ranges(const heed_sharding_range* ranges, std::size_t count,
                                      std::int32_t ranks, heed_sharding** sharding) {
  return make_handle("sharding", sharding, [&] {
    if (count > 0) require("ranges", ranges);
    (void)Sharding::from_ranks({}, ranks);  // checks ranks
    std::vector<std::vector<heed::PositionRange>> all(static_cast<std::size_t>(ranks));
    for (std::size_t n = 0; n < count; ++n) {
      const heed_sharding_range& range = ranges[n];
      if (range.rank < 0 || range.rank >= ranks)
        refuse("ranges[", n, "].rank is ", range.rank, "; 0 to ", ranks - 1, " is expected");
      all[static_cast<std::size_t>(range.rank)].push_back({range.begin, range.end});
    }
    return Sharding::from_ranges(all);
  });
}

void heed_sharding_free(heed_sharding* sharding) { delete sharding; }

heed_status heed_sharding_rows(const heed_sharding* sharding, std::int32_t rank, std::int64_t* rows) {
  return guarded([&] {
    require("sharding", sharding);
    require("rows", rows);
    *rows = sharding->sharding.rows(rank);
  });
}

heed_status heed_sharding_position(const heed_sharding* sharding, std::int32_t rank, std::int64_t row,
                                   std::int64_t* position) {
  return guarded([&] {
    require("sharding", sharding);
    require("position", position);
    *position = sharding->sharding.position(rank, row);
  });
}

heed_status heed_sharding_row(const heed_sharding* sharding, std::int64_t position, std::int32_t* rank,
                              std::int64_t* row) {
  return guarded([&] {
    require("sharding", sharding);
    require("rank", rank);
    require("row", row);
    *rank = sharding->sharding.rank_of(position);
    *row = sharding->sharding.row_of(position);
  });
}
