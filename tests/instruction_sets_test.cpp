// Compares the fused kernel's instruction sets on this machine with each other. The same calls must give the
// same results within the sum of both sets' errors. (Bits differ, because sums have as many parts as a vector
// has lanes.) A process has one instruction set, so each set runs in a child process.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attention_support.hpp"
#include "checked_call.hpp"
#include "expect_tight.hpp"
#include "fused_calls.hpp"
#include "fused_rounding.hpp"
#include "path_watch.hpp"
#include "processor.hpp"
#include "support.hpp"

namespace {

using heed::AttentionResult;
using heed::Tensor;
using heed::test::Cube;
using heed::test::Naive;
using heed::test::RandomCall;
using heed::test::Rounding;

constexpr std::uint64_t kSeed = 20241121;

/// Visits every call, in order. All need weights, through which top-k lists are compared.
template <class Visit>
void for_each_call(Visit visit) {
  const std::pair<heed::test::CallLimits, std::uint64_t> kinds[] = {
      {heed::test::small_calls(), 1000}, {heed::test::tile_calls(), 25}, {heed::test::decoding_calls(), 50}};
  for (const auto& [limits, count] : kinds)
    for (std::uint64_t index = 0; index < heed::test::share_of(count); ++index) {
      RandomCall call = heed::test::random_call(kSeed, index, limits);
      call.options.need |= heed::Need::weights;
      call.options.kernel = heed::Kernel::fused;
      visit(call);
    }
}

using Field = Tensor AttentionResult::*;

struct Header {
  heed::Dims shape;
  heed::DType dtype = heed::DType::f32;
};
std::size_t bytes_of(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.count()) * heed::size_of(tensor.dtype());
}

/// Throws if the other end is closed.
template <class Transfer, class Memory>
void transfer_all(Transfer transfer, int file, Memory* memory, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t now = transfer(file, memory + done, bytes - done);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) throw std::runtime_error("the other process has ended");
    done += static_cast<std::size_t>(now);
  }
}
template <class T>
void send(int file, const T* from, std::size_t bytes) {
  transfer_all(::write, file, reinterpret_cast<const std::byte*>(from), bytes);
}
template <class T>
void receive(int file, T* to, std::size_t bytes) {
  transfer_all(::read, file, reinterpret_cast<std::byte*>(to), bytes);
}

void send_results(int file) {
  const bool available = heed::test::why_not_fused().empty();
  send(file, &available, sizeof available);
  if (!available) return;
  heed::test::PathWatch paths;
  for_each_call([&](const RandomCall& call) {
    paths.start_call();
    const AttentionResult result = heed::attention(call.query, call.key, call.value, call.options);
    const std::vector<heed::detail::FallbackRows>& fallbacks = paths.fallbacks();
    const std::size_t count = fallbacks.size();
    send(file, &count, sizeof count);
    send(file, fallbacks.data(), count * sizeof fallbacks[0]);
    for (const auto& [entry, member] : heed::kResults<Tensor>) {
      const Tensor& tensor = result.*member;
      const Header header{tensor.shape(), tensor.dtype()};
      send(file, &header, sizeof header);
      send(file, static_cast<const std::byte*>(tensor.view().data()), bytes_of(tensor));
    }
  });
}

/// One instruction set, in a child process that computes the calls and sends the results.
class Child {
 public:
  explicit Child(std::string isa) : isa_(std::move(isa)) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    process_ = fork();
    if (process_ < 0) throw std::runtime_error("no process");
    if (process_ == 0) {
      close(ends[0]);
      setenv("HEED_ISA", isa_.c_str(), 1);
      try {
        send_results(ends[1]);
        _exit(0);
      } catch (const std::exception& error) {
        std::cerr << isa_ << ": " << error.what() << std::endl;
        _exit(1);
      }
    }
    close(ends[1]);
    results_ = ends[0];
    receive(results_, &available_, sizeof available_);
  }
  ~Child() {
    close(results_);
    kill(process_, SIGKILL);  // the other children hold this end of its pipe too, so it would wait to write
    waitpid(process_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] const std::string& isa() const { return isa_; }
  [[nodiscard]] bool is_available() const { return available_; }
  /// Whether the row fell back in the last call.
  [[nodiscard]] bool fell_back(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return heed::test::holds(fallbacks_, b, h, i);
  }

  /// The results of the next call.
  AttentionResult next() {
    std::size_t count = 0;
    receive(results_, &count, sizeof count);
    fallbacks_.resize(count);
    receive(results_, fallbacks_.data(), count * sizeof fallbacks_[0]);
    AttentionResult result;
    for (const auto& [entry, member] : heed::kResults<Tensor>) {
      Header header;
      receive(results_, &header, sizeof header);
      Tensor& tensor = result.*member = Tensor(header.shape, header.dtype);
      receive(results_, static_cast<std::byte*>(tensor.mutable_view().data()), bytes_of(tensor));
    }
    return result;
  }

 private:
  std::string isa_;
  pid_t process_ = -1;
  int results_ = -1;
  bool available_ = false;
  std::vector<heed::detail::FallbackRows> fallbacks_;
};

/// The results of one set, as the expectation of another. Magnitudes still come from the definitions.
Naive expectation(Naive naive, const AttentionResult& result) {
  const std::pair<Cube Naive::*, Field> results[] = {{&Naive::output, &AttentionResult::output},
                                                     {&Naive::weights, &AttentionResult::weights},
                                                     {&Naive::scores, &AttentionResult::scores},
                                                     {&Naive::lse, &AttentionResult::lse},
                                                     {&Naive::max_score, &AttentionResult::max_score},
                                                     {&Naive::entropy, &AttentionResult::entropy},
                                                     {&Naive::distance, &AttentionResult::distance},
                                                     {&Naive::received, &AttentionResult::received},
                                                     {&Naive::received_last, &AttentionResult::received_last},
                                                     {&Naive::map, &AttentionResult::map}};
  for (const auto& [cube, field] : results) {
    const Tensor wide = Tensor::copy_of(result.*field, heed::DType::f64);
    if (wide.values<double>().size() == (naive.*cube).values.size())  // otherwise it was not requested
      std::copy(wide.values<double>().begin(), wide.values<double>().end(), (naive.*cube).values.begin());
  }
  return naive;
}

Rounding sum_of(const Rounding& a, const Rounding& b) {
  return {.unit = a.unit,  // that of f32, for both sets
          .slack = a.slack + b.slack,
          .weight_unit = a.weight_unit + b.weight_unit,
          .floor = a.floor + b.floor,
          .storing = a.storing + b.storing};
}

TEST(InstructionSets, GiveTheSameResultsWithinTheirRounding) {
  std::vector<std::unique_ptr<Child>> sets;
  for (const std::string_view isa : heed::test::kInstructionSets) {
    auto child = std::make_unique<Child>(std::string(isa));
    EXPECT_EQ(child->is_available(), heed::test::processor_has(isa)) << isa;
    if (child->is_available()) sets.push_back(std::move(child));
  }
  ASSERT_FALSE(HasFailure());
  if (sets.size() < 2) GTEST_SKIP() << "this processor has no instruction set but the plain one";
  heed::test::RowTally tally;
  for_each_call([&](const RandomCall& call) {
    const Naive naive = heed::test::naive_attention(call.query, call.key, call.value, call.options);
    std::vector<AttentionResult> results;
    for (const auto& set : sets) results.push_back(set->next());
    for (std::size_t a = 0; a < sets.size(); ++a)
      for (std::size_t b = 0; b < a && !HasFailure(); ++b) {
        const auto rounding = [&](std::size_t set) {
          return heed::test::fused_rounding(call.query.dtype(), call.options, sets[set]->isa());
        };
        // Rows that the reference computed for both sets do not compare the sets.
        const auto fell_back = [&](auto batch, auto head, auto row) {
          return sets[a]->fell_back(batch, head, row) && sets[b]->fell_back(batch, head, row);
        };
        const std::string failure =
            heed::test::compare_results(results[a], call.options, expectation(naive, results[b]),
                                        sum_of(rounding(a), rounding(b)), tally, fell_back);
        EXPECT_EQ(failure, "") << sets[a]->isa() << " against " << sets[b]->isa() << ": " << describe(call);
      }
  });
  heed::test::expect_tight(tally, 0.95);
}

// A process that forces no target takes the best one.
TEST(InstructionSets, TheBestOfTheProcessorIsChosen) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    unsetenv("HEED_ISA");
    try {
      const Tensor one({1, 1});
      const auto result = heed::attention(one, one, one, {.kernel = heed::Kernel::fused});
      if (result.isa == heed::test::best_instruction_set()) _exit(0);
      std::cerr << "the kernel runs on " << result.isa << ", the processor has "
                << heed::test::best_instruction_set() << std::endl;
    } catch (const std::exception& error) {
      std::cerr << error.what() << std::endl;
    }
    _exit(1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
