// The processes that make a training together (heed/train.hpp): each has the whole state, and makes the same
// steps.
#pragma once

#include <functional>

#include "heed/export.hpp"
#include "heed/tensor.hpp"
#include "heed/transformer.hpp"

namespace heed {

struct TrainOptions;
struct TrainState;

/// What a training asks of its processes. This class is a process alone; heed/distributed_train.hpp has ranks
/// of MPI. All ranks call the same functions in the same order.
class HEED_API TrainRanks {
 public:
  TrainRanks() = default;
  virtual ~TrainRanks();
  TrainRanks(const TrainRanks&) = delete;
  TrainRanks& operator=(const TrainRanks&) = delete;

  /// What each rank does by itself. Throws on all where it throws on one.
  virtual void each(const std::function<void()>& work) const;
  /// What one rank does for all: it writes the files. Throws on all where it throws.
  virtual void once(const std::function<void()>& work) const;
  /// Whether it is so on any rank.
  [[nodiscard]] virtual bool any(bool own) const;
  /// Throws on all ranks where they have different states, or options that all steps go by.
  virtual void require_same(TrainState& state) const;
  virtual void require_same(const TrainOptions& options) const;
  /// LanguageModel::loss_and_gradients() of a batch that every rank has: the work is shared out, and the
  /// result has the same bits on all ranks.
  [[nodiscard]] virtual double loss_and_gradients(const nn::LanguageModel& model, const TensorView& tokens,
                                                  const TensorView& targets, nn::LanguageModel& gradients,
                                                  int threads) const;
};

}  // namespace heed
