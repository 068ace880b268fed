// Random numbers that equal PyTorch's CPU generator for the same seed: MT19937 (Matsumoto and Nishimura 1998)
// with PyTorch's conversion to floats, normals and permutations.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "heed/export.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// Equals torch.Generator on the CPU.
class HEED_API Generator {
 public:
  /// Like torch.manual_seed(seed), uses only the low 32 bits.
  explicit Generator(std::uint64_t seed = kDefaultSeed) { manual_seed(seed); }
  void manual_seed(std::uint64_t seed);

  std::uint32_t random32();
  std::uint64_t random64();
  /// Draws one number from N(mean, std) as PyTorch draws single ones: by Box-Muller, where the second of each
  /// pair is kept for the next call.
  double normal(double mean, double std);

  /// The full state, for resuming later, i64 [627]: 624 words, the index of the next one, whether a normal
  /// number is kept, and the bits of that number.
  [[nodiscard]] Tensor state() const;
  /// Restores a state. Throws invalid_argument and changes nothing for an invalid one.
  void set_state(const TensorView& state);

  static constexpr std::uint64_t kDefaultSeed = 67280421310721;  // torch.default_generator's

 private:
  void twist();

  std::array<std::uint32_t, 624> state_{};
  int next_ = 0;
  std::optional<double> spare_normal_;
};

/// Uniform in [0, 1); f32 or f64.
[[nodiscard]] HEED_API Tensor rand(Generator& generator, const Dims& shape, DType dtype = DType::f32);
/// From N(0, 1); f32 or f64. Like PyTorch, uses a different algorithm from 16 elements on.
[[nodiscard]] HEED_API Tensor randn(Generator& generator, const Dims& shape, DType dtype = DType::f32);
/// Integers in [low, high), i64. Throws invalid_argument if low >= high.
[[nodiscard]] HEED_API Tensor randint(Generator& generator, std::int64_t low, std::int64_t high,
                                      const Dims& shape);
/// A permutation of 0 … n - 1, i64.
[[nodiscard]] HEED_API Tensor randperm(Generator& generator, std::int64_t n);

/// In place, like Tensor.uniform_, normal_ and bernoulli_; f32 or f64, contiguous.
HEED_API void uniform_(Generator& generator, const MutableTensorView& tensor, double from = 0, double to = 1);
HEED_API void normal_(Generator& generator, const MutableTensorView& tensor, double mean = 0, double std = 1);
HEED_API void bernoulli_(Generator& generator, const MutableTensorView& tensor, double probability = 0.5);

}  // namespace heed
