#include <cmath>
#include <numbers>

#include "heed/nn/optimizer.hpp"
#include "nn/checks.hpp"
#include "nn/elements.hpp"

namespace heed::nn {
namespace {

void require_in(double value, const char* name, double least, double below) {
  if (!(value >= least && value < below))
    detail::refuse(name, " is ", value, "; a number in [", least, ", ", below, ") is expected");
}

void check_options(const AdamWOptions& options) {
  require_in(options.beta1, "beta1", 0, 1);
  require_in(options.beta2, "beta2", 0, 1);
  if (!(options.epsilon > 0 && std::isfinite(options.epsilon)))
    detail::refuse("epsilon is ", options.epsilon, "; a finite number above 0 is expected");
  if (!(options.weight_decay >= 0 && std::isfinite(options.weight_decay)))
    detail::refuse("weight_decay is ", options.weight_decay, "; a finite number of at least 0 is expected");
}

// The scalars of one step, the same for all parameters.
struct Step {
  double rate, decay, beta1, beta2, correction1, correction2, epsilon;
};

// In f64, element by element: this is cheap beside the gradients, and rounds once.
template <class T>
void follow(const Step& s, std::span<T> weight, std::span<const T> grad, std::span<T> first,
            std::span<T> second) {
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const double g = static_cast<double>(grad[i]);
    const double m = s.beta1 * static_cast<double>(first[i]) + (1 - s.beta1) * g;
    const double v = s.beta2 * static_cast<double>(second[i]) + (1 - s.beta2) * g * g;
    const double w = static_cast<double>(weight[i]) * (1 - s.rate * s.decay);
    first[i] = static_cast<T>(m);
    second[i] = static_cast<T>(v);
    weight[i] = static_cast<T>(w - s.rate * (m / s.correction1) / (std::sqrt(v / s.correction2) + s.epsilon));
  }
}

}  // namespace

AdamW::AdamW(const std::vector<NamedParameter>& parameters, const AdamWOptions& given) : options(given) {
  check_options(options);
  for (const NamedParameter& parameter : parameters) {
    detail::require_real(detail::given(parameter), parameter.name.c_str());
    names_.push_back(parameter.name);
    first_.emplace_back(parameter.value->shape(), parameter.value->dtype());
    second_.emplace_back(parameter.value->shape(), parameter.value->dtype());
  }
}

void AdamW::step(const std::vector<NamedParameter>& parameters, const std::vector<NamedParameter>& gradients,
                 double rate) {
  check_options(options);
  if (!(rate >= 0 && std::isfinite(rate)))
    detail::refuse("rate is ", rate, "; a finite number of at least 0 is expected");
  if (parameters.size() != names_.size() || gradients.size() != names_.size())
    detail::refuse("parameters has ", heed::detail::counted(parameters.size(), "entry", "entries"),
                   " and gradients ", gradients.size(), "; ", names_.size(), " of each are expected");
  for (std::size_t i = 0; i < names_.size(); ++i)
    for (const NamedParameter* named : {&parameters[i], &gradients[i]}) {
      if (named->name != names_[i])
        detail::refuse("parameter ", i, " is ", named->name, "; ", names_[i], " is expected");
      detail::require_like(detail::given(*named), named->name.c_str(), first_[i].shape(), first_[i].dtype());
    }
  ++steps;
  const double t = static_cast<double>(steps);
  Step step{rate,
            0,
            options.beta1,
            options.beta2,
            1 - std::pow(options.beta1, t),
            1 - std::pow(options.beta2, t),
            options.epsilon};
  for (std::size_t i = 0; i < names_.size(); ++i) {
    step.decay = first_[i].rank() >= 2 ? options.weight_decay : 0;
    detail::with_real(first_[i].dtype(), [&]<class T>(T) {
      follow<T>(step, parameters[i].value->values<T>(), std::as_const(*gradients[i].value).values<T>(),
                first_[i].values<T>(), second_[i].values<T>());
    });
  }
}

std::vector<NamedParameter> AdamW::state() {
  std::vector<NamedParameter> all;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    all.push_back({names_[i] + ".m", &first_[i]});
    all.push_back({names_[i] + ".v", &second_[i]});
  }
  return all;
}

double Schedule::rate(std::int64_t step) const {
  if (step < 0) detail::refuse("step is ", step, "; 0 or more is expected");
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (step >= steps) return last;
  const double share = static_cast<double>(step - warmup) / static_cast<double>(steps - warmup);
  return last + (peak - last) * (1 + std::cos(std::numbers::pi * share)) / 2;
}

double clip_gradients(const std::vector<NamedParameter>& gradients, double most) {
  if (!(most > 0)) detail::refuse("most is ", most, "; a number above 0 is expected");
  double squares = 0;
  for (const NamedParameter& gradient : gradients) {
    detail::require_real(detail::given(gradient), gradient.name.c_str());
    detail::with_real(gradient.value->dtype(), [&]<class T>(T) {
      for (const T value : std::as_const(*gradient.value).template values<T>())
        squares += static_cast<double>(value) * static_cast<double>(value);
    });
  }
  const double length = std::sqrt(squares);
  if (!(length > most) || !std::isfinite(length)) return length;
  for (const NamedParameter& gradient : gradients)
    detail::with_real(gradient.value->dtype(), [&]<class T>(T) {
      for (T& value : gradient.value->template values<T>())
        value = static_cast<T>(static_cast<double>(value) * (most / length));
    });
  return length;
}

}  // namespace heed::nn
