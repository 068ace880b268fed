#include "heed/io/plan.hpp"

#include <nlohmann/json.hpp>

namespace heed::io {
namespace {

using Json = nlohmann::ordered_json;

Json object_of(const PlannedPass& pass) {
  return {{"name", pass.name},   {"unit", pass.unit},      {"path", pass.path}, {"schedule", pass.schedule},
          {"tasks", pass.tasks}, {"rows", pass.rows},      {"keys", pass.keys}, {"threads", pass.threads},
          {"bytes", pass.bytes}, {"because", pass.because}};
}

}  // namespace

std::string to_json(const AttentionPlan& plan) {
  Json all = {{"kernel", plan.kernel == Kernel::fused ? "fused" : "reference"},
              {"isa", plan.isa},
              {"because", plan.because},
              {"passes", Json::array()},
              {"flops", 2 * plan.multiply_adds},
              {"result_bytes", plan.result_bytes},
              {"falls_back", plan.falls_back}};
  for (const PlannedPass& pass : plan.passes) all["passes"].push_back(object_of(pass));
  return all.dump();
}

}  // namespace heed::io
