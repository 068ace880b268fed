#include "heed/attention/score_mod.hpp"

namespace heed {

ScoreFunction::~ScoreFunction() = default;
void ScoreFunction::check(std::int64_t, std::int64_t, std::int64_t, std::int64_t) const {}
std::string_view ScoreFunction::text() const { return {}; }
std::vector<std::pair<std::string, Tensor>> ScoreFunction::arrays() const { return {}; }

}  // namespace heed
