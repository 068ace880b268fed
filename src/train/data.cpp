#include "train/data.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "core/digest.hpp"
#include "core/message.hpp"
#include "core/utf8.hpp"
#include "heed/error.hpp"

namespace heed {
namespace detail {
namespace {

std::string fingerprint_of(const std::string& text) {
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx",
                static_cast<unsigned long long>(Digest(text).value()));
  return std::to_string(text.size()) + " bytes, " + digits.data();
}

std::string text_in(const std::string& path) {
  std::error_code none;
  if (std::filesystem::is_directory(path, none))
    detail::refuse(ErrorCode::io, path, " is a folder; a text file is expected");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) detail::refuse(ErrorCode::io, path, " could not be opened: ", std::strerror(errno));
  file.peek();
  if (file.bad()) detail::refuse(ErrorCode::io, path, " could not be read");
  if (file.eof()) detail::refuse(path, " is empty; a text to learn from is expected");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!is_utf8(text)) detail::refuse(ErrorCode::io, path, " is not UTF-8 text");
  return text;
}

// tokens[i] = sequence(i); targets[i] = sequence(i + 1) if the target counts.
void draw_from_text(const TrainData& data, Generator& generator, std::span<std::int64_t> tokens,
                    std::span<std::int64_t> targets) {
  const auto text = data.tokens.values<std::int64_t>();
  const auto starts = static_cast<std::int64_t>(text.size() - tokens.size());
  const auto start = static_cast<std::size_t>(randint(generator, 0, starts, {1}).at<std::int64_t>(0));
  std::copy_n(text.begin() + static_cast<std::ptrdiff_t>(start), tokens.size(), tokens.begin());
  std::copy_n(text.begin() + static_cast<std::ptrdiff_t>(start) + 1, targets.size(), targets.begin());
}

void draw_repeats(std::int64_t symbols, Generator& generator, std::span<std::int64_t> tokens,
                  std::span<std::int64_t> targets) {
  const auto length = static_cast<std::int64_t>(tokens.size());
  const std::int64_t longest = std::max<std::int64_t>(2, length / 2 + 1);
  const std::int64_t period = longest > 2 ? randint(generator, 2, longest, {1}).at<std::int64_t>(0) : 1;
  const Tensor pattern = randint(generator, 0, symbols, {period});
  const auto at = [&](std::int64_t i) { return pattern.at<std::int64_t>(i % period); };
  for (std::int64_t i = 0; i < length; ++i) {
    tokens[static_cast<std::size_t>(i)] = at(i);
    targets[static_cast<std::size_t>(i)] = i >= period ? at(i + 1) : nn::LanguageModel::kIgnore;
  }
}

}  // namespace

void require_enough(const TrainData& data, const TrainSettings& settings) {
  if (settings.task == Task::text && data.tokens.count() <= settings.context)
    refuse("the text has ", counted(data.tokens.count(), "character"), "; more than the ", settings.context,
           " of context are expected");
}

Batch draw_batch(const TrainData& data, const TrainSettings& settings, Generator& generator) {
  const Dims shape{settings.batch, settings.context};
  Batch batch{Tensor::uninitialized(shape, DType::i64), Tensor::uninitialized(shape, DType::i64)};
  const auto length = static_cast<std::size_t>(settings.context);
  for (std::size_t at = 0; at < batch.tokens.values<std::int64_t>().size(); at += length) {
    const auto tokens = batch.tokens.values<std::int64_t>().subspan(at, length);
    const auto targets = batch.targets.values<std::int64_t>().subspan(at, length);
    if (settings.task == Task::text)
      draw_from_text(data, generator, tokens, targets);
    else
      draw_repeats(settings.symbols, generator, tokens, targets);
  }
  return batch;
}

}  // namespace detail

TrainData read_train_text(const std::string& path) {
  const std::string text = detail::text_in(path);
  TrainData data{TrainedTokenizer::of_characters(text, path), {}, detail::fingerprint_of(text)};
  data.tokens = data.tokenizer.encode(data.tokenizer.tokens_of(text, path), path);
  return data;
}

TrainData induction_data(const TrainSettings& settings) {
  return {TrainedTokenizer::of_symbols(settings.symbols), {}, ""};
}

}  // namespace heed
