// Checked access to an object in a tokenizer.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "io/fault.hpp"

namespace heed::detail {

/// Refers to the object, which must outlive it. A missing member or one of another type throws Error (io):
/// "'tokenizer.json' has a Split without pattern".
class JsonPart {
 public:
  /// `part` is its name in messages if it has no type: "a normalizer".
  JsonPart(const nlohmann::json& value, std::string file, const std::string& part);

  [[nodiscard]] const std::string& type() const { return type_; }  ///< empty if it has none
  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] bool has(const char* member) const;                  ///< the member exists and is not null
  [[nodiscard]] const nlohmann::json& at(const char* member) const;  ///< any value except null
  [[nodiscard]] std::string text(const char* member) const;
  [[nodiscard]] std::string text(const char* member, const std::string& fallback) const;
  /// The place of the text in a list of all that it may be. Without a fallback, the member is required.
  [[nodiscard]] std::size_t choice(const char* member, std::initializer_list<std::string_view> all,
                                   std::string_view fallback = {}) const;
  [[nodiscard]] bool flag(const char* member) const;
  [[nodiscard]] bool flag(const char* member, bool fallback) const;
  [[nodiscard]] std::int64_t integer(const char* member, std::int64_t least, std::int64_t most) const;
  [[nodiscard]] std::int64_t integer(const char* member, std::int64_t least, std::int64_t most,
                                     std::int64_t fallback) const;
  /// The objects of a list, each a part of that name; without one, of the same.
  [[nodiscard]] std::vector<JsonPart> parts(const char* member, const char* name = nullptr) const;

  /// Throws Error (io): "'tokenizer.json' has a Split " followed by `what`.
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... what) const {
    io::detail::fail(file_, "has ", part_, type_.empty() ? "" : " of type " + io::detail::printable(type_),
                     " ", what...);
  }
  /// Throws Error (io): "'tokenizer.json' has a normalizer of type 'Foo', which heed does not know".
  [[noreturn]] void fail_type() const;

 private:
  const nlohmann::json* object_;
  std::string file_;
  std::string part_;
  std::string type_;
};

}  // namespace heed::detail
