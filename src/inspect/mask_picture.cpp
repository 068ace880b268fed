// mask_picture(): the pairs that the masks of a head allow.
#include <algorithm>
#include <cstdint>
#include <mutex>
#include <vector>

#include "attention/check/checks.hpp"
#include "core/index.hpp"
#include "core/message.hpp"
#include "heed/inspect/reports.hpp"
#include "heed/parallel.hpp"
#include "inspect/single_weights.hpp"

namespace heed {
namespace detail {
namespace {

constexpr std::int64_t kTile = 64;

class Picture {
 public:
  Picture(const Problem& problem, std::int64_t batch, std::int64_t head, const MapSize& bins)
      : p_(problem), batch_(batch), head_(head), bins_(bins) {
    allowed_.resize(static_cast<std::size_t>(bins.rows * bins.columns));
  }

  MaskPicture make() {
    for (const Segment& segment : p_.segments) {
      if (segment.batch != batch_) continue;
      const std::int64_t strips = (segment.query_end - segment.query_begin + kTile - 1) / kTile;
      parallel_for(strips, p_.threads, [&](std::int64_t strip, int) {
        const std::int64_t begin = segment.query_begin + strip * kTile;
        add_rows(segment, begin, std::min(segment.query_end, begin + kTile));
      });
    }
    const double pairs = static_cast<double>(p_.query_length) * static_cast<double>(p_.key_length);
    MaskPicture picture{Tensor({bins_.rows, bins_.columns}, DType::f64), 0, 0};
    for (std::int64_t r = 0; r < bins_.rows; ++r)
      for (std::int64_t c = 0; c < bins_.columns; ++c) {
        const double count = allowed_[static_cast<std::size_t>(r * bins_.columns + c)];
        const double size = static_cast<double>(begin_of_bin(r + 1, bins_.rows, p_.query_length) -
                                                begin_of_bin(r, bins_.rows, p_.query_length)) *
                            static_cast<double>(begin_of_bin(c + 1, bins_.columns, p_.key_length) -
                                                begin_of_bin(c, bins_.columns, p_.key_length));
        picture.allowed.at<double>(r, c) = size > 0 ? count / size : 0;
        picture.allowed_share += count;
      }
    if (pairs > 0) {
      picture.allowed_share /= pairs;
      picture.tile_share = tiles_ / pairs;
    }
    return picture;
  }

 private:
  // Adds integers, whose sums in doubles do not depend on the order.
  void add_rows(const Segment& segment, std::int64_t begin, std::int64_t end) {
    const auto tiles = static_cast<std::size_t>((p_.key_length + kTile - 1) / kTile);
    std::vector<std::uint8_t> visible(static_cast<std::size_t>(p_.key_length));
    std::vector<char> seen(tiles);
    std::vector<double> counts(allowed_.size());
    for (std::int64_t i = begin; i < end; ++i) {
      const Row row{batch_, head_, head_ / (p_.heads / p_.kv_heads), i,
                    i - segment.query_begin + segment.offset};
      const KeyRange keys = keys_of(p_, segment, row.position);
      if (keys.begin >= keys.end) continue;
      find_visible(row, keys, visible.data());
      const std::int64_t bin = i * bins_.rows / p_.query_length * bins_.columns;
      for (std::int64_t j = keys.begin; j < keys.end; ++j) {
        if (visible[static_cast<std::size_t>(j)] == 0) continue;
        seen[static_cast<std::size_t>(j / kTile)] = 1;
        counts[static_cast<std::size_t>(bin + j * bins_.columns / p_.key_length)] += 1;
      }
    }
    const std::lock_guard guard(adding_);
    for (std::size_t n = 0; n < counts.size(); ++n) allowed_[n] += counts[n];
    for (std::size_t tile = 0; tile < tiles; ++tile)
      if (seen[tile] != 0)
        tiles_ +=
            static_cast<double>(end - begin) *
            static_cast<double>(std::min(kTile, p_.key_length - static_cast<std::int64_t>(tile) * kTile));
  }

  void find_visible(const Row& row, const KeyRange& keys, std::uint8_t* visible) const {
    std::fill(visible + keys.begin, visible + keys.end, std::uint8_t{1});
    for (std::int64_t j = keys.begin; p_.mask && j < keys.end; ++j)
      if (read(p_.mask, row.batch, row.head, row.i, j) == 0) visible[j] = 0;
    for (const MaskSource& mask : p_.sparse_masks)
      mask.restrict_row(row.batch, row.head, row.i, keys.begin, keys.end, visible + keys.begin);
  }

  const Problem& p_;
  std::int64_t batch_, head_;
  MapSize bins_;
  std::mutex adding_;
  std::vector<double> allowed_;  // [R][C]: allowed pairs
  double tiles_ = 0;             // pairs in tiles with an allowed pair
};

}  // namespace
}  // namespace detail

MaskPicture mask_picture(const TensorView& query, const TensorView& key, const AttentionOptions& options,
                         std::int64_t batch, std::int64_t head, const MapSize& bins) {
  const detail::Problem problem = detail::check_call(query, key, key, options);
  if (batch < 0 || batch >= problem.batch || head < 0 || head >= problem.heads)
    detail::refuse("batch entry ", batch, ", head ", head, ": the call has ",
                   detail::counted(problem.batch, "batch entry", "batch entries"), " and ",
                   detail::counted(problem.heads, "head"));
  if (bins.rows < 1 || bins.columns < 1 || bins.rows > problem.query_length ||
      bins.columns > problem.key_length)
    detail::refuse("bins are ", bins.rows, " x ", bins.columns, "; 1 x 1 to ", problem.query_length, " x ",
                   problem.key_length, " is expected");
  return detail::Picture(problem, batch, head, bins).make();
}

}  // namespace heed
