#include "page/report.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/index.hpp"
#include "page/opening.hpp"

namespace heed::detail {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kExactNumbers = 65'536;  // lists up to this length are held as f32
constexpr std::int64_t kThumbnail = 64;         // bins per side
constexpr double kMaxBytes = 19e6;              // the most attended keys may fill the page up to this size,
constexpr double kBytesForKeys = 2e6;           // or take this size in any case,
constexpr double kLeastKeys = 3;                // or have this many keys per row in any case
constexpr double kBytesOfBlock = 400;           // in addition to its numbers

// JSON has no NaN.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json name_json(const HeadName& name) {
  return {{"name", name_of(name)},
          {"pattern", name_of(name.pattern)},
          {"score", number(name.score)},
          {"rest", name.of_rest}};
}

Json summary_json(const HeadSummary& head) {
  Json patterns = Json::array();
  for (const PatternScore& pattern : head.patterns)
    patterns.push_back({{"name", name_of(pattern.pattern)},
                        {"score", number(pattern.score)},
                        {"rest", number(pattern.rest_score)},
                        {"named", pattern.named}});
  Json names = Json::array();
  for (const HeadName& name : head.names()) names.push_back(name_json(name));
  const auto runner_up = head.runner_up();
  return {{"batch", head.batch},
          {"head", head.head},
          {"name", head.name()},
          {"names", names},
          {"runner_up", runner_up ? name_json(*runner_up) : Json(nullptr)},
          {"choices", head.choices},
          {"rows", head.rows},
          {"entropy", number(head.entropy)},
          {"max_weight", number(head.max_weight)},
          {"distance", number(head.distance)},
          {"first", number(head.first)},
          {"self", number(head.self)},
          {"previous", number(head.previous)},
          {"next", number(head.next)},
          {"patterns", patterns}};
}

class Holder {
 public:
  Holder(const AttentionReport& report, const PageDetail& detail)
      : report_(report), detail_(detail), heads_(report.batch * report.heads) {
    if (!report.map.empty()) size_ = {report.map.front().size(2), report.map.front().size(3)};
    if (detail.bins > 0) size_ = {bins_of(size_.rows, report.queries), bins_of(size_.columns, report.keys)};
  }

  std::optional<PageReport> hold() {
    hold_maps();
    hold_tiles();
    if (detail_.curves) hold_curves();
    if (!fits() || !hold_top_k()) return std::nullopt;
    Json summaries = Json::array();
    for (const HeadSummary& head : report_.summaries) summaries.push_back(summary_json(head));
    Json layers = Json::array();
    for (const LayerHeads& layer : report_.layers)
      layers.push_back({{"name", layer.name}, {"heads", layer.heads}});
    Json opening;
    if (const std::optional<Opening> place = opening_of(report_))
      opening = {{"head", place->head}, {"row", place->row}, {"key", place->key}};
    result_.about = {{"batch", report_.batch}, {"heads", report_.heads},
                     {"layers", layers},       {"options", report_.options},
                     {"summaries", summaries}, {"opening", opening},
                     {"tiles", tiles_},        {"thumb", thumb_},
                     {"map_rows", size_.rows}, {"map_columns", size_.columns},
                     {"top_k", top_k_},        {"seen", seen_json()}};
    result_.left_out = left_out();
    result_.about["left_out"] = result_.left_out;
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool fits() const { return detail_.most < 0 || bytes_ <= static_cast<double>(detail_.most); }
  [[nodiscard]] bool has_weights() const { return report_.weights.weights.count() > 0; }
  // The bins along an axis of `count` places, for a map with `bins`: see map_in_bins().
  [[nodiscard]] std::int64_t bins_of(std::int64_t bins, std::int64_t count) const {
    return bins == count || bins % detail_.bins == 0 ? std::min(bins, detail_.bins) : bins;
  }
  [[nodiscard]] bool bins_are_cells() const {
    return size_.rows == report_.queries && size_.columns == report_.keys;
  }

  // The part of tensor [B, H, …] for head n (of all entries); a batch or head axis of 1 serves all.
  TensorView of_head(const Tensor& tensor, std::int64_t n) const {
    const std::int64_t batch = tensor.size(0) == 1 ? 0 : n / report_.heads;
    const std::int64_t head = tensor.size(1) == 1 ? 0 : n % report_.heads;
    return tensor.view().select(0, batch).select(0, head);
  }

  void keep(PageBlock block) { keep(std::move(block), result_.in_detail); }
  void keep(PageBlock block, std::vector<PageBlock>& among) {
    bytes_ += static_cast<double>(block.data.size()) + kBytesOfBlock;
    among.push_back(std::move(block));
  }

  static PageBlock compact(const std::string& name, const TensorView& tensor) {
    return tensor.count() <= kExactNumbers ? page_block(name, tensor) : page_block_log16(name, tensor);
  }

  static std::string numbered(const std::string& name, std::int64_t n) {
    return name + "-" + std::to_string(n);
  }

  // The keys [begin, end) that the rows of each batch entry may see, as runs of rows whose begin and end each
  // stay or move by one key a row: [first row, begin, its step, end, its step].
  [[nodiscard]] Json seen_json() const {
    constexpr std::size_t kMostRuns = 4096;
    Json entries = Json::array();
    for (std::int64_t b = 0; b < report_.batch && report_.key_begin.count() > 0; ++b) {
      const auto of = [&](const Tensor& edge, std::int64_t i) { return edge.at<std::int64_t>(b, i); };
      const auto step = [&](const Tensor& edge, std::int64_t i) {
        return i + 1 < report_.queries ? of(edge, i + 1) - of(edge, i) : 0;
      };
      Json runs = Json::array();
      for (std::int64_t i = 0; i < report_.queries && runs.size() < kMostRuns;) {
        const std::int64_t begins = step(report_.key_begin, i), ends = step(report_.key_end, i);
        runs.push_back({i, of(report_.key_begin, i), begins, of(report_.key_end, i), ends});
        while (i + 1 < report_.queries && step(report_.key_begin, i) == begins &&
               step(report_.key_end, i) == ends)
          ++i;
        ++i;
      }
      entries.push_back(runs.size() < kMostRuns ? std::move(runs) : Json());
    }
    return entries;
  }

  // Sets the bins that no row may look into to -inf.
  void mask_bins(Tensor& map, std::int64_t n) const {
    const std::int64_t rows = map.size(0);
    const std::int64_t columns = map.size(1);
    const TensorView begin = report_.key_begin.view().select(0, n / report_.heads);
    const TensorView end = report_.key_end.view().select(0, n / report_.heads);
    std::vector<char> open(static_cast<std::size_t>(columns));
    for (std::int64_t r = 0; r < rows; ++r) {
      std::fill(open.begin(), open.end(), char{0});
      for (std::int64_t i = begin_of_bin(r, rows, report_.queries);
           i < begin_of_bin(r + 1, rows, report_.queries); ++i) {
        const std::int64_t from = begin.at<std::int64_t>(i);
        const std::int64_t to = end.at<std::int64_t>(i);
        if (from >= to) continue;
        const std::int64_t last = bin_of(to - 1, columns);
        for (std::int64_t c = bin_of(from, columns); c <= last; ++c) open[static_cast<std::size_t>(c)] = 1;
      }
      for (std::int64_t c = 0; c < columns; ++c)
        if (open[static_cast<std::size_t>(c)] == 0)
          map.at<double>(r, c) = -std::numeric_limits<double>::infinity();
    }
  }
  std::int64_t bin_of(std::int64_t key, std::int64_t columns) const { return key * columns / report_.keys; }

  Tensor masked_map(const Tensor& level, std::int64_t n) const {
    Tensor map = Tensor::copy_of(of_head(level, n));
    mask_bins(map, n);
    return map;
  }

  void hold_maps() {
    if (report_.map.empty() || (has_weights() && detail_.weights)) return;
    const bool coarser = detail_.bins > 0;
    const std::vector<Tensor> pooled =
        coarser ? pool_map(map_in_bins(report_.map.front(), size_)) : std::vector<Tensor>();
    const std::vector<Tensor>& levels = coarser ? pooled : report_.map;
    std::vector<Tensor> finest;
    for (std::int64_t n = 0; n < heads_ && fits(); ++n) {
      finest.push_back(masked_map(levels.front(), n));
      keep(page_block_log16(numbered("map", n), finest.back()));
    }
    // A coarser level shows all heads at once before the fine levels are read.
    const auto small = std::find_if(levels.begin(), levels.end(), [](const Tensor& level) {
      return level.size(2) <= kThumbnail && level.size(3) <= kThumbnail;
    });
    if (small == levels.begin() || small == levels.end()) return;
    thumb_ = std::int64_t{1} << (small - levels.begin());
    for (std::int64_t n = 0; n < heads_ && fits(); ++n) {
      Tensor thumb = Tensor::copy_of(of_head(*small, n));
      mask_thumb(finest[static_cast<std::size_t>(n)], thumb);
      keep(page_block_log16(numbered("thumb", n), thumb), result_.overview);
    }
  }

  // A bin is masked if all fine bins in it are.
  void mask_thumb(const Tensor& fine, Tensor& thumb) const {
    constexpr double kMasked = -std::numeric_limits<double>::infinity();
    Tensor open(thumb.shape(), DType::u8);
    for (std::int64_t r = 0; r < fine.size(0); ++r)
      for (std::int64_t c = 0; c < fine.size(1); ++c)
        if (fine.at<double>(r, c) != kMasked) open.at<std::uint8_t>(r / thumb_, c / thumb_) = 1;
    for (std::int64_t r = 0; r < thumb.size(0); ++r)
      for (std::int64_t c = 0; c < thumb.size(1); ++c)
        if (open.at<std::uint8_t>(r, c) == 0) thumb.at<double>(r, c) = kMasked;
  }

  void hold_tile(const WeightTile& tile) {
    const Tensor& weights = tile.weights;
    if (weights.count() == 0) return;
    for (std::int64_t n = 0; n < heads_ && fits(); ++n) {
      if (tile.range.batch >= 0 && tile.range.batch != n / report_.heads) continue;
      if (tile.range.head >= 0 && tile.range.head != n % report_.heads) continue;
      Tensor held = Tensor::copy_of(of_head(weights, n), DType::f64);
      const Tensor allowed = Tensor::copy_of(of_head(tile.allowed, n));
      const auto values = held.values<double>();
      const auto open = allowed.values<bool>();
      for (std::size_t i = 0; i < values.size(); ++i)
        if (!open[i]) values[i] = -std::numeric_limits<double>::infinity();
      const std::string name = numbered("tile", static_cast<std::int64_t>(tiles_.size()));
      tiles_.push_back({{"tensor", name},
                        {"head", n},
                        {"row_begin", tile.range.row_begin},
                        {"row_end", tile.range.row_end},
                        {"key_begin", tile.range.key_begin},
                        {"key_end", tile.range.key_end}});
      keep(compact(name, held));
    }
  }

  void hold_tiles() {
    if (detail_.weights) hold_tile(report_.weights);
    for (const WeightTile& tile : report_.tiles) hold_tile(tile);
  }

  void hold_curves() {
    const std::vector<std::pair<std::string, const Tensor*>> curves = {{"entropy", &report_.entropy},
                                                                       {"max_weight", &report_.max_weight},
                                                                       {"distance", &report_.distance},
                                                                       {"received", &report_.received}};
    for (std::int64_t n = 0; n < heads_ && fits(); ++n)
      for (const auto& [name, tensor] : curves) {
        if (tensor->count() == 0) continue;
        const TensorView curve = of_head(*tensor, n);
        keep(compact(numbered(name, n), curve));
      }
  }

  // Holds as many of the most attended keys as the page size allows; false if these are too few.
  bool hold_top_k() {
    if (report_.top_k_index.count() == 0) return true;
    const auto rows = static_cast<double>(heads_ * report_.queries);
    constexpr double kBytesOfOne = (3 + 2) * 4.0 / 3.0;
    const bool bounded = detail_.most >= 0;
    const double room =
        bounded ? static_cast<double>(detail_.most) - bytes_ - 2 * kBytesOfBlock * static_cast<double>(heads_)
                : std::max(kBytesForKeys, kMaxBytes - bytes_);
    const double fit = std::max(bounded ? 0 : kLeastKeys, std::floor(room / (rows * kBytesOfOne)));
    top_k_ = static_cast<std::int64_t>(std::min(static_cast<double>(report_.top_k_index.size(3)), fit));
    // A page with every weight finds them itself.
    if (top_k_ == 0) return !detail_.curves || has_every_weight();
    for (std::int64_t n = 0; n < heads_; ++n) {
      keep(page_block_u24(numbered("top_index", n), of_head(report_.top_k_index, n).narrow(1, 0, top_k_)));
      keep(
          page_block_log16(numbered("top_weight", n), of_head(report_.top_k_weight, n).narrow(1, 0, top_k_)));
    }
    return true;
  }

  [[nodiscard]] bool has_every_weight() const {
    return bins_are_cells() || (has_weights() && detail_.weights);
  }

  std::string left_out() const {
    std::vector<std::string> missing;
    const auto bins = [](std::int64_t rows, std::int64_t columns) {
      return std::to_string(rows) + " x " + std::to_string(columns);
    };
    const std::string held = bins(size_.rows, size_.columns);
    if (has_weights() && !has_every_weight())
      missing.push_back("single weights (its maps have " + held + " bins)");
    else if (has_weights() && !detail_.weights && report_.queries * report_.keys <= kExactNumbers)
      missing.push_back("all but three digits of each weight");
    else if (!has_weights() && !report_.map.empty())
      if (const std::string all = bins(report_.map.front().size(2), report_.map.front().size(3)); all != held)
        missing.push_back("maps of " + all + " bins (its own have " + held + ")");
    const std::int64_t keys = report_.top_k_index.count() == 0 ? 0 : report_.top_k_index.size(3);
    if (top_k_ < keys && !has_every_weight())
      missing.push_back(top_k_ == 0 ? "the keys attended to most"
                                    : "all but " + std::to_string(top_k_) + " of the " +
                                          std::to_string(keys) + " keys attended to most");
    if (!detail_.curves) missing.push_back("the figures of each row and key");
    return joined_texts(missing, ", ");
  }

  const AttentionReport& report_;
  const PageDetail& detail_;
  std::int64_t heads_;
  MapSize size_{};
  PageReport result_;
  Json tiles_ = Json::array();
  std::int64_t thumb_ = 0;  // bins of the finest map per thumbnail bin and side; 0: none
  std::int64_t top_k_ = 0;
  double bytes_ = 0;
};

}  // namespace

std::optional<PageReport> page_report(const AttentionReport& report, const PageDetail& detail) {
  return Holder(report, detail).hold();
}

}  // namespace heed::detail
