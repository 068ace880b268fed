// heed attend --cache: results over a saved cache agree with the formulas in f64 on the rows that the cache
// holds, and they have the bits of the library's call.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "attend_support.hpp"
#include "heed/attention/differential.hpp"
#include "heed/attention/kv_cache.hpp"
#include "heed/io/kv_cache.hpp"
#include "naive_attention.hpp"

namespace {

using heed::AttentionOptions;
using heed::AttentionResult;
using heed::CacheFormat;
using heed::CacheLayout;
using heed::Dims;
using heed::DType;
using heed::KvCache;
using heed::KvCacheOptions;
using heed::Need;
using heed::Tensor;
using heed::TensorView;
using heed::test::Attend;
using heed::test::CommandInput;
using heed::test::CommandResult;
using heed::test::random_tensor;
using heed::test::same;
using heed::test::Words;

// The fixture's query has four heads of eight channels, and two batch entries of five rows.
class AttendCache : public Attend {
 protected:
  // Two sequences, of 45 and 70 rows. The first one has lost some.
  static KvCache filled(KvCacheOptions options) {
    options.sequences = 2;
    options.kv_heads = 2;
    KvCache cache(options);
    const std::int64_t offsets[] = {0, 45, 115};
    const Tensor rows = random_tensor({1, 2, 115, options.head_dim}, 21);
    if (options.values_in_keys)
      cache.append_keys(rows, TensorView(offsets, {3}));
    else
      cache.append(rows, random_tensor({1, 2, 115, options.value_dim}, 22), TensorView(offsets, {3}));
    if (options.layout != CacheLayout::ring) cache.evict(0, std::vector<std::int64_t>{0, 7, 8, 33});
    return cache;
  }
  static KvCacheOptions options_for(CacheLayout layout, CacheFormat format) {
    KvCacheOptions options{.head_dim = 8, .value_dim = 6, .format = format, .layout = layout};
    if (layout != CacheLayout::ring) options.capacity = layout == CacheLayout::paged ? 160 : 80;
    if (layout == CacheLayout::ring) {
      options.sinks = 3;
      options.window = 40;
    }
    return options;
  }

  void save(const KvCache& cache) const { heed::io::write_kv_cache(folder / "cache.safetensors", cache); }
  [[nodiscard]] CommandResult over(const Words& more) const {
    Words words = {"attend", "--query", "q.npy", "--cache", "cache.safetensors"};
    words.insert(words.end(), more.begin(), more.end());
    CommandInput here;
    here.directory = folder.path();
    return heed::test::run_heed(words, here);
  }
  void over_well(const Words& more) const {
    const CommandResult result = over(more);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(result.errors + result.output, "");
  }
  void expect_refusal(int exit_code, const Words& more, const std::string& message) const {
    const Words before = folder.names();
    const CommandResult result = over(more);
    EXPECT_EQ(result.exit_code, exit_code) << ::testing::PrintToString(more);
    EXPECT_EQ(result.errors, "heed: " + message + "\n");
    EXPECT_EQ(folder.names(), before);
  }
};

// The keys of a row: its query is at the position of the last rows.
struct Rows {
  Tensor query, key, value;  // [1, H, Lq, D], [1, Hkv, n, D], [1, Hkv, n, Dv]
  std::vector<std::int64_t> positions;
  std::int64_t length;
};

Rows rows_of(const KvCache& cache, std::int64_t sequence, const TensorView& query) {
  const Tensor key = cache.keys(sequence), value = cache.values(sequence);
  return {Tensor::copy_of(query), Tensor::copy_of(key.view().unsqueeze(0)),
          Tensor::copy_of(value.view().unsqueeze(0)), cache.positions(sequence), cache.length(sequence)};
}

// s_ij + c_i - c_j as a bias, in f64.
Tensor bias_of(const Tensor& decay, std::int64_t entry, const Rows& rows) {
  const std::int64_t queries = rows.query.size(2);
  const auto keys = static_cast<std::int64_t>(rows.positions.size());
  Tensor bias({1, decay.size(1), queries, keys}, DType::f64);
  for (std::int64_t h = 0; h < decay.size(1); ++h)
    for (std::int64_t i = 0; i < queries; ++i)
      for (std::int64_t j = 0; j < keys; ++j)
        bias.at<double>(0, h, i, j) = decay.at<double>(entry, h, rows.length - queries + i) -
                                      decay.at<double>(entry, h, rows.positions[static_cast<std::size_t>(j)]);
  return bias;
}

// Rows that f32 arithmetic computes, against f64: some thirty roundings of numbers of at most 4.
constexpr double kTolerance = 1e-5;

void expect_close(const Tensor& found, std::int64_t entry, const heed::test::Cube& expected) {
  const Dims& shape = found.shape();
  ASSERT_EQ(shape.size(), 4);
  double worst = 0;
  for (std::int64_t h = 0; h < shape[1]; ++h)
    for (std::int64_t i = 0; i < shape[2]; ++i)
      for (std::int64_t c = 0; c < expected.shape[3]; ++c)
        worst = std::max(worst, std::abs(double{found.at<float>(entry, h, i, c)} -
                                         static_cast<double>(expected(0, h, i, c))));
  EXPECT_LT(worst, kTolerance);
}

TEST_F(AttendCache, IsTheFormulaOverItsRowsInEveryFormatAndLayout) {
  Tensor decay = Tensor::copy_of(random_tensor({2, 4, 80}, 23), DType::f64);
  for (double& c : decay.values<double>()) c *= 0.3;
  write("c.npy", decay);
  for (const CacheLayout layout : {CacheLayout::contiguous, CacheLayout::paged, CacheLayout::ring})
    for (const CacheFormat format : {CacheFormat::f32, CacheFormat::bf16, CacheFormat::f16, CacheFormat::int8,
                                     CacheFormat::int4, CacheFormat::fp8}) {
      SCOPED_TRACE(std::string(name_of(layout)) + ", " + std::string(name_of(format)));
      KvCacheOptions options = options_for(layout, format);
      options.rotate = format == CacheFormat::int4;
      const KvCache cache = filled(options);
      save(cache);
      over_well({"--causal", "--window", "30,-1", "--decay", "c.npy", "--out", "o.npy", "--weights", "w.npy",
                 "--received", "r.npy", "--top-k", "3", "--top-k-out", "i.npy,p.npy"});
      AttentionOptions call{.causal = true, .window = {30, -1}, .need = Need::weights | Need::received};
      call.decay = decay;
      call.top_k = 3;
      const AttentionResult want = heed::attention(query, cache, call);
      EXPECT_TRUE(same(read("o.npy"), want.output));
      EXPECT_TRUE(same(read("w.npy"), want.weights));
      EXPECT_TRUE(same(read("r.npy"), want.received));
      EXPECT_TRUE(same(read("i.npy"), want.top_k_index));
      EXPECT_TRUE(same(read("p.npy"), want.top_k_weight));
      const Tensor turned = options.rotate ? heed::hadamard(query) : Tensor::copy_of(query);
      for (const std::int64_t entry : {0, 1}) {
        const Rows rows = rows_of(cache, entry, turned.view().narrow(0, entry, 1));
        const Tensor bias = bias_of(decay, entry, rows);
        AttentionOptions one{.causal = true, .window = {30, -1}, .bias = bias};
        one.query_offset = rows.length - 5;
        const auto naive = heed::test::naive_attention(rows.query, rows.key, rows.value, one, rows.positions);
        expect_close(read("o.npy"), entry, naive.output);
        expect_close(read("w.npy"), entry, naive.weights);
      }
    }
}

TEST_F(AttendCache, MayBeDifferential) {
  for (const bool own_keys : {false, true}) {
    KvCacheOptions options = options_for(CacheLayout::paged, CacheFormat::f32);
    options.head_dim = own_keys ? 16 : 8;
    const KvCache cache = filled(options);
    save(cache);
    over_well({"--differential", "0.75", "--out", "o.npy", "--weights", "w.npy", "--lse", "l.npy"});
    const Tensor lambda = Tensor::from<double>({0.75, 0.75}, {2});
    const auto want = heed::differential_attention(query, cache, lambda, {.need = Need::weights | Need::lse});
    EXPECT_TRUE(same(read("o.npy"), want.output));
    EXPECT_TRUE(same(read("w.npy"), want.weights));
    EXPECT_TRUE(same(read("l.npy"), joined(want).lse));
    for (const std::int64_t entry : {0, 1}) {
      const Rows rows = rows_of(cache, entry, query.view().narrow(0, entry, 1));
      heed::test::Cube output;
      for (const std::int64_t half : {0, 1}) {
        Tensor of_half({1, 2, 5, 8}, DType::f32);
        for (const std::int64_t h : {0, 1})
          heed::copy(rows.query.view().narrow(1, 2 * h + half, 1), of_half.mutable_view().narrow(1, h, 1));
        const TensorView keys = own_keys ? rows.key.view().narrow(3, 8 * half, 8) : rows.key.view();
        const auto naive = heed::test::naive_attention(of_half, keys, rows.value, {}, rows.positions);
        if (half == 0) output = naive.output;
        for (std::size_t i = 0; half == 1 && i < output.values.size(); ++i)
          output.values[i] -= heed::test::Real{0.75} * naive.output.values[i];
      }
      expect_close(read("o.npy"), entry, output);
    }
  }
}

TEST_F(AttendCache, MayHoldValuesInItsKeysAndHaveListsOfKeys) {
  KvCacheOptions options = options_for(CacheLayout::contiguous, CacheFormat::bf16);
  options.values_in_keys = true;
  const KvCache cache = filled(options);
  save(cache);
  Tensor lists({2, 2, 5, 6}, DType::i32);
  Tensor mask({2, 4, 5, 70}, DType::boolean);
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < 5; ++i)
        for (std::int64_t n = 0; n < 6; ++n) {
          const std::int64_t j = (7 * n + 3 * i + h + 5 * b) % 41;
          lists.at<std::int32_t>(b, h, i, n) = static_cast<std::int32_t>(j);
          mask.at<bool>(b, 2 * h, i, j) = mask.at<bool>(b, 2 * h + 1, i, j) = true;
        }
  write("lists.npy", lists);
  over_well({"--mask-key-lists", "lists.npy", "--out", "o.npy"});
  for (const std::int64_t entry : {0, 1}) {
    const Rows rows = rows_of(cache, entry, query.view().narrow(0, entry, 1));
    for (std::size_t i = 0; i < 6; ++i)
      EXPECT_EQ(rows.value.at<float>(0, 1, 3, static_cast<std::int64_t>(i)),
                rows.key.at<float>(0, 1, 3, static_cast<std::int64_t>(i)));
    const Tensor own = Tensor::copy_of(mask.view().narrow(0, entry, 1).narrow(3, 0, rows.key.size(2)));
    AttentionOptions one{.mask = own};
    const auto naive = heed::test::naive_attention(rows.query, rows.key, rows.value, one, rows.positions);
    expect_close(read("o.npy"), entry, naive.output);
  }
  // One channel more than the query has.
  options.head_dim = 9;
  save(filled(options));
  expect_refusal(2, {"--out", "x.npy"},
                 "query has head dimension 8 (shape [2, 4, 5, 8]); 9 as in the cache is expected");
}

TEST_F(AttendCache, HasSequencesThatAreChosenOrPacked) {
  const KvCache cache = filled(options_for(CacheLayout::paged, CacheFormat::f32));
  save(cache);
  over_well({"--cache-sequences", "1,1", "--causal", "--out", "o.npy", "--layout", "bhld"});
  const std::vector<std::int64_t> twice{1, 1};
  EXPECT_TRUE(
      same(read("o.npy"), heed::attention(query, cache, {.causal = true}, {.sequences = twice}).output));

  const Tensor rows = random_tensor({1, 9, 4, 8}, 24);  // [B, L, H, D]
  const Tensor segments = Tensor::from<std::int64_t>({0, 2, 9}, {3});
  write("q.npy", rows);
  write("n.npy", segments);
  over_well({"--query-segments", "n.npy", "--causal", "--layout", "blhd", "--out", "o.npy"});
  AttentionOptions packed{.causal = true, .query_segments = segments};
  const Tensor want = heed::attention(rows.view().transpose(1, 2), cache, packed).output;
  EXPECT_TRUE(same(read("o.npy"), Tensor::copy_of(want.view().transpose(1, 2))));
}

TEST_F(AttendCache, HasAGateAndAnIndex) {
  KvCacheOptions options{.sequences = 2, .kv_heads = 2, .head_dim = 8, .value_dim = 6, .capacity = 7};
  KvCache cache(options);
  cache.append(key, value);  // the fixture's seven keys
  save(cache);
  const Tensor gate = random_tensor({2, 4, 5, 1}, 25), index_query = random_tensor({2, 3, 5, 4}, 26),
               index_key = random_tensor({2, 1, 7, 4}, 27), weights = random_tensor({2, 3, 5}, 28);
  write("g.npy", gate);
  write("iq.npy", index_query);
  write("ik.npy", index_key);
  write("iw.npy", weights);
  const Words index = {"--causal", "--gate",          "g.npy",  "--index-query", "iq.npy", "--index-key",
                       "ik.npy",   "--index-weights", "iw.npy", "--index-top",   "2",      "--out",
                       "o.npy"};
  over_well(index);
  const Tensor over_a_cache = read("o.npy");
  // The same keys as tensors, whose last query is at the last key.
  Words tensors = index;
  tensors.insert(tensors.end(), {"--align", "bottom-right"});
  run_well(tensors);
  EXPECT_TRUE(same(over_a_cache, read("o.npy")));
  cache.truncate(1, 6);
  save(cache);
  expect_refusal(2, index,
                 "--index-query is given with --cache, whose sequence 1 holds 6 rows of 6; sequences of one "
                 "length without evicted rows are expected");
}

TEST_F(AttendCache, HasAPlan) {
  save(filled(options_for(CacheLayout::paged, CacheFormat::int8)));
  const CommandResult words = over({"--lse", "l.npy", "--plan"});
  EXPECT_EQ(words.exit_code, 0) << words.errors;
  EXPECT_TRUE(words.output.starts_with("forward\n  kernel    ")) << words.output;
  const auto plan = nlohmann::json::parse(over({"--lse", "l.npy", "--plan", "--json"}).output);
  // 4 heads x 5 rows x (41 + 70) rows of the cache x (8 + 6) multiply-adds
  EXPECT_EQ(plan["flops"], 2 * 4 * 5 * 111 * 14);
  EXPECT_EQ(plan["result_bytes"], 2 * 4 * 5 * (6 + 1) * 4);
  const auto both =
      nlohmann::json::parse(over({"--differential", "0.5", "--lse", "l.npy", "--plan", "--json"}).output);
  EXPECT_EQ(both["flops"], 2 * 4 * 5 * 111 * 14);
  EXPECT_FALSE(std::filesystem::exists(folder / "l.npy"));
  const auto run = nlohmann::json::parse(over({"--json"}).output);
  EXPECT_EQ(run["key"], nlohmann::json({2, 2, 70, 8}));
  EXPECT_EQ(run["value"], nlohmann::json({2, 2, 70, 6}));
}

TEST_F(AttendCache, SaysWhatIsWrong) {
  const KvCache cache = filled(options_for(CacheLayout::contiguous, CacheFormat::f32));
  save(cache);
  write("q64.npy", random_tensor({2, 4, 5, 8}, 1, DType::f64));
  const auto one_of = [](const std::string& option) {
    return option + " is given with --cache; one of them is expected";
  };
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--key", "k.npy", "--out", "o.npy"}, one_of("--key")},
      {{"--value", "v.npy", "--out", "o.npy"}, one_of("--value")},
      {{"--kv-lengths", "n.npy", "--out", "o.npy"}, one_of("--kv-lengths")},
      {{"--key-segments", "n.npy", "--out", "o.npy"}, one_of("--key-segments")},
      {{"--align", "top-left", "--out", "o.npy"}, one_of("--align")},
      {{"--grid", "1x5", "--grid-distance", "g.npy"}, one_of("--grid")},
      {{"--grad-output", "q.npy", "--grad-query", "dq.npy"}, one_of("--grad-output")},
      {{"--grad-query", "dq.npy"}, one_of("--grad-query")},
      {{"--dtype", "f64", "--out", "o.npy"},
       "query has dtype f64; f32, f16 or bf16 is expected over a cache"},
      {{"--cache-sequences", "1,x", "--out", "o.npy"},
       "--cache-sequences is '1,x'; a list of sequences, such as 0,2, is expected"},
      {{"--cache-sequences", "0,2", "--out", "o.npy"},
       "--cache-sequences has 2; numbers below the cache's 2 sequences are expected"},
      {{"--cache-sequences", "-1,0", "--out", "o.npy"},
       "--cache-sequences has -1; numbers below the cache's 2 sequences are expected"},
      {{"--cache-sequences", "1", "--out", "o.npy"},
       "sequences has 1 number; 2, one per batch entry, is expected"},
      {{"--out", "cache.safetensors"},
       "--out is 'cache.safetensors'; a file whose name ends in .npy is expected"},
  };
  for (const auto& [words, message] : cases) expect_refusal(2, words, message);
  expect_error(2, {"--cache-sequences", "1", "--out", "o.npy"},
               "--cache-sequences is given without --cache FILE");
}

// A file of anyone: cut short, no cache, or a cache whose tensors contradict each other.
TEST_F(AttendCache, AFileThatHoldsNoCacheIsRefused) {
  const std::string path = folder / "cache.safetensors";
  const std::string begin = "'cache.safetensors' holds no cache: ";
  heed::io::write_safetensors(path, {{"key", key}});
  expect_refusal(1, {"--out", "o.npy"},
                 begin + "the saved cache lacks 'cache'; a tensor of that name is expected");
  const auto tensors = filled(options_for(CacheLayout::paged, CacheFormat::int8)).tensors();
  const auto refused_with = [&](const std::string& name, Tensor other, const std::string& why) {
    std::vector<std::pair<std::string, TensorView>> changed(tensors.begin(), tensors.end());
    for (auto& [of, view] : changed)
      if (of == name) view = other;
    heed::io::write_safetensors(path, changed);
    expect_refusal(1, {"--out", "o.npy"}, begin + why);
  };
  refused_with(
      "1.slots", Tensor({3}, DType::i32),
      "1.slots of the saved cache does not match its other tensors; tensors of one cache are expected");
  refused_with("lengths", Tensor({2}, DType::f32),
               "lengths of the saved cache is f32 [2]; i64 [2] is expected");
  refused_with(
      "lengths", Tensor::from<std::int64_t>({45, -70}, {2}),
      "1.length of the saved cache does not match its other tensors; tensors of one cache are expected");
  heed::io::write_safetensors(path, {tensors.begin(), tensors.end()});
  std::filesystem::resize_file(path, 2000);
  const CommandResult cut = over({"--out", "o.npy"});
  EXPECT_EQ(cut.exit_code, 1);
  EXPECT_TRUE(cut.errors.starts_with("heed: 'cache.safetensors' ")) << cut.errors;
  std::filesystem::remove(path);
  expect_refusal(1, {"--out", "o.npy"}, "cannot open 'cache.safetensors': No such file or directory");
}

}  // namespace
