#include "attention/plan/gathered_keys.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "attention/masks/sources.hpp"
#include "attention/plan/execution_plan.hpp"
#include "attention/problem/elements.hpp"
#include "attention/problem/score_rules.hpp"
#include "core/index.hpp"
#include "heed/attention/results.hpp"

namespace heed::detail {
namespace {

// By default, fewer keys than this go by the mask: that costs little, and keeps the bits of other masks.
constexpr std::int64_t kManyKeys = 8192;
// The least number of keys per room in a list. A gathered key is read from memory for its query heads alone.
// A visited one serves the rows of a task, so few heads and many rows need shorter lists.
std::int64_t least_keys_each(std::int64_t group, std::int64_t rows) {
  return std::max<std::int64_t>(8, std::min<std::int64_t>(64, rows) / group);
}

// On smaller grids, making the sequences takes longer than it saves.
constexpr std::int64_t kManyLineKeys = 1024;

// List entries of a piece, which bound its memory.
constexpr std::int64_t kPieceEntries = std::int64_t{1} << 16;
// The same for gradients, whose pieces copy the keys and sum the gradients of each entry.
constexpr std::int64_t kGradientEntries = std::int64_t{1} << 10;

template <class Part>
const Part* part_of(const MaskSource& source) {
  return dynamic_cast<const Part*>(static_cast<const MaskPart*>(source.part));
}

template <class Part>
const MaskSource* source_with(const Problem& p) {
  for (const MaskSource& one : p.sparse_masks)
    if (part_of<Part>(one) != nullptr) return &one;
  return nullptr;
}

bool is_worth_it(const Problem& p, const KeyLists& lists, std::int64_t heads) {
  if (lists.gather() == Gather::always) return true;
  const std::int64_t group = std::min(heads, p.heads / p.kv_heads);
  return lists.gather() == Gather::automatic && p.key_length >= kManyKeys &&
         lists.width() <= p.key_length / least_keys_each(group, p.whole.query_length);
}

// Gathered rows know keys by their place in a list. So they take no results and no operands of the square.
// A new rule must be forbidden here or handed on by bind().
static_assert(sizeof(ScoreRules) == 336);
bool fits(const Problem& p) {
  for (const auto& [entry, member] : kResults<Output>)
    if (!takes_one_pass(entry) && p.*member) return false;
  return !p.bias && !p.score_mod && !p.decay && p.dropout.probability == 0;
}

// By the mask, rows side by side visit panels of keys of which each allows them few. The sequence of a line
// is in order of columns. So its keys have no positions that ascend, and no order that decides between equal
// weights.
bool fits_lines(const Problem& p, const GridMask& grid) {
  const bool is_whole = std::ranges::all_of(
      p.segments, [&](const Segment& s) { return s.key_begin == 0 && s.key_end == grid.shape().key_length; });
  return is_whole && p.key_length >= kManyLineKeys && p.key_length <= INT32_MAX && grid.sees_short_runs() &&
         p.cache == nullptr && !p.mask && p.sparse_masks.size() == 1 && !p.causal && p.window_left < 0 &&
         p.window_right < 0 && !p.alibi_slopes && !p.distance && p.top_k == 0;
}

// The query heads that share all masks. Heads of several key heads belong together only as a whole.
std::int64_t heads_together(const Problem& p) {
  std::int64_t heads = p.mask && p.mask.stride[1] != 0 ? 1 : p.heads;
  for (const MaskSource& mask : p.sparse_masks)
    heads = std::gcd(heads, std::gcd(mask.heads_each, mask.place.head_begin));
  const std::int64_t group = p.heads / p.kv_heads;
  return heads % group == 0 ? heads : std::gcd(heads, group);
}

// Pieces of at most `rows` rows of a segment each, in order of segment, head and row.
std::vector<GatheredRows> pieces_of(const Problem& p, std::int64_t heads, std::int64_t rows) {
  std::vector<GatheredRows> pieces;
  for (const Segment& s : p.segments)
    for (std::int64_t h = 0; h < p.heads; h += heads)
      for (std::int64_t row = s.query_begin; row < s.query_end; row += rows)
        pieces.push_back({&s, h, row, std::min(s.query_end, row + rows)});
  return pieces;
}

}  // namespace

std::optional<GatherPlan> plan_gather(const Problem& p, Kernel wanted) {
  if (p.sparse_masks.empty() || wanted == Kernel::reference || !fused_supports(p) || !fits(p)) return {};
  if (p.batch * p.heads * p.query_length == 0) return {};
  const MaskSource* source = source_with<KeyLists>(p);
  if (source == nullptr) source = source_with<GridMask>(p);
  if (source == nullptr) return {};
  GatherPlan plan{p, *source, part_of<KeyLists>(*source), part_of<GridMask>(*source), heads_together(p),
                  0, {}};
  std::int64_t rows = 1;
  if (plan.lists != nullptr) {
    const bool has_codes = p.cache != nullptr && p.cache->codes.format != RowFormat::floats;
    if (!is_worth_it(p, *plan.lists, plan.heads) || (has_codes && plan.heads < p.heads)) return {};
    plan.keys_each = plan.lists->width();
    rows = std::max<std::int64_t>(1, kPieceEntries / std::max<std::int64_t>(1, plan.keys_each));
  } else {
    if (!fits_lines(p, *plan.grid)) return {};
    // A line of n columns has as many entries as each column has lines.
    const std::int64_t length = plan.grid->line_length(), lines = plan.grid->most_lines();
    plan.keys_each = lines * plan.grid->most_columns();
    rows = std::max<std::int64_t>(1, kPieceEntries / (lines * length)) * length;
  }
  plan.pieces = pieces_of(p, plan.heads, rows);
  return plan;
}

std::optional<GatherPlan> plan_gather(const BackwardProblem& problem, Kernel wanted) {
  if (problem.grad_weights) return {};
  const Problem& p = problem.forward;
  std::optional<GatherPlan> plan = plan_gather(p, wanted);
  if (!plan || plan->lists == nullptr) return {};
  plan->heads = std::gcd(plan->heads, p.heads / p.kv_heads);
  plan->pieces =
      pieces_of(p, plan->heads,
                std::max<std::int64_t>(1, kGradientEntries / std::max<std::int64_t>(1, plan->keys_each)));
  return plan;
}

GatheredPiece::GatheredPiece(const GatherPlan& plan, const GatheredRows& piece, int threads) {
  if (plan.lists != nullptr)
    gather_lists(plan, piece);
  else
    gather_lines(plan, piece);
  bind(plan, piece);
  problem_.threads = threads;
}

void GatheredPiece::gather_lines(const GatherPlan& plan, const GatheredRows& piece) {
  const GridMask& grid = *plan.grid;
  const std::int64_t length = grid.line_length();
  const auto row_of = [&](std::int64_t i) { return plan.source.place.row(i); };
  const auto line_of = [&](std::int64_t i) { return grid.token_of(row_of(i)) / length; };
  ListOfIntervals ranges;
  for (std::int64_t i = piece.row_begin; i < piece.row_end;) {
    const std::vector<std::int64_t> lines = grid.lines_seen(row_of(i));
    const auto count = std::ssize(lines);
    Sequence line{i, i, std::ssize(keys_), 0, length};
    while (line.row_end < piece.row_end && line_of(line.row_end) == line_of(i)) {
      const GridKeys columns = grid.columns_seen(row_of(line.row_end++));
      ranges.append({{line.key_begin + columns.first * count, line.key_begin + (columns.last + 1) * count}});
    }
    for (std::int64_t column = 0; column < length; ++column)
      for (const std::int64_t seen : lines)
        keys_.push_back(static_cast<std::int32_t>(seen * length + column));
    line.key_end = std::ssize(keys_);
    gathered_.push_back(line);
    i = line.row_end;
  }
  numbers_ = keys_;
  ranges_.emplace(MaskShape{1, 1, piece.row_end - piece.row_begin, gathered_.back().key_end}, 1,
                  std::move(ranges));
}

void GatheredPiece::gather_lists(const GatherPlan& plan, const GatheredRows& piece) {
  const Problem& p = plan.call;
  const Segment& s = *piece.segment;
  const CachedSequence* cached = p.cache != nullptr ? p.cache->sequences + s.sequence : nullptr;
  const PartPlace& place = plan.source.place;
  const auto is_allowed_by_others = [&](std::int64_t i, std::int64_t j) {
    if (p.mask && read(p.mask, s.batch, piece.head, i, j) == 0) return false;
    std::uint8_t visible = 1;
    for (const MaskSource& mask : p.sparse_masks)
      if (&mask != &plan.source) mask.restrict_row(s.batch, piece.head, i, j, j + 1, &visible);
    return visible != 0;
  };
  const bool has_others = p.mask || p.sparse_masks.size() > 1;
  for (std::int64_t i = piece.row_begin; i < piece.row_end; ++i) {
    const KeyRange seen = visible_keys(p, i - s.query_begin + s.offset, s.keys());
    Sequence list{i, i + 1, std::ssize(keys_), 0, 1};
    for (const std::int32_t j :
         plan.lists->keys_of((s.batch + place.batch_begin) * plan.source.batch_step,
                             (piece.head + place.head_begin) / plan.source.heads_each, place.row(i),
                             s.key_begin + seen.begin, s.key_begin + seen.end)) {
      if (has_others && !is_allowed_by_others(i, j)) continue;
      const std::int64_t key = j - s.key_begin;
      keys_.push_back(j);
      positions_.push_back(s.keys().of(key));
      if (cached == nullptr)
        numbers_.push_back(j);
      else
        numbers_.push_back(cached->rows != nullptr ? cached->rows[key]
                                                   : static_cast<std::int32_t>(cached->first_row + key));
    }
    list.key_end = std::ssize(keys_);
    gathered_.push_back(list);
  }
}

void GatheredPiece::bind(const GatherPlan& plan, const GatheredRows& piece) {
  const Problem& p = plan.call;
  const Segment& s = *piece.segment;
  const std::int64_t rows = piece.row_end - piece.row_begin, group = p.heads / p.kv_heads;
  static_cast<ProblemShape&>(problem_) = p;
  problem_.batch = 1;
  problem_.heads = plan.heads;
  problem_.kv_heads = std::max<std::int64_t>(1, plan.heads / group);
  problem_.query_length = rows;
  problem_.key_length = gathered_.back().key_end;
  problem_.whole = {1, plan.heads, problem_.kv_heads, rows, std::ssize(gathered_), 1};
  problem_.scale = p.scale;
  problem_.softcap = p.softcap;
  problem_.alibi_slopes = moved(p.alibi_slopes, s.batch, piece.head);
  problem_.sinks = moved(p.sinks, 0, piece.head);
  static_cast<ResultOutputs&>(problem_) = p;
  for (const auto& [entry, member] : kResults<Output>)
    if (takes_one_pass(entry))
      problem_.*member = moved(problem_.*member, s.batch, piece.head, piece.row_begin);
  problem_.query = moved(p.query, s.batch, piece.head, piece.row_begin);
  const std::int64_t batch = p.cache == nullptr ? s.batch : 0;
  problem_.key = moved(p.key, batch, piece.head / group);
  problem_.value = moved(p.value, batch, piece.head / group);
  if (problem_.key.stride[3] != 1 || problem_.value.stride[3] != 1) copy_rows();

  for (const Sequence& one : gathered_) {
    CachedSequence sequence = p.cache != nullptr ? p.cache->sequences[s.sequence] : CachedSequence{};
    sequence.rows = numbers_.data() + one.key_begin;
    sequence.positions = positions_.empty() ? nullptr : positions_.data() + one.key_begin;
    problem_.segments.push_back({0, one.row_begin - piece.row_begin, one.row_end - piece.row_begin,
                                 one.key_begin, one.key_end, one.row_begin - s.query_begin + s.offset,
                                 std::ssize(sequences_), sequence.positions, one.rows_of_whole});
    sequences_.push_back(sequence);
  }
  if (ranges_) problem_.sparse_masks.push_back(source_of(*ranges_, plan.heads));
  rows_ = {sequences_.data(), problem_.kv_heads, p.cache != nullptr ? p.cache->codes : RowCodes{}};
  problem_.cache = &rows_;
}

// Rows of a cache have elements side by side. So rows whose elements are apart are copied.
void GatheredPiece::copy_rows() {
  const auto rows = std::ssize(keys_);
  const auto copied = [&](Operand from, std::int64_t width, Tensor& to) {
    to = Tensor({problem_.kv_heads, rows, width}, from.dtype);
    const std::size_t size = size_of(from.dtype);
    auto* at = static_cast<char*>(to.mutable_view().data());
    for (std::int64_t h = 0; h < problem_.kv_heads; ++h)
      for (const std::int32_t key : keys_)
        for (std::int64_t c = 0; c < width; ++c, at += size)
          std::memcpy(at,
                      static_cast<const char*>(from.data) +
                          offset_in(from, 0, h, key, c) * static_cast<std::int64_t>(size),
                      size);
    return Operand{to.view().data(), from.dtype, {0, rows * width, width, 1}};
  };
  problem_.key = copied(problem_.key, problem_.head_dim, key_copy_);
  problem_.value = copied(problem_.value, problem_.value_dim, value_copy_);
  std::iota(numbers_.begin(), numbers_.end(), 0);
}

void GatheredPiece::place_top_keys() const {
  const Output& to = problem_.top_k_index;
  if (!to) return;
  for (std::int64_t h = 0; h < problem_.heads; ++h)
    for (std::int64_t i = 0; i < problem_.query_length; ++i)
      for (std::int64_t k = 0; k < problem_.top_k; ++k) {
        std::int64_t& key = static_cast<std::int64_t*>(to.data)[offset_in(to, 0, h, i, k)];
        if (key >= 0) key = keys_[index(key)];
      }
}

}  // namespace heed::detail
