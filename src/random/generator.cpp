// MT19937 (Matsumoto and Nishimura 1998, "Mersenne Twister"), seeded as its authors' init_genrand does.
#include <cmath>
#include <numbers>
#include <utility>

#include "heed/random.hpp"

namespace heed {
namespace {

constexpr std::size_t kWords = 624;   // n of the paper
constexpr std::size_t kMiddle = 397;  // m
constexpr std::uint32_t kUpperBit = 0x80000000u;
constexpr std::uint32_t kLowerBits = 0x7fffffffu;
constexpr std::uint32_t kMatrix = 0x9908b0dfu;  // a

}  // namespace

void Generator::manual_seed(std::uint64_t seed) {
  state_[0] = static_cast<std::uint32_t>(seed);
  for (std::size_t i = 1; i < kWords; ++i) {
    const std::uint32_t before = state_[i - 1];
    state_[i] = 1812433253u * (before ^ (before >> 30)) + static_cast<std::uint32_t>(i);
  }
  next_ = static_cast<int>(kWords);  // nothing is left to hand out: the first draw twists
  spare_normal_.reset();
}

void Generator::twist() {
  for (std::size_t i = 0; i < kWords; ++i) {
    const std::uint32_t joined = (state_[i] & kUpperBit) | (state_[(i + 1) % kWords] & kLowerBits);
    state_[i] = state_[(i + kMiddle) % kWords] ^ (joined >> 1) ^ ((joined & 1u) != 0 ? kMatrix : 0u);
  }
  next_ = 0;
}

std::uint32_t Generator::random32() {
  if (next_ == static_cast<int>(kWords)) twist();
  std::uint32_t word = state_[static_cast<std::size_t>(next_++)];
  word ^= word >> 11;
  word ^= (word << 7) & 0x9d2c5680u;
  word ^= (word << 15) & 0xefc60000u;
  return word ^ (word >> 18);
}

std::uint64_t Generator::random64() {
  const std::uint64_t high = random32();
  return (high << 32) | random32();
}

double Generator::normal(double mean, double std) {
  double standard = 0;
  if (spare_normal_) {
    standard = *std::exchange(spare_normal_, std::nullopt);
  } else {
    constexpr std::uint64_t kMask = (std::uint64_t{1} << 53) - 1;
    const double u1 = static_cast<double>(random64() & kMask) * 0x1p-53;
    const double u2 = static_cast<double>(random64() & kMask) * 0x1p-53;
    const double radius = std::sqrt(-2.0 * std::log1p(-u2));
    const double theta = 2.0 * std::numbers::pi * u1;
    spare_normal_ = radius * std::sin(theta);
    standard = radius * std::cos(theta);
  }
  return std::fma(standard, std, mean);
}

}  // namespace heed
