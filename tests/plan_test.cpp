// The cost model of attention over machines. Its counts are compared with counting one by one, and its
// seconds and bytes with a simulation. Errors are tested too.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "../src/distributed/cost_model.hpp"
#include "heed/distributed/plan.hpp"
#include "heed/distributed/scheme.hpp"
#include "plan_simulation.hpp"
#include "support.hpp"

namespace {

using heed::PositionRange;
using heed::Sharding;
using heed::distributed::choose;
using heed::distributed::Machines;
using heed::distributed::plan;
using heed::distributed::PlannedCall;
using heed::distributed::Results;
using heed::distributed::Scheme;
using heed::distributed::SchemePlan;
using heed::distributed::Visibility;
using heed::test::message_of;
using heed::test::share_of;
using heed::test::Simulated;
using heed::test::Simulation;

Machines machines(double flops, double bytes, double latency, int ranks_per_node = 1) {
  Machines all;
  all.ranks_per_node = ranks_per_node;
  all.flops_per_second = flops;
  all.bytes_per_second = bytes;
  all.latency_seconds = latency;
  return all;
}

Sharding layout(int number, std::int64_t length, int ranks) {
  return number == 0   ? Sharding::contiguous(length, ranks)
         : number == 1 ? Sharding::zigzag(length, ranks)
                       : Sharding::striped(length, ranks);
}

const SchemePlan& of(const std::vector<SchemePlan>& plans, Scheme scheme) {
  for (const SchemePlan& one : plans)
    if (one.scheme == scheme) return one;
  throw std::logic_error("no such scheme");
}

TEST(Scheme, HasANameThatReadsBack) {
  for (const Scheme scheme :
       {Scheme::automatic, Scheme::ring, Scheme::gather, Scheme::ulysses, Scheme::decode})
    EXPECT_EQ(heed::distributed::scheme_of(name_of(scheme)), scheme);
  EXPECT_EQ(name_of(Scheme::ring), "ring");
  EXPECT_EQ(message_of([] { (void)heed::distributed::scheme_of("star"); }),
            "scheme is 'star'; automatic, ring, gather, ulysses or decode is expected");
  EXPECT_EQ(message_of([] { (void)name_of(static_cast<Scheme>(5)); }), "scheme is 5; 0 to 4 is expected");
}

TEST(Cells, AreThoseThatCountingFinds) {
  for (std::uint64_t seed = 0; seed < share_of(3000); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto below = [&](std::int64_t n) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
    };
    const Visibility sees = {below(2) == 0, {below(20) - 1, below(20) - 1}, below(41) - 20};
    const std::int64_t length = 1 + below(40);
    const PositionRange queries = {below(20), 0};
    const PositionRange rows = {queries.begin, queries.begin + below(20)};
    const std::int64_t from = below(length + 1);
    const PositionRange keys = {from, from + below(length - from + 1)};
    std::int64_t cells = 0;
    std::int64_t first = std::numeric_limits<std::int64_t>::max();
    std::int64_t last = -1;
    for (std::int64_t i = rows.begin; i < rows.end; ++i)
      for (std::int64_t j = 0; j < length; ++j) {
        const std::int64_t p = i + sees.offset;
        if (sees.causal && j > p) continue;
        if (sees.window.left >= 0 && j < p - sees.window.left) continue;
        if (sees.window.right >= 0 && j > p + sees.window.right) continue;
        if (j >= keys.begin && j < keys.end) ++cells;
        first = std::min(first, j);
        last = std::max(last, j);
      }
    ASSERT_EQ(sees.cells(rows, keys), cells);
    if (last < 0) continue;
    ASSERT_EQ(sees.seen(rows, length), (PositionRange{first, last + 1}));
  }
}

TEST(Cells, OfTheLargestCallsDoNotOverflow) {
  const std::int64_t n = std::int64_t{1} << 30;
  EXPECT_EQ((Visibility{}.cells(PositionRange{0, n}, {0, n})), n * n);
  EXPECT_EQ((Visibility{true, {}, 0}.cells(PositionRange{0, n}, {0, n})), n * (n + 1) / 2);
  EXPECT_EQ((Visibility{true, {}, n}.cells(PositionRange{0, n}, {0, n})), n * n);
  EXPECT_EQ((Visibility{false, {n, n}, n}.cells(PositionRange{0, n}, {0, n})), n * (n + 1) / 2);
}

TEST(Plan, OfOneRankIsItsArithmetic) {
  PlannedCall call;
  call.heads = 4;
  call.kv_heads = 2;
  call.value_dim = 32;
  call.causal = true;
  const Sharding all = Sharding::contiguous(10000, 1);
  const double cells = 10000.0 * 10001 / 2;
  for (const SchemePlan& one : plan(call, machines(1e9, 1e9, 1e-3), all, all)) {
    SCOPED_TRACE(name_of(one.scheme));
    EXPECT_TRUE(one.possible);
    // Each figure is rounded a few times.
    EXPECT_NEAR(one.seconds, 4 * cells * 2 * (64 + 32) / 1e9, 1e-9 * one.seconds);
    EXPECT_NEAR(one.efficiency, 1, 1e-9);
    EXPECT_EQ(one.bytes_sent, 0);
    EXPECT_EQ(one.note, "");
  }
}

TEST(Plan, CountsTheMemoryOfTheRankThatHoldsTheMost) {
  PlannedCall call;
  call.batch = 2;
  call.heads = 8;
  call.kv_heads = 2;
  call.head_dim = 16;
  call.value_dim = 32;
  call.element_bytes = 2;
  const std::int64_t length = 61440;  // 20 spans
  const Sharding all = Sharding::contiguous(length, 4);
  const auto plans = plan(call, machines(1e9, 1e9, 0), all, all);
  const double rows = 15360;
  const double shard = 2 * rows * (8 + 2) * (16 + 32) * 2;
  const double states = 2.0 * 8 * (32 + 80) * 4;  // for one row
  EXPECT_EQ(of(plans, Scheme::ring).bytes_per_rank,
            shard + 2 * 3072.0 * 2 * 2 * (16 + 32) * 2 + rows * states);
  EXPECT_EQ(of(plans, Scheme::gather).bytes_per_rank, shard + 2 * 61440.0 * (16 + 32) * 2);
  EXPECT_EQ(of(plans, Scheme::ulysses).bytes_per_rank, shard + 61440.0 * (4 + 1) * (16 + 32) * 2);
  EXPECT_EQ(of(plans, Scheme::decode).bytes_per_rank,
            shard + 61440.0 * 2 * 8 * 16 * 2 + 61440.0 * 5 * states + rows * 15 * states);
  call.gradients = true;
  const auto gradients = plan(call, machines(1e9, 1e9, 0), all, all);
  EXPECT_EQ(of(gradients, Scheme::ulysses).bytes_per_rank, 2 * (shard + 61440.0 * (4 + 1) * (16 + 32) * 2));
  // Each rank has the four splits of one head. It receives rows once and sends parts of dQ four times. It
  // also receives the parts for its own rows.
  const double gathered = 61440.0 * 4 * ((16 + 2 * 32) * 2 + 4) + 61440.0 * 2 * (16 + 32) * 2;
  const double parts = 4 * (61440.0 * 4 * 16 * 4) + rows * 2 * 8 * 16 * 4 * 4;
  EXPECT_EQ(of(gradients, Scheme::gather).bytes_per_rank, 2 * shard + gathered + parts);
}

TEST(Plan, SaysWhatASchemeCannotGive) {
  PlannedCall call;
  const Sharding all = Sharding::contiguous(8192, 4);
  const auto notes = [&] {
    std::map<Scheme, std::string> impossible;
    for (const SchemePlan& one : plan(call, machines(1e9, 1e9, 0), all, all))
      if (!one.possible) impossible[one.scheme] = one.note;
    return impossible;
  };
  EXPECT_TRUE(notes().empty());
  call.results = Results::weights;
  const std::string sums = "no rank has all rows of a head, so sums over rows would round in another order";
  const std::string weights = "weights need a row's final sum over all keys";
  const std::string backward = "the backward pass works only with gather or ulysses";
  using Notes = std::map<Scheme, std::string>;
  EXPECT_EQ(notes(), (Notes{{Scheme::ring, weights}, {Scheme::decode, weights}}));
  call.results = Results::sums;
  EXPECT_EQ(notes(), (Notes{{Scheme::ring, sums}, {Scheme::gather, sums}, {Scheme::decode, sums}}));
  EXPECT_EQ(choose(plan(call, machines(1e9, 1e9, 0), all, all)), Scheme::ulysses);
  call.results = Results::of_rows;
  call.gradients = true;
  EXPECT_EQ(notes(), (Notes{{Scheme::ring, backward}, {Scheme::decode, backward}}));
}

TEST(Plan, SaysWhatSlowsASchemeDown) {
  PlannedCall call;
  call.heads = 6;
  call.kv_heads = 3;
  call.gradients = true;
  const auto note = [&](Scheme scheme, int ranks) {
    const Sharding all = Sharding::striped(61440, ranks);
    return of(plan(call, machines(1e9, 1e9, 0), all, all), scheme).note;
  };
  EXPECT_EQ(note(Scheme::ulysses, 3), "");
  EXPECT_EQ(note(Scheme::ulysses, 2), "some ranks have 2 key heads, others one fewer");
  EXPECT_EQ(note(Scheme::ulysses, 8), "5 of 8 ranks have no head");
  EXPECT_EQ(note(Scheme::gather, 18), "");
  EXPECT_EQ(note(Scheme::gather, 20), "the backward pass has 18 tasks for 20 ranks");
  call.gradients = false;
  EXPECT_EQ(note(Scheme::ring, 2), "");
  call.query_offset = 1;
  call.window.right = 0;
  const Sharding rising = Sharding::contiguous(61440, 8);
  for (const Scheme scheme : {Scheme::ring, Scheme::gather})
    EXPECT_EQ(of(plan(call, machines(1e9, 1e9, 0), rising, rising), scheme).note,
              "the busiest rank has 1.9 times the mean work");
  EXPECT_EQ(note(Scheme::decode, 2), "spans of 3072 keys are divided among ranks: keys move first");
}

TEST(Plan, TakesTheLinksThatMessagesCross) {
  PlannedCall call;
  call.heads = 2;
  const Sharding all = Sharding::contiguous(61440, 4);
  const auto seconds = [&](int ranks_per_node, double bytes, double node_bytes) {
    Machines them = machines(1e12, bytes, 1e-6, ranks_per_node);
    them.node_bytes_per_second = node_bytes;
    std::vector<double> of_schemes;
    for (const SchemePlan& one : plan(call, them, all, all)) of_schemes.push_back(one.seconds);
    return of_schemes;
  };
  EXPECT_EQ(seconds(1, 1e9, 1e3), seconds(1, 1e9, 1e12));
  EXPECT_EQ(seconds(4, 1e3, 1e9), seconds(4, 1e12, 1e9));
  EXPECT_EQ(seconds(1, 1e9, 1e3), seconds(4, 1e3, 1e9));
}

TEST(Plan, ChoosesTheFastestPossibleScheme) {
  PlannedCall call;
  call.causal = true;
  const Machines all = machines(1e11, 1e9, 1e-5);
  for (const int ranks : {1, 2, 7, 64})
    for (const std::int64_t rows : {1, 1000, 50000}) {
      call.query_offset = 50000 - rows;
      const Sharding queries = Sharding::zigzag(rows, ranks);
      const Sharding keys = Sharding::zigzag(50000, ranks);
      const auto plans = plan(call, all, queries, keys);
      const Scheme chosen = choose(plans);
      for (const SchemePlan& one : plans) EXPECT_LE(of(plans, chosen).seconds, one.seconds);
    }
}

// The largest ratio between plan and simulation, either way, and the mean deviation.
struct Agreement {
  double worst = 1;
  double sum = 0;
  int count = 0;
  void add(double planned, double simulated) {
    const double ratio = planned / simulated;
    if (!(std::max(ratio, 1 / ratio) <= worst)) worst = std::max(ratio, 1 / ratio);
    sum += std::abs(ratio - 1);
    ++count;
  }
  [[nodiscard]] double mean() const { return sum / count; }
};

std::ostream& operator<<(std::ostream& out, const Agreement& one) {
  return out << one.count << " calls, mean " << one.mean() << ", worst " << one.worst;
}

struct Agreements {
  std::map<Scheme, Agreement> seconds;
  double bytes = 0;  // the largest relative difference

  void add(const SchemePlan& planned, const Simulated& simulated) {
    seconds[planned.scheme].add(planned.seconds, simulated.seconds);
    const double sent = simulated.most_sent();
    const double off = std::abs(planned.bytes_sent - sent) / std::max(1.0, sent);
    if (!(off <= bytes)) bytes = off;
  }
};

// Compares over ranks, layouts, masks, lengths, and links that are slow or fast relative to the processors.
Agreements compared(double flops, const std::vector<double>& rates, bool gradients) {
  Agreements all;
  for (const int ranks : {2, 3, 4, 6, 8, 16})
    for (const std::int64_t length : {20000, 98304})
      for (int number = 0; number < 3; ++number)
        for (int mask = 0; mask < 3; ++mask) {
          PlannedCall call;
          call.heads = 4;
          call.kv_heads = 2;
          call.element_bytes = 2;
          call.causal = mask > 0;
          if (mask == 2) call.window.left = 30000;
          call.gradients = gradients;
          const Sharding sharding = layout(number, length, ranks);
          for (const double rate : rates) {
            const Machines them = machines(flops, rate, 5e-6, ranks % 2 == 0 ? 2 : 1);
            const Simulation simulation(call, them, sharding, sharding);
            const auto plans = plan(call, them, sharding, sharding);
            Simulated gather = simulation.gather();
            if (gradients) {
              const Simulated backward = simulation.gather_backward();
              gather.seconds += backward.seconds;
              for (std::size_t rank = 0; rank < gather.sent.size(); ++rank)
                gather.sent[rank] += backward.sent[rank];
            }
            all.add(of(plans, Scheme::gather), gather);
            all.add(of(plans, Scheme::ulysses), simulation.ulysses());
            if (!gradients) all.add(of(plans, Scheme::ring), simulation.ring());
          }
        }
  return all;
}

// Sums of bytes are rounded. The plan assumes that each split has the same share of every rank's keys.
constexpr double kSameBytes = 1e-9;
constexpr double kEvenBytes = 0.1;

struct Bounds {
  double mean, worst, bytes = kSameBytes;
};

void expect_agreement(const Agreements& all, const Bounds& bounds) {
  for (const auto& [scheme, agreement] : all.seconds) {
    std::cout << name_of(scheme) << ": " << agreement << '\n';
    EXPECT_LE(agreement.mean(), bounds.mean) << name_of(scheme);
    EXPECT_LE(agreement.worst, bounds.worst) << name_of(scheme);
  }
  EXPECT_LE(all.bytes, bounds.bytes);
}

TEST(Plan, AgreesWithASimulation) {
  expect_agreement(compared(1e11, {5e8, 2e9, 1.25e10}, false), {.mean = 0.01, .worst = 1.05});
}

TEST(Plan, AgreesWithASimulationOfManyRanks) {
  Agreements all;
  PlannedCall call;
  call.heads = 32;
  call.kv_heads = 8;
  call.head_dim = call.value_dim = 128;
  call.element_bytes = 2;
  call.causal = true;
  const Machines them = machines(2e12, 1.25e10, 2e-6);
  for (const int ranks : {64, 256, 1024})
    for (int number = 0; number < 3; ++number) {
      const Sharding sharding = layout(number, 131072, ranks);
      const Simulation simulation(call, them, sharding, sharding);
      const auto plans = plan(call, them, sharding, sharding);
      all.add(of(plans, Scheme::ring), simulation.ring());
      if (ranks < 1024) all.add(of(plans, Scheme::gather), simulation.gather());
    }
  expect_agreement(all, {.mean = 0.01, .worst = 1.03});
}

TEST(Plan, AgreesRoughlyWithASimulationWhereLinksAreAHundredTimesTooSlow) {
  const Agreements all = compared(1e13, {5e8, 2e9, 1.25e10}, false);
  expect_agreement(all, {.mean = 0.06, .worst = 1.5});
  for (const Scheme scheme : {Scheme::gather, Scheme::ulysses})
    EXPECT_LE(all.seconds.at(scheme).worst, 1.3) << name_of(scheme);
}

TEST(Plan, AgreesWithASimulationOfGradients) {
  expect_agreement(compared(1e11, {5e8, 1.25e10}, true), {.mean = 0.02, .worst = 1.1, .bytes = kEvenBytes});
}

TEST(Plan, AgreesWithASimulationOfDecoding) {
  Agreements all;
  for (const int ranks : {2, 3, 4, 6, 8, 16})
    for (const std::int64_t rows : {1, 7, 64})
      for (int number = 0; number < 3; ++number)
        for (const double rate : {5e8, 1.25e10}) {
          PlannedCall call;
          call.heads = 8;
          call.kv_heads = 2;
          call.query_offset = 200000 - rows;
          call.causal = true;
          const Machines them = machines(1e10, rate, 5e-6);
          const Sharding queries = layout(number, rows, ranks);
          const Sharding keys = layout(number, 200000, ranks);
          const Simulation simulation(call, them, queries, keys);
          const Simulated simulated = simulation.decode();
          const SchemePlan planned = of(plan(call, them, queries, keys), Scheme::decode);
          SCOPED_TRACE("ranks " + std::to_string(ranks) + ", rows " + std::to_string(rows) + ", layout " +
                       std::to_string(number));
          EXPECT_NEAR(planned.bytes_sent, simulated.most_sent(), kSameBytes * planned.bytes_sent);
          all.add(planned, simulated);
        }
  expect_agreement(all, {.mean = 0.05, .worst = 1.3});
}

TEST(Plan, OfThousandsOfRanksAndAHundredMillionTokensIsSane) {
  PlannedCall call;
  call.heads = 32;
  call.kv_heads = 8;
  call.head_dim = call.value_dim = 128;
  call.element_bytes = 2;
  call.causal = true;
  for (int number = 0; number < 3; ++number) {
    const Sharding all = layout(number, 100'000'000, 4096);
    const SchemePlan ring = of(plan(call, machines(2e12, 1.25e10, 2e-6), all, all), Scheme::ring);
    EXPECT_GT(ring.efficiency, number == 0 ? 0.45 : 0.9) << number;
    EXPECT_LE(ring.efficiency, 1) << number;
  }
}

TEST(Plan, RefusesWhatItCannotPlan) {
  const Sharding all = Sharding::contiguous(100, 2);
  const auto message = [&](auto change) {
    PlannedCall call;
    Machines them = machines(1e9, 1e9, 0);
    change(call, them);
    return message_of([&] { (void)plan(call, them, all, all); });
  };
  const std::string size = "; 1 to 65536 is expected";
  const std::string rate = "; a finite number above 0 is expected";
  using C = PlannedCall;
  using M = Machines;
  EXPECT_EQ(message([](C& c, M&) { c.batch = 0; }), "batch is 0" + size);
  EXPECT_EQ(message([](C& c, M&) { c.heads = 65537; }), "heads is 65537" + size);
  EXPECT_EQ(message([](C& c, M&) { c.kv_heads = 0; }), "kv_heads is 0" + size);
  EXPECT_EQ(message([](C& c, M&) { c.head_dim = -1; }), "head_dim is -1" + size);
  EXPECT_EQ(message([](C& c, M&) { c.value_dim = 0; }), "value_dim is 0" + size);
  EXPECT_EQ(message([](C& c, M&) { c.element_bytes = 0; }), "element_bytes is 0" + size);
  EXPECT_EQ(message([](C& c, M&) { c.heads = 3, c.kv_heads = 2; }),
            "heads is 3; a multiple of kv_heads 2 is expected");
  EXPECT_EQ(message([](C& c, M&) { c.batch = 40000, c.heads = c.kv_heads = 2; }),
            "batch * kv_heads is 80000; at most 65536 is expected");
  EXPECT_EQ(message([](C& c, M&) { c.results = static_cast<heed::distributed::Results>(3); }),
            "results is 3; 0 to 2 is expected");
  EXPECT_EQ(message([](C& c, M&) { c.window.left = -2; }), "window has -2; -1 to 2^30 is expected");
  EXPECT_EQ(message([](C& c, M&) { c.window.right = (1 << 30) + 1; }),
            "window has 1073741825; -1 to 2^30 is expected");
  EXPECT_EQ(message([](C& c, M&) { c.query_offset = std::numeric_limits<std::int64_t>::min(); }),
            "query_offset is -9223372036854775808; -2^30 to 2^30 is expected");
  EXPECT_EQ(message([](C&, M& m) { m.ranks_per_node = 0; }), "ranks_per_node is 0; at least 1 is expected");
  EXPECT_EQ(message([](C&, M& m) { m.flops_per_second = 0; }), "flops_per_second is 0" + rate);
  EXPECT_EQ(message([](C&, M& m) { m.bytes_per_second = std::nan(""); }), "bytes_per_second is nan" + rate);
  EXPECT_EQ(message([](C&, M& m) { m.node_bytes_per_second = -1; }), "node_bytes_per_second is -1" + rate);
  EXPECT_EQ(message([](C&, M& m) { m.latency_seconds = -1; }),
            "latency_seconds is -1; a finite number of at least 0 is expected");
  const auto shardings = [](const Sharding& queries, const Sharding& keys) {
    return message_of([&] { (void)plan({}, machines(1e9, 1e9, 0), queries, keys); });
  };
  EXPECT_EQ(shardings(Sharding::contiguous(0, 2), all), "the length of queries is 0; 1 to 2^30 is expected");
  EXPECT_EQ(shardings(all, Sharding::contiguous((std::int64_t{1} << 30) + 1, 2)),
            "the length of keys is 1073741825; 1 to 2^30 is expected");
  EXPECT_EQ(shardings(all, Sharding::contiguous(100, 3)), "keys has 3 ranks; 2, as in queries, are expected");
  EXPECT_EQ(message_of([] { (void)choose({}); }), "plans has no possible scheme; one is expected");
}

}  // namespace
