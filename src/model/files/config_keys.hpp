// The keys of config.json: read, refused, without effect, or unknown.
#pragma once

#include <string>
#include <vector>

#include "model/files/config.hpp"

namespace heed::detail {

/// The keys of one family. JSON is written as in config.json; a list of names has spaces between them.
struct ConfigKeys {
  const char* read;            ///< JSON: keys that the family reads, each with the value of a missing one
  const char* only = "{}";     ///< JSON: keys for which heed has one value; others but null are refused
  const char* unused = "";     ///< names that change no number of inference
  const char* renamed = "{}";  ///< JSON: other names of keys that are read
};

/// The file's values of all keys that are read, and the defaults of those that it lacks. Keys that every
/// family has stand in config_keys.cpp. Adds the names of unknown keys to `unknown`. Throws Error (io):
/// "'DIR/config.json' has is_decoder true; heed's bert expects false".
[[nodiscard]] ModelConfig with_defaults(const ModelConfig& config, const ConfigKeys& keys,
                                        std::vector<std::string>& unknown);

}  // namespace heed::detail
