// JSON that keeps the order of its members.
#pragma once

#include <nlohmann/json.hpp>

namespace heed::cli {

using Json = nlohmann::ordered_json;

}  // namespace heed::cli
