#include "describe_call.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>

namespace heed::test {

namespace {

std::string described(const TensorView& view) {
  return std::string(name_of(view.dtype())) + to_string(view.shape()) + " strides " +
         to_string(view.strides());
}

}  // namespace

std::string describe(const RandomCall& call) {
  const AttentionOptions& o = call.options;
  std::ostringstream text;
  text << "call " << call.index << " of seed " << call.seed << ", family "
       << kFamilyNames[static_cast<std::size_t>(call.family)] << "\n  query " << described(call.query)
       << "\n  key   " << described(call.key) << "\n  value " << described(call.value) << "\n ";
  const auto tensor = [&](const char* flag, const std::optional<TensorView>& view) {
    if (view) text << " --" << flag << " (" << described(*view) << ")";
  };
  if (o.scale) text << " --scale " << *o.scale;
  if (o.causal) text << " --causal";
  if (o.align == Align::bottom_right) text << " --align bottom-right";
  if (o.query_offset) text << " --query-offset " << *o.query_offset;
  if (o.window.left != -1 || o.window.right != -1)
    text << " --window " << o.window.left << "," << o.window.right;
  tensor("mask", o.mask);
  tensor("bias", o.bias);
  if (o.softcap != 0) text << " --softcap " << o.softcap;
  tensor("alibi", o.alibi_slopes);
  tensor("sinks", o.sinks);
  tensor("kv-lengths", o.kv_lengths);
  tensor("segments-q", o.query_segments);
  tensor("segments-k", o.key_segments);
  if (o.dropout.probability > 0)
    text << " dropout " << o.dropout.probability << " (seed " << o.dropout.seed << ", offset "
         << o.dropout.offset << ")";
  text << " need " << static_cast<std::uint32_t>(o.need) << " scores-stage "
       << static_cast<int>(o.scores_stage) << " top-k " << o.top_k << " received-last " << o.received_last
       << " map " << o.map.rows << "x" << o.map.columns;
  if (o.output_dtype) text << " output " << name_of(*o.output_dtype);
  text << " threads " << o.threads;
  return text.str();
}

}  // namespace heed::test
