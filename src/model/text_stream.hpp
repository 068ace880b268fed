// The text of tokens that come one by one: whole letters, as soon as they are there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heed/text_tokenizer.hpp"

namespace heed::detail {

class TextStream {
 public:
  /// Behind these tokens. The tokenizer must outlive it.
  TextStream(const TextTokenizer& tokenizer, const std::vector<std::int64_t>& before);
  /// What the text grows by with one more token: nothing while its last letter lacks bytes, unless `last`.
  [[nodiscard]] std::string add(std::int64_t id, bool last);

 private:
  void take(std::int64_t id);

  const TextTokenizer& tokenizer_;
  std::vector<std::int64_t> ids_;  // a few that were told, and those that were not
  std::size_t told_ = 0;
};

}  // namespace heed::detail
