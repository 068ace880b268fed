// heed.KvCache, and heed.attention over it.
#include "heed/attention/kv_cache.hpp"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "calls.hpp"
#include "core/message.hpp"
#include "fail.hpp"
#include "heed/io/kv_cache.hpp"
#include "held.hpp"
#include "saved.hpp"

namespace heed::python {
namespace {

using Numbers = std::vector<std::int64_t>;

// A cache, and the caller's arrays that hold its rows, if any.
struct Cache {
  std::vector<Borrowed> memory;
  KvCache cache;
};

// Each use checks the arrays' memory while the GIL is held.
struct HeldCache : Held<Cache> {
  using Held<Cache>::Held;
  template <class Work>
  auto read(Work work) const {
    for (const Borrowed& array : module.memory) array.check_memory();
    return Held::read(work);
  }
  template <class Work>
  auto write(Work work) {
    for (const Borrowed& array : module.memory) {
      array.check_memory();
      array.count_change();
    }
    return Held::write(work);
  }
};

std::span<const std::int64_t> span_of(const Numbers& numbers) { return numbers; }

TensorView view_of(const Numbers& numbers) {
  return {numbers.data(), {static_cast<std::int64_t>(numbers.size())}};
}

// Integers from an array or a sequence.
Numbers whole_numbers(std::string_view name, nb::handle value) {
  if (!is_array(value)) {
    if (!nb::isinstance<nb::sequence>(value) || nb::isinstance<nb::str>(value))
      fail_type(name, " is ", nb::cast<std::string>(nb::repr(value)),
                "; whole numbers, in an array or a sequence, are expected");
    Numbers numbers;
    for (const nb::handle one : value) numbers.push_back(integer(name, one));
    return numbers;
  }
  const Borrowed borrowed(name, value);
  const TensorView view = borrowed.view();
  if ((view.dtype() != DType::i64 && view.dtype() != DType::i32) || view.rank() != 1)
    fail(name, " has dtype ", name_of(view.dtype()), " and shape ", to_string(view.shape()),
         "; i64 or i32 of one axis is expected");
  const Tensor copy = Tensor::copy_of(view, DType::i64);
  return {copy.values<std::int64_t>().begin(), copy.values<std::int64_t>().end()};
}

// Sequence numbers; empty for None, which means all.
Numbers sequences_of(nb::handle value) {
  if (value.is_none()) return {};
  Numbers numbers = whole_numbers("sequences", value);
  if (numbers.empty()) fail("sequences is empty; at least one number, or None for all, is expected");
  return numbers;
}

void check(const char* name, std::int64_t value, std::int64_t least) {
  if (value < least) fail(name, " is ", value, "; ", least, " or more is expected");
}

CacheFormat format_named(const std::string& name) {
  const std::optional<CacheFormat> found = cache_format_named(name);
  if (!found) fail("format is '", name, "'; 'f32', 'bf16', 'f16', 'int8', 'int4' or 'fp8' is expected");
  return *found;
}

CacheLayout layout_named(const std::string& name) {
  const std::optional<CacheLayout> found = cache_layout_named(name);
  if (!found) fail("layout is '", name, "'; 'contiguous', 'paged' or 'ring' is expected");
  return *found;
}

PageOrder order_named(const std::string& name) {
  if (name != "hnd" && name != "nhd") fail("page_order is '", name, "'; 'hnd' or 'nhd' is expected");
  return name == "hnd" ? PageOrder::hnd : PageOrder::nhd;
}

HeldCache make(std::int64_t batch, std::int64_t kv_heads, std::int64_t key_dim,
               std::optional<std::int64_t> value_dim, std::int64_t capacity, const std::string& layout,
               std::int64_t page_size, const std::string& page_order, std::int64_t sinks, std::int64_t window,
               const std::string& format, std::int64_t group, bool rotate, bool values_in_keys) {
  // Checks arguments whose names differ from the library's.
  check("batch", batch, 0);
  check("key_dim", key_dim, 1);
  check("value_dim", value_dim.value_or(1), 1);
  KvCacheOptions options;
  options.sequences = batch;
  options.kv_heads = kv_heads;
  options.head_dim = key_dim;
  options.value_dim = value_dim.value_or(key_dim);
  options.format = format_named(format);
  options.layout = layout_named(layout);
  options.capacity = capacity;
  options.page_size = page_size;
  options.order = order_named(page_order);
  options.sinks = sinks;
  options.window = window;
  options.group = group;
  options.rotate = rotate;
  options.values_in_keys = values_in_keys;
  if (values_in_keys && options.value_dim > key_dim)
    fail("value_dim is ", options.value_dim, "; at most key_dim = ", key_dim,
         " is expected if values are channels of the keys");
  if (options.format == CacheFormat::int4 && key_dim % 2 != 0)
    fail("key_dim is ", key_dim, "; an even number is expected for int4");
  const nb::gil_scoped_release released;
  return HeldCache({{}, KvCache(options)});
}

// A cache over the caller's arrays. `make_over` takes their views, mutable ones if it may write.
template <class Make>
HeldCache over_arrays(const char* key_name, nb::handle key, const char* value_name, nb::handle value,
                      bool writable, const Make& make_over) {
  std::vector<Borrowed> memory;
  const Purpose purpose = writable ? Purpose::write : Purpose::keep;
  memory.emplace_back(key_name, key, purpose);
  memory.emplace_back(value_name, value, purpose);
  KvCache cache = writable ? make_over(memory[0].mutable_view(), memory[1].mutable_view())
                           : make_over(memory[0].view(), memory[1].view());
  return HeldCache({std::move(memory), std::move(cache)});
}

HeldCache over(nb::handle key, nb::handle value, nb::handle lengths, bool writable) {
  const Numbers rows = whole_numbers("lengths", lengths);
  return over_arrays("key", key, "value", value, writable,
                     [&](const auto& k, const auto& v) { return KvCache::over(k, v, view_of(rows)); });
}

HeldCache over_block_table(nb::handle key_pool, nb::handle value_pool, nb::handle block_table,
                           nb::handle lengths, const std::string& page_order, bool writable) {
  const Borrowed table("block_table", block_table);
  const Numbers rows = whole_numbers("lengths", lengths);
  const PageOrder order = order_named(page_order);
  return over_arrays("key_pool", key_pool, "value_pool", value_pool, writable,
                     [&](const auto& k, const auto& v) {
                       return KvCache::over_block_table(k, v, table.view(), view_of(rows), order);
                     });
}

HeldCache over_page_indices(nb::handle key_pool, nb::handle value_pool, nb::handle indptr, nb::handle indices,
                            nb::handle last_page_len, const std::string& page_order, bool writable) {
  const Numbers begins = whole_numbers("indptr", indptr);
  const Numbers pages = whole_numbers("indices", indices);
  const Numbers last = whole_numbers("last_page_len", last_page_len);
  const PageOrder order = order_named(page_order);
  return over_arrays(
      "key_pool", key_pool, "value_pool", value_pool, writable, [&](const auto& k, const auto& v) {
        return KvCache::over_page_indices(k, v, view_of(begins), view_of(pages), view_of(last), order);
      });
}

void append(HeldCache& self, nb::handle key, nb::handle value, nb::handle offsets, nb::handle sequences) {
  const Borrowed k("key", key);
  std::optional<Borrowed> v;
  if (!value.is_none()) v.emplace("value", value);
  if (offsets.is_none()) {
    if (!sequences.is_none())
      fail("sequences is given without offsets; key [1, Hkv, T, D] and the offsets of its rows are expected");
    self.write([&](Cache& held) {
      return v ? held.cache.append(k.view(), v->view()) : held.cache.append_keys(k.view());
    });
    return;
  }
  const Numbers ends = whole_numbers("offsets", offsets), which = sequences_of(sequences);
  self.write([&](Cache& held) {
    return v ? held.cache.append(k.view(), v->view(), view_of(ends), which)
             : held.cache.append_keys(k.view(), view_of(ends), which);
  });
}

void add_received(HeldCache& self, nb::handle received, nb::handle decay, nb::handle sequences) {
  const Borrowed sums("received", received);
  const double kept = number("decay", decay);
  const Numbers which = sequences_of(sequences);
  self.write([&](Cache& held) { held.cache.add_received(sums.view(), kept, which); });
}

void evict(HeldCache& self, std::int64_t sequence, nb::handle positions) {
  const Numbers which = whole_numbers("positions", positions);
  self.write([&](Cache& held) { held.cache.evict(sequence, which); });
}

// Converts the tensor `of(cache)` to a NumPy array.
template <class Of>
nb::object array_of(const HeldCache& self, const Of& of) {
  Tensor found = self.read([&](const Cache& held) { return of(held.cache); });
  return to_python(std::move(found), Kind::numpy);
}

Tensor tensor_of(const Numbers& numbers) {
  return Tensor::from(span_of(numbers), {static_cast<std::int64_t>(numbers.size())});
}

// One number per sequence.
template <class Of>
Tensor of_each(const KvCache& cache, const Of& of) {
  Numbers numbers;
  for (std::int64_t b = 0; b < cache.sequences(); ++b) numbers.push_back(of(b));
  return tensor_of(numbers);
}

nb::dict stats(const HeldCache& self) {
  const KvCacheStats found = self.read([](const Cache& held) { return held.cache.stats(); });
  nb::dict all;
  all["rows"] = found.rows;
  all["capacity"] = found.capacity;
  all["pages"] = found.pages;
  all["free_pages"] = found.free_pages;
  all["shared_pages"] = found.shared_pages;
  all["bytes"] = found.bytes;
  all["tail_bytes"] = found.tail_bytes;
  all["table_bytes"] = found.table_bytes;
  return all;
}

std::string describe(const HeldCache& self) {
  return self.read([](const Cache& held) {
    const KvCache& c = held.cache;
    return sentence("KvCache(", name_of(c.layout()), " ", name_of(c.format()), ", ",
                    detail::counted(c.sequences(), "sequence"), ", ", detail::counted(c.stats().rows, "row"),
                    " of ", c.kv_heads(), " x ", c.head_dim(), ")");
  });
}

// The options of calls over a cache.
struct CacheArguments {
  Numbers sequences;
  Numbers parents;
  std::optional<Borrowed> parents_array;
  std::optional<Borrowed> mask;
  CacheQuery which;

  explicit CacheArguments(nb::kwargs& keywords) {
    const nb::object align = take(keywords, "align");
    if (!align.is_none() && !align.equal(nb::str("bottom-right")))
      fail("align is ", nb::cast<std::string>(nb::repr(align)), "; 'bottom-right' is expected over a cache");
    if (const nb::object value = take(keywords, "sequences"); !value.is_none())
      sequences = sequences_of(value);
    which.sequences = sequences;
    if (const nb::object value = take(keywords, "tree_parents"); !value.is_none()) read_parents(value);
    if (const nb::object value = take(keywords, "tree_mask"); !value.is_none()) {
      mask.emplace("tree_mask", value);
      which.tree_mask = mask->view();
    }
  }

 private:
  static nb::object take(nb::kwargs& keywords, const char* name) {
    return keywords.attr("pop")(name, nb::none());
  }

  void read_parents(nb::handle value) {
    if (is_array(value)) {
      parents_array.emplace("tree_parents", value);
      which.tree_parents = parents_array->view();
    } else {
      parents = whole_numbers("tree_parents", value);
      which.tree_parents = view_of(parents);
    }
  }
};

// The number of columns of `weights`, `received` and similar results.
std::int64_t columns_of(const KvCache& cache, const CacheQuery& which, bool packed) {
  const auto count =
      which.sequences.empty() ? cache.sequences() : static_cast<std::int64_t>(which.sequences.size());
  std::int64_t most = 0, all = 0;
  for (std::int64_t b = 0; b < count; ++b) {
    const std::int64_t rows =
        cache.rows(which.sequences.empty() ? b : which.sequences[static_cast<std::size_t>(b)]);
    most = std::max(most, rows);
    all += rows;
  }
  return packed ? all : most;
}

AttentionResult attend(const TensorView& query, const KvCache& cache, const Arguments& arguments,
                       const CacheQuery& which) {
  if (!arguments.out) return attention(query, cache, arguments.options, which);
  const std::int64_t columns = columns_of(cache, which, arguments.options.query_segments.has_value());
  return beside_output(query, columns, arguments, [&](const AttentionOutputs& outputs) {
    return attention_into(query, cache, arguments.options, outputs, which);
  });
}

constexpr const char* kCacheMeaning =
    R"(Keys and values [batch, kv_heads, rows, key_dim | value_dim], computed once and attended from then on:
heed.attention(q, cache, ...).

layout: 'contiguous' (room for `capacity` rows of each sequence), 'paged' (a pool of pages of page_size rows, with
room for `capacity` rows of all sequences together), or 'ring' (the first `sinks` rows and the last `window`).
format: what rows are kept as, 'f32', 'bf16', 'f16', 'int8', 'int4' or 'fp8'; of the last three, `group` positions of
a key's channel share a scale, as do `group` channels of a value's row, and rotate=True keeps keys times a Hadamard
matrix. values_in_keys=True: values are the first value_dim channels of the keys (multi-head latent attention); rows
are stored once, and append() takes keys alone.

A row keeps its position, whatever is evicted. What changes a cache happens whole or, where it raises, not at all.)";

void define_changes(nb::class_<HeldCache>& cache) {
  cache
      .def("append", append, nb::arg("key"), nb::arg("value").none() = nb::none(),
           nb::arg("offsets").none() = nb::none(), nb::arg("sequences").none() = nb::none(),
           "Appends rows [batch, Hkv, L, D] to every sequence; or, from key [1, Hkv, T, D], rows offsets[i] "
           "to offsets[i + 1] to sequences[i]. A cache with values_in_keys takes no value.")
      .def(
          "truncate",
          [](HeldCache& self, std::int64_t sequence, std::int64_t length) {
            self.write([&](Cache& held) { held.cache.truncate(sequence, length); });
          },
          nb::arg("sequence"), nb::arg("length"), "Removes the last rows, so that `length` positions remain.")
      .def(
          "fork",
          [](HeldCache& self, std::int64_t sequence) {
            return self.write([&](Cache& held) { return held.cache.fork(sequence); });
          },
          nb::arg("sequence"),
          "Makes a new sequence with the rows of another and returns its number. Pages are shared until they "
          "are written to.")
      .def(
          "release",
          [](HeldCache& self, std::int64_t sequence) {
            self.write([&](Cache& held) { held.cache.release(sequence); });
          },
          nb::arg("sequence"),
          "Releases a sequence; a later fork() reuses its number, and until then it cannot be changed or "
          "attended.")
      .def(
          "clear",
          [](HeldCache& self, std::int64_t sequence) {
            self.write([&](Cache& held) { held.cache.clear(sequence); });
          },
          nb::arg("sequence"), "Empties a sequence.")
      .def("evict", evict, nb::arg("sequence"), nb::arg("positions"),
           "Removes the rows at these positions, which must ascend.")
      .def(
          "reserve",
          [](HeldCache& self, std::int64_t rows) {
            self.write([&](Cache& held) { held.cache.reserve(rows); });
          },
          nb::arg("rows"), "Makes room for rows: of each sequence, or in total if the cache is paged.")
      .def("add_received", add_received, nb::arg("received"), nb::arg("decay") = 1.0,
           nb::arg("sequences").none() = nb::none(),
           "Adds a call's `received`, [B, H, rows], to the sums kept with the rows: "
           "sum = decay * sum + received.");
}

void define_rows(nb::class_<HeldCache>& cache) {
  const auto array = [&cache](const char* name, auto of, const char* meaning) {
    cache.def(
        name,
        [of](const HeldCache& self, std::int64_t sequence) {
          return array_of(self, [&](const KvCache& c) { return of(c, sequence); });
        },
        nb::arg("sequence"), meaning);
  };
  array(
      "positions", [](const KvCache& c, std::int64_t b) { return tensor_of(c.positions(b)); },
      "The positions of a sequence's rows, ascending: [rows].");
  array(
      "keys", [](const KvCache& c, std::int64_t b) { return c.keys(b); },
      "Its keys as calls read them, float32 [Hkv, rows, key_dim].");
  array(
      "values", [](const KvCache& c, std::int64_t b) { return c.values(b); },
      "Its values as calls read them, float32 [Hkv, rows, value_dim].");
  array(
      "received", [](const KvCache& c, std::int64_t b) { return c.received(b); },
      "The running sums of add_received, float32 [Hkv, rows].");
  cache
      .def_prop_ro(
          "lengths",
          [](const HeldCache& self) {
            return array_of(self, [](const KvCache& c) {
              return of_each(c, [&](std::int64_t b) { return c.length(b); });
            });
          },
          "the position of each sequence's next row, [batch]")
      .def_prop_ro(
          "rows",
          [](const HeldCache& self) {
            return array_of(
                self, [](const KvCache& c) { return of_each(c, [&](std::int64_t b) { return c.rows(b); }); });
          },
          "the number of rows of each sequence, [batch]")
      .def("stats", stats, "Rows, pages and bytes, by name.");
}

void define_settings(nb::class_<HeldCache>& cache) {
  const auto setting = [&cache](const char* name, auto of) {
    cache.def_prop_ro(name, [of](const HeldCache& self) {
      return self.read([&](const Cache& held) { return of(held.cache); });
    });
  };
  setting("batch", [](const KvCache& c) { return c.sequences(); });
  setting("kv_heads", [](const KvCache& c) { return c.kv_heads(); });
  setting("key_dim", [](const KvCache& c) { return c.head_dim(); });
  setting("value_dim", [](const KvCache& c) { return c.value_dim(); });
  setting("page_size", [](const KvCache& c) { return c.page_size(); });
  setting("rotate", [](const KvCache& c) { return c.rotates(); });
  setting("values_in_keys", [](const KvCache& c) { return c.values_in_keys(); });
  setting("format", [](const KvCache& c) { return std::string(name_of(c.format())); });
  setting("layout", [](const KvCache& c) { return std::string(name_of(c.layout())); });
}

void define_copies(nb::class_<HeldCache>& cache) {
  cache
      .def(copied([](const HeldCache& self) {
        return HeldCache({{}, self.read([](const Cache& held) { return held.cache.copy(); })});
      }))
      .def(
          "save",
          [](const HeldCache& self, const std::filesystem::path& path) {
            self.read([&](const Cache& held) { io::write_kv_cache(path, held.cache); });
          },
          nb::arg("path"), "Writes a safetensors file, which load() and `heed attend --cache` read.")
      .def_static(
          "load",
          [](const std::filesystem::path& path) {
            const nb::gil_scoped_release released;
            return HeldCache({{}, io::read_kv_cache(path)});
          },
          nb::arg("path"), "The cache that save() wrote.")
      .def(pickled(
          [](const HeldCache& self) {
            return saved(self.read([](const Cache& held) { return held.cache.tensors(); }));
          },
          [](nb::handle state) {
            return HeldCache({{}, KvCache::from_tensors(Restored(state).tensors())});
          }));
}

void define_over(nb::class_<HeldCache>& cache) {
  cache
      .def_static(
          "over", over, nb::arg("key"), nb::arg("value"), nb::arg("lengths"), nb::kw_only(),
          nb::arg("writable") = false,
          "A cache over arrays [batch, Hkv, capacity, D] of which lengths[b] rows are filled, without a "
          "copy; with writable=True append() fills more.")
      .def_static(
          "over_block_table", over_block_table, nb::arg("key_pool"), nb::arg("value_pool"),
          nb::arg("block_table"), nb::arg("lengths"), nb::kw_only(), nb::arg("page_order") = "nhd",
          nb::arg("writable") = false,
          "A cache over vLLM's pools [pages, page_size, Hkv, D] ('nhd') or [pages, Hkv, page_size, D] "
          "('hnd'), without a copy: sequence b has the pages block_table[b] and lengths[b] rows.")
      .def_static(
          "over_page_indices", over_page_indices, nb::arg("key_pool"), nb::arg("value_pool"),
          nb::arg("indptr"), nb::arg("indices"), nb::arg("last_page_len"), nb::kw_only(),
          nb::arg("page_order") = "nhd", nb::arg("writable") = false,
          "The same by FlashInfer's table: sequence b has the pages indices[indptr[b]:indptr[b + 1]], "
          "of which the last holds last_page_len[b] rows.");
}

}  // namespace

bool is_cache(nb::handle object) { return nb::isinstance<HeldCache>(object); }

namespace {

// The arguments of a call over a cache.
struct CallOverCache {
  CallOverCache(const char* function, nb::handle q, const nb::kwargs& keywords)
      : query("q", q),
        rest(nb::steal<nb::kwargs>(PyDict_Copy(keywords.ptr()))),
        of_cache(rest),
        arguments(read_arguments(function, rest)) {
    AttentionOptions& options = arguments.options;
    // A single cu_seqlens sets the offsets of queries and keys. For keys, the cache's lengths apply instead.
    if (options.key_segments && options.key_segments->data() == options.query_segments->data())
      options.key_segments.reset();
  }

  Borrowed query;
  nb::kwargs rest;
  CacheArguments of_cache;
  Arguments arguments;
};

}  // namespace

nb::object attention_over_cache(nb::handle q, nb::handle cache, const nb::kwargs& keywords) {
  CallOverCache call("attention", q, keywords);
  AttentionResult result = nb::cast<const HeldCache&>(cache).read([&](const Cache& in) {
    return attend(call.query.view(), in.cache, call.arguments, call.of_cache.which);
  });
  return give(std::move(result), call.arguments, array_type(q).kind);
}

AttentionPlan plan_over_cache(nb::handle q, nb::handle cache, const nb::kwargs& keywords) {
  const CallOverCache call("plan_attention", q, keywords);
  return nb::cast<const HeldCache&>(cache).read([&](const Cache& in) {
    return plan_attention(call.query.view(), in.cache, call.arguments.options, call.of_cache.which);
  });
}

void define_kv_cache(nb::module_& module) {
  auto cache =
      nb::class_<HeldCache>(module, "KvCache", kCacheMeaning)
          .def(nb::new_(&make), nb::kw_only(), nb::arg("batch") = 1, nb::arg("kv_heads"), nb::arg("key_dim"),
               nb::arg("value_dim").none() = nb::none(), nb::arg("capacity") = 0,
               nb::arg("layout") = "contiguous", nb::arg("page_size") = 16, nb::arg("page_order") = "hnd",
               nb::arg("sinks") = 0, nb::arg("window") = 0, nb::arg("format") = "f32", nb::arg("group") = 32,
               nb::arg("rotate") = false, nb::arg("values_in_keys") = false)
          .def("__repr__", describe);
  define_over(cache);
  define_changes(cache);
  define_rows(cache);
  define_settings(cache);
  define_copies(cache);
}

}  // namespace heed::python
