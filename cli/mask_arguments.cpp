#include "mask_arguments.hpp"

#include <array>
#include <string_view>

#include "command.hpp"
#include "heed/attention/lightning_indexer.hpp"
#include "heed/error.hpp"
#include "options.hpp"
#include "tensor_argument.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

using Numbers = std::vector<std::int64_t>;

struct Lengths {
  std::int64_t queries, keys;
};

std::span<const std::int64_t> after_first(const Numbers& numbers) { return std::span(numbers).subspan(1); }

// Four numbers an axis.
SparseMask neighbourhood_of(const Numbers& n) {
  std::vector<GridAxis> axes;
  for (std::size_t at = 0; at < n.size(); at += 4) {
    if (n.size() - at < 4 || n[at + 3] < 0 || n[at + 3] > 1)
      refuse_usage("--mask-pattern neighbourhood has ", counted(n.size(), "number"),
                   "; SIZE,WINDOW,DILATION,CAUSAL of each axis, with CAUSAL 0 or 1, is expected");
    axes.push_back({n[at], n[at + 1], n[at + 2], n[at + 3] == 1});
  }
  return masks::neighbourhood(axes);
}

struct Pattern {
  std::string_view name, numbers;
  std::size_t least, most;  // how many numbers
  SparseMask (*make)(const Numbers& n, const Lengths& l);
};

constexpr std::size_t kAny = 1 << 20;
constexpr Pattern kPatterns[] = {
    {"prefix_lm", "PREFIX", 1, 1,
     [](const Numbers& n, const Lengths& l) { return masks::prefix_lm(n[0], l.queries, l.keys); }},
    {"documents", "LENGTH,LENGTH,…", 1, kAny,
     [](const Numbers& n, const Lengths&) { return masks::documents(n, false); }},
    {"sliding_window", "LEFT,RIGHT", 2, 2,
     [](const Numbers& n, const Lengths& l) { return masks::sliding_window(n[0], n[1], l.queries, l.keys); }},
    {"sinks_and_window", "SINKS,WINDOW", 2, 2,
     [](const Numbers& n, const Lengths& l) {
       return masks::sinks_and_window(n[0], n[1], l.queries, l.keys);
     }},
    {"dilated", "REACH,STEP", 2, 2,
     [](const Numbers& n, const Lengths& l) { return masks::dilated(n[0], n[1], l.queries, l.keys); }},
    {"shared_question", "QUESTION,ANSWER,…", 2, kAny,
     [](const Numbers& n, const Lengths&) { return masks::shared_question(n[0], after_first(n)); }},
    {"bigbird", "BLOCK,GLOBAL,WINDOW,RANDOM,SEED", 5, 5,
     [](const Numbers& n, const Lengths& l) {
       return masks::bigbird(n[0], n[1], n[2], n[3], static_cast<std::uint64_t>(n[4]), l.queries, l.keys);
     }},
    {"neighbourhood", "SIZE,WINDOW,DILATION,CAUSAL,…", 4, 12,
     [](const Numbers& n, const Lengths&) { return neighbourhood_of(n); }},
    {"axial", "AXIS,SIZE,SIZE,…", 2, 4,
     [](const Numbers& n, const Lengths&) { return masks::axial(after_first(n), n[0]); }},
};

std::string all_patterns() {
  std::string all;
  for (const Pattern& pattern : kPatterns)
    all += (all.empty() ? "" : ", ") + std::string(pattern.name) + "=" + std::string(pattern.numbers);
  return all;
}

// Parses the pattern and its numbers. Throws UsageError.
std::pair<const Pattern*, Numbers> parsed_pattern(const std::string& text) {
  const auto refuse = [&](const std::string& expected) { refuse_value("--mask-pattern", text, expected); };
  const std::size_t equals = text.find('=');
  for (const Pattern& pattern : kPatterns) {
    if (text.substr(0, equals) != pattern.name) continue;
    const std::string form = std::string(pattern.name) + "=" + std::string(pattern.numbers);
    Numbers numbers;
    if (equals != std::string::npos) {
      numbers = whole_numbers(text.substr(equals + 1), ',');
      if (numbers.empty()) refuse(form + " of whole numbers");
    }
    if (numbers.size() < pattern.least || numbers.size() > pattern.most) refuse(form);
    return {&pattern, std::move(numbers)};
  }
  refuse("one of " + all_patterns());
  return {};
}

Tensor read(const char* option, const std::string& text) {
  return read_tensor(tensor_argument(option, text));
}

// Whole numbers [N, columns].
Tensor read_numbers(const char* option, const std::string& text, std::int64_t columns) {
  const Tensor tensor = read(option, text);
  const bool whole = tensor.dtype() == DType::i64 || tensor.dtype() == DType::i32;
  if (!whole || tensor.rank() != 2 || tensor.size(1) != columns)
    refuse_usage(option, " has dtype ", tensor.dtype(), " and shape ", tensor.shape(), "; i64 or i32 [N, ",
                 columns, "] is expected");
  return Tensor::copy_of(tensor, DType::i64);
}

// Reads [n, 5]: query begin and end, key begin and end, and the kind.
SparseMask slices_of(const std::string& text, const Lengths& lengths) {
  const Tensor numbers = read_numbers("--mask-slices", text, 5);
  std::vector<MaskSlice> slices;
  for (std::int64_t n = 0; n < numbers.size(0); ++n) {
    const auto at = [&](std::int64_t column) { return numbers.at<std::int64_t>(n, column); };
    slices.push_back({at(0), at(1), at(2), at(3), static_cast<SliceKind>(at(4))});
  }
  return SparseMask::slices(slices, lengths.queries, lengths.keys);
}

// Reads [n, 2]: block rows in non-decreasing order, and block columns.
SparseMask blocks_of(const MaskArguments& arguments, const Lengths& lengths) {
  const Tensor numbers = read_numbers("--mask-blocks", arguments.blocks, 2);
  const auto [query_block, key_block] = arguments.block_size;
  const std::int64_t rows = (lengths.queries + query_block - 1) / query_block;
  Numbers offsets{0}, indices;
  std::int64_t last = 0;
  for (std::int64_t n = 0; n < numbers.size(0); ++n) {
    const std::int64_t row = numbers.at<std::int64_t>(n, 0);
    if (row < last || row >= rows)
      refuse_usage("--mask-blocks has block row ", row, " in line ", n,
                   "; rows in ascending order, from 0 to ", rows - 1, ", are expected");
    offsets.resize(static_cast<std::size_t>(row + 1), std::ssize(indices));
    indices.push_back(numbers.at<std::int64_t>(n, 1));
    last = row;
  }
  offsets.resize(static_cast<std::size_t>(rows + 1), std::ssize(indices));
  const auto tensor_of = [](const Numbers& from) {
    return Tensor::from<std::int64_t>(std::span<const std::int64_t>(from), {std::ssize(from)});
  };
  return SparseMask::blocks(tensor_of(offsets), tensor_of(indices), query_block, key_block, lengths.queries,
                            lengths.keys);
}

// The lists of keys that the indexer chooses, among those that causality allows.
SparseMask indexed_keys(const MaskArguments& arguments, const Lengths& lengths,
                        const AttentionOptions& options) {
  const Tensor query = read("--index-query", arguments.index_query),
               key = read("--index-key", arguments.index_key),
               weights = read("--index-weights", arguments.index_weights);
  if (query.rank() != 4 || key.rank() != 4 || query.size(2) != lengths.queries || key.size(2) != lengths.keys)
    refuse_usage("--index-query has shape ", query.shape(), " and --index-key ", key.shape(), "; [B, H, ",
                 lengths.queries, ", D] and [B, 1, ", lengths.keys, ", D] are expected");
  const std::int64_t end = options.align == Align::bottom_right ? lengths.keys - lengths.queries : 0;
  try {
    return SparseMask::key_lists(lightning_indexer(query, key, weights,
                                                   {.top_k = arguments.index_top,
                                                    .causal = options.causal,
                                                    .query_offset = options.query_offset.value_or(end),
                                                    .threads = options.threads}),
                                 lengths.keys);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    refuse_usage("in the index of --index-query, ", error.what());
  }
}

}  // namespace

void add_mask_options(CLI::App& app, MaskArguments& arguments) {
  const auto add = [&](const char* name, const char* value, std::string& target, const char* help) {
    add_text(app, name, value, target, help);
  };
  add("--mask-rows", "TENSOR", arguments.rows,
      "[Lq, N, 2], i64 or i32: row i sees keys [begin, end) of any of its intervals; axes [B, H] may come "
      "first");
  add("--mask-columns", "TENSOR", arguments.columns,
      "[Lk, 1, 2 or 4]: key j is forbidden to rows from the given number on, or between two numbers; axes "
      "[B, H] may come first");
  add("--mask-key-lists", "TENSOR", arguments.key_lists,
      "[Lq, N], i64 or i32: row i sees the keys of its list, where -1 marks an unused entry; axes [B, H] may "
      "come first");
  add("--index-query", "TENSOR", arguments.index_query,
      "[B, H, Lq, D]: row i sees the N keys with the largest sum over h of weight * max(0, <query, key>), "
      "among those that --causal allows");
  add("--index-key", "TENSOR", arguments.index_key, "[B, 1, Lk, D]: the keys of the index");
  add("--index-weights", "TENSOR", arguments.index_weights, "[B, H, Lq]: the weights of its heads");
  add_integer(app, "--index-top", {1}, arguments.index_top, "the most keys of a row (default 2048)");
  add("--mask-slices", "TENSOR", arguments.slices,
      "[N, 5]: the union of slices (query_begin, query_end, key_begin, key_end, kind), with kind 0 full, 1 "
      "causal, 2 inverse causal, 3 both");
  add("--mask-blocks", "TENSOR", arguments.blocks,
      "[N, 2]: the allowed blocks (block row, block column), ordered by row");
  add_text_option(
      app, "--block-size", "QUERIES,KEYS",
      [&](const std::string& text) {
        arguments.block_size = integer_pair("--block-size", text, ',', 1, "QUERIES,KEYS (1 or more each)");
      },
      "block size of --mask-blocks (default 64,64)");
  add_text_option(
      app, "--mask-pattern", "NAME=NUMBERS",
      [&](const std::string& text) {
        (void)parsed_pattern(text);
        arguments.pattern = text;
      },
      ("one of " + all_patterns()).c_str());
  add("--mask-expression", "TEXT", arguments.expression,
      "a condition on b, h, i and j, such as 'j <= i && doc[i] == doc[j]' (docs/masks.md)");
  add_texts_option(
      app, "--array", "NAME=TENSOR",
      [&](const std::vector<std::string>& texts) {
        for (const std::string& text : texts) {
          const std::size_t equals = text.find('=');
          if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
            refuse_value("--array", text, "NAME=TENSOR");
          arguments.arrays.emplace_back(text.substr(0, equals), text.substr(equals + 1));
        }
      },
      "[N]: the array that expressions read as NAME[…]; may be repeated");
}

void add_score_expression(CLI::App& app, MaskArguments& arguments) {
  add_text(app, "--score-expression", "TEXT", arguments.score_expression,
           "a new score from s (the score), b, h, i and j, such as 's - 0.1 * abs(i - j)' (docs/masks.md)");
}

void check_mask_options(const CLI::App& app) {
  require_beside(app, "--block-size", "--mask-blocks", "TENSOR");
  constexpr std::array kIndex = {"--index-query", "--index-key", "--index-weights"};
  for (const char* option : kIndex)
    for (const char* other : kIndex) require_beside(app, option, other, "TENSOR");
  require_beside(app, "--index-top", "--index-query", "TENSOR");
  for (const char* option : {"--kv-lengths", "--query-segments"})
    if (given(app, "--index-query") && given(app, option))
      refuse_usage(option, " is given with --index-query; one of them is expected");
  if (given(app, "--array") && !given(app, "--mask-expression") && !given(app, "--score-expression"))
    refuse_usage("--array is given without --mask-expression or --score-expression TEXT");
}

std::vector<NamedFile> mask_input_files(const MaskArguments& arguments) {
  std::vector<NamedFile> files;
  const auto add = [&](const char* option, const std::string& text) {
    if (text.empty()) return;
    if (text == "-")
      refuse_usage(option,
                   " is '-'; a file is expected because standard input is reserved for other tensors");
    files.push_back({option, tensor_argument(option, text).file});
  };
  add("--mask-rows", arguments.rows);
  add("--mask-columns", arguments.columns);
  add("--mask-key-lists", arguments.key_lists);
  add("--index-query", arguments.index_query);
  add("--index-key", arguments.index_key);
  add("--index-weights", arguments.index_weights);
  add("--mask-slices", arguments.slices);
  add("--mask-blocks", arguments.blocks);
  for (const auto& [name, text] : arguments.arrays) add("--array", text);
  return files;
}

void read_masks(const MaskArguments& arguments, std::int64_t query_length, std::int64_t key_length,
                AttentionOptions& options) {
  const Lengths lengths{query_length, key_length};
  std::vector<std::pair<std::string, Tensor>> arrays;
  for (const auto& [name, text] : arguments.arrays) arrays.emplace_back(name, read("--array", text));
  const std::vector<std::pair<std::string, TensorView>> views(arrays.begin(), arrays.end());
  SparseMask& mask = options.sparse_mask;
  if (!arguments.rows.empty())
    mask = mask & SparseMask::row_intervals(read("--mask-rows", arguments.rows), key_length);
  if (!arguments.columns.empty())
    mask = mask & SparseMask::column_intervals(read("--mask-columns", arguments.columns), query_length);
  if (!arguments.key_lists.empty())
    mask = mask & SparseMask::key_lists(read("--mask-key-lists", arguments.key_lists), key_length);
  if (!arguments.index_query.empty()) mask = mask & indexed_keys(arguments, lengths, options);
  if (!arguments.slices.empty()) mask = mask & slices_of(arguments.slices, lengths);
  if (!arguments.blocks.empty()) mask = mask & blocks_of(arguments, lengths);
  if (!arguments.pattern.empty()) {
    const auto [pattern, numbers] = parsed_pattern(arguments.pattern);
    mask = mask & pattern->make(numbers, lengths);
  }
  if (!arguments.expression.empty())
    mask = mask & SparseMask::expression(arguments.expression, query_length, key_length, views);
  if (!arguments.score_expression.empty())
    options.score_mod = ScoreMod::expression(arguments.score_expression, views);
}

}  // namespace heed::cli
