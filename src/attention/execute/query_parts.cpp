// Sums parts of the query gradient that were computed elsewhere. Uses the unit that would have summed them
// here, because units round to bf16 in different ways.
#include <algorithm>

#include "attention/execute/backward.hpp"
#include "attention/execute/memory.hpp"
#include "attention/isa/dispatch.hpp"
#include "attention/plan/backward_tasks.hpp"
#include "heed/parallel.hpp"

namespace heed::detail {
namespace {

// Fewer additions than this are not worth a second thread.
constexpr std::int64_t kSmallSum = 200'000;

// Sets the arguments that takes_backward() and add_query_parts() read.
cpu::BackwardArguments arguments_of(const QueryPartsProblem& p) {
  cpu::BackwardArguments call{};
  call.forward.query.dtype = p.grad_query.dtype;
  call.forward.query_length = p.query_length;
  call.forward.head_dim = p.head_dim;
  call.scale = static_cast<float>(p.scale);
  call.grad_output.dtype = p.grad_output;
  call.grad_query = p.grad_query;
  return call;
}

}  // namespace

void add_query_parts(const QueryPartsProblem& p) {
  const cpu::BackwardArguments call = arguments_of(p);
  const cpu::Kernels& kernels = cpu::kernels().backward(call);
  const std::int64_t pieces = (p.rows + kRowsAtOnce - 1) / kRowsAtOnce;
  const auto add = [&](std::int64_t index, int) {
    const std::int64_t head = index / pieces, row = index % pieces * kRowsAtOnce;
    const float* from = static_cast<const float*>(p.parts.data) + row * p.parts.stride[1];
    AlignedMemory memory;
    memory.reserve(query_part_bytes(p.head_dim));
    kernels.add_query_parts(call,
                            {from + head * p.parts.stride[2], p.splits, p.parts.stride[0], p.parts.stride[1]},
                            0, head, row, std::min(kRowsAtOnce, p.rows - row), memory.data());
  };
  const bool is_small = p.splits * p.rows * p.heads * p.head_dim < kSmallSum;
  parallel_for(p.heads * pieces, is_small ? 1 : p.threads, add);
}

}  // namespace heed::detail
