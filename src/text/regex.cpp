#include "text/regex.hpp"

#include <oniguruma.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <mutex>

#include "core/utf8.hpp"
#include "heed/error.hpp"
#include "io/fault.hpp"
#include "text/young_points.hpp"

namespace heed::detail {
namespace {

constexpr std::size_t kLongestPattern = 16'384;  // real patterns have some hundred bytes
constexpr unsigned long kFirstSteps = 512;       // backtracking limit of a first attempt
constexpr unsigned long kStepsOfByte = 100;      // total extra steps of all searches, per byte
constexpr unsigned long kSteps = 1'000'000;      // total extra steps in a short text

const OnigUChar* bytes_of(std::string_view text) { return reinterpret_cast<const OnigUChar*>(text.data()); }

// Appends a code point as \x{1C89}.
void append_hexadecimal(std::uint32_t point, std::string& pattern) {
  std::array<char, 8> digits{};
  const auto end = std::to_chars(digits.begin(), digits.end(), point, 16).ptr;
  pattern += "\\x{";
  pattern.append(digits.begin(), end);
  pattern += '}';
}

void initialize() {
  static std::once_flag once;
  std::call_once(once, [] {
    OnigEncoding encoding = ONIG_ENCODING_UTF8;
    onig_initialize(&encoding, 1);
  });
}

// Category "Lo" belongs to "L" and "Lo".
bool is_in_category(const YoungPoints& points, std::string_view category) {
  return !category.empty() && points.category.starts_with(category);
}

// The ranges that a category (L, Nd) or a class (w, Alpha) lacks.
std::string young_points_of(const std::string& name) {
  std::string categories = " " + name + " ", plain = categories, young;
  std::ranges::transform(plain, plain.begin(), ascii_lower);
  if (const std::size_t at = kYoungClasses.find(plain); at != kYoungClasses.npos) {
    const std::size_t begin = kYoungClasses.find(':', at);
    categories = kYoungClasses.substr(begin, kYoungClasses.find(';', begin) - begin);
  }
  for (const YoungPoints& points : kYoungPoints) {
    const std::string whole = " " + std::string(points.category) + " ", major = whole.substr(0, 2) + " ";
    if (categories.find(whole) == categories.npos && categories.find(major) == categories.npos) continue;
    append_hexadecimal(points.first, young);
    young += '-';
    append_hexadecimal(points.last, young);
  }
  return young;
}

// Replaces \p{L}, \w and [:alpha:] by classes that include newer code points, and \P{L} by its complement.
// The package's [:punct:] has symbols.
std::string with_young_points(std::string_view pattern) {
  std::string result;
  int brackets = 0;  // open at this place
  while (!pattern.empty()) {
    const char first = pattern[0], mark = pattern.size() > 1 ? pattern[1] : '\0';
    const bool escaped = first == '\\' && mark != '\0', posix = brackets > 0 && pattern.starts_with("[:");
    const bool property = escaped && (mark == 'p' || mark == 'P') && pattern.substr(2, 1) == "{";
    std::size_t size = escaped ? 2 : 1;
    std::string name;
    if (const std::size_t end = pattern.find(posix ? ":]" : "}", 2);
        (posix || property) && end != pattern.npos) {
      name = pattern.substr(posix ? 2 : 3, end - (posix ? 2 : 3));
      size = end + (posix ? 2 : 1);
    } else if (escaped && std::string_view("wWdD").find(mark) != std::string_view::npos) {
      name = mark == 'w' || mark == 'W' ? "w" : "d";
    }
    const bool opposite = name.starts_with('^');
    if (opposite) name.erase(0, 1);
    const std::string young = name.empty() ? "" : young_points_of(posix && name == "punct" ? "[punct" : name);
    if (young.empty()) {
      brackets = std::max(0, brackets + (size == 1 && first == '[') - (size == 1 && first == ']'));
      result += pattern.substr(0, size);
    } else {
      result += opposite != (escaped && mark < 'a') ? "[^" : "[";
      result += posix ? "[:" + name + ":]" : property ? "\\p{" + name + "}" : "\\" + name;
      result += (posix && name == "punct" ? "\\p{S}" : "") + young;
      if (brackets == 0 && (name == "w" || name == "Word")) result += "²³¹¼½¾";  // Oniguruma's own exception
      result += "]";
    }
    pattern.remove_prefix(size);
  }
  return result;
}

struct Deleter {
  void operator()(OnigRegion* region) const { onig_region_free(region, 1); }
  void operator()(OnigMatchParam* param) const { onig_free_match_param(param); }
};

// Searches in one text with a common limit on backtracking.
class Search {
 public:
  Search(regex_t* regex, std::string_view text)
      : regex_(regex),
        text_(text),
        region_(onig_region_new()),
        param_(onig_new_match_param()),
        left_(kSteps + kStepsOfByte * text.size()) {
    onig_initialize_match_param(param_.get());
  }

  // The first match at or after `at`; if there is none, its begin is beyond the text.
  TextRange from(std::size_t at) {
    for (unsigned long steps = kFirstSteps;; steps *= 8) {
      onig_set_retry_limit_in_match_of_match_param(param_.get(), steps);
      onig_set_retry_limit_in_search_of_match_param(param_.get(), steps);
      const OnigUChar* begin = bytes_of(text_);
      const OnigUChar* end = begin + text_.size();
      const int found = onig_search_with_param(regex_, begin, end, begin + at, end, region_.get(),
                                               ONIG_OPTION_NONE, param_.get());
      if (found >= 0)
        return {static_cast<std::size_t>(region_->beg[0]), static_cast<std::size_t>(region_->end[0])};
      if (found == ONIG_MISMATCH) return {text_.size() + 1, text_.size() + 1};
      const bool over =
          found == ONIGERR_RETRY_LIMIT_IN_MATCH_OVER || found == ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER;
      if (!over || steps > left_)
        throw Error(
            ErrorCode::invalid_argument,
            "text needs too many steps of the tokenizer's regular expression at byte " + std::to_string(at));
      left_ -= steps;
    }
  }

 private:
  regex_t* regex_;
  std::string_view text_;
  std::unique_ptr<OnigRegion, Deleter> region_;
  std::unique_ptr<OnigMatchParam, Deleter> param_;
  unsigned long left_;
};

}  // namespace

std::vector<PointRange> points_of_property(std::string_view property) {
  initialize();
  const OnigEncoding encoding = ONIG_ENCODING_UTF8;
  const OnigUChar* begin = bytes_of(property);
  // Oniguruma only reads this, but declares it as mutable.
  auto* name = const_cast<OnigUChar*>(begin);
  const int type = encoding->property_name_to_ctype(encoding, name, name + property.size());
  const OnigCodePoint* ranges = nullptr;
  OnigCodePoint first_of_several_bytes = 0;
  std::vector<PointRange> all;
  if (type >= 0 && encoding->get_ctype_code_range(static_cast<OnigCtype>(type), &first_of_several_bytes,
                                                  &ranges) == ONIG_NORMAL)
    for (std::size_t i = 0; i < ranges[0]; ++i) all.push_back({ranges[1 + 2 * i], ranges[2 + 2 * i]});
  for (const YoungPoints& points : kYoungPoints)
    if (is_in_category(points, property)) all.push_back({points.first, points.last});
  return all;
}

struct Regex::Impl {
  regex_t* regex = nullptr;
  ~Impl() { onig_free(regex); }
};

Regex::Regex(const std::string& pattern, const JsonPart& part) {
  initialize();
  if (pattern.size() > kLongestPattern)
    part.fail("with a pattern of ", pattern.size(), " bytes; at most ", kLongestPattern, " are expected");
  auto impl = std::make_unique<Impl>();
  OnigErrorInfo info{};
  const std::string whole = with_young_points(pattern);
  const OnigUChar* begin = bytes_of(whole);
  const int result = onig_new(&impl->regex, begin, begin + whole.size(), ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
                              ONIG_SYNTAX_DEFAULT, &info);
  if (result != ONIG_NORMAL)
    part.fail("with a pattern that is not a regular expression: ", io::detail::printable(pattern));
  impl_ = std::move(impl);
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;

std::vector<TextRange> Regex::find(std::string_view text) const {
  std::vector<TextRange> all;
  if (text.empty()) return all;
  Search search(impl_->regex, text);
  for (std::size_t at = 0; at <= text.size();) {
    const TextRange match = search.from(at);
    if (match.begin > text.size()) break;
    if (match.begin == match.end && !all.empty() && all.back().end == match.end) {
      at += at < text.size() ? decode_utf8(text.substr(at)).length : 1;
      continue;
    }
    all.push_back(match);
    at = match.end;
  }
  return all;
}

}  // namespace heed::detail
