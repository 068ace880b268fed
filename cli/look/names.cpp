#include "look/names.hpp"

#include <array>
#include <cstdio>

namespace heed::cli {
namespace {

std::string score_of(const HeadName& name) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f%s", name.score, name.of_rest ? "*" : "");
  return text.data();
}

}  // namespace

std::string name_text(const HeadSummary& head) {
  const std::string name(head.name());
  return head.choices < kLeastRows ? name + " (" + std::to_string(head.choices) + ")" : name;
}

std::string score_text(const HeadSummary& head) {
  const std::vector<HeadName> names = head.names();
  return names.empty() ? "" : score_of(names.front());
}

std::string runner_up_text(const HeadSummary& head) {
  const auto name = head.runner_up();
  const char* how = head.names().empty() ? "nearest " : "then ";
  return name ? how + std::string(name_of(name->pattern)) + " " + score_of(*name) : "";
}

bool tells_of_rest(const HeadSummary& head) {
  return (score_text(head) + runner_up_text(head)).find('*') != std::string::npos;
}

}  // namespace heed::cli
