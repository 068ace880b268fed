// heed info: what this heed is, and what it makes of the machine.
#include "heed/info.hpp"

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "command.hpp"
#include "heed/targets.hpp"
#include "help.hpp"
#include "options.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr const char* kInfoExamples =
    "Examples:\n"
    "  heed info\n"
    "  heed info --json\n";

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

void print_json(const Info& info) {
  auto all = nlohmann::ordered_json::array();
  for (const Target& target : targets())
    all.push_back({{"name", target.name},
                   {"description", target.description},
                   {"required", target.required},
                   {"available", target.available},
                   {"chosen", target.chosen},
                   {"why", target.why}});
  const nlohmann::ordered_json object = {
      {"version", info.version},
      {"build", {{"compiler", info.compiler}, {"type", info.build_type}, {"flags", info.flags}}},
      {"processor", {{"model", info.processor}, {"features", info.features}}},
      {"kernel", info.kernel},
      {"isa", info.isa},
      {"threads", info.threads},
      {"targets", all}};
  std::cout << object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

void print(const Info& info) {
  const std::string features = info.features.empty() ? "none that heed knows" : joined(info.features);
  std::cout << "version    " << info.version << '\n'
            << "build      " << info.build_type << ", " << info.compiler << '\n'
            << "flags      " << printable(info.flags) << '\n'
            << "processor  " << printable(info.processor) << '\n'
            << "features   " << features << '\n'
            << "kernel     " << info.kernel << " (" << info.isa << ")\n"
            << "threads    " << info.threads << '\n';
  for (const Target& target : targets()) {
    std::cout << "target     " << target.name << ": " << target.description;
    if (!target.required.empty()) std::cout << "; needs " << joined(target.required);
    std::cout << " ("
              << (target.chosen      ? "taken: "
                  : target.available ? "available: "
                                     : "")
              << target.why << ")\n";
  }
}

}  // namespace

Command add_info(CLI::App& heed) {
  CLI::App* app =
      add_command(heed, "info", "version, build, processor features, and the kernel that heed would take");
  const auto json = std::make_shared<bool>(false);
  add_flag(*app, "--json", *json, "print one JSON object instead")->group("Results");
  finish_help(*app, {"[options]"}, kInfoExamples);
  return {app, [json] { *json ? print_json(info()) : print(info()); }};
}

}  // namespace heed::cli
