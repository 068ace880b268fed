// Trees of drafts over caches. Each draft sees the rows before the tree, its ancestors and itself, and is
// compared with the definitions. Parents and their matrix, a batch and a single sequence, and both layouts
// must give the same bits. Also tests the cache after a caller keeps one branch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "attention_support.hpp"
#include "compare_results.hpp"
#include "each_target.hpp"
#include "expect_tight.hpp"
#include "fused_rounding.hpp"
#include "heed/attention/kv_cache.hpp"
#include "path_watch.hpp"
#include "random_call.hpp"
#include "support.hpp"

namespace {

using heed::AttentionOptions;
using heed::AttentionResult;
using heed::CacheFormat;
using heed::CacheLayout;
using heed::DType;
using heed::Kernel;
using heed::KvCache;
using heed::KvCacheOptions;
using heed::Need;
using heed::Tensor;
using heed::TensorView;
using heed::test::Draw;

using Tree = std::vector<std::int64_t>;  // each node's parent

constexpr std::uint64_t kSeed = 20261126;

Tensor random_tensor(Draw& draw, const heed::Dims& shape, DType dtype) {
  Tensor numbers(shape, DType::f32);
  for (float& x : numbers.values<float>()) x = static_cast<float>(draw.normal());
  return Tensor::copy_of(numbers, dtype);
}

Tree draw_tree(Draw& draw, std::int64_t nodes) {
  enum Kind : std::int64_t { chain, star, bushy, forest };
  const std::int64_t kind = draw.between(chain, forest);
  Tree tree;
  for (std::int64_t i = 0; i < nodes; ++i) {
    if (kind == chain) tree.push_back(i - 1);
    if (kind == star) tree.push_back(i == 0 ? -1 : 0);
    if (kind == bushy) tree.push_back(i == 0 ? -1 : draw.between(0, i - 1));
    if (kind == forest) tree.push_back(i == 0 || draw.chance(0.3) ? -1 : draw.between(0, i - 1));
  }
  return tree;
}

bool is_ancestor_or_self(const Tree& tree, std::int64_t of, std::int64_t node) {
  for (; of >= 0; of = tree[static_cast<std::size_t>(of)])
    if (of == node) return true;
  return false;
}

// The expected rows of a sequence.
class PlainRows {
 public:
  void append(const TensorView& key, const TensorView& value) {
    for (std::int64_t r = 0; r < key.size(2); ++r)
      rows_.push_back(
          {length_++, Tensor::copy_of(key.narrow(2, r, 1)), Tensor::copy_of(value.narrow(2, r, 1))});
  }
  void evict(const std::vector<std::int64_t>& positions) {
    std::erase_if(rows_, [&](const Row& row) {
      return std::find(positions.begin(), positions.end(), row.position) != positions.end();
    });
  }
  [[nodiscard]] std::int64_t length() const { return length_; }
  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(rows_.size()); }
  [[nodiscard]] std::vector<std::int64_t> positions() const {
    std::vector<std::int64_t> all;
    for (const Row& row : rows_) all.push_back(row.position);
    return all;
  }
  [[nodiscard]] Tensor keys() const { return joined(&Row::key); }
  [[nodiscard]] Tensor values() const { return joined(&Row::value); }

 private:
  struct Row {
    std::int64_t position;
    Tensor key, value;  // [1, Hkv, 1, D]
  };
  Tensor joined(Tensor Row::*member) const {
    const TensorView first = rows_.front().*member;
    Tensor all({1, first.size(1), count(), first.size(3)}, first.dtype());
    for (std::int64_t r = 0; r < count(); ++r)
      heed::copy(rows_[static_cast<std::size_t>(r)].*member, all.mutable_view().narrow(2, r, 1));
    return all;
  }
  std::vector<Row> rows_;
  std::int64_t length_ = 0;
};

// Sequences that each hold a tree of drafts, and their queries.
struct Drafted {
  KvCache cache;
  std::vector<PlainRows> rows;  // for each sequence
  bool one_tree = false;        // one tree for all sequences
  std::vector<Tree> trees;
  Tensor query;  // [B, H, Lq, D]
  Tensor mask;   // bool [B, 1, Lq, most rows], or empty
  AttentionOptions options;

  [[nodiscard]] std::int64_t batch() const { return query.size(0); }
  [[nodiscard]] std::int64_t drafts() const { return query.size(2); }
};

DType dtype_of(CacheFormat format) { return format == CacheFormat::bf16 ? DType::bf16 : DType::f32; }

KvCacheOptions draw_cache(Draw& draw, CacheLayout layout) {
  KvCacheOptions c;
  c.kv_heads = draw.between(1, 2);
  c.head_dim = draw.pick<std::int64_t>({8, 16, 20, 32, 64});
  c.value_dim = draw.pick<std::int64_t>({8, 16, 32, 40});
  c.format = draw.pick<CacheFormat>({CacheFormat::f32, CacheFormat::bf16, CacheFormat::int8});
  c.group = draw.pick<std::int64_t>({8, 32});
  c.rotate = c.format == CacheFormat::int8 && draw.chance(0.3);
  c.page_size = draw.pick<std::int64_t>({1, 7, 16, 100});
  c.order = draw.chance(0.5) ? heed::PageOrder::hnd : heed::PageOrder::nhd;
  c.layout = layout;
  c.capacity = layout == CacheLayout::paged ? 12000 : 6000;
  return c;
}

// Fills the cache: a prefix that all sequences share, further rows of each, and gaps where rows were evicted.
void fill(Draw& draw, Drafted& made, std::int64_t batch) {
  const auto tensors = [&](std::int64_t entries, std::int64_t rows) {
    const DType dtype = dtype_of(made.cache.format());
    Tensor key = random_tensor(draw, {entries, made.cache.kv_heads(), rows, made.cache.head_dim()}, dtype);
    return std::pair(
        std::move(key),
        random_tensor(draw, {entries, made.cache.kv_heads(), rows, made.cache.value_dim()}, dtype));
  };
  const std::int64_t prefix = draw.chance(0.1) ? draw.between(3000, 3500) : draw.between(0, 300);
  const auto [key, value] = tensors(1, prefix);
  made.cache.append(key, value);
  made.rows.resize(1);
  made.rows[0].append(key, value);
  for (std::int64_t b = 1; b < batch; ++b) {
    made.cache.fork(0);
    made.rows.push_back(made.rows[0]);
  }
  for (std::int64_t b = 0; b < batch; ++b) {
    const auto [own_key, own_value] = tensors(1, draw.chance(0.3) ? 0 : draw.between(1, 60));
    const std::int64_t ends[] = {0, own_key.size(2)}, which[] = {b};
    made.cache.append(own_key, own_value, TensorView(ends, {2}), which);
    PlainRows& rows = made.rows[static_cast<std::size_t>(b)];
    rows.append(own_key, own_value);
    std::vector<std::int64_t> gone;
    if (draw.chance(0.3))
      for (const std::int64_t position : rows.positions())
        if (draw.chance(0.1)) gone.push_back(position);
    made.cache.evict(b, gone);
    rows.evict(gone);
  }
}

// Adds the same number of drafts to every sequence, and draws their queries.
void add_drafts(Draw& draw, Drafted& made, std::int64_t batch) {
  const std::int64_t nodes = draw.chance(0.3) ? draw.between(14, 40) : draw.between(1, 13);
  const std::int64_t kv_heads = made.cache.kv_heads();
  const DType dtype = dtype_of(made.cache.format());
  const Tensor key = random_tensor(draw, {batch, kv_heads, nodes, made.cache.head_dim()}, dtype);
  const Tensor value = random_tensor(draw, {batch, kv_heads, nodes, made.cache.value_dim()}, dtype);
  made.cache.append(key, value);
  made.one_tree = draw.chance(0.4);
  made.trees.clear();
  for (std::int64_t b = 0; b < batch; ++b) {
    made.rows[static_cast<std::size_t>(b)].append(key.view().narrow(0, b, 1), value.view().narrow(0, b, 1));
    made.trees.push_back(b > 0 && made.one_tree ? made.trees[0] : draw_tree(draw, nodes));
  }
  const std::int64_t heads = kv_heads * draw.between(1, 4);
  made.query = random_tensor(draw, {batch, heads, nodes, made.cache.head_dim()},
                             draw.chance(0.7) ? dtype : DType::f32);
}

Tensor draw_mask(Draw& draw, const Drafted& made) {
  std::int64_t most = 0;
  for (const PlainRows& rows : made.rows) most = std::max(most, rows.count());
  Tensor mask({made.batch(), 1, made.drafts(), most}, DType::u8);
  for (std::uint8_t& allowed : mask.values<std::uint8_t>()) allowed = draw.chance(0.8) ? 1 : 0;
  return Tensor::copy_of(mask, DType::boolean);
}

AttentionOptions draw_options(Draw& draw) {
  AttentionOptions o;
  o.causal = draw.chance(0.5);
  if (draw.chance(0.3)) o.window = {draw.between(0, 100), 0};
  o.need = Need::lse;
  if (draw.chance(0.7)) o.need |= Need::received | Need::weights;
  if (draw.chance(0.5)) o.need |= Need::entropy | Need::distance;
  if (draw.chance(0.6)) o.top_k = draw.between(1, 8);
  o.threads = static_cast<int>(draw.between(1, 3));
  o.kernel = Kernel::fused;
  return o;
}

// Draws the same rows and queries for either layout.
Drafted draft(std::uint64_t index, CacheLayout layout) {
  Draw draw(kSeed, index);
  Drafted made{KvCache(draw_cache(draw, layout)), {}, false, {}, {}, {}, {}};
  const std::int64_t batch = draw.between(1, 4);
  fill(draw, made, batch);
  add_drafts(draw, made, batch);
  made.options = draw_options(draw);
  if (draw.chance(0.3)) {
    made.mask = draw_mask(draw, made);
    made.options.mask = made.mask.view();
  }
  return made;
}

// Parents [Lq] of one tree, or [B, Lq]. Every other call uses i32.
Tensor parents_of(const std::vector<Tree>& trees, bool one, std::uint64_t index) {
  const auto nodes = static_cast<std::int64_t>(trees[0].size());
  std::vector<std::int64_t> all;
  for (const Tree& tree : trees) {
    if (one && !all.empty()) break;
    all.insert(all.end(), tree.begin(), tree.end());
  }
  const auto count = static_cast<std::int64_t>(all.size()) / nodes;
  const Tensor parents =
      Tensor::from(std::span<const std::int64_t>(all), one ? heed::Dims{nodes} : heed::Dims{count, nodes});
  return Tensor::copy_of(parents, index % 2 == 0 ? DType::i64 : DType::i32);
}

Tensor matrix_of(const std::vector<Tree>& trees, bool one) {
  const auto nodes = static_cast<std::int64_t>(trees[0].size());
  const std::int64_t count = one ? 1 : static_cast<std::int64_t>(trees.size());
  Tensor sees({count, nodes, nodes}, DType::u8);
  for (std::int64_t b = 0; b < count; ++b)
    for (std::int64_t i = 0; i < nodes; ++i)
      for (std::int64_t j = 0; j < nodes; ++j)
        heed::test::put(sees.mutable_view(), {b, i, j},
                        is_ancestor_or_self(trees[static_cast<std::size_t>(b)], i, j) ? 1 : 0);
  Tensor matrix = Tensor::copy_of(sees, DType::boolean);
  return one ? std::move(matrix).reshaped({nodes, nodes}) : matrix;
}

AttentionResult all_by_parents(const Drafted& made, std::uint64_t index) {
  const Tensor parents = parents_of(made.trees, made.one_tree, index);
  return heed::attention(made.query, made.cache, made.options, {.tree_parents = parents.view()});
}

AttentionResult all_by_matrix(const Drafted& made) {
  const Tensor matrix = matrix_of(made.trees, made.one_tree);
  return heed::attention(made.query, made.cache, made.options, {.tree_mask = matrix.view()});
}

AttentionOptions options_of(const Drafted& made, std::int64_t b) {
  AttentionOptions options = made.options;
  if (options.mask)
    options.mask = options.mask->narrow(0, b, 1).narrow(3, 0, made.rows[static_cast<std::size_t>(b)].count());
  return options;
}

AttentionResult alone(const Drafted& made, std::int64_t b, std::uint64_t index) {
  const std::int64_t which[] = {b};
  const Tensor parents = parents_of({made.trees[static_cast<std::size_t>(b)]}, true, index);
  return heed::attention(made.query.view().narrow(0, b, 1), made.cache, options_of(made, b),
                         {.sequences = which, .tree_parents = parents.view()});
}

// The part of a result for batch entry b and its `keys` keys.
TensorView part_of(const AttentionResult& all, std::size_t i, std::int64_t b, std::int64_t keys) {
  const heed::ResultShape shape = heed::result_entry(i).shape;
  const TensorView view = heed::result<Tensor>(all, i).view().narrow(0, b, 1);
  const bool of_keys = shape == heed::ResultShape::pair || shape == heed::ResultShape::key;
  return of_keys ? view.narrow(view.rank() - 1, 0, keys) : view;
}

void compare_bits(const Drafted& made, const AttentionResult& all, std::int64_t b,
                  const AttentionResult& one) {
  for (std::size_t i = 0; i < heed::kResultCount; ++i) {
    const Tensor& expected = heed::result<Tensor>(one, i);
    if (expected.count() == 0) continue;
    const std::int64_t keys = made.rows[static_cast<std::size_t>(b)].count();
    ASSERT_TRUE(heed::test::same_bits(part_of(all, i, b, keys), expected.view()))
        << heed::result_entry(i).name() << " of sequence " << b;
  }
}

// The expected results of sequence b.
struct Expected {
  AttentionOptions options;
  heed::test::Naive naive;
  std::vector<std::int64_t> positions;
  DType computed_in;
};

Expected expected_of(const Drafted& made, std::int64_t b, const Tree& tree) {
  const PlainRows& rows = made.rows[static_cast<std::size_t>(b)];
  const std::int64_t queries = made.drafts(), keys = rows.count();
  const bool codes = made.cache.format() == CacheFormat::int8;
  // If queries and rows have different dtypes, the call is computed in f32.
  const bool same = !codes && made.query.dtype() == dtype_of(made.cache.format());
  Expected expected{options_of(made, b), {}, rows.positions(), same ? made.query.dtype() : DType::f32};
  Tensor mask({1, 1, queries, keys}, DType::boolean);
  for (std::int64_t i = 0; i < queries; ++i)
    for (std::int64_t j = 0; j < keys; ++j) {
      const std::int64_t node = j - (keys - queries);
      bool sees = tree.empty() || node < 0 || is_ancestor_or_self(tree, i, node);
      if (expected.options.mask)
        sees = sees && heed::test::naive_element(*expected.options.mask, {0, 0, i, j}) != 0;
      heed::test::put(mask.mutable_view(), {0, 0, i, j}, sees ? 1 : 0);
    }
  expected.options.mask = mask.view();
  expected.options.query_offset = rows.length() - queries;
  Tensor query = Tensor::copy_of(made.query.view().narrow(0, b, 1));
  if (made.cache.rotates()) query = heed::hadamard(query);
  // Codes are taken as they are; another test compares them with the rows.
  const auto held = [&](Tensor all, std::int64_t width) {
    return std::move(all).reshaped({1, made.cache.kv_heads(), keys, width});
  };
  expected.naive = heed::test::naive_attention(
      query, codes ? held(made.cache.keys(b), made.cache.head_dim()) : rows.keys(),
      codes ? held(made.cache.values(b), made.cache.value_dim()) : rows.values(), expected.options,
      expected.positions);
  expected.options.mask.reset();  // the memory of the mask ends here
  return expected;
}

// The results with top keys as row numbers; each must be the position of a row in the cache.
AttentionResult with_row_numbers(AttentionResult result, const std::vector<std::int64_t>& positions) {
  if (result.top_k_index.count() == 0) return result;
  for (std::int64_t& key : result.top_k_index.values<std::int64_t>()) {
    if (key < 0) continue;
    const auto at = std::lower_bound(positions.begin(), positions.end(), key);
    EXPECT_TRUE(at != positions.end() && *at == key) << "top_k_index has " << key;
    key = at - positions.begin();
  }
  return result;
}

void compare_with_definitions(const Drafted& made, std::int64_t b, const Expected& expected,
                              const AttentionResult& one, const std::string& target,
                              heed::test::RowTally& tally) {
  const AttentionResult numbered = with_row_numbers(one, expected.positions);
  const auto rounding = heed::test::fused_rounding(expected.computed_in, expected.options, target);
  ASSERT_EQ(heed::test::compare_results(numbered, expected.options, expected.naive, rounding, tally), "")
      << "sequence " << b << ", " << expected.positions.size() << " rows, " << made.drafts() << " drafts, "
      << heed::name_of(made.cache.format()) << " " << heed::name_of(made.cache.layout());
}

std::vector<Expected> expected_of_all(const Drafted& made) {
  std::vector<Expected> all;
  for (std::int64_t b = 0; b < made.batch(); ++b)
    all.push_back(expected_of(made, b, made.trees[static_cast<std::size_t>(b)]));
  return all;
}

struct Outcome {
  heed::test::PathWatch paths;
  heed::test::RowTally tally;
};

void compare(const Drafted& made, const Drafted& other, const std::vector<Expected>& expected,
             std::uint64_t index, const std::string& target, Outcome& outcome) {
  outcome.paths.start_call();
  const AttentionResult all = all_by_parents(made, index);
  outcome.paths.end_call();
  ASSERT_EQ(all.kernel, Kernel::fused);
  ASSERT_TRUE(heed::test::same_bits(all, all_by_matrix(made)));
  ASSERT_TRUE(heed::test::same_bits(all, all_by_parents(other, index)));
  for (std::int64_t b = 0; b < made.batch(); ++b) {
    const AttentionResult one = alone(made, b, index);
    compare_bits(made, all, b, one);
    compare_with_definitions(made, b, expected[static_cast<std::size_t>(b)], one, target, outcome.tally);
  }
}

TEST(KvCacheTree, OfDraftsAgreesWithTheDefinitionsInEitherLayoutByParentsAndByMatrix) {
  const heed::test::EachTarget targets;
  std::map<std::string, Outcome> outcomes;
  for (std::uint64_t index = 0; index < heed::test::share_of(120); ++index) {
    const Drafted made = draft(index, CacheLayout::paged), other = draft(index, CacheLayout::contiguous);
    const std::vector<Expected> expected = expected_of_all(made);
    for (const std::string& target : targets.available()) {
      if (!targets.takes(target, index, 5)) continue;
      SCOPED_TRACE(target + ", call " + std::to_string(index));
      heed::set_target(target);
      compare(made, other, expected, index, target, outcomes[target]);
      if (HasFailure()) return;
    }
  }
  for (const auto& [target, outcome] : outcomes) {
    SCOPED_TRACE(target);
    heed::test::expect_tight(outcome.tally, 0.9);
    if (heed::test::share_of(120) < 120 || targets.least_paths(target) < 100) continue;  // too few calls
    EXPECT_GT(outcome.paths.taken(heed::test::Path::masked), 0);
    EXPECT_GT(outcome.paths.taken(heed::test::Path::spans_together), 0);
  }
}

TEST(KvCacheTree, OfTheReferenceAgreesWithTheDefinitions) {
  heed::test::RowTally tally;
  for (std::uint64_t index = 0; index < heed::test::share_of(40); ++index) {
    SCOPED_TRACE(index);
    Drafted made = draft(index, index % 2 == 0 ? CacheLayout::paged : CacheLayout::contiguous);
    made.options.kernel = Kernel::reference;
    const std::vector<Expected> expected = expected_of_all(made);
    for (std::int64_t b = 0; b < made.batch(); ++b)
      compare_with_definitions(made, b, expected[static_cast<std::size_t>(b)], alone(made, b, index), "plain",
                               tally);
    if (HasFailure()) return;
  }
  heed::test::expect_tight(tally);
}

// Each segment is a sequence, with its own tree or a common one.
TEST(KvCacheTree, OfPackedQueriesIsThatOfEachSequenceBitForBit) {
  const heed::test::EachTarget targets;
  for (const std::string& target : targets.available()) {
    SCOPED_TRACE(target);
    heed::set_target(target);
    for (std::uint64_t index = 0; index < heed::test::share_of(60); ++index) {
      if (!targets.takes(target, index, 5)) continue;
      SCOPED_TRACE(index);
      Drafted made = draft(index, index % 2 == 0 ? CacheLayout::paged : CacheLayout::contiguous);
      made.options.mask.reset();
      made.options.need |= Need::weights;
      const std::int64_t nodes = made.drafts();
      Tensor packed({1, made.query.size(1), made.batch() * nodes, made.query.size(3)}, made.query.dtype());
      std::vector<std::int64_t> ends{0};
      for (std::int64_t b = 0; b < made.batch(); ++b) {
        heed::copy(made.query.view().narrow(0, b, 1), packed.mutable_view().narrow(2, b * nodes, nodes));
        ends.push_back((b + 1) * nodes);
      }
      AttentionOptions options = made.options;
      const TensorView segments(ends.data(), {made.batch() + 1});
      options.query_segments = segments;
      const Tensor parents = parents_of(made.trees, made.one_tree, index);
      const AttentionResult all =
          heed::attention(packed, made.cache, options, {.tree_parents = parents.view()});
      std::int64_t key = 0;
      for (std::int64_t b = 0; b < made.batch(); ++b) {
        const AttentionResult one = alone(made, b, index);
        const std::int64_t keys = made.rows[static_cast<std::size_t>(b)].count();
        const auto rows_of = [&](const Tensor& result) { return result.view().narrow(2, b * nodes, nodes); };
        ASSERT_TRUE(heed::test::same_bits(rows_of(all.output), one.output.view()));
        ASSERT_TRUE(heed::test::same_bits(rows_of(all.lse), one.lse.view()));
        ASSERT_TRUE(heed::test::same_bits(rows_of(all.weights).narrow(3, key, keys), one.weights.view()));
        if (options.top_k > 0) {
          ASSERT_TRUE(heed::test::same_bits(rows_of(all.top_k_index), one.top_k_index.view()));
        }
        key += keys;
      }
    }
  }
}

// Evicts all drafts except those on the path from a root to one leaf.
void keep_a_branch(Draw& draw, Drafted& made, std::int64_t b) {
  const Tree& tree = made.trees[static_cast<std::size_t>(b)];
  PlainRows& rows = made.rows[static_cast<std::size_t>(b)];
  const auto nodes = static_cast<std::int64_t>(tree.size());
  std::int64_t leaf = draw.between(0, nodes - 1);
  for (std::int64_t child = leaf + 1; child < nodes; ++child)
    if (tree[static_cast<std::size_t>(child)] == leaf) leaf = child;
  std::vector<std::int64_t> gone;
  for (std::int64_t node = 0; node < nodes; ++node)
    if (!is_ancestor_or_self(tree, leaf, node)) gone.push_back(rows.length() - nodes + node);
  made.cache.evict(b, gone);
  rows.evict(gone);
}

// Appends one token after the rows that were kept.
void add_token(Draw& draw, Drafted& made) {
  const auto row = [&](std::int64_t width) {
    return random_tensor(draw, {made.batch(), made.cache.kv_heads(), 1, width},
                         dtype_of(made.cache.format()));
  };
  const Tensor key = row(made.cache.head_dim()), value = row(made.cache.value_dim());
  made.cache.append(key, value);
  for (std::int64_t b = 0; b < made.batch(); ++b)
    made.rows[static_cast<std::size_t>(b)].append(key.view().narrow(0, b, 1), value.view().narrow(0, b, 1));
  made.query = Tensor::copy_of(made.query.view().narrow(2, 0, 1));
}

// Drafts, keeps a branch, drafts again over it, and at last appends one token, which sees all rows that were
// kept.
TEST(KvCacheTree, AnAcceptedBranchIsWhatTheNextQueriesSee) {
  const heed::test::EachTarget targets;
  std::map<std::string, heed::test::RowTally> tallies;
  for (std::uint64_t index = 0; index < heed::test::share_of(40); ++index) {
    Drafted made = draft(index, index % 2 == 0 ? CacheLayout::paged : CacheLayout::contiguous);
    made.options.mask.reset();
    Draw draw(kSeed ^ 0xacce97, index);
    for (int round = 0; round < 3; ++round) {
      const bool is_last = round == 2;
      for (std::int64_t b = 0; b < made.batch(); ++b) {
        keep_a_branch(draw, made, b);
        ASSERT_EQ(made.cache.positions(b), made.rows[static_cast<std::size_t>(b)].positions());
      }
      is_last ? add_token(draw, made) : add_drafts(draw, made, made.batch());
      for (std::int64_t b = 0; b < made.batch(); ++b) {
        const std::int64_t which[] = {b};
        const Expected expected =
            expected_of(made, b, is_last ? Tree{} : made.trees[static_cast<std::size_t>(b)]);
        for (const std::string& target : targets.available()) {
          if (!targets.takes(target, index, 5)) continue;
          SCOPED_TRACE(target + ", call " + std::to_string(index));
          heed::set_target(target);
          const AttentionResult one = is_last ? heed::attention(made.query.view().narrow(0, b, 1), made.cache,
                                                                made.options, {.sequences = which})
                                              : alone(made, b, index);
          compare_with_definitions(made, b, expected, one, target, tallies[target]);
          if (HasFailure()) return;
        }
      }
    }
  }
  for (const auto& [target, tally] : tallies) {
    SCOPED_TRACE(target);
    heed::test::expect_tight(tally, 0.9);
  }
}

}  // namespace
