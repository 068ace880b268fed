#include "io/json_text.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace heed::detail {
namespace {

// Counts the parsed items and stops the reader when a limit is exceeded.
class Outline : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Outline(const JsonLimits& limits) : limits_(limits) {}

  [[nodiscard]] JsonFault fault() const { return fault_; }

  bool null() override { return value(); }
  bool boolean(bool /*value*/) override { return value(); }
  bool number_integer(std::int64_t /*value*/) override { return value(); }
  bool number_unsigned(std::uint64_t /*value*/) override { return value(); }
  bool number_float(double /*value*/, const std::string& /*text*/) override { return value(); }
  bool string(std::string& /*value*/) override { return value(); }
  bool binary(nlohmann::json::binary_t& /*value*/) override { return value(); }
  bool start_object(std::size_t /*unknown*/) override { return open(); }
  bool start_array(std::size_t /*unknown*/) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& /*text*/) override {
    return ++members_.back() <= limits_.members || stop(JsonFault::wide);
  }

  bool parse_error(std::size_t /*position*/, const std::string& /*last*/,
                   const nlohmann::json::exception& /*error*/) override {
    return stop(JsonFault::malformed);
  }

 private:
  bool stop(JsonFault fault) {
    fault_ = fault;
    return false;
  }

  bool value() {
    if (members_.size() > limits_.depth) return stop(JsonFault::deep);
    return ++values_ <= limits_.values || stop(JsonFault::many);
  }

  bool open() {
    if (!value()) return false;
    members_.push_back(0);
    return true;
  }

  bool close() {
    members_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  JsonFault fault_ = JsonFault::none;
  std::vector<std::size_t> members_;  // members so far of each enclosing object; 0 for a list
  std::size_t values_ = 0;
};

bool has_long_word(std::string_view text) {
  bool in_string = false;
  bool escaped = false;
  std::size_t length = 0;
  for (const char c : text) {
    const bool quote = c == '"' && !escaped;
    const bool ends = quote || (!in_string && std::string_view("[]{},:").find(c) != std::string_view::npos);
    length = ends ? 0 : length + 1;
    if (length > kLongestJsonWord) return true;
    escaped = in_string && !escaped && c == '\\';
    in_string = in_string != quote;
  }
  return false;
}

}  // namespace

JsonFault fault_in_json(std::string_view text, const JsonLimits& limits) {
  // The reader takes a zero byte as the end of the text and would accept anything after it.
  if (text.find('\0') != std::string_view::npos) return JsonFault::malformed;
  if (has_long_word(text)) return JsonFault::long_word;
  Outline outline(limits);
  (void)nlohmann::json::sax_parse(text, &outline);
  return outline.fault();
}

std::optional<nlohmann::ordered_json> json_of(std::string_view text, const JsonLimits& limits) {
  const JsonFault fault = fault_in_json(text, limits);
  if (fault == JsonFault::malformed) return std::nullopt;
  return fault == JsonFault::none ? parsed_in_order(text) : nlohmann::ordered_json();
}

nlohmann::ordered_json parsed_in_order(std::string_view checked) {
  return nlohmann::ordered_json::parse(checked);
}

nlohmann::json parsed(std::string_view checked,
                      const std::function<void(int depth, const std::string& name)>& on_name) {
  using nlohmann::json;
  if (!on_name) return json::parse(checked);
  return json::parse(checked, [&](int depth, json::parse_event_t event, const json& value) {
    if (event == json::parse_event_t::key) on_name(depth, value.get_ref<const std::string&>());
    return true;
  });
}

}  // namespace heed::detail
