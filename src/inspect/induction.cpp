// induction: the weight of each row on the keys that follow an earlier copy of its token.
//
// A row with n such keys costs n dot products and exponentials; with few different words that is a good part
// of the whole matrix. But the rows of one word, in order, form a smaller causal call of their own: the a-th
// of them looks at what follows the copies before it. With lse' the logsumexp of that call,
//
//     sum_j p_ij = sum_j exp(s_ij - lse_i) = exp(lse'_i - lse_i)
//
// so that the fused kernel computes it from gathered rows and keys, at its own speed.
#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <unordered_map>

#include "attention/call/plan.hpp"
#include "inspect/each_row.hpp"
#include "inspect/rows.hpp"

namespace heed::detail {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kWorthGathering = 64;  // rows and keys of a word; fewer are quicker one by one
// What is left of a sum after a part is taken from it may have lost digits: so much of it must remain.
constexpr double kLeastRest = 0.25;

// For each token the keys that hold it, in order; and the number of each row's token, -1 where no key has it.
struct TokenPlaces {
  std::vector<std::vector<std::int64_t>> keys;
  std::vector<std::int64_t> of_row;
};

TokenPlaces places_of(const std::vector<std::string>& query_tokens,
                      const std::vector<std::string>& key_tokens) {
  TokenPlaces places;
  std::unordered_map<std::string, std::int64_t> numbers;
  for (std::size_t j = 0; j < key_tokens.size(); ++j) {
    const auto number =
        numbers.try_emplace(key_tokens[j], static_cast<std::int64_t>(numbers.size())).first->second;
    if (number == static_cast<std::int64_t>(places.keys.size())) places.keys.emplace_back();
    places.keys[static_cast<std::size_t>(number)].push_back(static_cast<std::int64_t>(j));
  }
  for (const std::string& token : query_tokens) {
    const auto found = numbers.find(token);
    places.of_row.push_back(found == numbers.end() ? -1 : found->second);
  }
  return places;
}

// Copies of a row's token that count are the first of `copies`: those whose follower stands before the row.
struct Copies {
  const std::int64_t* begin = nullptr;
  const std::int64_t* end = nullptr;
};

Copies copies_before(const std::vector<std::int64_t>& copies, const Segment& segment, std::int64_t position) {
  const std::int64_t limit = std::min(segment.key_begin + position, segment.key_end) - 1;
  const std::int64_t* first = copies.data();
  const std::int64_t* last = first + copies.size();
  const std::int64_t* begin = std::lower_bound(first, last, segment.key_begin);
  return {begin, std::max(begin, std::lower_bound(first, last, limit))};
}

// The rows of one token in one segment, as a causal call of their own: the a-th row sees the first base + a
// followers.
struct WordRows {
  const Segment* segment = nullptr;
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> followers;
  std::int64_t base = 0;
  std::vector<bool> less_one;  // the row sees all of them but the last: that is the row itself
};

class Induction {
 public:
  Induction(const Problem& p, AttentionReport& report)
      : p_(p),
        report_(report),
        places_(places_of(report.query_tokens, report.key_tokens)),
        lse_(lse_operand(p, report.lse, 4)),
        done_(static_cast<std::size_t>(p.batch * p.query_length), 0) {
    report.induction = row_tensor(p);
    target_ = target_rows(report.induction);
  }

  void fill() {
    if (can_gather())
      for (const Segment& segment : p_.segments) gather_segment(segment);
    for_each_row(
        p_, "induction", report_.lse,
        [&](std::int64_t batch, std::int64_t i) { return done_[row_index(batch, i)] == 0; },
        [&](const Segment& segment, const Row& row, RowWeights& row_weights) {
          write(target_, sum_one_by_one(segment, row, row_weights), row.batch, row.head, row.i);
        });
  }

 private:
  std::size_t row_index(std::int64_t batch, std::int64_t i) const {
    return static_cast<std::size_t>(batch * p_.query_length + i);
  }

  // What a mask, a bias, a window or ALiBi says of a key is no longer true of its place among others.
  bool can_gather() const {
    return report_.kernel == "fused" && !p_.mask && p_.sparse_masks.empty() && !p_.score_mod && !p_.bias &&
           !p_.alibi_slopes && p_.window_left < 0 && p_.window_right < 0;
  }

  double sum_one_by_one(const Segment& segment, const Row& row, RowWeights& row_weights) const {
    const std::int64_t token = places_.of_row[static_cast<std::size_t>(row.i)];
    if (token < 0) return kNaN;
    const auto [begin, end] =
        copies_before(places_.keys[static_cast<std::size_t>(token)], segment, row.position);
    if (begin == end) return kNaN;
    double sum = 0;
    for (const std::int64_t* copy = begin; copy != end; ++copy) sum += row_weights.quick_weight(*copy + 1);
    return sum;
  }

  void gather_segment(const Segment& segment) {
    std::vector<std::vector<std::int64_t>> rows(places_.keys.size());
    for (std::int64_t i = segment.query_begin; i < segment.query_end; ++i)
      if (const std::int64_t token = places_.of_row[static_cast<std::size_t>(i)]; token >= 0)
        rows[static_cast<std::size_t>(token)].push_back(i);
    for (std::size_t token = 0; token < rows.size(); ++token) {
      if (rows[token].size() < kWorthGathering || places_.keys[token].size() < kWorthGathering) continue;
      if (const auto word = word_rows(segment, std::move(rows[token]), places_.keys[token])) attend(*word);
    }
  }

  // None where the rows do not see one follower more each, but for a row that follows its own copy.
  static std::optional<WordRows> word_rows(const Segment& segment, std::vector<std::int64_t> rows,
                                           const std::vector<std::int64_t>& copies) {
    WordRows word;
    word.segment = &segment;
    std::int64_t most = 0;
    const std::int64_t* first = nullptr;
    for (std::size_t a = 0; a < rows.size(); ++a) {
      const Copies seen = copies_before(copies, segment, rows[a] - segment.query_begin + segment.offset);
      const std::int64_t count = seen.end - seen.begin;
      if (a == 0) word.base = count;
      first = seen.begin;
      most = word.base + static_cast<std::int64_t>(a);
      if (count != most && count != most - 1) return std::nullopt;
      word.less_one.push_back(count != most);
    }
    if (most < 1 || most > copies.data() + copies.size() - first) return std::nullopt;
    for (std::int64_t k = 0; k < most; ++k) word.followers.push_back(first[k] + 1);
    if (word.followers.back() >= segment.key_end) return std::nullopt;
    word.rows = std::move(rows);
    return word;
  }

  // Rows [heads, D] of a tensor at these places, as [1, heads, places, D].
  Tensor gathered(const Operand& from, std::int64_t batch, std::int64_t heads,
                  const std::vector<std::int64_t>& places) const {
    Tensor rows({1, heads, static_cast<std::int64_t>(places.size()), p_.head_dim}, from.dtype);
    const auto width = static_cast<std::int64_t>(size_of(from.dtype));
    const auto* data = static_cast<const std::byte*>(from.data);
    auto* to = static_cast<std::byte*>(rows.mutable_view().data());
    // Elements beside each other are copied together.
    const std::int64_t together = from.stride[3] == 1 ? p_.head_dim : 1;
    for (std::int64_t h = 0; h < heads; ++h)
      for (const std::int64_t place : places)
        for (std::int64_t d = 0; d < p_.head_dim; d += together) {
          const std::int64_t at =
              batch * from.stride[0] + h * from.stride[1] + place * from.stride[2] + d * from.stride[3];
          std::memcpy(to, data + at * width, static_cast<std::size_t>(together * width));
          to += together * width;
        }
    return rows;
  }

  static Operand operand(const Tensor& tensor) {
    const TensorView view = tensor.view();
    return {view.data(),
            view.dtype(),
            {view.strides()[0], view.strides()[1], view.strides()[2], view.strides()[3]}};
  }

  // lse' of each row, [1, H, rows].
  Tensor attend_to_followers(const WordRows& word) const {
    const Tensor query = gathered(p_.query, word.segment->batch, p_.heads, word.rows);
    const Tensor key = gathered(p_.key, word.segment->batch, p_.kv_heads, word.followers);
    Tensor lse({1, p_.heads, static_cast<std::int64_t>(word.rows.size())}, DType::f32);
    Problem call;
    call.batch = 1;
    call.heads = p_.heads;
    call.kv_heads = p_.kv_heads;
    call.query_length = query.size(2);
    call.key_length = key.size(2);
    call.head_dim = p_.head_dim;
    call.value_dim = 1;
    call.dtype = p_.dtype;
    call.query = operand(query);
    call.key = call.value = operand(key);  // no value is asked for
    call.scale = p_.scale;
    call.softcap = p_.softcap;
    call.causal = true;
    call.segments = {{0, 0, call.query_length, 0, call.key_length, word.base - 1}};
    call.lse = target_rows(lse);
    call.threads = p_.threads;
    make_plan(call, Kernel::automatic).kernel(call);
    return lse;
  }

  void attend(const WordRows& word) {
    const Tensor followed = attend_to_followers(word);
    RowWeights row_weights(p_);
    const Segment& segment = *word.segment;
    for (std::size_t a = 0; a < word.rows.size(); ++a) {
      const std::int64_t i = word.rows[a];
      const std::int64_t count = word.base + static_cast<std::int64_t>(a) - (word.less_one[a] ? 1 : 0);
      for (std::int64_t h = 0; h < p_.heads; ++h) {
        const Row row{segment.batch, h, h / (p_.heads / p_.kv_heads), i,
                      i - segment.query_begin + segment.offset};
        const double lse = read(lse_, row.batch, h, i);
        const double exponent =
            static_cast<double>(followed.at<float>(0, h, static_cast<std::int64_t>(a))) - lse;
        double sum = std::isnan(lse) ? kNaN : std::isnan(exponent) ? 0 : std::exp(exponent);
        if (count > 0 && word.less_one[a]) {
          row_weights.set_row(segment, row, lse);
          const double own = row_weights.weight(word.followers[static_cast<std::size_t>(count)]);
          sum = sum - own >= kLeastRest * sum ? sum - own : sum_one_by_one(segment, row, row_weights);
        }
        write(target_, count > 0 ? sum : kNaN, row.batch, h, i);
      }
      done_[row_index(segment.batch, i)] = 1;
    }
  }

  const Problem& p_;
  AttentionReport& report_;
  TokenPlaces places_;
  Operand lse_;
  Target target_;
  std::vector<char> done_;  // [B, Lq]
};

}  // namespace

void fill_induction(const Problem& p, AttentionReport& report) { Induction(p, report).fill(); }

}  // namespace heed::detail
