#include "model/text_stream.hpp"

#include <algorithm>
#include <string_view>

namespace heed::detail {
namespace {

// Number of earlier tokens that are decoded with a new one: spaces and the like depend on the text before.
constexpr std::size_t kBefore = 6;
constexpr std::string_view kBroken = "\uFFFD";

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, const std::vector<std::int64_t>& before)
    : tokenizer_(tokenizer) {
  for (std::size_t i = before.size() - std::min(before.size(), kBefore); i < before.size(); ++i)
    take(before[i]);
  told_ = ids_.size();
}

// The model's vocabulary may be larger than the tokenizer's.
void TextStream::take(std::int64_t id) {
  if (tokenizer_.token(id)) ids_.push_back(id);
}

std::string TextStream::add(std::int64_t id, bool last) {
  take(id);
  const std::string before = tokenizer_.decode({ids_.data(), told_});
  const std::string all = tokenizer_.decode(ids_);
  if (!last && (all.ends_with(kBroken) || !all.starts_with(before))) return "";
  if (ids_.size() > 2 * kBefore) ids_.erase(ids_.begin(), ids_.end() - static_cast<std::ptrdiff_t>(kBefore));
  told_ = ids_.size();
  return all.starts_with(before) ? all.substr(before.size()) : "";
}

}  // namespace heed::detail
