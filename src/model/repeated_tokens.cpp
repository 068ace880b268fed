// Random tokens, twice: a text in which only induction heads can foresee the next token.
#include <algorithm>

#include "core/message.hpp"
#include "heed/model/look.hpp"
#include "heed/random.hpp"

namespace heed {
namespace {

bool is_ordinary(const Model& model, std::int64_t id) {
  const Tokenizer* tokenizer = model.tokenizer();
  return tokenizer == nullptr || (tokenizer->token(id) && !tokenizer->is_special(id));
}

}  // namespace

ModelTokens repeated_random_tokens(const Model& model, std::int64_t count, std::uint64_t seed) {
  const ModelInfo& info = model.info();
  std::vector<std::int64_t> ids;
  if (info.begin_token) ids.push_back(*info.begin_token);
  const std::int64_t begin = std::ssize(ids);
  if (count < 1) detail::refuse("count is ", count, "; at least 1 is expected");
  if (info.fixed_context) count = std::min(count, (info.context - begin) / 2);
  if (count < 1)
    detail::refuse("the model's context of ", info.context, " tokens is too short to repeat one");
  Generator generator(seed);
  const Tensor order = randperm(generator, info.vocabulary);
  for (const std::int64_t id : order.values<std::int64_t>()) {
    if (std::ssize(ids) == begin + count) break;
    if (is_ordinary(model, id)) ids.push_back(id);
  }
  const std::vector<std::int64_t> drawn(ids.begin() + begin, ids.end());
  ids.insert(ids.end(), drawn.begin(), drawn.end());
  return model.tokens_of(TensorView(ids.data(), {std::ssize(ids)}));
}

}  // namespace heed
