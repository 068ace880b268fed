// Forms of attention in `heed attend`: the difference of two softmaxes, and tokens on a grid.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "attend_backend.hpp"
#include "heed/attention/differential.hpp"

namespace heed::cli {

void add_form_options(CLI::App& app, AttendArguments& arguments);

/// Throws UsageError for options that do not go together. Call it after parsing.
void check_form_options(const CLI::App& app, const AttendArguments& arguments);
/// Throws UsageError if a form is given, because heed does not compute them over ranks.
void refuse_forms_over_ranks(const AttendArguments& arguments);

/// The signed results [B, H, …], and the results of both softmaxes [B, 2 H, …] in the order of the query's
/// heads.
[[nodiscard]] AttentionResult joined_result(const DifferentialResult& result);

/// Distances and maps on the grid, if asked for, and their files.
[[nodiscard]] std::vector<std::pair<std::string, Tensor>> grid_results(const AttendArguments& arguments,
                                                                       const AttendInputs& inputs);

/// The files of forms to write, and the options that name them.
[[nodiscard]] std::vector<NamedFile> form_files(const AttendArguments& arguments);

}  // namespace heed::cli
