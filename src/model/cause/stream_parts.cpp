#include "model/cause/stream_parts.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "heed/parallel.hpp"
#include "model/cause/directions.hpp"
#include "model/parts.hpp"

namespace heed::detail {
namespace {

using Vector = std::vector<double>;

void add(std::span<const double> from, Vector& to) {
  std::ranges::transform(from, to, to.begin(), std::plus<>());
}

Tensor row_at(const Tensor& matrix, std::int64_t row) {
  return Tensor::copy_of(matrix.view().narrow(0, row, 1));
}

Vector values_of(const Tensor& row) {
  const auto values = row.values<float>();
  return {values.begin(), values.end()};
}

class Builder {
 public:
  Builder(const Model& model, const RowTrace& trace, int threads)
      : family_(*model.parts().family), info_(model.info()), trace_(trace), threads_(threads) {}

  StreamParts build(std::span<const std::int64_t> ids, std::int64_t at, std::int64_t layer) {
    biases_.assign(static_cast<std::size_t>(info_.model_dim), 0);
    Vector token = values_of(row_at(trace_.streams, 0));
    if (const auto share = family_.position_share(ids, at)) {
      Vector position = values_of(*share);
      for (std::size_t i = 0; i < token.size(); ++i) token[i] -= position[i];
      put({StreamPart::Kind::token}, std::move(token));
      put({StreamPart::Kind::position}, std::move(position));
    } else {
      put({StreamPart::Kind::token}, std::move(token));
    }
    for (std::int64_t n = 0; n < layer; ++n) add_layer(n);
    put({StreamPart::Kind::biases}, std::move(biases_));
    return std::move(made_);
  }

 private:
  void put(const StreamPart& part, Vector added) {
    made_.parts.push_back(part);
    made_.added.push_back(std::move(added));
  }

  void add_layer(std::int64_t layer) {
    const Tensor heads = row_at(trace_.heads, layer);
    add_heads(layer, heads);
    if (const auto norms = family_.stream_norms(layer, row_at(trace_.streams, layer), heads)) {
      normalise(norms->attention);
      normalise(norms->mlp);
    }
    Vector rest = values_of(row_at(trace_.streams, layer + 1));
    const auto take = [&](const Vector& part) {
      std::ranges::transform(rest, part, rest.begin(), std::minus<>());
    };
    for (const Vector& part : made_.added) take(part);
    take(biases_);
    put({StreamPart::Kind::mlp, layer}, std::move(rest));
  }

  // The product of W_O with each head's output alone: rows of [H, H d] with the others 0.
  void add_heads(std::int64_t layer, const Tensor& heads) {
    const LinearWeights& output = family_.output_projection(layer);
    const Tensor all = linear(heads, output, threads_);
    const auto norm = family_.norm_behind_attention(layer, all.values<float>());
    Tensor alone({info_.heads, info_.heads * info_.head_dim}, DType::f32);
    for (std::int64_t head = 0; head < info_.heads; ++head) {
      const std::int64_t begin = head * info_.head_dim;
      copy(heads.view().narrow(1, begin, info_.head_dim),
           alone.mutable_view().narrow(0, head, 1).narrow(1, begin, info_.head_dim));
    }
    const Tensor added = linear(alone, {output.weight, {}, output.transposed}, threads_);
    for (std::int64_t head = 0; head < info_.heads; ++head) {
      Vector part = values_of(row_at(added, head));
      if (norm) apply_held(*norm, part);
      put({StreamPart::Kind::head, layer, head}, std::move(part));
    }
    if (output.bias.count() > 0) {
      Vector bias = values_of(output.bias);
      if (norm) apply_held(*norm, bias);
      add(bias, biases_);
    }
    if (norm && !norm->bias.empty()) add(norm->bias, biases_);
  }

  void normalise(const HeldNorm& norm) {
    for (Vector& part : made_.added) apply_held(norm, part);
    apply_held(norm, biases_);
    if (!norm.bias.empty()) add(norm.bias, biases_);
  }

  const Family& family_;
  const ModelInfo& info_;
  const RowTrace& trace_;
  int threads_;
  StreamParts made_;
  Vector biases_;
};

}  // namespace

StreamParts parts_of_stream(const Model& model, const RowTrace& trace, std::span<const std::int64_t> ids,
                            std::int64_t at, std::int64_t layer, int threads) {
  return Builder(model, trace, threads).build(ids, at, layer);
}

Tensor project_parts(const StreamParts& stream, const HeadInput& input, std::int64_t size, std::int64_t at,
                     std::int64_t length, int threads) {
  const std::int64_t inputs = input.weights->inputs();
  const std::vector<float> weights = rows_of_outputs(*input.weights, input.first, size);
  const auto count = std::ssize(stream.added);
  Tensor made({count, size}, DType::f64);
  const auto projected = made.values<double>();
  parallel_for(count, threads, [&](std::int64_t part, int /*worker*/) {
    Vector x = stream.added[static_cast<std::size_t>(part)];
    const bool is_bias = part == count - 1;
    if (input.norm) {
      apply_held(*input.norm, x);
      if (is_bias && !input.norm->bias.empty()) add(input.norm->bias, x);
    }
    const auto to = projected.subspan(static_cast<std::size_t>(part * size), static_cast<std::size_t>(size));
    for (std::int64_t i = 0; i < size; ++i) {
      double sum = std::inner_product(x.begin(), x.end(), weights.begin() + i * inputs, 0.0);
      if (is_bias && input.weights->bias.count() > 0) sum += input.weights->bias.at<float>(input.first + i);
      to[static_cast<std::size_t>(i)] =
          input.gain.empty() ? sum : sum * input.gain[static_cast<std::size_t>(i)];
    }
    if (input.rope != nullptr) rotate(*input.rope, to, at, length);
  });
  return made;
}

}  // namespace heed::detail
