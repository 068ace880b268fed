// Checked access to the members of a model folder's config.json.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "io/fault.hpp"

namespace heed::detail {

/// An object of the configuration. A missing or out-of-range member throws Error (io): "'DIR/config.json' has
/// hidden_size 0; 1 to 1048576 is expected".
class ModelConfig {
 public:
  /// Reads the file.
  explicit ModelConfig(const std::string& path);
  ModelConfig(nlohmann::ordered_json object, std::string path);

  [[nodiscard]] bool contains(const char* name) const;  ///< the member exists; it may be null
  [[nodiscard]] bool has(const char* name) const;       ///< the member exists and is not null
  [[nodiscard]] std::int64_t integer(const char* name, std::int64_t least, std::int64_t most) const;
  [[nodiscard]] double real(const char* name) const;      ///< finite
  [[nodiscard]] double positive(const char* name) const;  ///< finite, and above 0
  [[nodiscard]] bool flag(const char* name) const;
  [[nodiscard]] std::string text(const char* name) const;
  [[nodiscard]] std::string text(const char* name,
                                 const std::string& fallback) const;  ///< `fallback` if it is missing
  /// The strings of a list; empty if it is missing.
  [[nodiscard]] std::vector<std::string> texts(const char* name) const;
  /// A whole number, or the numbers of a list; empty if it is missing.
  [[nodiscard]] std::vector<std::int64_t> integers(const char* name) const;
  /// The numbers of a list, finite and above 0.
  [[nodiscard]] std::vector<double> positives(const char* name) const;
  /// The object of that name, if it exists and has members.
  [[nodiscard]] std::optional<ModelConfig> object(const char* name) const;

  [[nodiscard]] const nlohmann::ordered_json& json() const noexcept { return object_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Throws Error (io): "'DIR/config.json' " followed by `what`.
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... what) const {
    io::detail::fail(io::detail::subject_of(path_), what...);
  }

 private:
  const nlohmann::ordered_json& at(const char* name) const;

  nlohmann::ordered_json object_;
  std::string path_;
};

/// Upper limits of configured sizes. No real model exceeds them, and products stay within 63 bits.
inline constexpr std::int64_t kMaxLayers = 1024, kMaxHeads = 4096, kMaxWidth = 1 << 20,
                              kMaxVocabulary = 1 << 24, kMaxContext = std::int64_t{1} << 32,
                              kMaxExperts = 1024;

}  // namespace heed::detail
