#include "text/shared/json_part.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace heed::detail {

using nlohmann::json;

JsonPart::JsonPart(const json& value, std::string file, const std::string& part)
    : object_(&value), file_(std::move(file)), part_(part) {
  if (!value.is_object()) io::detail::fail(file_, "has ", part, " that is not a JSON object");
  type_ = text("type", "");
}

void JsonPart::fail_type() const {
  if (type_.empty()) fail("without a type");
  io::detail::fail(file_, "has ", part_, " of type ", io::detail::printable(type_),
                   ", which heed does not know");
}

bool JsonPart::has(const char* member) const {
  const auto found = object_->find(member);
  return found != object_->end() && !found->is_null();
}

const json& JsonPart::at(const char* member) const {
  if (!has(member)) fail("without ", member);
  return *object_->find(member);
}

std::string JsonPart::text(const char* member) const {
  const json& value = at(member);
  if (!value.is_string()) fail("whose ", member, " is not a string");
  return value.get<std::string>();
}

std::string JsonPart::text(const char* member, const std::string& fallback) const {
  return has(member) ? text(member) : fallback;
}

std::size_t JsonPart::choice(const char* member, std::initializer_list<std::string_view> all,
                             std::string_view fallback) const {
  const std::string given = fallback.empty() ? text(member) : text(member, std::string(fallback));
  const auto* const found = std::ranges::find(all, given);
  if (found != all.end()) return static_cast<std::size_t>(found - all.begin());
  std::string expected;
  for (const std::string_view& one : all)
    expected += std::string(&one == all.begin() ? "" : &one + 1 == all.end() ? " or " : ", ").append(one);
  fail("whose ", member, " is not ", expected);
}

bool JsonPart::flag(const char* member) const {
  const json& value = at(member);
  if (!value.is_boolean()) fail("whose ", member, " is neither true nor false");
  return value.get<bool>();
}

bool JsonPart::flag(const char* member, bool fallback) const { return has(member) ? flag(member) : fallback; }

std::int64_t JsonPart::integer(const char* member, std::int64_t least, std::int64_t most) const {
  const json& value = at(member);
  // A number beyond 63 bits would become negative.
  const bool vast = value.is_number_unsigned() && value.get<std::uint64_t>() >> 63;
  const auto number = value.is_number_integer() && !vast ? value.get<std::int64_t>() : 0;
  if (!value.is_number_integer() || vast || number < least || number > most)
    fail("whose ", member, " is not a whole number from ", least, " to ", most);
  return number;
}

std::int64_t JsonPart::integer(const char* member, std::int64_t least, std::int64_t most,
                               std::int64_t fallback) const {
  return has(member) ? integer(member, least, most) : fallback;
}

std::vector<JsonPart> JsonPart::parts(const char* member, const char* name) const {
  const json& list = at(member);
  if (!list.is_array()) fail("whose ", member, " is not a list");
  std::vector<JsonPart> all;
  for (const json& one : list) all.emplace_back(one, file_, name == nullptr ? part_ : name);
  return all;
}

}  // namespace heed::detail
