// Command line options for masks in O(L) memory and for score expressions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "heed/attention/attention.hpp"
#include "output_files.hpp"

namespace heed::cli {

struct MaskArguments {
  // Tensor arguments to read; empty if not given.
  std::string rows, columns, key_lists, slices, blocks;
  std::pair<std::int64_t, std::int64_t> block_size{64, 64};
  std::string index_query, index_key, index_weights;  ///< lightning_indexer() makes lists of keys
  std::int64_t index_top = 2048;
  std::string pattern, expression, score_expression;
  std::vector<std::pair<std::string, std::string>> arrays;  ///< names and tensors
};

void add_mask_options(CLI::App& app, MaskArguments& arguments);
void add_score_expression(CLI::App& app, MaskArguments& arguments);
void check_mask_options(const CLI::App& app);

/// The files to read and the options that name them.
[[nodiscard]] std::vector<NamedFile> mask_input_files(const MaskArguments& arguments);

/// Reads the given masks and sets sparse_mask and score_mod of the call, whose other options are set.
void read_masks(const MaskArguments& arguments, std::int64_t query_length, std::int64_t key_length,
                AttentionOptions& options);

}  // namespace heed::cli
