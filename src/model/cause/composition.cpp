// Composition scores. With Gram matrices L L^T of the factors that face outwards, a score's numerator is the
// norm of a product of d x d blocks:
//
//   |A^T B C D| = |L_A^T (B C) L_D|,   A A^T = L_A L_A^T,   D D^T = L_D L_D^T
//
// So all heads of two layers take one product of matrices.
#include "heed/model/composition.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "core/message.hpp"
#include "heed/parallel.hpp"
#include "model/cause/directions.hpp"
#include "model/parts.hpp"

namespace heed {
namespace {

using detail::Family;
using detail::HeadInput;
using detail::InputKind;

// A head's weights [d, D]: of an input, or W_O transposed.
struct Factor {
  std::int64_t rows = 0, columns = 0;
  std::vector<float> values;
  [[nodiscard]] const float* row(std::int64_t i) const { return values.data() + i * columns; }
};

double norm_of(const float* values, std::int64_t count) {
  return std::sqrt(std::inner_product(values, values + count, values, 0.0, std::plus<>(),
                                      [](double a, double b) { return a * b; }));
}

// The product of x [R, K] with W [K, N], or with W [N, K] transposed.
Tensor product(const TensorView& x, const float* weights, Dims shape, bool transposed) {
  const detail::LinearWeights right{{weights, &detail::kStoredF32, shape[0], shape[1]}, {}, transposed};
  return detail::linear(x, right, 1);
}

// L^T [d, d] with X X^T = L L^T. A row that depends on earlier ones, as far as f32 can tell, adds a row of
// zeros.
Tensor gram_factor(const Factor& x) {
  constexpr double kLeast = 1e-6;
  const std::int64_t n = x.rows;
  const TensorView view(x.values.data(), {n, x.columns});
  const Tensor gram = product(view, x.values.data(), {n, x.columns}, false);
  std::vector<double> lower(static_cast<std::size_t>(n * n));
  const auto at = [&](std::int64_t i, std::int64_t j) -> double& {
    return lower[static_cast<std::size_t>(i * n + j)];
  };
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j <= i; ++j) {
      const double* left = &at(i, 0);
      const double rest = gram.at<float>(i, j) - std::inner_product(left, left + j, &at(j, 0), 0.0);
      if (i == j)
        at(i, i) = rest > kLeast * static_cast<double>(gram.at<float>(i, i)) ? std::sqrt(rest) : 0;
      else
        at(i, j) = at(j, j) > 0 ? rest / at(j, j) : 0;
    }
  Tensor upper({n, n}, DType::f32);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j <= i; ++j) upper.at<float>(j, i) = static_cast<float>(at(i, j));
  return upper;
}

// The inputs or outputs of a layer's heads: [H d, D], and the norm of each head's product.
struct Side {
  Tensor stack;
  std::vector<double> norms;
};

class Composer {
 public:
  Composer(const Model& model, int threads)
      : family_(*model.parts().family), info_(model.info()), threads_(threads) {
    // Held norms need a row. Its scale multiplies numerator and denominator alike.
    probe_ = Tensor({1, info_.model_dim}, DType::f32);
    const auto values = probe_.values<float>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = i % 2 == 0 ? 1.0f : -1.0f;
    if (family_.stream_norms(0, probe_, Tensor({1, info_.heads * info_.head_dim}, DType::f32)))
      detail::refuse("a model of family '", info_.family,
                     "' normalises its stream between layers, so its heads have no composition scores");
  }

  Composition run() {
    const Dims shape = {info_.layers, info_.heads, info_.layers, info_.heads};
    Composition made{Tensor(shape, DType::f32), Tensor(shape, DType::f32), Tensor(shape, DType::f32),
                     1 / std::sqrt(static_cast<double>(info_.model_dim))};
    std::vector<Side> writers;
    for (std::int64_t layer = 0; layer < info_.layers; ++layer) {
      Layer own = read(layer);
      const auto score_all = [&](const Side& reader, Tensor& to) {
        for (std::size_t writer = 0; writer < writers.size(); ++writer)
          score(reader, writers[writer], layer, static_cast<std::int64_t>(writer), to);
      };
      // |W_QK^T X| = |K^T Q X| and |W_QK X| = |Q^T K X|: the outer factor is folded into the inner one.
      if (layer > 0) {
        score_all(side(own.key, own.query), made.query);
        score_all(side(own.query, own.key), made.key);
        score_all(side(own.output, own.value), made.value);
      }
      if (layer + 1 < info_.layers) writers.push_back(side(own.value, own.output));
    }
    return made;
  }

 private:
  struct Layer {
    std::vector<Factor> query, key, value, output;  // one a head
  };

  Layer read(std::int64_t layer) {
    Layer made;
    for (auto* factors : {&made.query, &made.key, &made.value, &made.output})
      factors->resize(static_cast<std::size_t>(info_.heads));
    const Tensor outputs = detail::inputs_by_outputs(family_.output_projection(layer), threads_);
    parallel_for(info_.heads, threads_, [&](std::int64_t head, int /*worker*/) {
      const auto at = static_cast<std::size_t>(head);
      const std::int64_t kv_head = head / (info_.heads / info_.kv_heads);
      made.query[at] = input_of(layer, InputKind::query, head);
      made.key[at] = input_of(layer, InputKind::key, kv_head);
      made.value[at] = input_of(layer, InputKind::value, kv_head);
      made.output[at] = output_of(layer, head, outputs);
    });
    return made;
  }

  [[nodiscard]] Factor input_of(std::int64_t layer, InputKind kind, std::int64_t head) const {
    const HeadInput input = family_.head_input(layer, kind, head, probe_);
    Factor made{info_.head_dim, info_.model_dim,
                detail::rows_of_outputs(*input.weights, input.first, info_.head_dim)};
    for (std::int64_t i = 0; i < made.rows; ++i) {
      detail::Direction row(made.row(i), made.row(i) + made.columns);
      if (input.norm) row = detail::through(*input.norm, row);
      const double gain = input.gain.empty() ? 1 : input.gain[static_cast<std::size_t>(i)];
      for (std::size_t k = 0; k < row.size(); ++k)
        made.values[static_cast<std::size_t>(i * made.columns) + k] = static_cast<float>(gain * row[k]);
    }
    return made;
  }

  // Columns of W_O as rows, behind a norm that follows W_O.
  [[nodiscard]] Factor output_of(std::int64_t layer, std::int64_t head, const Tensor& transposed) const {
    const auto norm = family_.norm_behind_attention(layer, probe_.values<float>());
    const std::int64_t size = info_.head_dim * info_.model_dim;
    const float* from = transposed.values<float>().data() + head * size;
    Factor made{info_.head_dim, info_.model_dim, {from, from + size}};
    if (!norm) return made;
    for (std::int64_t i = 0; i < made.rows; ++i) {
      std::vector<double> row(made.row(i), made.row(i) + made.columns);
      detail::apply_held(*norm, row);
      for (std::size_t k = 0; k < row.size(); ++k)
        made.values[static_cast<std::size_t>(i * made.columns) + k] = static_cast<float>(row[k]);
    }
    return made;
  }

  // For each head |outer^T inner x| = |stack x|.
  [[nodiscard]] Side side(const std::vector<Factor>& outer, const std::vector<Factor>& inner) const {
    const std::int64_t size = info_.head_dim * info_.model_dim;
    Side made{Tensor::uninitialized({info_.heads * info_.head_dim, info_.model_dim}, DType::f32),
              std::vector<double>(static_cast<std::size_t>(info_.heads))};
    float* to = made.stack.values<float>().data();
    parallel_for(info_.heads, threads_, [&](std::int64_t head, int /*worker*/) {
      const auto at = static_cast<std::size_t>(head);
      const Factor& x = inner[at];
      const Tensor folded = product(gram_factor(outer[at]), x.values.data(), {x.rows, x.columns}, true);
      std::copy_n(folded.values<float>().data(), size, to + head * size);
      made.norms[at] = norm_of(to + head * size, size);
    });
    return made;
  }

  void score(const Side& reader, const Side& writer, std::int64_t layer, std::int64_t earlier,
             Tensor& to) const {
    const std::int64_t heads = info_.heads, size = info_.head_dim, width = heads * size;
    const detail::LinearWeights weights{
        {std::as_const(writer.stack).values<float>().data(), &detail::kStoredF32, width, info_.model_dim},
        {},
        false};
    const Tensor product = detail::linear(reader.stack, weights, threads_);
    const float* from = product.values<float>().data();
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t w = 0; w < heads; ++w) {
        double sum = 0;
        for (std::int64_t i = 0; i < size; ++i)
          sum += std::pow(norm_of(from + (h * size + i) * width + w * size, size), 2);
        const double whole =
            reader.norms[static_cast<std::size_t>(h)] * writer.norms[static_cast<std::size_t>(w)];
        to.at<float>(layer, h, earlier, w) = whole > 0 ? static_cast<float>(std::sqrt(sum) / whole) : 0.0f;
      }
  }

  const Family& family_;
  const ModelInfo& info_;
  int threads_;
  Tensor probe_;
};

}  // namespace

Composition composition_scores(const Model& model, int threads) {
  if (threads < 0) detail::refuse("threads is ", threads, "; 0 (all of the machine) or more is expected");
  return Composer(model, threads == 0 ? default_threads() : threads).run();
}

}  // namespace heed
