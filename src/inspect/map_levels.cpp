// Coarser levels of a map, each the exact sums of the level before.

#include "core/message.hpp"
#include "heed/inspect/reports.hpp"

namespace heed {
namespace {

std::int64_t half(std::int64_t size) { return (size + 1) / 2; }

Tensor next_level(const Tensor& fine) {
  const std::int64_t maps = fine.size(0) * fine.size(1);
  const std::int64_t rows = fine.size(2);
  const std::int64_t columns = fine.size(3);
  Tensor coarse({fine.size(0), fine.size(1), half(rows), half(columns)}, DType::f64);
  const double* from = fine.values<double>().data();
  double* to = coarse.values<double>().data();
  for (std::int64_t map = 0; map < maps; ++map)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        to[(map * half(rows) + r / 2) * half(columns) + c / 2] += from[(map * rows + r) * columns + c];
  return coarse;
}

void check_finest(const TensorView& finest) {
  if (finest.rank() != 4 || !is_floating(finest.dtype()) || finest.size(2) == 0 || finest.size(3) == 0)
    detail::refuse("finest has dtype ", finest.dtype(), " and shape ", finest.shape(),
                   "; floats [B, H, R, C] with at least one bin are expected");
}

}  // namespace

std::vector<Tensor> pool_map(const TensorView& finest) {
  check_finest(finest);
  std::vector<Tensor> levels;
  levels.push_back(Tensor::copy_of(finest, DType::f64));
  while (levels.back().size(2) > 1 || levels.back().size(3) > 1) levels.push_back(next_level(levels.back()));
  return levels;
}

// With R bins, bin r holds the rows i with floor(i R / L) = r. If R is L, or size.rows divides R, these all
// go to bin floor(r size.rows / R) = floor(i size.rows / L).
Tensor map_in_bins(const TensorView& finest, const MapSize& size) {
  check_finest(finest);
  const std::int64_t rows = finest.size(2);
  const std::int64_t columns = finest.size(3);
  if (size.rows < 1 || size.rows > rows || size.columns < 1 || size.columns > columns)
    detail::refuse("size is ", size.rows, " x ", size.columns, "; 1 x 1 to ", rows, " x ", columns,
                   " is expected");
  const Tensor fine = Tensor::copy_of(finest, DType::f64);
  Tensor map({finest.size(0), finest.size(1), size.rows, size.columns}, DType::f64);
  const double* from = fine.values<double>().data();
  double* to = map.values<double>().data();
  for (std::int64_t plane = 0; plane < finest.size(0) * finest.size(1); ++plane)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        to[(plane * size.rows + r * size.rows / rows) * size.columns + c * size.columns / columns] +=
            from[(plane * rows + r) * columns + c];
  return map;
}

}  // namespace heed
