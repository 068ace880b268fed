// The text of tokens that arrive one by one, as whole letters as soon as they are complete.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heed/model/tokenizer.hpp"

namespace heed::detail {

class TextStream {
 public:
  /// Continues after these tokens. The tokenizer must outlive it.
  TextStream(const Tokenizer& tokenizer, const std::vector<std::int64_t>& before);
  /// Returns the text that one more token adds: nothing while the last letter lacks bytes, unless `last`.
  [[nodiscard]] std::string add(std::int64_t id, bool last);

 private:
  void take(std::int64_t id);

  const Tokenizer& tokenizer_;
  std::vector<std::int64_t> ids_;  // a few tokens already returned, and the pending ones
  std::size_t told_ = 0;
};

}  // namespace heed::detail
