// Evaluation of an expression over the keys of a row, in chunks. Nodes that depend on neither key nor score
// are computed once per row; the rest operator by operator, in loops over the chunk.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/masks/expression_tree.hpp"

namespace heed::detail {

/// Doubles in all registers of a row together.
inline constexpr std::size_t kRegisterMemory = 4096;

class RowProgram {
 public:
  explicit RowProgram(Expression expression);

  [[nodiscard]] const Expression& expression() const { return expression_; }
  [[nodiscard]] std::int64_t chunk() const { return chunk_; }
  [[nodiscard]] std::size_t bytes() const;

 private:
  friend class RowEvaluation;
  friend class RowSlopes;

  struct Step {
    int node;
    int result;  // register number
    /// For && and ||: the step to continue at if the left side alone decides the whole chunk. The left side's
    /// value is then the result of `node`. -1 for other steps.
    int decided;
  };

  [[nodiscard]] const ExpressionNode& node(int n) const {
    return expression_.nodes[static_cast<std::size_t>(n)];
  }
  [[nodiscard]] bool varies(int n) const { return n >= 0 && (node(n).needs & kVaries) != 0; }
  [[nodiscard]] bool reads_on(const ExpressionNode& of) const;
  [[nodiscard]] bool turns_once(const ExpressionNode& of) const;
  void find_used();
  void order_steps();
  void assign_registers();

  static constexpr std::uint8_t kVaries =
      static_cast<std::uint8_t>(bit_of(Variable::j) | bit_of(Variable::s));

  Expression expression_;
  std::vector<bool> used_;          // nodes that must be computed
  std::vector<int> row_nodes_;      // computed once per row
  std::vector<int> reads_on_;       // reads of consecutive elements, done in place
  std::vector<Step> steps_;         // run once per chunk
  std::vector<int> keys_, scores_;  // nodes that are the variable j, or s
  int registers_ = 0;
  int keys_register_ = -1;
  std::int64_t chunk_ = 0;
};

/// `at[k]` for each key k of a chunk; at[0] for all keys if `uniform`.
struct ChunkValues {
  const double* at;
  bool uniform;
};

/// Evaluates one row. The object is large, and lies on the stack.
class RowEvaluation {
 public:
  RowEvaluation(const RowProgram& program, std::int64_t batch, std::int64_t head, std::int64_t row);
  RowEvaluation(const RowEvaluation&) = delete;
  RowEvaluation& operator=(const RowEvaluation&) = delete;

  /// Returns the values for keys [begin, begin + count), at most chunk() of them. They are valid until the
  /// next call. `scores` holds the keys' scores; it is read if s occurs.
  [[nodiscard]] ChunkValues values(std::int64_t begin, std::int64_t count, const double* scores);

 protected:
  using Step = RowProgram::Step;
  /// Like values(), but calls after(step) when a step has its result.
  template <class After>
  ChunkValues values_with(std::int64_t begin, std::int64_t count, const double* scores, After after) {
    const auto keys = static_cast<std::size_t>(count);
    start_chunk(begin, scores);
    fill_keys(begin, keys);
    const auto steps = static_cast<int>(program_.steps_.size());
    for (int n = 0; n < steps;) {
      const Step& step = program_.steps_[static_cast<std::size_t>(n)];
      if (step.decided < 0) {
        operate(step, keys);
        after(step);
        ++n;
      } else {
        n = decide(step, keys) ? step.decided : n + 1;
      }
    }
    return operand(static_cast<int>(program_.expression_.nodes.size()) - 1);
  }
  void start_chunk(std::int64_t begin, const double* scores);
  /// Returns whether the left side decides; if so, sets the result.
  bool decide(const Step& step, std::size_t count);
  void operate(const Step& step, std::size_t count);
  void turn(const ExpressionNode& node, double* result, std::size_t count) const;
  void gather(const ExpressionNode& node, double* result, std::size_t count) const;
  [[nodiscard]] ChunkValues operand(int node) const { return operands_[static_cast<std::size_t>(node)]; }
  [[nodiscard]] double* register_at(int n) {
    return registers_.data() + static_cast<std::int64_t>(n) * program_.chunk_;
  }

  const RowProgram& program_;

 private:
  [[nodiscard]] double value_in_row(const ExpressionNode& node) const;
  void fill_keys(std::int64_t begin, std::size_t count);

  std::array<double, 4> place_;                            // b, h, i, and j of the chunk's first key
  std::array<double, kMaxExpressionNodes> row_values_;     // indexed by node
  std::array<ChunkValues, kMaxExpressionNodes> operands_;  // indexed by node
  alignas(64) std::array<double, kRegisterMemory> registers_;
};

/// Also computes the derivative of each value with respect to its score.
class RowSlopes : private RowEvaluation {
 public:
  using RowEvaluation::RowEvaluation;

  struct Result {
    ChunkValues values, slopes;
  };
  [[nodiscard]] Result values_and_slopes(std::int64_t begin, std::int64_t count, const double* scores);

 private:
  [[nodiscard]] ChunkValues slope(int node) const { return slopes_[static_cast<std::size_t>(node)]; }
  void differentiate(const Step& step, std::size_t count);

  std::array<ChunkValues, kMaxExpressionNodes> slopes_;
  alignas(64) std::array<double, kRegisterMemory> slope_registers_;
};

}  // namespace heed::detail
