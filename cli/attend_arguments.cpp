#include "attend_arguments.hpp"

#include <array>
#include <limits>
#include <vector>

#include "command.hpp"
#include "options.hpp"
#include "rank_options.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

using Arguments = AttendArguments;

using Gradients = AttentionGradients;
using Views = AttentionGradientViews;
using Request = GradientRequest;

constexpr Along kWhole{};
constexpr std::array<GradientFile, 6> kGradientFiles = {{
    {"--grad-query", "--query", &Arguments::grad_query, &Gradients::query, &Views::query, &Request::query,
     kAlongQueries},
    {"--grad-key", "--key", &Arguments::grad_key, &Gradients::key, &Views::key, &Request::key, kAlongKeys},
    {"--grad-value", "--value", &Arguments::grad_value, &Gradients::value, &Views::value, &Request::value,
     kAlongKeys},
    {"--grad-bias", "--bias", &Arguments::grad_bias, &Gradients::bias, &Views::bias, &Request::bias,
     kAlongRows},
    {"--grad-sinks", "--sinks", &Arguments::grad_sinks, &Gradients::sinks, &Views::sinks, &Request::sinks,
     kWhole},
    {"--grad-decay", "--decay", &Arguments::grad_decay, &Gradients::decay, &Views::decay, &Request::decay,
     kWhole},
}};

constexpr const char* kTensor = "TENSOR";
constexpr const char* kFile = "FILE";
constexpr const char* kResultsGroup = "Results (each written to a .npy file)";

void add_inputs(CLI::App& app, Arguments& arguments) {
  begin_group(app, "Inputs (query, key and value are required)");
  add_text(app, "--query", kTensor, arguments.query, "queries [B, H, Lq, D]");
  add_text(app, "--key", kTensor, arguments.key, "keys [B, Hkv, Lk, D]; H is a multiple of Hkv");
  add_text(app, "--value", kTensor, arguments.value, "values [B, Hkv, Lk, Dv]");
  add_choice(
      app, "--layout", {"bhld", "blhd"}, [&](std::size_t i) { arguments.length_first = i == 1; },
      "axes of query, key, value and output: [B, H, L, D] (default) or [B, L, H, D]");
  add_choice(
      app, "--dtype", {"f64", "f32", "bf16", "f16"},
      [&](std::size_t i) {
        arguments.dtype = std::array{DType::f64, DType::f32, DType::bf16, DType::f16}[i];
      },
      "convert query, key and value to this dtype first (default: the query's dtype)");
}

void add_scores(CLI::App& app, Arguments& arguments) {
  begin_group(app, "Scores");
  AttentionOptions& options = arguments.options;
  add_real(app, "--scale", options.scale, "score = X * <q, k> (default 1 / sqrt(D))");
  const auto store_softcap = [&](double x) {
    if (x < 0) refuse_usage("--softcap is ", x, "; a number of 0 (off) or more is expected");
    options.softcap = x;
  };
  add_real(app, "--softcap", store_softcap, "then score = X * tanh(score / X) (default 0: off)");
  add_score_expression(app, arguments.masks);
  add_text(app, "--bias", kTensor, arguments.bias,
           "then added to the scores; broadcasts to [B, H, Lq, Lk]; -inf forbids a key");
  add_text(app, "--alibi-slopes", kTensor, arguments.alibi_slopes,
           "slopes, [H] or [B, H]: slope * |p - j| is subtracted from the score of key j");
  add_text(
      app, "--decay", kTensor, arguments.decay,
      "[B, H, L], c by position (the running sum of log forget gates): c_i - c_j is added to the scores");
  add_text(app, "--sinks", kTensor, arguments.sinks,
           "[H]: one extra logit per head, in the softmax denominator only");
  const auto store_dropout = [&](double p) {
    if (p < 0 || p >= 1) refuse_usage("--dropout is ", p, "; a number of 0 or more and below 1 is expected");
    options.dropout.probability = p;
  };
  add_real(app, "--dropout", store_dropout,
           "probability of dropping a weight from the output, at least 0 and below 1 (default 0)")
      ->type_name("P");
  add_seed(
      app, "--dropout-seed", [&](std::uint64_t n) { options.dropout.seed = n; },
      "seed that chooses the dropped weights (default 0)");
}

void add_masks(CLI::App& app, Arguments& arguments) {
  begin_group(app, "Masks (a key must be allowed by all of them; query i is at position p)");
  AttentionOptions& options = arguments.options;
  add_flag(app, "--causal", options.causal, "allow keys j <= p");
  add_choice(
      app, "--align", {"top-left", "bottom-right"},
      [&](std::size_t i) { options.align = i == 0 ? Align::top_left : Align::bottom_right; },
      "top-left: p = i (default); bottom-right: p = i + keys - queries, so that the last query is at the "
      "last key");
  add_integer(app, "--query-offset", {}, options.query_offset,
              "p = i + N, regardless of --align; N may be negative");
  add_window_option(app, options.window);
  add_text(app, "--mask", kTensor, arguments.mask, "bool, true allows a key; broadcasts to [B, H, Lq, Lk]");
  add_text(app, "--kv-lengths", kTensor, arguments.kv_lengths,
           "[B], i64 or i32: the number of keys of each batch entry; later keys are forbidden");
  add_text(app, "--query-segments", kTensor, arguments.query_segments,
           "[S + 1], i64 or i32: offsets, from 0 to Lq, of S packed sequences (B = 1)");
  add_text(app, "--key-segments", kTensor, arguments.key_segments,
           "the same for keys, from 0 to Lk; queries see only keys of their own sequence");
  begin_group(app, "Masks without a matrix (i and j are indices into the tensors)");
  add_mask_options(app, arguments.masks);
}

void add_results(CLI::App& app, Arguments& arguments) {
  begin_group(app, kResultsGroup);
  AttentionOptions& options = arguments.options;
  for (const auto& [entry, path] : kResults<std::string>)
    if (entry.need != Need::none || entry.shape == ResultShape::output)
      add_text(app, result_option(entry), kFile, arguments.results.*path, entry.meaning);
  add_choice(
      app, "--scores-stage", {"raw", "softcap", "bias"},
      [&](std::size_t i) {
        options.scores_stage = std::array{ScoresStage::raw, ScoresStage::softcap, ScoresStage::bias}[i];
      },
      "which scores: raw (scaled only), softcap (after --softcap), or bias (default: after bias, ALiBi and "
      "masks)");
  add_integer(app, "--top-k", {1}, options.top_k,
              "the K most attended keys of each row [B, H, Lq, K]; index -1 and weight 0 if a row has fewer")
      ->type_name("K");
  add_text_option(
      app, "--top-k-out", "INDEX,WEIGHT",
      [&](const std::string& text) {
        const std::vector<std::string> files = split(text, ',');
        if (files.size() != 2 || files[0].empty() || files[1].empty())
          refuse_value("--top-k-out", text, "INDEX.npy,WEIGHT.npy");
        arguments.results.top_k_index = files[0];
        arguments.results.top_k_weight = files[1];
      },
      "the two files for their indices (i64) and weights, separated by a comma");
  add_integer(app, "--received-last", {1}, options.received_last,
              "sum --received over only the last W queries (of each sequence)")
      ->type_name("W");
  add_text(app, "--received-last-out", kFile, arguments.results.received_last,
           "file for the sum over the last W queries; --received then sums over all queries");
  add_map_option(app, options.map, "the weights summed into R x C bins of queries and keys [B, H, R, C]");
  add_text(app, "--map-out", kFile, arguments.results.map, "file for the map");
}

void add_gradients(CLI::App& app, Arguments& arguments) {
  begin_group(app, "Gradients of a loss (of results: read; of inputs: each written to a .npy file)");
  const auto read = [&](const char* name, std::string& text, const char* help) {
    add_text(app, name, kTensor, text, help);
  };
  const auto write = [&](const char* name, std::string& path, const char* help) {
    add_text(app, name, kFile, path, help);
  };
  read("--grad-output", arguments.by_output,
       "gradient of the output [B, H, Lq, Dv]; starts the backward pass");
  read("--grad-lse", arguments.by_lse, "gradient of --lse [B, H, Lq], if the loss uses it too");
  read("--grad-weights", arguments.by_weights,
       "gradient of --weights [B, H, Lq, Lk], if the loss uses them too");
  write("--grad-query", arguments.grad_query, "gradient of the query [B, H, Lq, D]");
  write("--grad-key", arguments.grad_key, "gradient of the key [B, Hkv, Lk, D]");
  write("--grad-value", arguments.grad_value, "gradient of the value [B, Hkv, Lk, Dv]");
  write("--grad-bias", arguments.grad_bias, "gradient of the bias, in its shape");
  write("--grad-sinks", arguments.grad_sinks, "gradient of the sinks [H]");
  write("--grad-decay", arguments.grad_decay, "gradient of the decay, in its shape");
}

void add_cache_options(CLI::App& app, Arguments& arguments) {
  begin_group(app, "A saved cache in place of key and value");
  add_text(app, "--cache", kFile, arguments.cache,
           "a KvCache in a safetensors file; queries stand at the last positions of its sequences "
           "(docs/kv_cache.md)");
  add_text_option(
      app, "--cache-sequences", "N,…",
      [&](const std::string& text) {
        arguments.cache_sequences = whole_numbers(text, ',');
        if (arguments.cache_sequences.empty())
          refuse_value("--cache-sequences", text, "a list of sequences, such as 0,2,");
      },
      "the sequence that each batch entry attends (default: all, in order)");
}

// A cache knows its keys, values, lengths and positions, and it has no gradients.
void check_cache_options(const CLI::App& app) {
  require_beside(app, "--cache-sequences", "--cache", kFile);
  if (!given(app, "--cache")) return;
  for (const char* option :
       {"--key", "--value", "--kv-lengths", "--key-segments", "--align", "--grid", "--grad-output",
        "--grad-query", "--grad-key", "--grad-value", "--grad-bias", "--grad-sinks", "--grad-decay",
        "--grad-lambda", "--grad-gate", "--grad-lse", "--grad-weights"})
    if (given(app, option)) refuse_usage(option, " is given with --cache; one of them is expected");
}

constexpr const char* kComputing = "Computing";

void add_timing(CLI::App& app, Arguments& arguments) {
  begin_group(app, kComputing);
  add_flag(app, "--json", arguments.json,
           "print one JSON object: query, key, value (shapes), dtype, kernel, isa, threads, recomputed_rows, "
           "seconds, gflops, and the last six again for the backward pass. recomputed_rows counts rows "
           "computed in f64 because f32 cannot hold them (NaN, infinities, scores beyond 2^19)");
  add_flag(app, "--plan", arguments.plan,
           "print how the call would run and why, its memory and its cost, without computing or writing "
           "anything; with --json, as one object");
  add_integer(app, "--repeat", {1}, arguments.repeat, "compute the call N times; seconds is the median");
}

void check_file_names(const Arguments& arguments) {
  for (const auto& [entry, path] : kResults<std::string>)
    require_ending(result_option(entry), arguments.results.*path, ".npy");
  for (const GradientFile& file : gradient_files()) require_ending(file.option, arguments.*file.path, ".npy");
}

void check_gradients(const CLI::App& app) {
  bool any = given(app, "--grad-lambda") || given(app, "--grad-gate");
  for (const GradientFile& file : gradient_files()) {
    require_beside(app, file.option, file.of, kTensor);
    require_beside(app, file.option, "--grad-output", kTensor);
    any |= given(app, file.option);
  }
  require_beside(app, "--grad-lse", "--grad-output", kTensor);
  require_beside(app, "--grad-weights", "--grad-output", kTensor);
  if (given(app, "--grad-output") && !any)
    refuse_usage(
        "--grad-output is given without a gradient to compute; --grad-query, --grad-key, --grad-value, "
        "--grad-bias, --grad-sinks, --grad-decay, --grad-lambda or --grad-gate FILE.npy is expected");
}

}  // namespace

std::string result_option(const ResultEntry& entry) {
  switch (entry.shape) {
    case ResultShape::output:
      return "--out";
    case ResultShape::top_k:
      return "--top-k-out";
    case ResultShape::key_last:
      return "--received-last-out";
    case ResultShape::map:
      return "--map-out";
    default:
      return "--" + with_dashes(entry.name());
  }
}
std::span<const GradientFile> gradient_files() { return kGradientFiles; }

void add_map_option(CLI::App& app, MapSize& map, const std::string& help) {
  add_text_option(
      app, "--map", "RxC",
      [&map](const std::string& text) {
        const auto [rows, columns] = integer_pair("--map", text, 'x', 1, "ROWSxCOLUMNS, such as 64x64,");
        map = {rows, columns};
      },
      help);
}

void add_window_option(CLI::App& app, Window& window) {
  add_text_option(
      app, "--window", "LEFT,RIGHT",
      [&window](const std::string& text) {
        const auto [left, right] =
            integer_pair("--window", text, ',', -1, "LEFT,RIGHT (whole numbers; -1 is unbounded)");
        window = {left, right};
      },
      "allow keys from p - LEFT to p + RIGHT; -1 is unbounded");
}

void add_call_options(CLI::App& app, AttendArguments& arguments) {
  add_inputs(app, arguments);
  add_scores(app, arguments);
  add_masks(app, arguments);
}

void add_kernel_options(CLI::App& app, AttendArguments& arguments) {
  begin_group(app, kComputing);
  AttentionOptions& options = arguments.options;
  add_choice(
      app, "--kernel", {"automatic", "reference", "fused"},
      [&](std::size_t i) {
        options.kernel = std::array{Kernel::automatic, Kernel::reference, Kernel::fused}[i];
      },
      "implementation; automatic chooses the fastest one that supports the call (default automatic)");
  add_integer(app, "--threads", {0, std::numeric_limits<std::int16_t>::max()}, options.threads,
              "use at most N threads; 0 uses all of the machine (default 0)");
}

void require_call_options(const CLI::App& app, bool has_cache) {
  const auto require = [&](const char* name) {
    require_option(app, name, "FILE.npy, FILE.safetensors:NAME or -");
  };
  require("--query");
  if (!has_cache) {
    require("--key");
    require("--value");
    require_beside(app, "--query-segments", "--key-segments", "OFFSETS.npy");
    require_beside(app, "--key-segments", "--query-segments", "OFFSETS.npy");
  }
  require_beside(app, "--dropout-seed", "--dropout", "P");
  check_mask_options(app);
}

void add_attend_options(CLI::App& app, AttendArguments& arguments) {
  add_call_options(app, arguments);
  add_cache_options(app, arguments);
  add_results(app, arguments);
  add_gradients(app, arguments);
  add_form_options(app, arguments);
  add_kernel_options(app, arguments);
  add_timing(app, arguments);
  add_rank_options(app, arguments.over_ranks);
}

void complete_attend_arguments(const CLI::App& app, AttendArguments& arguments) {
  check_cache_options(app);
  require_call_options(app, given(app, "--cache"));
  if (given(app, "--repeat") && (arguments.plan || !arguments.json))
    refuse_usage("--repeat is given ", arguments.plan
                                           ? "together with --plan, which computes nothing"
                                           : "without --json, which prints the median of its seconds");
  require_beside(app, "--scores-stage", "--scores", "FILE.npy");
  require_beside(app, "--top-k", "--top-k-out", "INDEX.npy,WEIGHT.npy");
  require_beside(app, "--top-k-out", "--top-k", "K");
  require_beside(app, "--map", "--map-out", "FILE.npy");
  require_beside(app, "--map-out", "--map", "RxC");
  require_beside(app, "--received-last-out", "--received-last", "W");
  if (!given(app, "--received-last-out")) {
    require_beside(app, "--received-last", "--received", "FILE.npy");
    if (given(app, "--received-last")) arguments.results.received_last.swap(arguments.results.received);
  }
  check_form_options(app, arguments);
  check_gradients(app);
  check_file_names(arguments);
  const bool any_file =
      given(app, "--grad-output") || given(app, "--grid") ||
      std::any_of(std::begin(kResults<std::string>), std::end(kResults<std::string>),
                  [&](const auto& line) { return !(arguments.results.*line.member).empty(); });
  if (!any_file && !arguments.json && !arguments.plan) {
    refuse_usage("no result is requested; --out FILE.npy, another result, --plan or --json is expected");
  }
}

}  // namespace heed::cli
