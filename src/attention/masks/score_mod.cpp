#include "heed/attention/score_mod.hpp"

#include <algorithm>

#include "attention/masks/expression_intervals.hpp"
#include "attention/masks/expression_rows.hpp"
#include "core/message.hpp"

namespace heed {

namespace detail {
namespace {

constexpr std::int64_t kMaxKeys = 256;  // per chunk

class ExpressionScoreMod final : public ScoreFunction {
 public:
  explicit ExpressionScoreMod(Expression expression) : program_(std::move(expression)) {}

  void apply(const ScoreRow& where, float* scores, float* slopes) const override {
    each(where, scores, slopes);
  }
  void apply(const ScoreRow& where, double* scores, double* slopes) const override {
    each(where, scores, slopes);
  }

  void check(std::int64_t batch, std::int64_t heads, std::int64_t query_length,
             std::int64_t key_length) const override {
    ExpressionBox box;
    std::size_t axis = 0;
    for (const std::int64_t size : {batch, heads, query_length, key_length}) {
      if (size <= 0) return;  // no scores
      if (size > kMaxExpressionSize)
        refuse("a score expression is used for ", size,
               " batch entries, heads, queries or keys; at most 2^32 are expected");
      box.last[axis++] = static_cast<double>(size - 1);
    }
    check_indices(program_.expression(), box);
  }

  [[nodiscard]] std::string_view text() const override { return program_.expression().text; }
  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> arrays() const override {
    return arrays_of(program_.expression());
  }

 private:
  template <class T>
  void each(const ScoreRow& where, T* scores, T* slopes) const {
    if (slopes != nullptr) return each_with_slope(where, scores, slopes);
    RowEvaluation evaluation(program_, where.batch, where.head, where.row);
    double before[kMaxKeys];
    for (std::int64_t begin = where.key_begin; begin < where.key_end; begin += program_.chunk()) {
      const std::int64_t count = std::min(program_.chunk(), where.key_end - begin);
      std::copy_n(scores, count, before);
      write(evaluation.values(begin, count, before), scores, count);
      scores += count;
    }
  }

  template <class T>
  void each_with_slope(const ScoreRow& where, T* scores, T* slopes) const {
    RowSlopes evaluation(program_, where.batch, where.head, where.row);
    double before[kMaxKeys];
    for (std::int64_t begin = where.key_begin; begin < where.key_end; begin += program_.chunk()) {
      const std::int64_t count = std::min(program_.chunk(), where.key_end - begin);
      std::copy_n(scores, count, before);
      const RowSlopes::Result result = evaluation.values_and_slopes(begin, count, before);
      write(result.values, scores, count);
      write(result.slopes, slopes, count);
      for (std::int64_t k = 0; k < count; ++k)
        if (scores[k] == -std::numeric_limits<T>::infinity()) slopes[k] = 0;
      scores += count;
      slopes += count;
    }
  }

  template <class T>
  static void write(ChunkValues from, T* to, std::int64_t count) {
    for (std::int64_t k = 0; k < count; ++k) to[k] = static_cast<T>(from.uniform ? *from.at : from.at[k]);
  }

  RowProgram program_;
};

}  // namespace
}  // namespace detail

ScoreMod ScoreMod::expression(std::string_view text,
                              std::span<const std::pair<std::string, TensorView>> arrays) {
  detail::Expression parsed = detail::parse_expression(detail::ExpressionKind::score, text, arrays);
  return ScoreMod(std::make_shared<const detail::ExpressionScoreMod>(std::move(parsed)));
}

}  // namespace heed
