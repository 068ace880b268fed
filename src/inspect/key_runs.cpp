// A row with n keys in its run costs n dot products and exponentials. Over all rows that may be a large part
// of the whole matrix. But neighbouring rows share most of their runs. The shared keys of a block of rows
// form a smaller attention call of gathered rows and keys. Let lse' be the logsumexp of that call:
//
//     sum_j p_ij = sum_j exp(s_ij - lse_i) = exp(lse'_i - lse_i)
//
// So the fused kernel computes the sum at full speed. The remaining keys of a row are summed one by one.
#include "inspect/key_runs.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "attention/execute/run.hpp"
#include "heed/parallel.hpp"
#include "heed/tensor.hpp"
#include "inspect/each_row.hpp"

namespace heed::detail {
namespace {

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
    const auto rows = static_cast<std::int64_t>(runs_.rows.size());
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
      blocks.push_back({static_cast<std::int64_t>(blocks.size()), 0, kBlockRows, keys.begin, keys.end, 0});
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
    call.batch = static_cast<std::int64_t>(blocks.size());
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
    parallel_for(static_cast<std::int64_t>(blocks.size()) * p_.heads, p_.threads, [&](std::int64_t n, int) {
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

}  // namespace

bool can_gather(const Problem& p) {
  return !p.mask && p.sparse_masks.empty() && !p.score_mod && !p.bias && !p.alibi_slopes && !p.decay;
}

void fill_runs(const Problem& p, const Operand& lse, const KeyRuns& runs, const Output& sums) {
  RunSums(p, lse, runs, sums).fill();
}

}  // namespace heed::detail
