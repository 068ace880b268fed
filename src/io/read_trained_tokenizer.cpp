// Parses a vocabulary's JSON event by event. Each event must fit one of the two allowed forms. So a file of a
// million characters takes no more memory than the characters, and a hostile file takes none.
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/message.hpp"
#include "core/utf8.hpp"
#include "heed/error.hpp"
#include "io/json_file.hpp"
#include "io/trained_tokenizer.hpp"

namespace heed::detail {
namespace {

class TokenizerReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TokenizerReader(const std::string& path) : path_(path) {}

  std::int64_t symbols = 0;
  std::vector<std::string> characters;

  bool null() override { misplaced(); }
  bool boolean(bool /*value*/) override { misplaced(); }
  bool number_integer(std::int64_t /*value*/) override { misplaced(); }
  bool number_float(double /*value*/, const std::string& /*text*/) override { misplaced(); }
  bool binary(nlohmann::json::binary_t& /*value*/) override { misplaced(); }

  bool number_unsigned(std::uint64_t value) override {
    if (place_ != Place::symbols || value < 1 || value > TrainedTokenizer::kMax) misplaced();
    symbols = static_cast<std::int64_t>(value);
    return true;
  }

  bool string(std::string& text) override {
    if (place_ != Place::list) misplaced();
    if (characters.size() == TrainedTokenizer::kMax) fail_list();
    if (text.empty() || text.size() != decode_utf8(text).length) misplaced();
    if (!characters.empty() && text <= characters.back()) fail("has characters that are not in order");
    characters.push_back(std::move(text));
    return true;
  }

  bool start_object(std::size_t /*unknown*/) override {
    if (place_ != Place::outside) misplaced();
    place_ = Place::object;
    return true;
  }

  bool key(std::string& text) override {
    if (place_ != Place::object || (text != "characters" && text != "symbols")) fail_form();
    place_ = text == "symbols" ? Place::symbols : Place::characters;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::object) fail_form();
    return true;
  }

  bool start_array(std::size_t /*unknown*/) override {
    if (place_ != Place::characters) misplaced();
    place_ = Place::list;
    return true;
  }

  bool end_array() override {
    if (characters.empty()) fail_list();
    place_ = Place::characters;
    return true;
  }

  bool parse_error(std::size_t /*position*/, const std::string& /*last*/,
                   const nlohmann::json::exception& /*error*/) override {
    fail("is not JSON");
  }

 private:
  enum class Place { outside, object, symbols, characters, list };

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... what) const {
    refuse(ErrorCode::io, path_, " ", what...);
  }
  [[noreturn]] void fail_form() const {
    fail("is not a vocabulary: an object with 'characters' or 'symbols' is expected");
  }
  [[noreturn]] void fail_list() const {
    fail("has characters that are not a list of 1 to ", TrainedTokenizer::kMax);
  }

  [[noreturn]] void misplaced() const {
    if (place_ == Place::symbols)
      fail("has symbols that are not a number from 1 to ", TrainedTokenizer::kMax);
    if (place_ == Place::characters) fail_list();
    if (place_ == Place::list) fail("has a character that is not one code point");
    fail_form();
  }

  const std::string& path_;
  Place place_ = Place::outside;
};

TrainedTokenizer tokenizer_from_json(std::string_view text, const std::string& path) {
  TokenizerReader reader(path);
  (void)nlohmann::json::sax_parse(text, &reader);  // throws where the text does not fit
  if (reader.characters.empty()) return TrainedTokenizer::of_symbols(reader.symbols);
  return TrainedTokenizer::of_characters(Vocabulary(std::move(reader.characters)));
}

}  // namespace

TrainedTokenizer tokenizer_in(const std::string& folder) {
  constexpr std::uintmax_t kMiB = 16;  // a million characters, escaped in up to 15 bytes
  constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();  // the reader counts
  const std::string path = folder + "/vocabulary.json";
  return tokenizer_from_json(io::detail::json_in(path, kMiB, {.members = kAny, .values = kAny}), path);
}

}  // namespace heed::detail
