#include "inspect/token_sets.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <unordered_map>
#include <vector>

#include "attention/execute/run.hpp"
#include "heed/parallel.hpp"
#include "heed/tensor.hpp"
#include "inspect/each_row.hpp"
#include "inspect/single_weights.hpp"

namespace heed::detail {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Row rows[n] (ascending, in one segment) uses keys[begin] to keys[end - 1] of its own begin and end. Both
// ascend over the rows.
struct KeyRuns {
  const Segment* segment = nullptr;
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> keys;
  std::vector<KeyRange> runs;
};

// With fewer rows or keys than this, single weights are faster.
constexpr std::size_t kWorthGathering = 64;

constexpr std::int64_t kBlockRows = 64;
constexpr std::int64_t kCallRows = 8192;  // rows of a gathered call, for any length

// Gathers the rows [heads, D] at these places into [1, heads, places, D].
Tensor gathered_rows(const Problem& p, const Operand& from, std::int64_t batch, std::int64_t heads,
                     const std::int64_t* begin, const std::int64_t* end) {
  Tensor rows({1, heads, end - begin, p.head_dim}, from.dtype);
  const auto width = static_cast<std::int64_t>(size_of(from.dtype));
  const auto* data = static_cast<const std::byte*>(from.data);
  auto* to = static_cast<std::byte*>(rows.mutable_view().data());
  // Contiguous elements are copied together.
  const std::int64_t together = from.stride[3] == 1 ? p.head_dim : 1;
  for (std::int64_t h = 0; h < heads; ++h)
    for (const std::int64_t* place = begin; place != end; ++place)
      for (std::int64_t d = 0; d < p.head_dim; d += together) {
        const std::int64_t at =
            batch * from.stride[0] + h * from.stride[1] + *place * from.stride[2] + d * from.stride[3];
        std::memcpy(to, data + at * width, static_cast<std::size_t>(together * width));
        to += together * width;
      }
  return rows;
}

Operand operand_of(const Tensor& tensor) {
  const TensorView view = tensor.view();
  return {view.data(),
          view.dtype(),
          {view.strides()[0], view.strides()[1], view.strides()[2], view.strides()[3]}};
}

class RunSums {
 public:
  RunSums(const Problem& p, const Operand& lse, const KeyRuns& runs, const Output& sums)
      : p_(p), lse_(lse), runs_(runs), sums_(sums), batch_(runs.segment->batch) {
    key_ = gathered_rows(p, p.key, batch_, p.kv_heads, runs.keys.data(), runs.keys.data() + runs.keys.size());
  }

  void fill() const {
    const auto rows = std::ssize(runs_.rows);
    for (std::int64_t begin = 0; begin < rows; begin += kCallRows)
      fill_rows(begin, std::min(rows, begin + kCallRows));
  }

 private:
  [[nodiscard]] KeyRange run_of(std::int64_t a) const { return runs_.runs[static_cast<std::size_t>(a)]; }

  // The keys that rows [begin, end) share; empty if they are too few for a call.
  [[nodiscard]] KeyRange shared(std::int64_t begin, std::int64_t end) const {
    const KeyRange run = {run_of(end - 1).begin, run_of(begin).end};
    return run.end - run.begin >= static_cast<std::int64_t>(kWorthGathering) ? run : KeyRange{};
  }

  // One batch entry each, because the kernel may reuse packed keys for the next segment of an entry.
  [[nodiscard]] std::vector<Segment> blocks_of(std::int64_t begin, std::int64_t end) const {
    std::vector<Segment> blocks;
    for (std::int64_t a = begin; a < end; a += kBlockRows) {
      const KeyRange keys = shared(a, std::min(end, a + kBlockRows));
      blocks.push_back({std::ssize(blocks), 0, kBlockRows, keys.begin, keys.end, 0});
    }
    return blocks;
  }

  // lse' of rows [begin, end), [1, H, rows]; the last block is padded with its last row.
  [[nodiscard]] Tensor attend(std::int64_t begin, std::int64_t end,
                              const std::vector<Segment>& blocks) const {
    std::vector<std::int64_t> rows(runs_.rows.begin() + begin, runs_.rows.begin() + end);
    rows.resize(blocks.size() * static_cast<std::size_t>(kBlockRows), rows.back());
    const Tensor query =
        gathered_rows(p_, p_.query, batch_, p_.heads, rows.data(), rows.data() + rows.size());
    Tensor lse({1, p_.heads, query.size(2)}, DType::f32);
    Problem call;
    call.batch = std::ssize(blocks);
    call.heads = p_.heads;
    call.kv_heads = p_.kv_heads;
    call.query_length = kBlockRows;
    call.key_length = key_.size(2);
    call.head_dim = p_.head_dim;
    call.value_dim = 1;
    call.dtype = p_.dtype;
    call.query = operand_of(query);
    call.query.stride[0] = kBlockRows * call.query.stride[2];
    call.key = operand_of(key_);
    call.key.stride[0] = 0;
    call.value = call.key;  // values are not used
    call.scale = p_.scale;
    call.softcap = p_.softcap;
    call.segments = blocks;
    call.lse = target_rows(lse);
    call.lse.stride[0] = kBlockRows;
    call.threads = p_.threads;
    run(call, Kernel::automatic);
    return lse;
  }

  void fill_rows(std::int64_t begin, std::int64_t end) const {
    const std::vector<Segment> blocks = blocks_of(begin, end);
    const Tensor shares = attend(begin, end, blocks);
    parallel_for(std::ssize(blocks) * p_.heads, p_.threads, [&](std::int64_t n, int) {
      RowWeights row_weights(p_);
      const Segment& block = blocks[static_cast<std::size_t>(n / p_.heads)];
      const std::int64_t first = begin + block.batch * kBlockRows;
      for (std::int64_t a = first; a < std::min(end, first + kBlockRows); ++a)
        fill_row(n % p_.heads, a, block, static_cast<double>(shares.at<float>(0, n % p_.heads, a - begin)),
                 row_weights);
    });
  }

  void fill_row(std::int64_t h, std::int64_t a, const Segment& block, double share,
                RowWeights& row_weights) const {
    const Segment& segment = *runs_.segment;
    const std::int64_t i = runs_.rows[static_cast<std::size_t>(a)];
    const Row row{batch_, h, h / (p_.heads / p_.kv_heads), i, i - segment.query_begin + segment.offset};
    const double lse = read(lse_, batch_, h, i);
    double sum = std::isnan(lse) ? lse : 0;
    if (const double exponent = share - lse; !std::isnan(exponent)) sum += std::exp(exponent);
    row_weights.set_row(segment, row, lse);
    const auto add = [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t k = from; k < to; ++k)
        sum += row_weights.quick_weight(runs_.keys[static_cast<std::size_t>(k)]);
    };
    const KeyRange run = run_of(a);
    if (block.key_begin == block.key_end) {
      add(run.begin, run.end);
    } else {
      add(run.begin, block.key_begin);
      add(block.key_end, run.end);
    }
    write(sums_, sum, batch_, h, i);
  }

  const Problem& p_;
  const Operand& lse_;
  const KeyRuns& runs_;
  const Output& sums_;
  std::int64_t batch_;
  Tensor key_;  // [1, Hkv, keys, D]
};

// Whether the fused kernel can compute runs of this call. A mask, a bias, ALiBi or a score
// expression prevents it, because gathered keys have other indices. (Causality and windows are part of the
// runs.)
bool can_gather(const Problem& p) {
  return !p.mask && p.sparse_masks.empty() && !p.score_mod && !p.bias && !p.alibi_slopes && !p.decay;
}

// Writes to sums [B, H, Lq] the weight of each row on its run; NaN if the row's lse is NaN.
void fill_runs(const Problem& p, const Operand& lse, const KeyRuns& runs, const Output& sums) {
  RunSums(p, lse, runs, sums).fill();
}

enum class Set { earlier, later, followers, separators };

// For each token its keys, ascending; and for each row the number of its token, -1 if no key has it.
struct TokenPlaces {
  std::vector<std::vector<std::int64_t>> keys;
  std::vector<std::int64_t> of_row;
  std::vector<std::int64_t> separators;
};

// `Token` is an id or a text.
template <class Token>
void add_copies(const std::vector<Token>& query_tokens, const std::vector<Token>& key_tokens,
                TokenPlaces& places) {
  std::unordered_map<Token, std::int64_t> numbers;
  for (std::size_t j = 0; j < key_tokens.size(); ++j) {
    const auto number = numbers.try_emplace(key_tokens[j], std::ssize(numbers)).first->second;
    if (number == std::ssize(places.keys)) places.keys.emplace_back();
    places.keys[static_cast<std::size_t>(number)].push_back(static_cast<std::int64_t>(j));
  }
  for (const Token& token : query_tokens) {
    const auto found = numbers.find(token);
    places.of_row.push_back(found == numbers.end() ? -1 : found->second);
  }
}

bool has_ids(const AttentionReport& report) {
  return !report.query_token_ids.empty() && !report.key_token_ids.empty();
}

bool has_texts(const AttentionReport& report) {
  return !report.query_tokens.empty() && !report.key_tokens.empty();
}

TokenPlaces places_of(const AttentionReport& report) {
  TokenPlaces places;
  if (has_ids(report))
    add_copies(report.query_token_ids, report.key_token_ids, places);
  else
    add_copies(report.query_tokens, report.key_tokens, places);
  for (std::size_t j = 0; j < report.key_tokens.size(); ++j)
    if (is_separator(report.key_tokens[j])) places.separators.push_back(static_cast<std::int64_t>(j));
  return places;
}

// The keys of a list in [begin, end), as indices into the list.
KeyRange run_within(const std::vector<std::int64_t>& keys, std::int64_t begin, std::int64_t end) {
  const auto first = std::ranges::lower_bound(keys, begin);
  const auto last = std::lower_bound(first, keys.end(), std::max(begin, end));
  return {first - keys.begin(), last - keys.begin()};
}

class SetFiller {
 public:
  SetFiller(const Problem& p, const AttentionReport& report, const TokenPlaces& places, Set set)
      : p_(p),
        report_(report),
        places_(places),
        set_(set),
        gathers_(report.kernel == "fused" && can_gather(p)),
        lse_(lse_operand(p, report.lse, 4)) {}

  SetWeights fill() {
    SetWeights result{row_tensor(p_), Tensor({p_.batch, has_masks() ? p_.heads : 1, p_.query_length})};
    weight_ = target_rows(result.weight);
    keys_ = target_rows(result.keys);
    if (!has_masks()) count_keys();
    done_.assign(static_cast<std::size_t>(p_.batch * p_.query_length), 0);
    if (gathers_)
      for (const Segment& segment : p_.segments) gather(segment);
    for_each_row(
        p_, "sets of keys", report_.lse,
        [&](std::int64_t batch, std::int64_t i) { return done_[row_index(batch, i)] == 0; },
        [&](const Segment& segment, const Row& row, RowWeights& weights) { sum(segment, row, weights); });
    return result;
  }

 private:
  [[nodiscard]] bool has_masks() const { return p_.mask || p_.bias || !p_.sparse_masks.empty(); }
  [[nodiscard]] std::size_t row_index(std::int64_t batch, std::int64_t i) const {
    return static_cast<std::size_t>(batch * p_.query_length + i);
  }

  // The list with the row's keys, or nullptr.
  [[nodiscard]] const std::vector<std::int64_t>* list_of(std::int64_t i) const {
    if (set_ == Set::separators) return &places_.separators;
    const std::int64_t token = places_.of_row[static_cast<std::size_t>(i)];
    return token < 0 ? nullptr : &places_.keys[static_cast<std::size_t>(token)];
  }

  // The row's part of its list; a follower is one key after the copy in the list.
  [[nodiscard]] KeyRange run_of(const std::vector<std::int64_t>& list, const Segment& segment,
                                std::int64_t position) const {
    const KeyRange seen = keys_of(p_, segment, position);
    const std::int64_t own = segment.key_begin + position;
    if (set_ == Set::earlier) return run_within(list, seen.begin, std::min(seen.end, own));
    if (set_ == Set::later) return run_within(list, std::max(seen.begin, own + 1), seen.end);
    if (set_ == Set::followers)
      return run_within(list, std::max(seen.begin - 1, segment.key_begin), std::min(seen.end, own) - 1);
    return run_within(list, std::max(seen.begin, segment.key_begin + 1), seen.end);
  }

  [[nodiscard]] std::int64_t shift() const { return set_ == Set::followers ? 1 : 0; }

  // Counts once for all heads if there are no masks, because they then attend the same keys.
  void count_keys() const {
    for (const Segment& segment : p_.segments)
      for (std::int64_t i = segment.query_begin; i < segment.query_end; ++i) {
        const auto* list = list_of(i);
        const KeyRange run =
            list ? run_of(*list, segment, i - segment.query_begin + segment.offset) : KeyRange{};
        write(keys_, static_cast<double>(run.end - run.begin), segment.batch, 0, i);
      }
  }

  void sum(const Segment& segment, const Row& row, RowWeights& weights) const {
    const auto* list = list_of(row.i);
    const KeyRange run = list ? run_of(*list, segment, row.position) : KeyRange{};
    double sum = 0, count = 0;
    for (std::int64_t k = run.begin; k < run.end; ++k) {
      const std::int64_t key = (*list)[static_cast<std::size_t>(k)] + shift();
      sum += weights.quick_weight(key);
      if (has_masks()) count += weights.allows(key) ? 1 : 0;
    }
    write(weight_, sum, row.batch, row.head, row.i);
    if (has_masks()) write(keys_, count, row.batch, row.head, row.i);
  }

  void gather(const Segment& segment) {
    if (set_ == Set::separators) {
      std::vector<std::int64_t> rows;
      for (std::int64_t i = segment.query_begin; i < segment.query_end; ++i) rows.push_back(i);
      return gather_rows(segment, std::move(rows), places_.separators);
    }
    std::vector<std::vector<std::int64_t>> rows(places_.keys.size());
    for (std::int64_t i = segment.query_begin; i < segment.query_end; ++i)
      if (const std::int64_t token = places_.of_row[static_cast<std::size_t>(i)]; token >= 0)
        rows[static_cast<std::size_t>(token)].push_back(i);
    for (std::size_t token = 0; token < rows.size(); ++token)
      gather_rows(segment, std::move(rows[token]), places_.keys[token]);
  }

  void gather_rows(const Segment& segment, std::vector<std::int64_t> rows,
                   const std::vector<std::int64_t>& list) {
    if (rows.size() < kWorthGathering || list.size() < kWorthGathering) return;
    KeyRuns runs;
    runs.segment = &segment;
    std::int64_t least = std::ssize(list), most = 0;
    for (const std::int64_t i : rows) {
      const KeyRange run = run_of(list, segment, i - segment.query_begin + segment.offset);
      runs.runs.push_back(run);
      least = std::min(least, run.begin);
      most = std::max(most, run.end);
    }
    if (most - least < static_cast<std::int64_t>(kWorthGathering)) return;
    for (std::int64_t k = least; k < most; ++k)
      runs.keys.push_back(list[static_cast<std::size_t>(k)] + shift());
    for (KeyRange& run : runs.runs) run = {run.begin - least, run.end - least};
    for (const std::int64_t i : rows) done_[row_index(segment.batch, i)] = 1;
    runs.rows = std::move(rows);
    fill_runs(p_, lse_, runs, weight_);
  }

  const Problem& p_;
  const AttentionReport& report_;
  const TokenPlaces& places_;
  Set set_;
  bool gathers_;
  Operand lse_;
  Output weight_, keys_;
  std::vector<char> done_;  // [B, Lq]
};

// Sets induction to NaN in rows without an earlier copy whose follower precedes the row within its segment:
// these rows cannot show induction. If only a window or a mask hides the follower, induction is not NaN.
void forget_rows_without_copies(const Problem& p, const TokenPlaces& places, Tensor& induction) {
  const Output to = target_rows(induction);
  for (const Segment& segment : p.segments)
    for (std::int64_t i = segment.query_begin; i < segment.query_end; ++i) {
      const std::int64_t token = places.of_row[static_cast<std::size_t>(i)];
      const std::int64_t own = segment.key_begin + i - segment.query_begin + segment.offset;
      KeyRange copies{};
      if (token >= 0)
        copies = run_within(places.keys[static_cast<std::size_t>(token)], segment.key_begin,
                            std::min(own, segment.key_end) - 1);
      for (std::int64_t h = 0; h < p.heads && copies.begin == copies.end; ++h)
        write(to, kNaN, segment.batch, h, i);
    }
}

}  // namespace

bool tells_copies(const AttentionReport& report) { return has_ids(report) || has_texts(report); }

bool is_copy(const AttentionReport& report, std::int64_t row, std::int64_t key) {
  const auto i = static_cast<std::size_t>(row), j = static_cast<std::size_t>(key);
  return has_ids(report) ? report.query_token_ids[i] == report.key_token_ids[j]
                         : report.query_tokens[i] == report.key_tokens[j];
}

TokenSets fill_token_sets(const Problem& p, AttentionReport& report) {
  TokenSets sets;
  if (!tells_copies(report)) return sets;
  const TokenPlaces places = places_of(report);
  const auto filled = [&](Set set) { return SetFiller(p, report, places, set).fill(); };
  sets.earlier = filled(Set::earlier);
  sets.later = filled(Set::later);
  sets.followers = filled(Set::followers);
  if (has_texts(report)) sets.separators = filled(Set::separators);
  report.induction = Tensor::copy_of(sets.followers.weight);
  forget_rows_without_copies(p, places, report.induction);
  return sets;
}

}  // namespace heed::detail
