#include "model/files/config.hpp"

#include <cmath>
#include <utility>

#include "io/json_file.hpp"

namespace heed::detail {

using Json = nlohmann::ordered_json;

namespace {

constexpr std::uintmax_t kMaxConfigMiB = 4;
constexpr JsonLimits kConfigLimits = {.depth = 16, .members = 100'000, .values = 200'000};

std::string range_of(std::int64_t least, std::int64_t most) {
  return std::to_string(least) + " to " + std::to_string(most);
}

}  // namespace

ModelConfig::ModelConfig(const std::string& path)
    : ModelConfig(parsed_in_order(io::detail::json_in(path, kMaxConfigMiB, kConfigLimits)), path) {}

ModelConfig::ModelConfig(Json object, std::string path) : object_(std::move(object)), path_(std::move(path)) {
  if (!object_.is_object()) fail("is not a JSON object");
}

bool ModelConfig::contains(const char* name) const { return object_.contains(name); }

bool ModelConfig::has(const char* name) const { return object_.contains(name) && !object_[name].is_null(); }

const Json& ModelConfig::at(const char* name) const {
  if (!contains(name)) fail("has no ", name);
  if (!has(name)) fail("has ", name, " null; a value is expected");
  return object_[name];
}

std::int64_t ModelConfig::integer(const char* name, std::int64_t least, std::int64_t most) const {
  const Json& value = at(name);
  const std::string expected = "; " + range_of(least, most) + " is expected";
  if (!value.is_number_integer()) fail("has ", name, " that is not a whole number", expected);
  // A number beyond 63 bits would become negative.
  const bool vast = value.is_number_unsigned() && value.get<std::uint64_t>() >> 63;
  const auto number = vast ? -1 : value.get<std::int64_t>();
  if (vast || number < least || number > most) fail("has ", name, " ", value.dump(), expected);
  return number;
}

double ModelConfig::real(const char* name) const {
  const Json& value = at(name);
  if (!value.is_number() || !std::isfinite(value.get<double>()))
    fail("has ", name, " that is not a finite number");
  return value.get<double>();
}

double ModelConfig::positive(const char* name) const {
  const double value = real(name);
  if (value <= 0) fail("has ", name, " that is not above 0");
  return value;
}

bool ModelConfig::flag(const char* name) const {
  if (!at(name).is_boolean()) fail("has ", name, " that is neither true nor false");
  return at(name).get<bool>();
}

std::string ModelConfig::text(const char* name) const {
  if (!at(name).is_string()) fail("has ", name, " that is not a string");
  return at(name).get<std::string>();
}

std::string ModelConfig::text(const char* name, const std::string& fallback) const {
  return contains(name) ? text(name) : fallback;
}

std::vector<std::string> ModelConfig::texts(const char* name) const {
  std::vector<std::string> all;
  if (!has(name)) return all;
  if (!at(name).is_array()) fail("has ", name, " that is not a list");
  for (const Json& one : at(name)) {
    if (!one.is_string()) fail("has a list ", name, " with an entry that is not a string");
    all.push_back(one.get<std::string>());
  }
  return all;
}

std::vector<std::int64_t> ModelConfig::integers(const char* name) const {
  std::vector<std::int64_t> all;
  if (!has(name)) return all;
  const Json list = at(name).is_array() ? at(name) : Json::array({at(name)});
  for (const Json& one : list) {
    if (!one.is_number_integer())
      fail("has ", name, " that is neither a whole number nor a list of whole numbers");
    all.push_back(one.get<std::int64_t>());
  }
  return all;
}

std::vector<double> ModelConfig::positives(const char* name) const {
  std::vector<double> all;
  const std::string named = "has " + std::string(name);
  if (!at(name).is_array()) fail(named, " that is not a list");
  for (const Json& one : at(name)) {
    if (!one.is_number() || !(one.get<double>() > 0) || !std::isfinite(one.get<double>()))
      fail(named, " with an entry that is not a finite number above 0");
    all.push_back(one.get<double>());
  }
  return all;
}

std::optional<ModelConfig> ModelConfig::object(const char* name) const {
  if (!has(name)) return std::nullopt;
  if (!at(name).is_object()) fail("has ", name, " that is not a JSON object");
  if (at(name).empty()) return std::nullopt;
  return ModelConfig(at(name), path_);
}

}  // namespace heed::detail
