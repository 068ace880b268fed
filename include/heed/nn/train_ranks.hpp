// The processes of a joint training (heed/nn/train.hpp). Each holds the whole state and makes the same steps.
#pragma once

#include <functional>

#include "heed/export.hpp"
#include "heed/nn/transformer.hpp"
#include "heed/tensor.hpp"

namespace heed {

struct TrainOptions;
struct TrainState;

/// Interface from a training to its processes. This base class is a single process;
/// heed/distributed/train.hpp has MPI ranks. All ranks call the same functions in the same order.
class HEED_API TrainRanks {
 public:
  TrainRanks() = default;
  virtual ~TrainRanks();
  TrainRanks(const TrainRanks&) = delete;
  TrainRanks& operator=(const TrainRanks&) = delete;

  /// Runs `work` on each rank. If it throws on one rank, this throws on all.
  virtual void each(const std::function<void()>& work) const;
  /// Runs `work`, which writes files, on one rank. If it throws, this throws on all ranks.
  virtual void once(const std::function<void()>& work) const;
  /// Whether `own` is true on any rank.
  [[nodiscard]] virtual bool any(bool own) const;
  /// Throws on all ranks if their states, or options that affect the steps, differ.
  virtual void require_same(TrainState& state) const;
  virtual void require_same(const TrainOptions& options) const;
  /// LanguageModel::loss_and_gradients() of a batch that every rank has. The work is split; the result has
  /// the same bits on all ranks.
  [[nodiscard]] virtual double loss_and_gradients(const nn::LanguageModel& model, const TensorView& tokens,
                                                  const TensorView& targets, nn::LanguageModel& gradients,
                                                  int threads) const;
};

}  // namespace heed
