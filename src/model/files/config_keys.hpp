// Keys of config.json: read, refused, without effect, or unknown.
#pragma once

#include <string>
#include <vector>

#include "model/files/config.hpp"

namespace heed::detail {

/// A value as shown in messages.
[[nodiscard]] std::string shown(const nlohmann::ordered_json& value);

/// Keys that related families share, as in ConfigKeys. The family's own keys take precedence.
struct SharedKeys {
  const char *read = "{}", *only = "{}";
};

/// The keys of one family. JSON is written as in config.json; lists of names are separated by spaces.
struct ConfigKeys {
  const SharedKeys* shared = nullptr;
  const char* read = "{}";     ///< JSON: keys that the family reads, each with its default value
  const char* only = "{}";     ///< JSON: keys with a single supported value; others except null are refused
  const char* unused = "";     ///< names of keys without effect on inference
  const char* renamed = "{}";  ///< JSON: other names of keys that are read
};

/// Returns the file's values of all keys that are read, and the defaults of missing ones. config_keys.cpp has
/// the keys of all families. Adds the names of unknown keys to `unknown`. Throws Error (io):
/// "'DIR/config.json' has is_decoder true; heed's bert expects false". A key that names a form of attention
/// without a softmax is refused, even if it is unknown.
[[nodiscard]] ModelConfig with_defaults(const ModelConfig& config, const ConfigKeys& keys,
                                        std::vector<std::string>& unknown);

}  // namespace heed::detail
