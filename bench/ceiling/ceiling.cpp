#include "ceiling/ceiling.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <set>
#include <string>

#include "ceiling/loops.hpp"
#include "heed/parallel.hpp"

namespace heed::ceiling {
namespace {

// Bytes of all third-level caches of this machine's processors; 0 where Linux does not list them. (A virtual
// machine has part of a package; sysconf() gives the size for all of the package.)
std::int64_t last_caches() {
  std::int64_t bytes = 0;
  std::set<std::string> counted;  // caches, by the processors that share them
  for (long cpu = 0; cpu < sysconf(_SC_NPROCESSORS_CONF); ++cpu) {
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index3/";
    std::ifstream size(folder + "size"), sharers(folder + "shared_cpu_list");
    std::int64_t kib = 0;
    std::string list;
    if (size >> kib && sharers >> list && counted.insert(list).second) bytes += kib << 10;
  }
  return bytes;
}

// A piece of arithmetic takes about 50 us, so no thread waits long for the last one.
constexpr std::int64_t kSteps = 25'000;
constexpr std::int64_t kPieces = 64;
constexpr double kTileProductsOfF32 = 6;                // parts_tiles.hpp
constexpr std::int64_t kBlock = std::int64_t{1} << 20;  // bytes per piece of memory

// Seconds for `count` pieces, with the threads already awake.
template <class Piece>
double seconds_of(std::int64_t count, int threads, Piece piece) {
  parallel_for(threads, threads, [&](std::int64_t i, int) { piece(i % count); });
  const auto begin = std::chrono::steady_clock::now();
  parallel_for(count, threads, [&](std::int64_t i, int) { piece(i); });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double compute(const ComputeLoop& loop, int threads) {
  const std::int64_t pieces = kPieces * threads;
  const double seconds = seconds_of(pieces, threads, [&](std::int64_t) { loop.run(kSteps); });
  return loop.flops_per_step * static_cast<double>(kSteps * pieces) / seconds;
}

}  // namespace

Limit arithmetic_of(DType dtype, std::string_view isa) {
  if (dtype == DType::bf16 && has_matrix_tiles(isa)) return Limit::bf16_tiles;
  if (dtype == DType::f32 && isa == "amx_f32") return Limit::f32_tiles;
  return dtype == DType::bf16 && has_bf16_dot(isa) ? Limit::bf16_dot : Limit::f32_multiply_add;
}

std::string name_of(Limit limit, std::string_view isa) {
  switch (limit) {
    case Limit::f32_multiply_add:
      return "f32 FMA (" + std::string(f32_loop(isa).isa) + ")";
    case Limit::bf16_dot:
      return "bf16 dot product";
    case Limit::bf16_tiles:
      return "bf16 matrix tiles";
    case Limit::f32_tiles:
      return "f32 by matrix tiles";
    case Limit::memory_read:
      return "memory read";
    case Limit::memory_write:
      return "memory write";
  }
  return "";
}

std::int64_t uncached_bytes() {
  constexpr std::int64_t kLeast = std::int64_t{256} << 20;
  constexpr std::int64_t kMax = std::int64_t{2} << 30;
  std::int64_t caches = last_caches();
  if (caches == 0) caches = sysconf(_SC_LEVEL3_CACHE_SIZE);  // 0 or -1 where the system does not know
  return std::clamp(4 * caches, kLeast, kMax) / kBlock * kBlock;
}

double Meter::burst(Limit limit, std::string_view isa, int threads) {
  switch (limit) {
    case Limit::f32_multiply_add:
      return compute(f32_loop(isa), threads);
    case Limit::bf16_dot:
      return compute(bf16_loop(), threads);
    case Limit::bf16_tiles:
      return compute(matrix_tiles_loop(), threads);
    case Limit::f32_tiles:
      return compute(matrix_tiles_loop(), threads) / kTileProductsOfF32;
    case Limit::memory_read:
      return read(threads);
    case Limit::memory_write:
      return write(threads);
  }
  return 0;
}

std::byte* Meter::memory() {
  if (memory_.count() == 0) memory_ = Tensor({uncached_bytes()}, DType::u8);
  return static_cast<std::byte*>(memory_.mutable_view().data());
}

double Meter::read(int threads) {
  const std::byte* from = memory();
  const double seconds = seconds_of(memory_.count() / kBlock, threads,
                                    [&](std::int64_t i) { read_all(from + i * kBlock, kBlock); });
  return static_cast<double>(memory_.count()) / seconds;
}

// Alternates between non-temporal stores and memset; which one is faster depends on the machine.
double Meter::write(int threads) {
  std::byte* to = memory();
  streams_ = !streams_;
  const double seconds = seconds_of(memory_.count() / kBlock, threads, [&](std::int64_t i) {
    if (streams_)
      write_all(to + i * kBlock, kBlock);
    else
      std::memset(to + i * kBlock, 1, kBlock);
  });
  return static_cast<double>(memory_.count()) / seconds;
}

}  // namespace heed::ceiling
