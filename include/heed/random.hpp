// Random numbers that equal PyTorch's on a CPU for the same seed: MT19937 (Matsumoto and Nishimura 1998) and
// PyTorch's way of making floats, normals and permutations of it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// torch.Generator on the CPU.
class HEED_API Generator {
 public:
  /// As torch.manual_seed(seed), which looks at the low 32 bits only.
  explicit Generator(std::uint64_t seed = kDefaultSeed) { manual_seed(seed); }
  void manual_seed(std::uint64_t seed);

  std::uint32_t random32();
  std::uint64_t random64();
  /// One normal number of N(mean, std) as PyTorch draws single ones: Box-Muller, the second of each pair is
  /// kept for the next call.
  double normal(double mean, double std);

  /// All of it, to go on from later: 624 words, the place of the next one, whether a normal number is kept,
  /// and that number's bits, i64 [627].
  [[nodiscard]] Tensor state() const;
  /// Throws invalid_argument, and changes nothing, for what is no state.
  void set_state(const TensorView& state);

  static constexpr std::uint64_t kDefaultSeed = 67280421310721;  // torch.default_generator's

 private:
  void twist();

  std::array<std::uint32_t, 624> state_{};
  int next_ = 0;
  std::optional<double> spare_normal_;
};

/// [0, 1). f32 or f64.
[[nodiscard]] HEED_API Tensor rand(Generator& generator, const Dims& shape, DType dtype = DType::f32);
/// N(0, 1). f32 or f64. PyTorch takes another path from 16 elements on than below, and so does this.
[[nodiscard]] HEED_API Tensor randn(Generator& generator, const Dims& shape, DType dtype = DType::f32);
/// Integers in [low, high), i64. Throws invalid_argument where low >= high.
[[nodiscard]] HEED_API Tensor randint(Generator& generator, std::int64_t low, std::int64_t high,
                                      const Dims& shape);
/// A permutation of 0 … n - 1, i64.
[[nodiscard]] HEED_API Tensor randperm(Generator& generator, std::int64_t n);

/// In place, as Tensor.uniform_, normal_ and bernoulli_: f32 or f64, contiguous.
HEED_API void uniform_(Generator& generator, const MutableTensorView& tensor, double from = 0, double to = 1);
HEED_API void normal_(Generator& generator, const MutableTensorView& tensor, double mean = 0, double std = 1);
HEED_API void bernoulli_(Generator& generator, const MutableTensorView& tensor, double probability = 0.5);

}  // namespace heed
