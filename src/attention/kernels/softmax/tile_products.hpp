// Products by matrix tiles. A tile product has 16 x 16 results and sums over 16 pairs of bf16.
#pragma once

#include "attention/kernels/formats/tile_format.hpp"
#include "attention/kernels/shared/constant.hpp"
#include "attention/kernels/shared/tile_matrix.hpp"

namespace heed::detail::HEED_ISA {

/// The operand whose tiles bypass the first-level cache. The cache keeps the other one, which the next
/// products read again.
enum class Streams { none, a, b };

/// A product on its own: nothing runs between its tile products, and its results are stored at its end.
struct OnItsOwn {
  static constexpr bool kDefersStores = false;
  HEED_INLINE void between() {}
};

/// Divides items of vector work evenly among calls: each of `calls` calls processes its share, in order.
/// There must be no more calls, or items that do not exist are processed.
struct EqualShares {
  std::int64_t items = 0, calls = 1;
  std::int64_t next = 0, due = 0;  ///< the first item that is left; what is due of it, times `calls`

  template <class Process>
  HEED_INLINE void take(Process process) {
    due += items;
#pragma GCC unroll 1
    while (due >= calls) {
      due -= calls;
      process(next++);
    }
  }
  template <class Process>
  HEED_INLINE void finish(Process process) {
    while (next < items) process(next++);
  }
};

struct NoWork {
  HEED_INLINE void operator()() const {}
};

/// Products with vector work between their tile products. Tiles and vectors are units of their own in the
/// processor, so both run at once. `Work` is called after every tile product; what it reads must be in
/// memory. The results of a product of 2 x 2 tiles stay in tile registers until the next product starts on
/// them, or until store_deferred(): a store right after the last tile product would wait for it.
template <class Work>
struct Interleaved {
  static constexpr bool kDefersStores = true;
  TileMatrix deferred;  ///< where the results in the tile registers belong
  Work work;            ///< a copy, whose members can stay in registers
  HEED_INLINE void between() { work(); }
};

/// The address of result tile `tile` of kColumns tiles in a row.
template <int kColumns>
HEED_INLINE float* tile_at(const TileMatrix& c, int tile) {
  return c.data + tile / kColumns * c.step + tile % kColumns * c.next;
}

/// Stores results of 2 x 2 tiles that a product has left in registers.
template <class Tiles>
HEED_INLINE void store_tiles(const TileMatrix& c) {
  for_each_constant<4>([&](auto tile) __attribute__((always_inline)) {
    Tiles::template store<decltype(tile)::value>(tile_at<2>(c, decltype(tile)::value), c.stride);
  });
}

/// c [16 kRows][16 kColumns] = a x b, or c + a x b, over `steps` steps of 16 pairs of bf16, in tile
/// registers. Products lists the products of parts that form a product of elements (formats/).
template <class Products, class Tiles, int kRows, int kColumns, bool kAdds, Streams kStreams, class Way>
HEED_INLINE void multiply_in_registers(const TileMatrix& a, const TileMatrix& b, std::int64_t steps,
                                       const TileMatrix& c, Way& way) {
  constexpr int kA = kRows * kColumns;
  constexpr int kB = kA + kRows;
  static_assert(kB + kColumns <= 8 && (!Way::kDefersStores || kA == 4));
  const auto start = [&](auto tile) __attribute__((always_inline)) {
    constexpr int kTile = decltype(tile)::value;
    if constexpr (Way::kDefersStores)
      Tiles::template store<kTile>(tile_at<kColumns>(way.deferred, kTile), way.deferred.stride);
    if constexpr (kAdds)
      Tiles::template load<kTile>(tile_at<kColumns>(c, kTile), c.stride);
    else
      Tiles::template clear<kTile>();
  };
  const auto load = [&](auto tile, auto streams, const TileMatrix& m, const float* from)
      __attribute__((always_inline)) {
    if constexpr (decltype(streams)::value != 0)
      Tiles::template load_streamed<decltype(tile)::value>(from, m.stride);
    else
      Tiles::template load<decltype(tile)::value>(from, m.stride);
  };
  const auto multiply_step = [&](std::int64_t step, auto first) __attribute__((always_inline)) {
    constexpr bool kFirst = decltype(first)::value == 1;
    for_each_constant<Products::kCount>([&](auto product) __attribute__((always_inline)) {
      constexpr int kProduct = decltype(product)::value;
      // A part that the previous product used is loaded already.
      constexpr bool kLoadsA =
          kProduct == 0 || Products::kPartOfA[kProduct] != Products::kPartOfA[kProduct - 1];
      constexpr bool kLoadsB =
          kProduct == 0 || Products::kPartOfB[kProduct] != Products::kPartOfB[kProduct - 1];
      const float* of_a = a.data + Products::kPartOfA[kProduct] * a.part + step * a.step;
      const float* of_b = b.data + Products::kPartOfB[kProduct] * b.part + step * b.step;
      for_each_constant<kRows>([&](auto row) __attribute__((always_inline)) {
        constexpr int kRow = decltype(row)::value;
        if constexpr (kLoadsA)
          load(Constant<kA + kRow>{}, Constant<kStreams == Streams::a>{}, a, of_a + kRow * a.next);
        for_each_constant<kColumns>([&](auto column) __attribute__((always_inline)) {
          constexpr int kColumn = decltype(column)::value;
          constexpr int kTile = kRow * kColumns + kColumn;
          if constexpr (kLoadsB && kRow == 0)
            load(Constant<kB + kColumn>{}, Constant<kStreams == Streams::b>{}, b, of_b + kColumn * b.next);
          if constexpr (kFirst && kProduct == 0) start(Constant<kTile>{});
          Tiles::template multiply_add<kTile, kA + kRow, kB + kColumn>();
          way.between();
        });
      });
    });
  };
  multiply_step(0, Constant<1>{});
#pragma GCC unroll 1
  for (std::int64_t step = 1; step < steps; ++step) multiply_step(step, Constant<0>{});
  if constexpr (Way::kDefersStores) {
    way.deferred = c;
  } else {
    for_each_constant<kA>([&](auto tile) __attribute__((always_inline)) {
      constexpr int kTile = decltype(tile)::value;
      Tiles::template store<kTile>(tile_at<kColumns>(c, kTile), c.stride);
    });
  }
}

/// The number of times that a product of 2 x 2 tiles calls between().
template <class Products>
constexpr std::int64_t calls_between(std::int64_t steps) {
  return MatrixTiles::kHasRegisters ? 4 * Products::kCount * steps : 0;
}

/// The same with the unit's tiles, which are tile registers or vectors. Vectors leave nothing to interleave.
template <class Products, int kRows, int kColumns, bool kAdds, Streams kStreams = Streams::b,
          class Tiles = MatrixTiles, class Way>
HEED_INLINE void multiply_tiles_once(const TileMatrix& a, const TileMatrix& b, std::int64_t steps,
                                     const TileMatrix& c, Way& way) {
  if constexpr (Tiles::kHasRegisters) {
    multiply_in_registers<Products, Tiles, kRows, kColumns, kAdds, kStreams>(a, b, steps, c, way);
  } else {
    static_assert(Products::kCount == 1);
    Tiles::template multiply<kRows, kColumns, kAdds>(a, b, steps, c);
  }
}

/// A result whose rows are contiguous in memory.
HEED_INLINE TileMatrix result_rows(float* data, std::int64_t stride) {
  return {data, stride, kLanes, kMatrixRows * stride};
}

/// The same for `columns` tiles of columns, two at a time.
template <class Products, int kRows, bool kAdds>
void multiply_matrix_tiles(TileMatrix a, TileMatrix b, std::int64_t steps, TileMatrix c,
                           std::int64_t columns) {
  OnItsOwn way;
  std::int64_t column = 0;
  for (; column + 2 <= columns; column += 2, b.data += 2 * b.next, c.data += 2 * c.next)
    multiply_tiles_once<Products, kRows, 2, kAdds>(a, b, steps, c, way);
  if (column < columns) multiply_tiles_once<Products, kRows, 1, kAdds>(a, b, steps, c, way);
}

/// c = a x b for a group of rows, over `steps` steps; c has `columns` tiles of columns.
struct GroupProduct {
  std::int64_t rows = 0;
  TileMatrix a = {}, b = {}, c = {};
  std::int64_t steps = 0, columns = 0;
};

template <class Products, bool kAdds>
HEED_INLINE void multiply_group(const GroupProduct& p) {
  (p.rows > kMatrixRows ? multiply_matrix_tiles<Products, 2, kAdds>
                        : multiply_matrix_tiles<Products, 1, kAdds>)(p.a, p.b, p.steps, p.c, p.columns);
}

/// Steps of 32 elements, for an operand in three parts, that stay in the first-level cache from one column to
/// the next.
inline constexpr std::int64_t kStepsInCache = 3;

/// c += product * factor for `columns` tiles of columns; `product` has the layout of c.
inline void add_scaled(std::int64_t rows, const TileMatrix& product, const TileMatrix& c,
                       std::int64_t columns, float factor) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t v = 0; v < columns; ++v) {
      const std::int64_t at = r / kMatrixRows * c.step + r % kMatrixRows * c.stride + v * c.next;
      store(c.data + at, mul_add(load(product.data + at), splat(factor), load(c.data + at)));
    }
}

/// c += a x b * factor. A bf16 product continues from the sum so far; its factor is 1. An f32 product is
/// summed separately first, in `scratch`, which has the layout of c. So its many small terms are not added
/// to a large sum one by one.
template <class Products>
HEED_INLINE void add_product(const GroupProduct& product, float factor, float* scratch) {
  if constexpr (Products::kCount == 1) {
    multiply_group<Products, true>(product);
  } else {
    const auto& [rows, a, b, c, steps, columns] = product;
    const TileMatrix sums = {scratch, c.stride, c.next, c.step};
    multiply_group<Products, false>({rows, a, b, sums, smaller(steps, kStepsInCache), columns});
    for (std::int64_t done = kStepsInCache; done < steps; done += kStepsInCache)
      multiply_group<Products, true>(
          {rows, a.from(done), b.from(done), sums, smaller(steps - done, kStepsInCache), columns});
    add_scaled(rows, sums, c, columns, factor);
  }
}

}  // namespace heed::detail::HEED_ISA
