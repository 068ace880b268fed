// The C functions that make masks and score modifiers.
#include <string>
#include <utility>
#include <vector>

#include "attention/api/c_attention.hpp"
#include "attention/api/c_support.hpp"
#include "core/message.hpp"
#include "heed/attention/lightning_indexer.hpp"

namespace {

using heed::SparseMask;
using heed::TensorView;
using namespace heed::detail::c_api;

static_assert(static_cast<int>(heed::SliceKind::both_causal) == HEED_SLICE_BOTH_CAUSAL);

using Arrays = std::vector<std::pair<std::string, TensorView>>;

Arrays arrays_of(size_t count, const char* const* names, const heed_tensor* const* arrays) {
  Arrays all;
  if (count == 0) return all;
  require("names", names);
  require("arrays", arrays);
  for (std::size_t n = 0; n < count; ++n) {
    require("names[" + std::to_string(n) + "]", names[n]);
    all.emplace_back(names[n], view_of("arrays[" + std::to_string(n) + "]", arrays[n]));
  }
  return all;
}

}  // namespace

heed_status heed_mask_row_intervals(const heed_tensor* intervals, std::int64_t key_length, heed_mask** mask) {
  return make_handle("mask", mask,
                     [&] { return SparseMask::row_intervals(view_of("intervals", intervals), key_length); });
}

heed_status heed_mask_column_intervals(const heed_tensor* intervals, std::int64_t query_length,
                                       heed_mask** mask) {
  return make_handle("mask", mask, [&] {
    return SparseMask::column_intervals(view_of("intervals", intervals), query_length);
  });
}

heed_status heed_mask_key_lists(const heed_tensor* indices, const heed_tensor* counts,
                                std::int64_t key_length, std::int32_t gather, heed_mask** mask) {
  return make_handle("mask", mask, [&] {
    return SparseMask::key_lists(view_of("indices", indices), key_length, optional_view("counts", counts),
                                 static_cast<heed::Gather>(gather));
  });
}

heed_status heed_lightning_indexer(const heed_tensor* query, const heed_tensor* key,
                                   const heed_tensor* weights, std::int64_t top_k, std::int32_t causal,
                                   std::int64_t query_offset, std::int32_t threads,
                                   const heed_tensor* indices) {
  return guarded([&] {
    heed::lightning_indexer_into(view_of("query", query), view_of("key", key), view_of("weights", weights),
                                 {top_k, flag("causal", causal), query_offset, threads},
                                 view_of("indices", indices));
  });
}

heed_status heed_mask_slices(const heed_mask_slice* slices, std::size_t count, std::int64_t query_length,
                             std::int64_t key_length, heed_mask** mask) {
  return make_handle("mask", mask, [&] {
    std::vector<heed::MaskSlice> all;
    for (const heed_mask_slice& s : list_of("slices", slices, count))
      all.push_back(
          {s.query_begin, s.query_end, s.key_begin, s.key_end, static_cast<heed::SliceKind>(s.kind)});
    return SparseMask::slices(all, query_length, key_length);
  });
}

heed_status heed_mask_blocks(const heed_tensor* offsets, const heed_tensor* indices, std::int64_t query_block,
                             std::int64_t key_block, std::int64_t query_length, std::int64_t key_length,
                             heed_mask** mask) {
  return make_handle("mask", mask, [&] {
    return SparseMask::blocks(view_of("offsets", offsets), view_of("indices", indices), query_block,
                              key_block, query_length, key_length);
  });
}

heed_status heed_mask_from_block_mask(const heed_block_mask* from, std::int64_t query_length,
                                      std::int64_t key_length, heed_mask** mask) {
  return make_handle("mask", mask, [&] {
    require("block_mask", from);
    heed::BlockMaskView view;
    view.kv_num_blocks = view_of("kv_num_blocks", from->kv_num_blocks);
    view.kv_indices = view_of("kv_indices", from->kv_indices);
    view.full_kv_num_blocks = optional_view("full_kv_num_blocks", from->full_kv_num_blocks);
    view.full_kv_indices = optional_view("full_kv_indices", from->full_kv_indices);
    view.partial = optional_view("partial", from->partial);
    view.query_block = from->query_block;
    view.key_block = from->key_block;
    return SparseMask::from_block_mask(view, query_length, key_length);
  });
}

heed_status heed_mask_from_flash_mask(const heed_tensor* startend_row_indices, std::int32_t causal,
                                      std::int64_t query_length, heed_mask** mask) {
  return make_handle("mask", mask, [&] {
    return SparseMask::from_flash_mask(view_of("startend_row_indices", startend_row_indices),
                                       flag("causal", causal), query_length);
  });
}

heed_status heed_mask_expression(const char* text, std::int64_t query_length, std::int64_t key_length,
                                 std::size_t count, const char* const* names,
                                 const heed_tensor* const* arrays, heed_mask** mask) {
  return make_handle("mask", mask, [&] {
    require("text", text);
    return SparseMask::expression(text, query_length, key_length, arrays_of(count, names, arrays));
  });
}

heed_status heed_mask_prefix_lm(std::int64_t prefix, std::int64_t query_length, std::int64_t key_length,
                                heed_mask** mask) {
  return make_handle("mask", mask, [&] { return heed::masks::prefix_lm(prefix, query_length, key_length); });
}

heed_status heed_mask_documents(const std::int64_t* lengths, std::size_t count, std::int32_t causal,
                                heed_mask** mask) {
  return make_handle("mask", mask, [&] {
    return heed::masks::documents(list_of("lengths", lengths, count), flag("causal", causal));
  });
}

heed_status heed_mask_sliding_window(std::int64_t left, std::int64_t right, std::int64_t query_length,
                                     std::int64_t key_length, heed_mask** mask) {
  return make_handle("mask", mask,
                     [&] { return heed::masks::sliding_window(left, right, query_length, key_length); });
}

heed_status heed_mask_sinks_and_window(std::int64_t sinks, std::int64_t window, std::int64_t query_length,
                                       std::int64_t key_length, heed_mask** mask) {
  return make_handle("mask", mask,
                     [&] { return heed::masks::sinks_and_window(sinks, window, query_length, key_length); });
}

heed_status heed_mask_dilated(std::int64_t reach, std::int64_t step, std::int64_t query_length,
                              std::int64_t key_length, heed_mask** mask) {
  return make_handle("mask", mask,
                     [&] { return heed::masks::dilated(reach, step, query_length, key_length); });
}

heed_status heed_mask_shared_question(std::int64_t question, const std::int64_t* answers, std::size_t count,
                                      heed_mask** mask) {
  return make_handle("mask", mask, [&] {
    return heed::masks::shared_question(question, list_of("answers", answers, count));
  });
}

heed_status heed_mask_bigbird(std::int64_t block, std::int64_t global, std::int64_t window,
                              std::int64_t random, std::uint64_t seed, std::int64_t query_length,
                              std::int64_t key_length, heed_mask** mask) {
  return make_handle("mask", mask, [&] {
    return heed::masks::bigbird(block, global, window, random, seed, query_length, key_length);
  });
}

heed_status heed_mask_neighbourhood(const heed_grid_axis* axes, std::size_t count, std::int64_t first_query,
                                    std::int64_t query_length, std::int64_t key_length, heed_mask** mask) {
  return make_handle("mask", mask, [&] {
    std::vector<heed::GridAxis> all;
    for (const heed_grid_axis& axis : list_of("axes", axes, count))
      all.push_back({axis.size, axis.window, axis.dilation, flag("causal", axis.causal)});
    return heed::masks::neighbourhood(all, first_query, query_length, key_length);
  });
}

heed_status heed_mask_axial(const std::int64_t* sizes, std::size_t count, std::int64_t axis,
                            std::int64_t first_query, std::int64_t query_length, std::int64_t key_length,
                            heed_mask** mask) {
  return make_handle("mask", mask, [&] {
    return heed::masks::axial(list_of("sizes", sizes, count), axis, first_query, query_length, key_length);
  });
}

heed_status heed_mask_and(const heed_mask* a, const heed_mask* b, heed_mask** mask) {
  return make_handle("mask", mask, [&] {
    require("a", a);
    require("b", b);
    return a->mask & b->mask;
  });
}

void heed_mask_free(heed_mask* mask) { delete mask; }

heed_status heed_score_mod_expression(const char* text, std::size_t count, const char* const* names,
                                      const heed_tensor* const* arrays, heed_score_mod** mod) {
  return make_handle("mod", mod, [&] {
    require("text", text);
    return heed::ScoreMod::expression(text, arrays_of(count, names, arrays));
  });
}

void heed_score_mod_free(heed_score_mod* mod) { delete mod; }
