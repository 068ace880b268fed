#include <algorithm>
#include <bit>
#include <optional>

#include "distributed/mpi/agreement.hpp"
#include "distributed/mpi/communicator.hpp"
#include "distributed/mpi/ordered_sum.hpp"
#include "heed/distributed/attention.hpp"
#include "heed/distributed/train.hpp"
#include "heed/error.hpp"

namespace heed::distributed {
namespace {

// FNV-1a (Fowler, Noll, Vo) over integers: detects differences.
class Hash {
 public:
  void add(std::uint64_t number) { hash_ = (hash_ ^ number) * 0x100000001b3; }
  void add(double number) { add(std::bit_cast<std::uint64_t>(number)); }
  void add(const std::string& text) {
    for (const char c : text) add(std::uint64_t{static_cast<unsigned char>(c)});
  }
  void add(const Tensor& tensor) {
    if (tensor.dtype() == DType::i64)
      for (const std::int64_t value : tensor.values<std::int64_t>()) add(static_cast<std::uint64_t>(value));
    else
      for (const float value : tensor.values<float>())
        add(std::uint64_t{std::bit_cast<std::uint32_t>(value)});
  }
  [[nodiscard]] std::int64_t value() const { return static_cast<std::int64_t>(hash_); }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

std::int64_t hash_of(const TrainSettings& settings) {
  Hash hash;
  hash.add(static_cast<std::uint64_t>(settings.task));
  hash.add(std::uint64_t{settings.attention_only});
  for (const RealSetting& one : real_settings()) hash.add(settings.*one.value);
  return hash.value();
}

std::int64_t hash_of(TrainState& state) {
  Hash hash;
  for (const nn::NamedParameter& one : state.trained.model.parameters()) hash.add(*one.value);
  for (const nn::NamedParameter& one : state.optimizer.state()) hash.add(*one.value);
  hash.add(state.generator.state());
  hash.add(state.smooth_loss);
  hash.add(state.sum_since_mark);
  for (const auto& [step, loss] : state.marks) hash.add(loss);
  return hash.value();
}

std::int64_t hash_of(const std::string& text) {
  Hash hash;
  hash.add(text);
  return hash.value();
}

double over_batch(const Communicator& comm, const nn::LanguageModel& model, const TensorView& tokens,
                  const TensorView& targets, nn::LanguageModel& gradients, int threads) {
  // The same number of pieces on each rank.
  const std::int64_t ranks = comm.size();
  const std::int64_t even = (nn::LanguageModel::kShards + ranks - 1) / ranks * ranks;
  const std::int64_t pieces = std::min(tokens.size(0), even);
  const Sharding shared = Sharding::contiguous(pieces, comm.size());
  std::vector<nn::LossPiece> own;
  agree(comm, [&] {
    for (const PositionRange& range : shared.ranges(comm.rank()))
      own = model.loss_pieces(tokens, targets, pieces, range.begin, range.end, threads);
  });
  return add_in_order(comm, own, gradients);
}

nn::AttentionFunctions attention_over(const Communicator& comm, const Layout& layout, int threads) {
  const auto with_threads = [threads](AttentionOptions options) {
    options.threads = threads;
    return options;
  };
  return {.forward = [=, &comm](const TensorView& query, const TensorView& key, const TensorView& value,
                                const AttentionOptions& options) -> AttentionResult {
            return attention(comm.get(), query, key, value, layout, with_threads(options));
          },
          .backward = [=, &comm](const AttentionBackwardInputs& inputs,
                                 const AttentionOptions& options) -> AttentionGradients {
            return attention_backward(comm.get(), inputs, layout, with_threads(options));
          }};
}

double over_sequence(const Communicator& comm, const nn::LanguageModel& model, const TensorView& tokens,
                     const TensorView& targets, nn::LanguageModel& gradients, int threads) {
  const Sharding places = Sharding::zigzag(tokens.size(1), comm.size());
  nn::SequenceShare share{{}, attention_over(comm, {places, places}, threads)};
  for (std::int64_t row = 0; row < places.rows(comm.rank()); ++row)
    share.places.push_back(places.position(comm.rank(), row));
  std::vector<nn::LossPiece> own;
  own.push_back(model.loss_piece(places.shard(tokens, 1, comm.rank()), places.shard(targets, 1, comm.rank()),
                                 nn::count_targets(targets), share));
  return add_in_order(comm, own, gradients);
}

class Ranks : public TrainRanks {
 public:
  Ranks(MPI_Comm comm, Over over) : comm_(comm), over_(over) {
    agree_on(comm_, {{"over", static_cast<std::int64_t>(over)}});
  }

  void each(const std::function<void()>& work) const override { agree(comm_, work); }

  void once(const std::function<void()>& work) const override {
    agree(comm_, [&] {
      if (comm_.rank() == 0) work();
    });
  }

  [[nodiscard]] bool any(bool own) const override {
    std::int64_t asked = own ? 1 : 0;
    comm_.take_largest({&asked, 1});
    return asked != 0;
  }

  void require_same(const TrainOptions& options) const override {
    agree_on(comm_,
             {{"checkpoint_every", options.checkpoint_every}, {"stop_at", options.stop_at.value_or(-1)}});
  }

  void require_same(TrainState& state) const override {
    std::vector<Common> all;
    for (const IntegerSetting& one : integer_settings())
      all.push_back({one.name, state.trained.settings.*one.value});
    all.push_back({"step", state.step});
    all.push_back({"the hash of the other settings", hash_of(state.trained.settings)});
    all.push_back({"the hash of the text", hash_of(state.fingerprint)});
    all.push_back({"the hash of the state", hash_of(state)});
    agree_on(comm_, all);
  }

  [[nodiscard]] double loss_and_gradients(const nn::LanguageModel& model, const TensorView& tokens,
                                          const TensorView& targets, nn::LanguageModel& gradients,
                                          int threads) const override {
    const auto share = over_ == Over::batch ? over_batch : over_sequence;
    try {
      return share(comm_, model, tokens, targets, gradients, threads);
    } catch (const Error& error) {
      // `internal` means that the training diverges; a lost message is not that.
      if (error.code() != ErrorCode::internal) throw;
      throw Error(ErrorCode::io, error.what());
    }
  }

 private:
  Communicator comm_;
  Over over_;
};

}  // namespace

std::string_view name_of(Over over) noexcept { return over == Over::batch ? "batch" : "sequence"; }

std::unique_ptr<TrainRanks> train_ranks(MPI_Comm comm, Over over) {
  return std::make_unique<Ranks>(comm, over);
}

TrainState train(MPI_Comm comm, const std::string& folder, const TrainSettings& settings,
                 const TrainData& data, const TrainOptions& options, Over over) {
  const Ranks ranks(comm, over);
  TrainOptions with = options;
  with.ranks = &ranks;
  return heed::train(folder, settings, data, with);
}

TrainState resume_training(MPI_Comm comm, const std::string& folder, const TrainData& data,
                           const TrainOptions& options, Over over) {
  const Ranks ranks(comm, over);
  TrainOptions with = options;
  with.ranks = &ranks;
  return heed::resume_training(folder, data, with);
}

}  // namespace heed::distributed
