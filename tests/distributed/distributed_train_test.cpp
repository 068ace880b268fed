// Training over ranks, compared with the same training in f64 and in one process. A resumed training must
// leave the same folder as one that never stopped.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "attention_support.hpp"
#include "heed/distributed/train.hpp"
#include "heed/nn/layers.hpp"
#include "io_support.hpp"
#include "mpi_layer.hpp"
#include "ranks.hpp"
#include "support.hpp"
#include "train/data.hpp"

namespace {

using heed::DType;
using heed::Tensor;
using heed::TrainData;
using heed::TrainOptions;
using heed::TrainSettings;
using heed::TrainState;
using heed::distributed::Over;
using heed::test::message_of;

constexpr std::int64_t kSteps = 20;

// Odd lengths, and a batch that 2, 3 and 4 ranks share unevenly.
constexpr TrainSettings kOdd = {.task = heed::Task::induction,
                                .layers = 2,
                                .heads = 2,
                                .model_dim = 8,
                                .context = 13,
                                .symbols = 6,
                                .batch = 11,
                                .steps = kSteps,
                                .warmup = 5};

TrainSettings with(TrainSettings settings, std::int64_t batch, std::int64_t context) {
  settings.batch = batch;
  settings.context = context;
  return settings;
}

TrainState in_one_process(const TrainSettings& settings, const TrainData& data) {
  heed::nn::set_blas_threads(1);
  TrainState state = begin_training(settings, data);
  while (state.step < settings.steps) train_step(state, data, 1);
  return state;
}

struct Exact {
  heed::nn::LanguageModel model;
  double loss = 0;
};

// The same training with all numbers in f64.
Exact in_f64(const TrainSettings& settings, const TrainData& data) {
  TrainState drawn = begin_training(settings, data);
  heed::Generator unused;
  Exact exact{heed::nn::LanguageModel(drawn.trained.model.config, unused, DType::f64)};
  const auto from = drawn.trained.model.parameters(), to = exact.model.parameters();
  for (std::size_t i = 0; i < to.size(); ++i) *to[i].value = Tensor::copy_of(*from[i].value, DType::f64);
  heed::nn::AdamW optimizer(to, {.weight_decay = settings.weight_decay});
  const heed::nn::Schedule schedule{
      .peak = settings.learning_rate, .warmup = settings.warmup, .steps = settings.steps};
  heed::nn::LanguageModel gradients = zeros_like(exact.model);
  for (std::int64_t step = 0; step < settings.steps; ++step) {
    const auto batch = heed::detail::draw_batch(data, settings, drawn.generator);
    const double loss = exact.model.loss_and_gradients(batch.tokens, batch.targets, gradients, 1);
    heed::nn::clip_gradients(gradients.parameters(), settings.clip);
    exact.loss = step == 0 ? loss : 0.95 * exact.loss + 0.05 * loss;
    optimizer.step(exact.model.parameters(), gradients.parameters(), schedule.rate(step));
  }
  return exact;
}

double largest_difference(const Tensor& exact, const Tensor& other) {
  double largest = 0;
  for (std::size_t i = 0; i < exact.values<double>().size(); ++i) {
    const double difference =
        std::abs(exact.values<double>()[i] - static_cast<double>(other.values<float>()[i]));
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

void expect_same_bits(TrainState& a, TrainState& b) {
  EXPECT_EQ(a.smooth_loss, b.smooth_loss);
  EXPECT_EQ(a.marks, b.marks);
  const auto ours = a.trained.model.parameters(), theirs = b.trained.model.parameters();
  for (std::size_t i = 0; i < ours.size(); ++i)
    EXPECT_TRUE(heed::test::same_bits(*ours[i].value, *theirs[i].value)) << ours[i].name;
}

// Both trainings round in f32, in different orders. AdamW takes full steps even for gradients that are only
// rounding, as for the key's bias. So the yardstick, for each parameter, is the difference between one
// process and f64. It is the maximum of a few random errors, which may be several times smaller for one order
// than for another. Where it is nearly 0, one ulp is allowed.
constexpr double kFactor = 4;
constexpr double kParameterUlp = 0x1p-25;  // for numbers up to 0.5; those around 1 have a larger yardstick
constexpr double kLossUlp = 0x1p-23;       // for a loss of nearly 2
void expect_within_f32(TrainState& state, const TrainSettings& settings, const TrainData& data) {
  TrainState one = in_one_process(settings, data);
  Exact exact = in_f64(settings, data);
  const auto ours = state.trained.model.parameters(), plain = one.trained.model.parameters(),
             wanted = exact.model.parameters();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double error = largest_difference(*wanted[i].value, *ours[i].value);
    const double yardstick = largest_difference(*wanted[i].value, *plain[i].value);
    EXPECT_TRUE(error <= kFactor * yardstick + kParameterUlp)
        << wanted[i].name << ": " << error << ", of one process " << yardstick;
  }
  const double error = std::abs(state.smooth_loss - exact.loss);
  EXPECT_TRUE(error <= kFactor * std::abs(one.smooth_loss - exact.loss) + kLossUlp) << error;
}

class DistributedTraining : public testing::Test {
 protected:
  DistributedTraining() {
    if (heed::test::rank() == 0) folder_.emplace();
    root_ = heed::test::agreed(folder_ ? *folder_ / "" : "");
  }
  ~DistributedTraining() override { MPI_Barrier(MPI_COMM_WORLD); }

  std::string path(const std::string& name) const { return root_ + name; }

  void expect_same_files(const std::string& a, const std::string& b) const {
    MPI_Barrier(MPI_COMM_WORLD);
    for (const char* name : {"model.safetensors", "config.json", "vocabulary.json", "checkpoint.safetensors"})
      EXPECT_EQ(heed::test::read_file(path(a) + "/" + name), heed::test::read_file(path(b) + "/" + name))
          << name << " of " << b;
  }

  const TrainData data = heed::induction_data(kOdd);

 private:
  std::optional<heed::test::TemporaryFolder> folder_;
  std::string root_;
};

TrainState train_over(Over over, const std::string& folder, const TrainSettings& settings,
                      const TrainData& data, const TrainOptions& options = {}) {
  return heed::distributed::train(MPI_COMM_WORLD, folder, settings, data, options, over);
}

TEST_F(DistributedTraining, OverTheBatchIsThatOfOneProcess) {
  for (const std::int64_t batch : {1, 3, 11}) {
    const TrainSettings settings = with(kOdd, batch, 13);
    TrainState state = train_over(Over::batch, path("batch" + std::to_string(batch)), settings, data);
    const bool same_sums = batch <= 8 || 8 % heed::test::ranks() == 0;
    if (same_sums) {
      TrainState one = in_one_process(settings, data);
      expect_same_bits(state, one);
    } else {
      expect_within_f32(state, settings, data);
    }
  }
}

// The tables of so many symbols are summed in several parts.
TEST_F(DistributedTraining, OverTheBatchHasTheBitsOfOneProcessOfALargeModel) {
  TrainSettings settings = with(kOdd, 3, 5);
  settings.symbols = 40'000;
  settings.steps = settings.warmup = 2;
  const TrainData many = heed::induction_data(settings);
  TrainState state = train_over(Over::batch, path("large"), settings, many);
  TrainState one = in_one_process(settings, many);
  expect_same_bits(state, one);
}

TEST_F(DistributedTraining, OverTheSequenceIsThatOfOneProcess) {
  for (const std::int64_t context : {2, 3, 13, 64}) {
    const TrainSettings settings = with(kOdd, 5, context);
    TrainState state = train_over(Over::sequence, path("context" + std::to_string(context)), settings, data);
    expect_within_f32(state, settings, data);
  }
}

// The bits must not depend on when messages arrive, nor on the number of threads.
TEST_F(DistributedTraining, HasTheSameBitsOnEveryRun) {
  for (const Over over : {Over::batch, Over::sequence}) {
    const std::string name(heed::distributed::name_of(over));
    TrainState first = train_over(over, path(name), kOdd, data);
    heed::test::mpi_layer::shuffle(17 + static_cast<std::uint64_t>(heed::test::rank()));
    TrainState second = train_over(over, path(name + "2"), kOdd, data, {.threads = 2});
    heed::test::mpi_layer::off();
    expect_same_bits(first, second);
    expect_same_files(name, name + "2");
  }
}

TEST_F(DistributedTraining, GoesOnWithTheSameBitsOnAsManyRanks) {
  for (const Over over : {Over::batch, Over::sequence}) {
    const std::string whole = std::string(heed::distributed::name_of(over)), parts = whole + "-parts";
    (void)train_over(over, path(whole), kOdd, data);
    std::int64_t asked = 0;
    // Only one rank is told to stop.
    const bool is_told = heed::test::rank() == heed::test::ranks() - 1;
    const auto stop = [&] { return asked++ == 7 && is_told; };
    EXPECT_EQ(train_over(over, path(parts), kOdd, data, {.stop = stop}).step, 7);
    const auto go_on = [&](const TrainOptions& options) {
      return heed::distributed::resume_training(MPI_COMM_WORLD, path(parts), data, options, over).step;
    };
    EXPECT_EQ(go_on({.stop_at = 11}), 11);
    EXPECT_EQ(go_on({}), kSteps);
    expect_same_files(whole, parts);
  }
}

// Trains on all ranks but the last, then on all, then in one process, each with another division of the work.
TEST_F(DistributedTraining, GoesOnOnAnotherNumberOfRanks) {
  const int rank = heed::test::rank(), few = std::max(1, heed::test::ranks() - 1);
  MPI_Comm some = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank < few ? 0 : MPI_UNDEFINED, 0, &some);
  if (some != MPI_COMM_NULL) {
    (void)heed::distributed::train(some, path("out"), kOdd, data, {.stop_at = 6}, Over::sequence);
    MPI_Comm_free(&some);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  TrainState state =
      heed::distributed::resume_training(MPI_COMM_WORLD, path("out"), data, {.stop_at = 13}, Over::batch);
  EXPECT_EQ(state.step, 13);
  if (rank != 0) return;
  state = heed::resume_training(path("out"), data);
  expect_within_f32(state, kOdd, data);
}

TEST_F(DistributedTraining, FailsOnAllRanksWhereOneCannotGoOn) {
  const int rank = heed::test::rank(), last = heed::test::ranks() - 1;
  const auto elsewhere = [&](int at, const std::string& message) {
    return (rank == at ? "" : "rank " + std::to_string(at) + ": ") + message;
  };
  // Rank 0 cannot write.
  if (rank == 0) heed::test::write_file(path("file"), "");
  const std::string within = path("file/out");
  EXPECT_EQ(message_of([&] { (void)train_over(Over::batch, within, kOdd, data); }),
            elsewhere(0, "cannot make the folder " + within + ": Not a directory"));
  // The last rank has a different text.
  if (rank == 0) heed::test::write_file(path("text.txt"), "a text of 24 characters");
  if (rank == last) heed::test::write_file(path("short.txt"), "short");
  MPI_Barrier(MPI_COMM_WORLD);
  const TrainData text = heed::read_train_text(path(rank == last ? "short.txt" : "text.txt"));
  TrainSettings settings = kOdd;
  settings.task = heed::Task::text;
  EXPECT_EQ(message_of([&] { (void)train_over(Over::batch, path("out"), settings, text); }),
            elsewhere(last, "the text has 5 characters; more than the 13 of context are expected"));
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

TEST_F(DistributedTraining, RefusesRanksThatDisagree) {
  if (heed::test::ranks() == 1) return;
  const int rank = heed::test::rank();
  const auto refused = [&](const TrainSettings& settings, const TrainOptions& options, Over over) {
    return message_of([&] { (void)train_over(over, path("out"), settings, data, options); });
  };
  const auto differs = [&](const char* name, std::int64_t own, std::int64_t least, std::int64_t most) {
    return std::string(name) + " is " + std::to_string(own) + " on rank " + std::to_string(rank) +
           " and ranges from " + std::to_string(least) + " to " + std::to_string(most) +
           " over all ranks; equal values are expected";
  };
  const int one = rank == 0 ? 1 : 0;  // only on rank 0
  EXPECT_EQ(refused(kOdd, {}, one == 1 ? Over::sequence : Over::batch), differs("over", one, 0, 1));
  EXPECT_EQ(refused(kOdd, {.checkpoint_every = 5 + one}, Over::batch),
            differs("checkpoint_every", 5 + one, 5, 6));
  EXPECT_EQ(refused(kOdd, {.stop_at = 5 + one}, Over::batch), differs("stop_at", 5 + one, 5, 6));
  EXPECT_EQ(refused(with(kOdd, 11 + one, 13), {}, Over::batch), differs("batch", 11 + one, 11, 12));
  TrainSettings slower = kOdd;
  slower.learning_rate = rank == 0 ? 1e-3 : 2e-3;
  const std::string message = refused(slower, {}, Over::batch);
  EXPECT_TRUE(message.starts_with("the hash of the other settings is ")) << message;
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

// A rank whose model differs, through a fault of its machine, is found before anything is saved.
TEST_F(DistributedTraining, KeepsNothingOfRanksThatHaveDriftedApart) {
  if (heed::test::ranks() == 1) return;
  const auto fault = [&](const TrainState& state) {
    if (heed::test::rank() == 1 && state.step == 7)
      const_cast<TrainState&>(state).trained.model.norm.bias.values<float>()[0] += 1e-6F;
  };
  const std::string message = message_of([&] {
    (void)train_over(Over::batch, path("out"), kOdd, data, {.checkpoint_every = 5, .progress = fault});
  });
  EXPECT_TRUE(message.starts_with("the hash of the state is ")) << message;
  EXPECT_EQ(heed::read_checkpoint(heed::checkpoint_in(path("out")), data).step, 5);
}

TEST_F(DistributedTraining, LeavesTheLastCheckpointWhereItDiverges) {
  TrainSettings wild = kOdd;
  wild.learning_rate = 1e30;
  for (const Over over : {Over::batch, Over::sequence}) {
    const std::string out = path(std::string(heed::distributed::name_of(over)));
    const std::string message =
        message_of([&] { (void)train_over(over, out, wild, data, {.checkpoint_every = 1}); });
    EXPECT_NE(message.find(": the training diverges; " + heed::checkpoint_in(out) +
                           " is kept as it was after step "),
              std::string::npos)
        << message;
    EXPECT_EQ(heed::read_checkpoint(heed::checkpoint_in(out), data).trained.settings.steps, kSteps);
  }
}

}  // namespace
