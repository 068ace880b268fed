// Gates on finished rows, and their gradient.
#include "heed/attention/gate.hpp"

#include <array>
#include <string_view>
#include <vector>

#include "attention/problem/elements.hpp"
#include "attention/problem/operands.hpp"
#include "core/index.hpp"
#include "core/message.hpp"
#include "heed/parallel.hpp"

namespace heed {
namespace {

using detail::index;
using detail::refuse;

void require_floating(std::string_view name, const TensorView& view) {
  if (!is_floating(view.dtype()))
    refuse(name, " has dtype ", view.dtype(), "; f64, f32, f16 or bf16 is expected");
}

detail::CallTensor rows_of(std::string_view name, const TensorView& view) {
  require_floating(name, view);
  return detail::tensor_of(name, view);
}

// The gate at every element of `rows`.
detail::Operand gate_of(const TensorView& gate, const detail::CallTensor& rows) {
  require_floating("gate", gate);
  return detail::broadcast("gate", gate, Dims(rows.size));
}

int threads_or_all(int threads) {
  if (threads < 0) refuse("threads is ", threads, "; 0 (all of the machine) or more is expected");
  return threads > 0 ? threads : default_threads();
}

// Calls work(b, h, i) for all rows of [B, H, L, …].
template <class Work>
void for_rows(const std::int64_t* size, int threads, Work work) {
  parallel_for(size[0] * size[1] * size[2], threads, [&](std::int64_t row, int) {
    work(row / size[2] / size[1], row / size[2] % size[1], row % size[2]);
  });
}

// A new tensor as [B, H, L, C].
detail::Output target_in(Tensor& tensor) {
  const MutableTensorView view = tensor.mutable_view();
  return detail::target_of("result", view, view.shape(), view.dtype(), 4 - view.rank());
}

}  // namespace

Tensor gated(const TensorView& rows, const TensorView& gate, int threads) {
  return detail::with_memory_errors([&] {
    const detail::CallTensor from = rows_of("rows", rows);
    const detail::Operand by = gate_of(gate, from);
    Tensor result = Tensor::uninitialized(rows.shape(), rows.dtype());
    if (rows.count() == 0) return result;
    const detail::Output to = target_in(result);
    for_rows(from.size, threads_or_all(threads), [&](std::int64_t b, std::int64_t h, std::int64_t i) {
      std::vector<double> row(index(from.size[3])), factors(row.size());
      detail::read_row(from.rows, b, h, i, row);
      detail::read_row(by, b, h, i, factors);
      const std::int64_t start = detail::offset_in(to, b, h, i);
      detail::with_element_type(to.dtype, [&](auto element) {
        for (std::size_t d = 0; d < row.size(); ++d)
          detail::store<decltype(element)>(to.data, start + static_cast<std::int64_t>(d),
                                           row[d] * factors[d]);
      });
    });
    return result;
  });
}

Tensor gate_gradient(const TensorView& gate, const TensorView& output, const TensorView& grad_output,
                     int threads) {
  return detail::with_memory_errors([&] {
    const detail::CallTensor rows = rows_of("output", output), by = rows_of("grad_output", grad_output);
    if (output.shape() != grad_output.shape())
      refuse("grad_output has shape ", grad_output.shape(), "; ", output.shape(), " is expected");
    (void)gate_of(gate, rows);
    Tensor result(gate.shape(), gate.dtype());
    if (gate.count() == 0 || output.count() == 0) return result;
    const detail::Output to = target_in(result);
    std::array<std::int64_t, 4> own{1, 1, 1, 1};
    for (int axis = 0; axis < gate.rank(); ++axis) own[index(axis + 4 - gate.rank())] = gate.size(axis);
    for_rows(own.data(), threads_or_all(threads), [&](std::int64_t b, std::int64_t h, std::int64_t i) {
      std::vector<double> sums(index(own[3])), a(index(rows.size[3])), c(a.size());
      // The rows that share this row of the gate.
      const auto last = [&](int axis, std::int64_t at) {
        return own[index(axis)] == rows.size[axis] ? at + 1 : rows.size[axis];
      };
      for (std::int64_t x = b; x < last(0, b); ++x)
        for (std::int64_t y = h; y < last(1, h); ++y)
          for (std::int64_t z = i; z < last(2, i); ++z) {
            detail::read_row(rows.rows, x, y, z, a);
            detail::read_row(by.rows, x, y, z, c);
            for (std::size_t d = 0; d < a.size(); ++d) sums[sums.size() == 1 ? 0 : d] += a[d] * c[d];
          }
      for (std::size_t d = 0; d < sums.size(); ++d)
        detail::write(to, sums[d], b, h, i, static_cast<std::int64_t>(d));
    });
    return result;
  });
}

}  // namespace heed
