// heed info: version and build, and what heed detects on this machine.
#include "heed/info.hpp"

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "command.hpp"
#include "draw/lettering.hpp"
#include "heed/attention/targets.hpp"
#include "help.hpp"
#include "options.hpp"
#include "picture/canvas.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

constexpr const char* kInfoExamples =
    "Examples:\n"
    "  heed info\n"
    "  heed info --json\n";

void print_json(const Info& info) {
  auto all = nlohmann::ordered_json::array();
  for (const Target& target : targets()) {
    auto formats = nlohmann::ordered_json::array();
    for (const TargetFormat& format : target.formats)
      formats.push_back({{"dtype", format.dtype}, {"format", format.format}, {"because", format.because}});
    all.push_back({{"name", target.name},
                   {"description", target.description},
                   {"required", target.required},
                   {"available", target.available},
                   {"chosen", target.chosen},
                   {"why", target.why},
                   {"formats", formats}});
  }
  const nlohmann::ordered_json object = {
      {"version", info.version},
      {"build", {{"compiler", info.compiler}, {"type", info.build_type}, {"flags", info.flags}}},
      {"processor", {{"model", info.processor}, {"features", info.features}}},
      {"kernel", info.kernel},
      {"isa", info.isa},
      {"threads", info.threads},
      {"pictures", picture_libraries()},
      {"targets", all}};
  std::cout << object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

void print(const Info& info) {
  const auto line = [](const std::string& name, const std::string& text) {
    constexpr int kIndent = 11;
    std::cout << wrap(left_aligned(name, kIndent) + text, 80, kIndent) << '\n';
  };
  line("version", info.version);
  line("build", info.build_type + ", " + info.compiler);
  line("flags", printable(info.flags));
  line("processor", printable(info.processor));
  line("features", info.features.empty() ? "none that heed knows" : joined_words(info.features));
  line("kernel", info.kernel + " (" + info.isa + ")");
  line("threads", std::to_string(info.threads));
  line("pictures", picture_libraries().empty() ? "none: built without Cairo and Pango" : picture_libraries());
  const std::vector<Target> all = targets();
  std::cout << "\nformats of matrix products\n";
  for (const Target& target : all)
    for (const TargetFormat& format : target.formats)
      if (target.chosen)
        line("  " + format.dtype, format.format + (format.because.empty() ? "" : ": " + format.because));
  std::cout << "\ntargets, best first\n";
  for (const Target& target : all) {
    std::cout << "  " << target.name << '\n';
    line("", (target.chosen      ? "chosen: "
              : target.available ? "available: "
                                 : "not available: ") +
                 target.why);
    line("", target.description);
    if (!target.required.empty()) line("", "needs " + joined_words(target.required));
  }
}

}  // namespace

Command add_info(CLI::App& heed) {
  CLI::App* app =
      add_command(heed, "info", "show version, build, processor features and the kernel that heed uses");
  const auto json = std::make_shared<bool>(false);
  begin_group(*app, "Results");
  add_flag(*app, "--json", *json, "print one JSON object instead");
  finish_help(*app, {"[options]"}, kInfoExamples);
  return {app, [json] { *json ? print_json(info()) : print(info()); }};
}

}  // namespace heed::cli
