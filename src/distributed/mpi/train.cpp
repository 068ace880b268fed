#include <algorithm>
#include <span>
#include <vector>

#include "core/digest.hpp"
#include "core/message.hpp"
#include "distributed/mpi/agreement.hpp"
#include "distributed/mpi/communicator.hpp"
#include "heed/distributed/attention.hpp"
#include "heed/distributed/train.hpp"
#include "heed/error.hpp"
#include "heed/nn/transformer.hpp"
#include "nn/elements.hpp"

namespace heed::distributed {
namespace {

// Sums of a batch's pieces are added in their order, wherever they were computed.

// Numbers per message: while a rank adds to one part, the rank before it adds to the next.
constexpr std::size_t kPart = 1 << 18;

template <class T>
int bytes_of(std::span<T> part) {
  return static_cast<int>(part.size_bytes());
}

// Receives a sum from the previous rank, adds this rank's terms, and sends it to the next.
template <class T>
void add_part(const Communicator& comm, std::span<T> sum, const std::vector<const T*>& terms) {
  if (comm.rank() > 0)
    check(MPI_Recv(sum.data(), bytes_of(sum), MPI_BYTE, comm.rank() - 1, 0, comm.get(), MPI_STATUS_IGNORE),
          "MPI_Recv");
  for (std::size_t i = 0; i < terms.size(); ++i) {
    if (comm.rank() == 0 && i == 0)
      std::copy_n(terms[i], sum.size(), sum.begin());
    else
      std::transform(sum.begin(), sum.end(), terms[i], sum.begin(), [](T a, T b) { return a + b; });
  }
  if (comm.rank() + 1 < comm.size())
    check(MPI_Send(sum.data(), bytes_of(sum), MPI_BYTE, comm.rank() + 1, 0, comm.get()), "MPI_Send");
}

// Calls body(part, begin of the part).
template <class T, class Body>
void for_each_part(std::span<T> all, Body body) {
  for (std::size_t begin = 0; begin < all.size(); begin += kPart)
    body(all.subspan(begin, std::min(kPart, all.size() - begin)), begin);
}

template <class T>
void add_all(const Communicator& comm, std::span<T> sum, const std::vector<const T*>& terms) {
  for_each_part(sum, [&](std::span<T> part, std::size_t begin) {
    std::vector<const T*> of_part(terms);
    for (const T*& term : of_part) term += begin;
    add_part<T>(comm, part, of_part);
  });
}

template <class T>
void take_from_last(const Communicator& comm, std::span<T> sum) {
  for_each_part(sum, [&](std::span<T> part, std::size_t) {
    check(MPI_Bcast(part.data(), bytes_of(part), MPI_BYTE, comm.size() - 1, comm.get()), "MPI_Bcast");
  });
}

// ((p0 + p1) + p2) + … over rank 0's pieces (at least one), then rank 1's, and so on. Every rank gets the
// sum of the gradients in `gradients`, and the sum of the losses as the result.
double add_in_order(const Communicator& comm, std::vector<nn::LossPiece>& pieces,
                    nn::LanguageModel& gradients) {
  double loss = 0;
  std::vector<const double*> losses;
  for (const nn::LossPiece& piece : pieces) losses.push_back(&piece.loss);
  add_all<double>(comm, {&loss, 1}, losses);
  std::vector<std::vector<nn::NamedParameter>> terms;
  for (nn::LossPiece& piece : pieces) terms.push_back(piece.gradients.parameters());
  const std::vector<nn::NamedParameter> sums = gradients.parameters();
  const auto for_each_sum = [&](auto body) {
    for (std::size_t i = 0; i < sums.size(); ++i)
      nn::detail::with_real(sums[i].value->dtype(), [&]<class T>(T) { body(i, sums[i].value->values<T>()); });
  };
  for_each_sum([&]<class T>(std::size_t i, std::span<T> sum) {
    std::vector<const T*> of_pieces;
    for (const auto& piece : terms) of_pieces.push_back(piece[i].value->template values<T>().data());
    add_all<T>(comm, sum, of_pieces);
  });
  take_from_last<double>(comm, {&loss, 1});
  for_each_sum([&]<class T>(std::size_t, std::span<T> sum) { take_from_last<T>(comm, sum); });
  return loss;
}

std::int64_t hash_of(const TrainSettings& settings) {
  heed::detail::Digest digest;
  digest.add(static_cast<int>(settings.task));
  digest.add(settings.attention_only);
  for (const RealSetting& one : real_settings()) digest.add(settings.*one.value);
  return digest.value();
}

std::int64_t hash_of(TrainState& state) {
  heed::detail::Digest digest;
  for (const nn::NamedParameter& one : state.trained.model.parameters()) digest.add(*one.value);
  for (const nn::NamedParameter& one : state.optimizer.state()) digest.add(*one.value);
  digest.add(state.generator.state());
  digest.add(state.smooth_loss);
  digest.add(state.sum_since_mark);
  for (const auto& [step, loss] : state.marks) digest.add(loss);
  return digest.value();
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
    heed::detail::check_listed("over", over, Over::sequence);
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
    all.push_back({"the hash of the text", heed::detail::Digest(state.fingerprint).value()});
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
