#include "model/sample.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/message.hpp"

namespace heed::detail {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// The K tokens with the largest logits (0: all above -inf), largest first; sorted only as far as they are
// read.
class Order {
 public:
  Order(std::span<const float> logits, std::int64_t top_k) : logits_(logits) {
    for (std::int64_t id = 0; id < std::ssize(logits); ++id)
      if (logits[static_cast<std::size_t>(id)] > kNever) tokens_.push_back(id);
    size_ = top_k > 0 ? std::min(top_k, std::ssize(tokens_)) : std::ssize(tokens_);
  }
  [[nodiscard]] std::int64_t size() const { return size_; }

  // Each further sort covers four times as many tokens.
  [[nodiscard]] std::int64_t operator[](std::int64_t i) {
    constexpr std::int64_t kFirst = 64;
    while (i >= sorted_) {
      const std::int64_t end = std::min(size_, std::max(kFirst, 4 * sorted_));
      std::partial_sort(tokens_.begin() + sorted_, tokens_.begin() + end, tokens_.end(),
                        [this](std::int64_t a, std::int64_t b) { return before(a, b); });
      sorted_ = end;
    }
    return tokens_[static_cast<std::size_t>(i)];
  }

 private:
  [[nodiscard]] bool before(std::int64_t a, std::int64_t b) const {
    const float left = logits_[static_cast<std::size_t>(a)], right = logits_[static_cast<std::size_t>(b)];
    return left > right || (left == right && a < b);
  }

  std::span<const float> logits_;
  std::vector<std::int64_t> tokens_;
  std::int64_t size_ = 0, sorted_ = 0;
};

}  // namespace

void penalise(std::span<float> logits, std::span<const std::int64_t> ids, double penalty) {
  if (penalty == 1) return;
  std::vector<bool> done(logits.size());
  const auto factor = static_cast<float>(penalty);
  for (const std::int64_t id : ids) {
    if (done[static_cast<std::size_t>(id)]) continue;
    done[static_cast<std::size_t>(id)] = true;
    float& logit = logits[static_cast<std::size_t>(id)];
    logit = logit < 0 ? logit * factor : logit / factor;
  }
}

void forbid(std::span<float> logits, std::span<const std::int64_t> ids) {
  for (const std::int64_t id : ids) logits[static_cast<std::size_t>(id)] = kNever;
  if (std::ranges::max(logits) == kNever)
    refuse(
        "every token of the model ends a text; one that goes on is expected, because of min_new_tokens or "
        "min_length");
}

void check_logits(std::span<const float> logits) {
  for (const float logit : logits)
    if (!std::isfinite(logit)) refuse(ErrorCode::internal, "the model gives a logit that is not a number");
}

std::int64_t sample(std::span<const float> logits, const GenerateOptions& options, Generator& generator) {
  const auto largest = std::ranges::max_element(logits);
  if (options.temperature == 0) return largest - logits.begin();
  const auto share_of = [&](std::int64_t id) {  // probability relative to the largest
    const double below = static_cast<double>(logits[static_cast<std::size_t>(id)]) - *largest;
    return std::exp(below / options.temperature);
  };
  Order order(logits, options.top_k);
  double sum = 0;
  if (options.top_k > 0)
    for (std::int64_t i = 0; i < order.size(); ++i) sum += share_of(order[i]);
  else
    for (std::int64_t id = 0; id < std::ssize(logits); ++id) sum += share_of(id);
  // Finds the first token at which the cumulative probability reaches top_p.
  std::int64_t last = order.size() - 1;
  if (options.top_p < 1) {
    double upto = share_of(order[0]);
    std::int64_t i = 0;
    while (i < last && upto < options.top_p * sum) upto += share_of(order[++i]);
    last = i;
    sum = upto;
  }
  const double drawn = rand(generator, {1}, DType::f64).at<double>(0) * sum;
  std::int64_t found = 0;
  for (double upto = share_of(order[0]); found < last && upto <= drawn;) upto += share_of(order[++found]);
  return order[found];
}

}  // namespace heed::detail
