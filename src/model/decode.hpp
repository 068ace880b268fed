// A language model that decodes: the keys and values of every block stay in caches, so that each token is
// read once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heed/kv_cache.hpp"
#include "heed/transformer.hpp"

namespace heed::detail {

class Decoder {
 public:
  /// For a model of f32, which must outlive it. Throws Error (invalid_argument) for a format that cannot keep
  /// the model's heads.
  Decoder(const nn::LanguageModel& model, CacheFormat format);

  /// What follows ids [L], L at least 1: logits [vocabulary] of the next token, as forward() gives them for
  /// as many of the last tokens as the context holds. ids begin with those of the call before, and are more:
  /// only what is new is read. Once they are more than the context holds, it is read anew each time:
  /// positions count from its first token, so that every key changes.
  [[nodiscard]] Tensor next(std::span<const std::int64_t> ids);

 private:
  Tensor read(std::span<const std::int64_t> ids);

  const nn::LanguageModel& model_;
  std::vector<KvCache> caches_;  // one a block
  std::size_t begin_ = 0;        // the token at position 0
};

}  // namespace heed::detail
