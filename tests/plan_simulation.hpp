// Simulates attention over machines message by message and block by block, to check the formulas of
// heed/distributed/plan.hpp. It counts keys one by one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "heed/distributed/plan.hpp"

namespace heed::test {

using distributed::Machines;
using distributed::PlannedCall;

/// Every rank has a link that sends one message at a time and receives one at a time.
class Network {
 public:
  Network(const Machines& machines, int ranks)
      : machines_(machines), out_(static_cast<std::size_t>(ranks)), in_(out_), sent_(out_) {}

  /// Returns the time of arrival. The message leaves at `time`, or once earlier messages have left. Latency
  /// does not occupy the link.
  double send(std::size_t from, std::size_t to, double bytes, double time) {
    if (from == to || bytes == 0) return time;
    const auto node = [&](std::size_t rank) { return static_cast<int>(rank) / machines_.ranks_per_node; };
    const double rate = node(from) == node(to) ? machines_.node_bytes_per_second : machines_.bytes_per_second;
    sent_[from] += bytes;
    const double begin = std::max(time, out_[from]);
    out_[from] = begin + bytes / rate;
    in_[to] = std::max(in_[to], begin) + bytes / rate;
    return in_[to] + machines_.latency_seconds;
  }

  /// Bytes sent by each rank.
  [[nodiscard]] const std::vector<double>& sent() const { return sent_; }

 private:
  Machines machines_;
  std::vector<double> out_;  // when the link is free again
  std::vector<double> in_;
  std::vector<double> sent_;
};

/// The cost of a scheme.
struct Simulated {
  double seconds = 0;
  std::vector<double> sent;  ///< bytes sent by each rank
  [[nodiscard]] double most_sent() const { return *std::max_element(sent.begin(), sent.end()); }
};

class Simulation {
 public:
  Simulation(const PlannedCall& call, const Machines& machines, const Sharding& queries, const Sharding& keys)
      : call_(call),
        machines_(machines),
        queries_(queries),
        keys_(keys),
        ranks_(static_cast<std::size_t>(queries.ranks())),
        spans_((keys.length() + kSpan - 1) / kSpan) {
    cells_.assign(ranks_, std::vector<double>(static_cast<std::size_t>(spans_)));
    held_.assign(static_cast<std::size_t>(spans_), std::vector<double>(ranks_));
    for (std::int64_t key = 0; key < keys.length(); ++key)
      held_[static_cast<std::size_t>(key / kSpan)][static_cast<std::size_t>(keys.rank_of(key))] += 1;
    for (std::int64_t row = 0; row < queries.length(); ++row) {
      const auto [begin, end] = seen(row);
      auto& cells = cells_[static_cast<std::size_t>(queries.rank_of(row))];
      for (std::int64_t key = begin; key < end; key = (key / kSpan + 1) * kSpan)
        cells[static_cast<std::size_t>(key / kSpan)] +=
            static_cast<double>(std::min(end, (key / kSpan + 1) * kSpan) - key);
    }
  }

  /// A rank requests a block once the buffer of the block before the previous one is free.
  [[nodiscard]] Simulated ring() const {
    Network network(machines_, queries_.ranks());
    std::vector<std::vector<std::size_t>> blocks(ranks_);
    std::vector<std::vector<double>> done(ranks_);
    using Request = std::tuple<double, std::size_t, std::size_t>;  // time, block index, rank
    std::priority_queue<Request, std::vector<Request>, std::greater<>> requests;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      for (std::size_t span = 0; span < held_.size(); ++span)
        if (cells_[rank][span] > 0) blocks[rank].push_back(span);
      for (std::size_t i = 0; i < 2; ++i) requests.emplace(0.0, i, rank);
    }
    double last = 0;
    while (!requests.empty()) {
      const auto [time, i, rank] = requests.top();
      requests.pop();
      if (i >= blocks[rank].size()) continue;
      const std::size_t span = blocks[rank][i];
      double begin = i > 0 ? done[rank][i - 1] : 0;
      for (std::size_t owner = 0; owner < ranks_; ++owner)
        begin = std::max(begin, network.send(owner, rank, held_[span][owner] * units() * key_bytes(), time));
      done[rank].push_back(begin + units() * group() * seconds(cells_[rank][span]));
      last = std::max(last, done[rank].back());
      requests.emplace(done[rank].back(), i + 2, rank);
    }
    return {last, network.sent()};
  }

  /// In each step of a head, a rank passes on the shard that it received last. There are buffers for two
  /// heads.
  [[nodiscard]] Simulated gather() const {
    Network network(machines_, queries_.ranks());
    std::vector<std::vector<double>> done(2, std::vector<double>(ranks_));  // for the last two heads
    std::vector<double> arrived(ranks_);
    for (std::int64_t unit = 0; unit < call_.batch * call_.kv_heads; ++unit) {
      std::vector<double>& before_last = done[static_cast<std::size_t>(unit % 2)];
      const std::vector<double>& before = done[static_cast<std::size_t>((unit + 1) % 2)];
      for (std::size_t rank = 0; rank < ranks_; ++rank)
        arrived[rank] = std::max(arrived[rank], before_last[rank]);
      for (std::size_t step = 0; step + 1 < ranks_; ++step) {
        std::vector<double> next(arrived);
        for (std::size_t rank = 0; rank < ranks_; ++rank) {
          const std::size_t to = (rank + 1) % ranks_;
          const int shard = static_cast<int>((rank + ranks_ - step) % ranks_);
          const double ready = std::max(arrived[rank], arrived[to]);
          next[to] =
              std::max(next[to], network.send(rank, to, as_double(keys_.rows(shard)) * key_bytes(), ready));
        }
        arrived = next;
      }
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        double cells = 0;
        for (const double of_span : cells_[rank]) cells += of_span;
        before_last[rank] = std::max(arrived[rank], before[rank]) + group() * seconds(cells);
      }
    }
    double last = 0;
    for (const auto& times : done) last = std::max(last, *std::max_element(times.begin(), times.end()));
    return {last, network.sent()};
  }

  /// A task has one head and some of its keys. It receives rows, and sends parts of dQ and gradients of keys.
  [[nodiscard]] Simulated gather_backward() const {
    const std::int64_t heads = call_.batch * call_.kv_heads;
    const std::int64_t length = keys_.length();
    std::int64_t splits = std::min((16 + heads - 1) / heads, (length + 767) / 768);
    splits = std::clamp<std::int64_t>(splits, 1, 16);
    const std::int64_t each = ((length + splits - 1) / splits + 191) / 192 * 192;
    std::vector<double> cells;  // for each split
    std::vector<std::vector<double>> keys;
    for (std::int64_t begin = 0; begin < length; begin += each) {
      cells.push_back(0);
      keys.emplace_back(ranks_);
      const std::int64_t end = std::min(begin + each, length);
      for (std::int64_t key = begin; key < end; ++key)
        keys.back()[static_cast<std::size_t>(keys_.rank_of(key))] += 1;
      for (std::int64_t row = 0; row < queries_.length(); ++row) {
        const auto range = seen(row);
        cells.back() +=
            as_double(std::max<std::int64_t>(0, std::min(range.second, end) - std::max(range.first, begin)));
      }
    }
    double all = 0;
    for (const double of_split : cells) all += of_split * as_double(heads);
    // The tasks of each rank: its heads, each with its splits.
    std::vector<std::map<std::int64_t, std::vector<std::size_t>>> tasks(ranks_);
    double before = 0;
    for (std::int64_t head = 0; head < heads; ++head)
      for (std::size_t split = 0; split < cells.size(); ++split) {
        const double middle = (before + cells[split] / 2) / all * as_double(queries_.ranks());
        tasks[std::min(ranks_ - 1, static_cast<std::size_t>(middle))][head].push_back(split);
        before += cells[split];
      }
    const double query = as_double(call_.head_dim) * call_.element_bytes;
    const double output = as_double(call_.value_dim) * call_.element_bytes;
    const double part = cells.size() > 1 ? as_double(call_.head_dim) * 4 : query;
    Network network(machines_, queries_.ranks());
    std::vector<double> done(ranks_);
    for (std::size_t step = 0; step < ranks_; ++step)
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        const std::size_t from = (rank + step) % ranks_;
        for (const auto& [head, of_head] : tasks[rank]) {
          double bytes = rows(from) * group() * (query + 2 * output + 4);
          for (const std::size_t split : of_head) bytes += keys[split][from] * key_bytes();
          done[rank] = std::max(done[rank], network.send(from, rank, bytes, 0));
        }
      }
    double last = 0;
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      for (const auto& [head, of_head] : tasks[rank])
        for (const std::size_t split : of_head) done[rank] += 2.5 * group() * seconds(cells[split]);
    for (std::size_t step = 0; step < ranks_; ++step)
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        last = std::max(last, done[rank]);
        const std::size_t to = (rank + step) % ranks_;
        for (const auto& [head, of_head] : tasks[rank]) {
          double bytes = 0;
          for (const std::size_t split : of_head)
            bytes += rows(to) * group() * part + keys[split][to] * key_bytes();
          last = std::max(last, network.send(rank, to, bytes, done[rank]));
        }
      }
    return {last, network.sent()};
  }

  /// Exchanges all to all, computes the heads, and exchanges again; gradients repeat these steps.
  [[nodiscard]] Simulated ulysses() const {
    const double query = as_double(call_.head_dim) * call_.element_bytes;
    const double output = as_double(call_.value_dim) * call_.element_bytes;
    Network network(machines_, queries_.ranks());
    std::vector<double> time(ranks_);
    exchange(network, time, group() * query, key_bytes(), false);
    compute_heads(time, 1);
    exchange(network, time, group() * output, 0, true);
    if (call_.gradients) {
      exchange(network, time, group() * (query + 2 * output + 4), key_bytes(), false);
      compute_heads(time, 2.5);
      exchange(network, time, group() * query, key_bytes(), true);
    }
    return {*std::max_element(time.begin(), time.end()), network.sent()};
  }

  /// Sends queries to all ranks in rounds that double a rank's queries, then computes key spans and merges
  /// states.
  [[nodiscard]] Simulated decode() const {
    const double heads = as_double(call_.batch * call_.heads);
    std::vector<double> time(ranks_);
    std::vector<std::set<std::size_t>> has(ranks_);
    for (std::size_t rank = 0; rank < ranks_; ++rank) has[rank].insert(rank);
    Network network(machines_, queries_.ranks());
    for (std::size_t far = 1; far < ranks_; far *= 2) {
      std::vector<double> next(time);
      auto have = has;
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        const std::size_t to = (rank + far) % ranks_;
        double bytes = 0;
        for (const std::size_t shard : has[rank])
          if (have[to].insert(shard).second) bytes += rows(shard) * heads * query_bytes();
        next[to] = std::max(next[to], network.send(rank, to, bytes, time[rank]));
      }
      has = have;
      time = next;
    }
    std::vector<std::size_t> computes(held_.size());
    for (std::size_t span = 0; span < held_.size(); ++span) computes[span] = computing(span);
    std::vector<double> compute(ranks_);
    std::vector<double> spans(ranks_);
    std::vector<std::vector<double>> moved(ranks_, std::vector<double>(ranks_));
    for (std::size_t span = 0; span < held_.size(); ++span) {
      double cells = 0;
      for (const auto& of_rank : cells_) cells += of_rank[span];
      if (cells == 0) continue;
      compute[computes[span]] += heads * seconds(cells);
      spans[computes[span]] += 1;
      for (std::size_t rank = 0; rank < ranks_; ++rank)
        if (rank != computes[span]) moved[rank][computes[span]] += held_[span][rank];
    }
    exchange(network, time,
             [&](std::size_t from, std::size_t to) { return moved[from][to] * units() * key_bytes(); });
    for (std::size_t rank = 0; rank < ranks_; ++rank) time[rank] += compute[rank];
    const double state = 4 * (as_double(call_.value_dim) + 80);
    exchange(network, time,
             [&](std::size_t from, std::size_t to) { return spans[from] * rows(to) * heads * state; });
    return {*std::max_element(time.begin(), time.end()), network.sent()};
  }

 private:
  static constexpr std::int64_t kSpan = 3072;
  static double as_double(std::int64_t n) { return static_cast<double>(n); }

  [[nodiscard]] std::pair<std::int64_t, std::int64_t> seen(std::int64_t row) const {
    const std::int64_t position = row + call_.query_offset;
    std::int64_t begin = 0;
    std::int64_t end = keys_.length();
    if (call_.causal) end = std::min(end, position + 1);
    if (call_.window.right >= 0) end = std::min(end, position + call_.window.right + 1);
    if (call_.window.left >= 0) begin = std::max(begin, position - call_.window.left);
    return {begin, std::max(begin, end)};
  }
  [[nodiscard]] double seconds(double cells) const {
    return cells * 2 * as_double(call_.head_dim + call_.value_dim) / machines_.flops_per_second;
  }
  [[nodiscard]] double units() const { return as_double(call_.batch * call_.kv_heads); }
  [[nodiscard]] double group() const { return as_double(call_.heads / call_.kv_heads); }
  [[nodiscard]] double query_bytes() const { return as_double(call_.head_dim) * call_.element_bytes; }
  [[nodiscard]] double key_bytes() const {
    return as_double(call_.head_dim + call_.value_dim) * call_.element_bytes;
  }
  [[nodiscard]] double rows(std::size_t rank) const {
    return as_double(queries_.rows(static_cast<int>(rank)));
  }
  [[nodiscard]] double heads_of(std::size_t rank) const {  // in round-robin order
    double heads = 0;
    for (std::size_t unit = rank; unit < static_cast<std::size_t>(units()); unit += ranks_) heads += 1;
    return heads;
  }

  // The rank that holds the most keys of a span. Among equals it is the one whose keys come first.
  [[nodiscard]] std::size_t computing(std::size_t span) const {
    const double most = *std::max_element(held_[span].begin(), held_[span].end());
    std::int64_t key = static_cast<std::int64_t>(span) * kSpan;
    while (held_[span][static_cast<std::size_t>(keys_.rank_of(key))] < most) ++key;
    return static_cast<std::size_t>(keys_.rank_of(key));
  }

  // Exchanges bytes(from, to) between all pairs. Step n sends to the rank n further, once both finished the
  // last step.
  void exchange(Network& network, std::vector<double>& time,
                const std::function<double(std::size_t from, std::size_t to)>& bytes) const {
    for (std::size_t step = 1; step < ranks_; ++step) {
      std::vector<double> next(time);
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        const std::size_t to = (rank + step) % ranks_;
        if (bytes(rank, to) == 0) continue;
        const double arrived = network.send(rank, to, bytes(rank, to), std::max(time[rank], time[to]));
        next[to] = std::max(next[to], arrived);
        next[rank] = std::max(next[rank], arrived);
      }
      time = next;
    }
  }
  void exchange(Network& network, std::vector<double>& time, double row, double key, bool back) const {
    exchange(network, time, [&](std::size_t from, std::size_t to) {
      const std::size_t shard = back ? to : from;
      const std::size_t heads = back ? from : to;
      return heads_of(heads) * (rows(shard) * row + as_double(keys_.rows(static_cast<int>(shard))) * key);
    });
  }
  void compute_heads(std::vector<double>& time, double work) const {
    double cells = 0;
    for (const auto& of_rank : cells_)
      for (const double of_span : of_rank) cells += of_span;
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      time[rank] += work * heads_of(rank) * group() * seconds(cells);
  }

  PlannedCall call_;
  Machines machines_;
  const Sharding& queries_;
  const Sharding& keys_;
  std::size_t ranks_;
  std::int64_t spans_;
  std::vector<std::vector<double>> cells_;  // for a rank's rows, per span of keys
  std::vector<std::vector<double>> held_;   // number of keys in each span, by rank
};

}  // namespace heed::test
