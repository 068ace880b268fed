// Compares attention over ranks with one process, and measures how much key transfer overlaps with
// computation. Run it with mpirun; each rank uses one thread.
//
//   distributed LENGTH HEADS DIM ROUNDS [SCHEME]
//       efficiency: seconds of one process / (ranks * seconds of the ranks)
//   distributed LENGTH HEADS DIM ROUNDS SCHEME overlap
//       delays each message of keys by a block's computation time; prints the share of the delay that is
//       hidden
//   distributed LENGTH HEADS DIM ROUNDS SCHEME memory
//       memory that the computation needs beside the shards
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "heed/distributed/attention.hpp"
#include "heed/random.hpp"
#include "mpi_layer.hpp"

namespace {

using heed::Tensor;
using heed::TensorView;
namespace distributed = heed::distributed;

struct Setup {
  std::int64_t length, heads, dim;
  int rounds, rank, ranks;
  distributed::Choice choice;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The slowest rank's seconds, returned on every rank.
double seconds_of(const std::function<void()>& work) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  work();
  double seconds = MPI_Wtime() - begin;
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return seconds;
}

// A line of /proc/self/status, in MB.
double megabytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name)) return std::atof(line.c_str() + name.size()) / 1000;
  return 0;
}

class Comparison {
 public:
  explicit Comparison(const Setup& setup)
      : setup_(setup),
        layout_{heed::Sharding::zigzag(setup.length, setup.ranks),
                heed::Sharding::zigzag(setup.length, setup.ranks)} {
    heed::Generator generator(1);
    const heed::Dims shape{1, setup.heads, setup.length, setup.dim};
    for (Tensor* whole : {&query_, &key_, &value_, &slope_}) *whole = heed::randn(generator, shape);
    options_.causal = true;
    options_.need = heed::Need::lse;
    options_.threads = 1;
  }

  void efficiency() {
    std::vector<double> one, all, one_both, all_both;
    for (int round = 0; round < setup_.rounds; ++round) {
      one.push_back(seconds_of([&] { one_process(false); }));
      all.push_back(seconds_of([&] { all_ranks(false); }));
      one_both.push_back(seconds_of([&] { one_process(true); }));
      all_both.push_back(seconds_of([&] { all_ranks(true); }));
    }
    print("forward", median(one), median(all), forward_scheme_);
    print("forward + backward", median(one_both), median(all_both), backward_scheme_);
  }

  // Peak memory of a call, minus the memory in use before it, which includes the shards.
  void memory() {
    all_ranks(false);  // allocates the shards and the threads' buffers
    std::ofstream("/proc/self/clear_refs") << 5;
    const double before = megabytes("VmRSS:");
    all_ranks(false);
    double most = megabytes("VmHWM:") - before;
    MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    const double rows = static_cast<double>(shards_[0].count()) * 4e-6;
    if (setup_.rank == 0)
      std::printf(
          "%s: %.1f MB beside the shards of query, key and value, %.1f MB each; the output has as much\n",
          std::string(name_of(forward_scheme_)).c_str(), most, rows);
  }

  // Delays each block by its computation time. The hidden share is the part that does not lengthen the call.
  void overlap() {
    const double plain = median_of([&] { all_ranks(false); });
    const auto blocks = static_cast<double>((setup_.length + 3071) / 3072);
    const double delay = plain / blocks;
    heed::test::mpi_layer::delay(delay);
    const double delayed = median_of([&] { all_ranks(false); });
    heed::test::mpi_layer::off();
    if (setup_.rank != 0) return;
    const double transfers = blocks * delay;
    std::printf("%s: %.3f s, with a delay of %.3f s for each of %.0f blocks %.3f s; hidden: %.1f %%\n",
                std::string(name_of(forward_scheme_)).c_str(), plain, delay, blocks, delayed,
                100 * (1 - (delayed - plain) / transfers));
  }

 private:
  double median_of(const std::function<void()>& work) const {
    std::vector<double> seconds;
    for (int round = 0; round < setup_.rounds; ++round) seconds.push_back(seconds_of(work));
    return median(seconds);
  }

  void one_process(bool gradients) const {
    if (setup_.rank != 0) return;
    const heed::AttentionResult result = heed::attention(query_, key_, value_, options_);
    if (gradients)
      (void)heed::attention_backward({query_, key_, value_, result.output, result.lse, slope_}, options_);
  }

  void all_ranks(bool gradients) {
    const auto own = [&](const Tensor& whole) { return layout_.query.shard(whole, 2, setup_.rank); };
    if (shards_.empty())
      for (const Tensor* whole : {&query_, &key_, &value_, &slope_}) shards_.push_back(own(*whole));
    const distributed::Result result = distributed::attention(MPI_COMM_WORLD, shards_[0], shards_[1],
                                                              shards_[2], layout_, options_, setup_.choice);
    forward_scheme_ = result.scheme;
    if (!gradients) return;
    backward_scheme_ =
        distributed::attention_backward(
            MPI_COMM_WORLD, {shards_[0], shards_[1], shards_[2], result.output, result.lse, shards_[3]},
            layout_, options_)
            .scheme;
  }

  void print(const char* what, double one, double all, distributed::Scheme scheme) const {
    if (setup_.rank == 0)
      std::printf("%-18s  one process %.3f s   %d ranks %.3f s (%s)   efficiency %.1f %%\n", what, one,
                  setup_.ranks, all, std::string(name_of(scheme)).c_str(), 100 * one / (setup_.ranks * all));
  }

  const Setup& setup_;
  const distributed::Layout layout_;
  Tensor query_, key_, value_, slope_;
  std::vector<Tensor> shards_;
  heed::AttentionOptions options_;
  distributed::Scheme forward_scheme_ = distributed::Scheme::automatic, backward_scheme_ = forward_scheme_;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc < 5) {
    std::fputs("usage: distributed LENGTH HEADS DIM ROUNDS [SCHEME [overlap | memory]]\n", stderr);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  Setup setup{std::atoll(argv[1]), std::atoll(argv[2]), std::atoll(argv[3]), std::atoi(argv[4]), 0, 1, {}};
  MPI_Comm_rank(MPI_COMM_WORLD, &setup.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &setup.ranks);
  if (argc > 5) setup.choice.scheme = distributed::scheme_of(argv[5]);
  Comparison comparison(setup);
  const std::string_view what = argc > 6 ? argv[6] : "";
  if (what == "overlap")
    comparison.overlap();
  else if (what == "memory")
    comparison.memory();
  else
    comparison.efficiency();
  MPI_Finalize();
}
