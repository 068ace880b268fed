// heed.SparseMask and heed.masks: masks in O(L) memory.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "attention/masks/saved_parts.hpp"
#include "calls.hpp"
#include "core/message.hpp"
#include "fail.hpp"
#include "heed/attention/lightning_indexer.hpp"
#include "heed/attention/masks.hpp"
#include "heed/attention/score_mod.hpp"

namespace heed::python {
namespace {

using Numbers = std::vector<std::int64_t>;

// An array, or nested sequences of numbers converted to one.
Borrowed whole_numbers(std::string_view name, nb::handle value) {
  if (is_array(value) || !nb::isinstance<nb::sequence>(value)) return Borrowed(name, value);
  return Borrowed(name, array_of_whole_numbers(name, value));
}

SparseMask rows(nb::handle intervals, std::int64_t keys) {
  return SparseMask::row_intervals(whole_numbers("intervals", intervals).view(), keys);
}

SparseMask columns(nb::handle intervals, std::int64_t queries) {
  return SparseMask::column_intervals(whole_numbers("intervals", intervals).view(), queries);
}

Gather gather_named(const std::string& name) {
  if (name == "automatic") return Gather::automatic;
  if (name == "never") return Gather::never;
  if (name == "always") return Gather::always;
  fail("gather is '", name, "'; 'automatic', 'never' or 'always' is expected");
}

SparseMask key_lists(nb::handle indices, std::int64_t keys, nb::handle counts, const std::string& gather) {
  const Borrowed listed = whole_numbers("indices", indices);
  if (counts.is_none()) return SparseMask::key_lists(listed.view(), keys, {}, gather_named(gather));
  const Borrowed given = whole_numbers("counts", counts);
  return SparseMask::key_lists(listed.view(), keys, given.view(), gather_named(gather));
}

SparseMask flash(nb::handle indices, bool causal, std::int64_t queries) {
  return SparseMask::from_flash_mask(whole_numbers("startend_row_indices", indices).view(), causal, queries);
}

SliceKind slice_kind(nb::handle kind) {
  if (!nb::isinstance<nb::str>(kind)) return static_cast<SliceKind>(integer("kind", kind));
  const auto name = nb::cast<std::string>(kind);
  if (name == "full") return SliceKind::full;
  if (name == "causal") return SliceKind::causal;
  if (name == "inverse_causal") return SliceKind::inverse_causal;
  if (name == "both_causal") return SliceKind::both_causal;
  fail("kind is '", name, "'; 'full', 'causal', 'inverse_causal' or 'both_causal' is expected");
}

SparseMask slices(nb::sequence list, std::int64_t queries, std::int64_t keys) {
  std::vector<MaskSlice> all;
  for (const nb::handle one : list) {
    if (!nb::isinstance<nb::sequence>(one) || nb::len(one) != 3)
      fail_type("slices has ", nb::cast<std::string>(nb::repr(one)),
                "; ((query_begin, query_end), (key_begin, key_end), kind) is expected");
    const auto [q0, q1] = two("the queries of a slice", one[0], "(begin, end)");
    const auto [k0, k1] = two("the keys of a slice", one[1], "(begin, end)");
    all.push_back({integer("query_begin", q0), integer("query_end", q1), integer("key_begin", k0),
                   integer("key_end", k1), slice_kind(one[2])});
  }
  return SparseMask::slices(all, queries, keys);
}

SparseMask blocks(nb::handle offsets, nb::handle indices, std::pair<std::int64_t, std::int64_t> block_size,
                  std::int64_t queries, std::int64_t keys) {
  return SparseMask::blocks(whole_numbers("offsets", offsets).view(),
                            whole_numbers("indices", indices).view(), block_size.first, block_size.second,
                            queries, keys);
}

SparseMask block_mask(nb::handle kv_num_blocks, nb::handle kv_indices, nb::handle full_kv_num_blocks,
                      nb::handle full_kv_indices, nb::handle partial,
                      std::pair<std::int64_t, std::int64_t> block_size, std::int64_t queries,
                      std::int64_t keys) {
  std::deque<Borrowed> kept;  // a deque does not move its elements
  const auto view = [&](const char* name, nb::handle value) -> TensorView {
    return kept.emplace_back(whole_numbers(name, value)).view();
  };
  BlockMaskView mask;
  mask.kv_num_blocks = view("kv_num_blocks", kv_num_blocks);
  mask.kv_indices = view("kv_indices", kv_indices);
  if (!full_kv_num_blocks.is_none()) mask.full_kv_num_blocks = view("full_kv_num_blocks", full_kv_num_blocks);
  if (!full_kv_indices.is_none()) mask.full_kv_indices = view("full_kv_indices", full_kv_indices);
  if (!partial.is_none()) mask.partial = view("partial", partial);
  mask.query_block = block_size.first;
  mask.key_block = block_size.second;
  return SparseMask::from_block_mask(mask, queries, keys);
}

// Named arrays, kept alive.
struct NamedArrays {
  std::deque<Borrowed> kept;
  std::vector<std::pair<std::string, TensorView>> views;

  explicit NamedArrays(const nb::kwargs& given) {
    for (const auto& [name, value] : given) {
      const auto key = nb::cast<std::string>(name);
      nb::object array = nb::borrow(value);
      if (!is_array(value)) array = numpy_of_lists(key, value);
      views.emplace_back(key, kept.emplace_back(key, array).view());
    }
  }
};

SparseMask expression(const std::string& text, std::int64_t queries, std::int64_t keys,
                      const nb::kwargs& given) {
  return SparseMask::expression(text, queries, keys, NamedArrays(given).views);
}

ScoreMod score_expression(const std::string& text, const nb::kwargs& given) {
  return ScoreMod::expression(text, NamedArrays(given).views);
}

std::string describe(const SparseMask& mask) {
  if (mask.is_empty()) return "SparseMask()";
  return "SparseMask([" + std::to_string(mask.batch()) + ", " + std::to_string(mask.heads()) + ", " +
         std::to_string(mask.query_length()) + ", " + std::to_string(mask.key_length()) + "], " +
         std::to_string(mask.bytes()) + " bytes)";
}

// A list with one (form, text, tensors) per part.
nb::list mask_state(const SparseMask& mask) {
  nb::list parts;
  for (const auto& part : mask.parts()) {
    const detail::SavedPart one = part->saved();
    parts.append(nb::make_tuple(one.form, one.text, saved(one.tensors)));
  }
  return parts;
}

SparseMask mask_from(nb::handle state) {
  check_state(nb::isinstance<nb::list>(state), state, "a list of parts");
  SparseMask mask;
  for (const nb::handle part : state) {
    check_state(nb::isinstance<nb::tuple>(part) && nb::len(part) == 3, part, "(form, text, tensors)");
    const Restored tensors(part[2]);
    mask = mask & detail::restored_part(text("form", part[0]), text("text", part[1]), tensors.tensors());
  }
  return mask;
}

nb::tuple score_mod_state(const ScoreMod& mod) {
  if (mod.is_empty()) return nb::make_tuple("", nb::dict());
  return nb::make_tuple(std::string(mod.part()->text()), saved(mod.part()->arrays()));
}

ScoreMod score_mod_from(nb::handle state) {
  check_state(nb::isinstance<nb::tuple>(state) && nb::len(state) == 2, state, "(text, arrays)");
  return ScoreMod::expression(text("text", state[0]), Restored(state[1]).tensors());
}

nb::object indexed(nb::handle query, nb::handle key, nb::handle weights, std::int64_t top_k, bool causal,
                   std::int64_t query_offset, nb::handle threads) {
  const Borrowed q("query", query), k("key", key), w("weights", weights);
  const IndexerOptions options{top_k, causal, query_offset, threads.is_none() ? 0 : threads_of(threads)};
  nb::gil_scoped_release released;
  Tensor indices = lightning_indexer(q.view(), k.view(), w.view(), options);
  nb::gil_scoped_acquire held;
  return to_python(std::move(indices), Kind::numpy);
}

// One number for each axis of a grid; a single number serves all.
Numbers each_axis(const char* name, nb::handle value, std::size_t axes) {
  if (!nb::isinstance<nb::sequence>(value)) return Numbers(axes, integer(name, value));
  Numbers numbers;
  for (const nb::handle one : nb::cast<nb::sequence>(value)) numbers.push_back(integer(name, one));
  if (numbers.size() != axes)
    fail(name, " has ", detail::counted(numbers.size(), "number"), "; one, or one for each of the ",
         detail::counted(axes, "axis", "axes"), " is expected");
  return numbers;
}

SparseMask neighbourhood(const Numbers& grid, nb::handle window, nb::handle dilation, nb::handle causal,
                         std::int64_t first_query, std::optional<std::int64_t> queries,
                         std::optional<std::int64_t> keys) {
  const Numbers windows = each_axis("window", window, grid.size()),
                dilations = each_axis("dilation", dilation, grid.size()),
                causals = each_axis("causal", causal, grid.size());
  std::vector<GridAxis> axes;
  for (std::size_t n = 0; n < grid.size(); ++n)
    axes.push_back({grid[n], windows[n], dilations[n], causals[n] != 0});
  return masks::neighbourhood(axes, first_query, queries.value_or(-1), keys.value_or(-1));
}

SparseMask axial(const Numbers& grid, std::optional<std::int64_t> axis, std::int64_t first_query,
                 std::optional<std::int64_t> queries, std::optional<std::int64_t> keys) {
  return masks::axial(grid, axis.value_or(-1), first_query, queries.value_or(-1), keys.value_or(-1));
}

SparseMask bigbird(std::int64_t block, std::int64_t global_blocks, std::int64_t window, std::int64_t random,
                   nb::handle seed, std::int64_t queries, std::int64_t keys) {
  return masks::bigbird(block, global_blocks, window, random, unsigned_integer("seed", seed), queries, keys);
}

void define_patterns(nb::module_& module) {
  module.def("lightning_indexer", indexed, nb::arg("query"), nb::arg("key"), nb::arg("weights"),
             nb::arg("top_k"), nb::kw_only(), nb::arg("causal") = true, nb::arg("query_offset") = 0,
             nb::arg("threads").none() = nb::none(),
             "The top_k keys of each query by sum_h weights_ih max(0, <q_ih, k_j>) (DeepSeek-V3.2), for "
             "SparseMask.key_lists: int32 [B, 1, Lq, min(top_k, Lk)], where -1 marks an unused entry. query "
             "[B, H, Lq, D], key [B, 1, Lk, D], weights [B, H, Lq].");
  module.def("prefix_lm", masks::prefix_lm, nb::arg("prefix"), nb::arg("queries"), nb::arg("keys"),
             "All queries see the keys before `prefix`; the other keys are causal.");
  module.def(
      "documents", [](const Numbers& lengths, bool causal) { return masks::documents(lengths, causal); },
      nb::arg("lengths"), nb::kw_only(), nb::arg("causal") = true,
      "Documents of these lengths, one after the other; a token sees only its own document.");
  module.def("sliding_window", masks::sliding_window, nb::arg("left"), nb::arg("right"), nb::arg("queries"),
             nb::arg("keys"), "Keys i - left <= j <= i + right; -1 leaves a side open.");
  module.def("sinks_and_window", masks::sinks_and_window, nb::arg("sinks"), nb::arg("window"),
             nb::arg("queries"), nb::arg("keys"),
             "The first `sinks` keys, and keys i - window < j <= i (StreamingLLM).");
  module.def("dilated", masks::dilated, nb::arg("reach"), nb::arg("step"), nb::arg("queries"),
             nb::arg("keys"), "Keys j = i + k * step for whole |k| <= reach (Longformer).");
  module.def(
      "shared_question",
      [](std::int64_t question, const Numbers& answers) { return masks::shared_question(question, answers); },
      nb::arg("question"), nb::arg("answers"),
      "A question and answers of these lengths after it: all causal, and no answer sees another.");
  module.def("bigbird", bigbird, nb::arg("block"), nb::arg("global_blocks"), nb::arg("window"),
             nb::arg("random"), nb::arg("seed").none(), nb::arg("queries"), nb::arg("keys"),
             "Blocks: the first and last global_blocks rows and columns, `window` around the diagonal, and "
             "`random` of "
             "the others in each row (BigBird).");
  module.def("neighbourhood", neighbourhood, nb::arg("grid"), nb::arg("window"), nb::kw_only(),
             nb::arg("dilation") = 1, nb::arg("causal") = false, nb::arg("first_query") = 0,
             nb::arg("queries") = nb::none(), nb::arg("keys") = nb::none(),
             "The `window` keys around each token of a grid of one to three axes (NATTEN); at a border the "
             "window is moved inwards. A window of -1 means all keys of an axis.");
  module.def("axial", axial, nb::arg("grid"), nb::arg("axis") = nb::none(), nb::kw_only(),
             nb::arg("first_query") = 0, nb::arg("queries") = nb::none(), nb::arg("keys") = nb::none(),
             "The token's line along `axis` of a grid (axial attention), or along each axis (criss-cross).");
}

}  // namespace

void define_masks(nb::module_& module) {
  nb::class_<SparseMask>(
      module, "SparseMask",
      "Which keys each query may attend, in memory that grows with the length: attention(mask=…). "
      "Masks combine with &.")
      .def(nb::init<>(), "Allows everything.")
      .def(CopiedAsItself())
      .def(pickled(mask_state, mask_from))
      .def_static("rows", rows, nb::arg("intervals"), nb::arg("keys"),
                  "intervals [Lq, n, 2], optionally after [B, H] or [H]: row i may see keys [begin, end) of "
                  "any interval.")
      .def_static("columns", columns, nb::arg("intervals"), nb::arg("queries"),
                  "intervals [Lk, 1, 2 or 4]: key j is forbidden to rows from the given number on, or "
                  "between two numbers.")
      .def_static(
          "key_lists", key_lists, nb::arg("indices"), nb::arg("keys"), nb::arg("counts").none() = nb::none(),
          nb::kw_only(), nb::arg("gather") = "automatic",
          "indices [Lq, n], optionally after [B, H] or [H]: row i may see the first counts[i] keys of "
          "its list. Without counts [.., Lq], -1 marks an unused entry. gather: whether a call gathers "
          "the listed keys ('automatic', 'never' or 'always').")
      .def_static("flash", flash, nb::arg("startend_row_indices"), nb::kw_only(), nb::arg("causal"),
                  nb::arg("queries"), "FlashMask's startend_row_indices [B, H, Lk, 1, 2 or 4].")
      .def_static(
          "slices", slices, nb::arg("slices"), nb::arg("queries"), nb::arg("keys"),
          "The union of ((query_begin, query_end), (key_begin, key_end), kind), where kind is 'full', "
          "'causal', 'inverse_causal' or 'both_causal' (MagiAttention: 0 to 3).")
      .def_static("blocks", blocks, nb::arg("offsets"), nb::arg("indices"), nb::kw_only(),
                  nb::arg("block_size"), nb::arg("queries"), nb::arg("keys"),
                  "Block sparse rows: offsets [R + 1], indices [N].")
      .def_static("block_mask", block_mask, nb::arg("kv_num_blocks"), nb::arg("kv_indices"),
                  nb::arg("full_kv_num_blocks").none() = nb::none(),
                  nb::arg("full_kv_indices").none() = nb::none(), nb::kw_only(),
                  nb::arg("partial").none() = nb::none(), nb::arg("block_size") = std::pair{128, 128},
                  nb::arg("queries"), nb::arg("keys"),
                  "FlexAttention's BlockMask by its tensors; `partial` [N, query block, key block] gives the "
                  "allowed pairs of the listed blocks; without it, all are allowed.")
      .def_static("expression", expression, nb::arg("text"), nb::arg("queries"), nb::arg("keys"),
                  nb::arg("arrays"), nb::sig("def expression(text: str, queries: int, keys: int, **arrays)"),
                  "A condition on b, h, i and j, such as 'j <= i and doc[i] == doc[j]' with doc=…")
      .def("__and__", [](const SparseMask& a, const SparseMask& b) { return a & b; })
      .def("__repr__", describe)
      .def_prop_ro(
          "shape",
          [](const SparseMask& mask) {
            return nb::make_tuple(mask.batch(), mask.heads(), mask.query_length(), mask.key_length());
          },
          "(B, H, Lq, Lk); 1 for a batch size or head count that is shared by all")
      .def_prop_ro(
          "nbytes", [](const SparseMask& mask) { return mask.bytes(); }, "bytes of memory that it uses")
      .def(
          "dense", [](const SparseMask& mask) { return to_python(mask.dense(), Kind::numpy); },
          "The mask as a bool array [B, H, Lq, Lk], for small masks.")
      .def("runs", &SparseMask::runs, nb::arg("batch"), nb::arg("head"), nb::arg("row"),
           "The keys that a row may see, as a list of (begin, end).");
  nb::class_<ScoreMod>(module, "ScoreMod",
                       "A function of a score, applied after scale and softcap and before the bias: "
                       "attention(score_mod=ScoreMod.expression('s - 0.1 * abs(i - j)')).")
      .def(CopiedAsItself())
      .def(pickled(score_mod_state, score_mod_from))
      .def_static("expression", score_expression, nb::arg("text"), nb::arg("arrays"),
                  nb::sig("def expression(text: str, **arrays)"),
                  "A new score from s, b, h, i and j; -inf forbids the key.")
      .def("__repr__", [](const ScoreMod& mod) {
        return "ScoreMod(" + (mod.is_empty() ? "" : "'" + std::string(mod.part()->text()) + "'") + ")";
      });
  nb::module_ patterns = module.def_submodule("masks", "The functions of heed.masks.");
  patterns.attr("SparseMask") = module.attr("SparseMask");
  define_patterns(patterns);
}

}  // namespace heed::python
