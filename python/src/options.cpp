#include "options.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <random>
#include <string>

#include "fail.hpp"
#include "torch_tensor.hpp"

namespace heed::python {
namespace {

// The first line of the repr, which an array may have many of.
std::string shown(nb::handle value) {
  const auto text = nb::cast<std::string>(nb::repr(value));
  const std::size_t end = text.find('\n');
  return end == std::string::npos ? text : text.substr(0, end) + "…";
}

[[noreturn]] void fail_value(std::string_view name, nb::handle value, std::string_view expected) {
  fail(name, " is ", shown(value), "; ", expected, " is expected");
}

[[noreturn]] void fail_kind(std::string_view name, nb::handle value, std::string_view expected) {
  fail_type(name, " is ", shown(value), "; ", expected, " is expected");
}

// One of several words.
template <class Words>
typename Words::value_type::second_type word(std::string_view name, nb::handle value, const Words& words) {
  std::string expected;
  for (const auto& [key, meaning] : words)
    expected += (expected.empty() ? "'" : " or '") + std::string(key) + "'";
  if (!nb::isinstance<nb::str>(value)) fail_kind(name, value, expected);
  const std::string given = nb::cast<std::string>(value);
  for (const auto& [key, meaning] : words)
    if (key == given) return meaning;
  fail_value(name, value, expected);
}

TensorView keep_view(Arguments& arguments, Borrowed&& borrowed) {
  arguments.borrowed.push_back(std::move(borrowed));
  return arguments.borrowed.back().view();
}

TensorView array(Arguments& arguments, std::string_view name, nb::handle value) {
  return keep_view(arguments, Borrowed(name, value));
}

// An array, or a sequence of numbers converted to one.
TensorView numbers(Arguments& arguments, std::string_view name, nb::handle value) {
  if (is_array(value) || !nb::isinstance<nb::sequence>(value)) return array(arguments, name, value);
  return keep_view(arguments, Borrowed(name, array_of_numbers(name, value)));
}
TensorView whole_numbers(Arguments& arguments, std::string_view name, nb::handle value) {
  if (is_array(value) || !nb::isinstance<nb::sequence>(value)) return array(arguments, name, value);
  return keep_view(arguments, Borrowed(name, array_of_whole_numbers(name, value)));
}

void set_segments(Arguments& arguments, nb::handle value) {
  AttentionOptions& options = arguments.options;
  if ((nb::isinstance<nb::tuple>(value) || nb::isinstance<nb::list>(value)) && nb::len(value) == 2 &&
      !nb::isinstance<nb::int_>(value[0])) {
    options.query_segments = whole_numbers(arguments, "cu_seqlens", value[0]);
    options.key_segments = whole_numbers(arguments, "cu_seqlens", value[1]);
  } else {
    options.query_segments = options.key_segments = whole_numbers(arguments, "cu_seqlens", value);
  }
}

std::int64_t side(std::string_view name, nb::handle value) {
  return value.is_none() ? -1 : integer(name, value);
}

void set_window(Arguments& arguments, nb::handle value) {
  const auto [left, right] =
      two("window", value, "(left, right), each a whole number, or None or -1 for an open side,");
  arguments.options.window = {side("window[0]", left), side("window[1]", right)};
}

void set_sparse_mask(Arguments& arguments, nb::handle value) {
  if (!nb::isinstance<SparseMask>(value))
    fail_type("sparse_mask is of type ", nb::inst_name(value).c_str(), "; a heed.SparseMask is expected");
  arguments.options.sparse_mask = nb::cast<const SparseMask&>(value);
}

void set_score_mod(Arguments& arguments, nb::handle value) {
  if (!nb::isinstance<ScoreMod>(value))
    fail_type("score_mod is of type ", nb::inst_name(value).c_str(), "; a heed.ScoreMod is expected");
  arguments.options.score_mod = nb::cast<const ScoreMod&>(value);
}

// A boolean array, or a SparseMask.
void set_mask(Arguments& arguments, nb::handle value) {
  if (nb::isinstance<SparseMask>(value)) return set_sparse_mask(arguments, value);
  arguments.options.mask = array(arguments, "mask", value);
}

void set_map(Arguments& arguments, nb::handle value) {
  const auto [rows, columns] = two("map", value, "(rows, columns), two whole numbers,");
  arguments.options.map = {integer("map[0]", rows), integer("map[1]", columns)};
  arguments.asked = true;
}

Need need_named(nb::handle value) {
  std::vector<std::pair<std::string_view, Need>> words;
  for (const auto& [entry, member] : kResults<int>)
    if (entry.need != Need::none) words.emplace_back(entry.name(), entry.need);
  return word("need", value, words);
}

// Calls `use` for one name, or for each of several.
template <class Use>
void each_name(std::string_view option, nb::handle value, const Use& use) {
  if (nb::isinstance<nb::str>(value)) return use(value);
  if (!nb::hasattr(value, "__iter__")) fail_kind(option, value, "a name or several");
  for (const nb::handle name : value) use(name);
}

void set_need(Arguments& arguments, nb::handle value) {
  each_name("need", value, [&](nb::handle name) { arguments.options.need |= need_named(name); });
  arguments.asked = arguments.asked || arguments.options.need != Need::none;
}

void set_scores(Arguments& arguments, nb::handle value) {
  using Word = std::pair<std::string_view, ScoresStage>;
  arguments.options.scores_stage =
      word("scores_stage", value,
           std::array{Word{"raw", ScoresStage::raw}, Word{"softcap", ScoresStage::softcap},
                      Word{"bias", ScoresStage::bias}});
}

void set_align(Arguments& arguments, nb::handle value) {
  using Word = std::pair<std::string_view, Align>;
  arguments.options.align =
      word("align", value,
           std::array{Word{"top-left", Align::top_left}, Word{"bottom-right", Align::bottom_right}});
}

void set_kernel(Arguments& arguments, nb::handle value) {
  using Word = std::pair<std::string_view, Kernel>;
  arguments.options.kernel =
      word("kernel", value,
           std::array{Word{"automatic", Kernel::automatic}, Word{"reference", Kernel::reference},
                      Word{"fused", Kernel::fused}});
}

void set_threads(Arguments& arguments, nb::handle value) { arguments.options.threads = threads_of(value); }

void set_out(Arguments& arguments, nb::handle value) {
  arguments.out.emplace("out", value, Purpose::write);
  arguments.out_object = nb::borrow(value);
}

struct Setter {
  std::string_view name;
  void (*set)(Arguments& arguments, nb::handle value);
};

// All options by name.
constexpr auto kSetters = std::to_array<Setter>({
    {"alibi", [](Arguments& a, nb::handle v) { a.options.alibi_slopes = numbers(a, "alibi", v); }},
    {"align", set_align},
    {"bias", [](Arguments& a, nb::handle v) { a.options.bias = array(a, "bias", v); }},
    {"causal", [](Arguments& a, nb::handle v) { a.options.causal = truth("causal", v); }},
    {"cu_seqlens", set_segments},
    {"decay", [](Arguments& a, nb::handle v) { a.options.decay = array(a, "decay", v); }},
    {"dropout", [](Arguments& a, nb::handle v) { a.options.dropout.probability = number("dropout", v); }},
    {"dropout_offset", [](Arguments& a, nb::handle v) { a.options.dropout.offset = unsigned_integer("dropout_offset", v); }},
    {"kernel", set_kernel},
    {"kv_lengths", [](Arguments& a, nb::handle v) { a.options.kv_lengths = whole_numbers(a, "kv_lengths", v); }},
    {"map", set_map},
    {"mask", set_mask},
    {"need", set_need},
    {"out", set_out},
    {"output_dtype", [](Arguments& a, nb::handle v) { a.options.output_dtype = dtype("output_dtype", v); }},
    {"query_offset", [](Arguments& a, nb::handle v) { a.options.query_offset = integer("query_offset", v); }},
    {"received_last",
     [](Arguments& a, nb::handle v) {
       a.options.received_last = integer("received_last", v);
       a.asked = a.asked || a.options.received_last != 0;
     }},
    {"scale", [](Arguments& a, nb::handle v) { a.options.scale = number("scale", v); }},
    {"score_mod", set_score_mod},
    {"scores_stage", set_scores},
    {"seed", [](Arguments& a, nb::handle v) { a.options.dropout.seed = unsigned_integer("seed", v); }},
    {"sinks", [](Arguments& a, nb::handle v) { a.options.sinks = numbers(a, "sinks", v); }},
    {"softcap", [](Arguments& a, nb::handle v) { a.options.softcap = number("softcap", v); }},
    {"sparse_mask", set_sparse_mask},
    {"threads", set_threads},
    {"top_k",
     [](Arguments& a, nb::handle v) {
       a.options.top_k = integer("top_k", v);
       a.asked = a.asked || a.options.top_k != 0;
     }},
    {"window", set_window},
});
static_assert(std::is_sorted(kSetters.begin(), kSetters.end(),
                             [](const Setter& a, const Setter& b) { return a.name < b.name; }));

// Names of options in PyTorch, Flash Attention, transformers and the command, for suggestions.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"alibi_slopes", "alibi"},
    {"attention_mask", "mask"},
    {"attn_bias", "bias"},
    {"attn_mask", "mask"},
    {"cu_seqlens_q", "cu_seqlens"},
    {"dropout_p", "dropout"},
    {"dropout_seed", "seed"},
    {"is_causal", "causal"},
    {"key", "k"},
    {"key_lengths", "kv_lengths"},
    {"logits_soft_cap", "softcap"},
    {"need_weights", "need='weights'"},
    {"output_attentions", "need='weights'"},
    {"query", "q"},
    {"query_tokens", "tokens"},
    {"return_attn_probs", "need='weights'"},
    {"return_lse", "need='lse'"},
    {"return_weights", "need='weights'"},
    {"s_aux", "sinks"},
    {"scaling", "scale"},
    {"softmax_scale", "scale"},
    {"value", "v"},
    {"weights", "need='weights'"},
    {"window_size", "window"},
};

// The edit distance of two words.
std::size_t edits(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  for (std::size_t j = 0; j <= to.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t changed = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row.back();
}

std::string meant(std::string_view name) {
  if (name == "enable_gqa") return ", because k and v may always have fewer heads than q";
  for (const auto& [other, ours] : kOtherNames)
    if (name == other && ours.find('=') != std::string_view::npos)
      return "; did you mean " + std::string(ours) + "?";
    else if (name == other)
      return "; did you mean '" + std::string(ours) + "'?";
  for (const Setter& setter : kSetters)
    if (edits(name, setter.name) <= setter.name.size() / 4)
      return "; did you mean '" + std::string(setter.name) + "'?";
  return "";
}

}  // namespace

int threads_of(nb::handle value) {
  return static_cast<int>(
      std::clamp<std::int64_t>(integer("threads", value), std::numeric_limits<int>::min(), 1 << 20));
}

std::int64_t integer(std::string_view name, nb::handle value) {
  const nb::object whole = nb::steal(PyNumber_Index(value.ptr()));
  if (!whole.is_valid()) {
    PyErr_Clear();
    fail_kind(name, value, "a whole number");
  }
  const long long got = PyLong_AsLongLong(whole.ptr());
  if (got == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    fail_value(name, value, "a whole number of 64 bits");
  }
  return got;
}

std::uint64_t unsigned_integer(std::string_view name, nb::handle value) {
  constexpr const char* kExpected = "a whole number from 0 to 2^64 - 1";
  const nb::object whole = nb::steal(PyNumber_Index(value.ptr()));
  const unsigned long long got = whole.is_valid() ? PyLong_AsUnsignedLongLong(whole.ptr()) : 0;
  if (PyErr_Occurred() == nullptr) return got;
  PyErr_Clear();
  if (!whole.is_valid()) fail_kind(name, value, kExpected);
  fail_value(name, value, kExpected);
}

double number(std::string_view name, nb::handle value) {
  const nb::object plain = array_type(value).is_torch ? number_of_tensor(name, value) : nb::borrow(value);
  const double got = PyFloat_AsDouble(plain.ptr());
  if (got == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    fail_kind(name, value, "a number");
  }
  return got;
}

bool truth(std::string_view name, nb::handle value) {
  const int got = nb::isinstance<nb::str>(value) ? -1 : PyObject_IsTrue(value.ptr());
  if (got >= 0) return got == 1;
  PyErr_Clear();
  fail_kind(name, value, "True or False");
}

std::string text(std::string_view name, nb::handle value) {
  if (!nb::isinstance<nb::str>(value)) fail_kind(name, value, "a string");
  std::string characters;
  if (!nb::try_cast(value, characters)) fail_value(name, value, "a string without lone surrogates");
  return characters;
}

std::pair<nb::object, nb::object> two(std::string_view name, nb::handle value, std::string_view expected) {
  if (!nb::isinstance<nb::sequence>(value) || nb::isinstance<nb::str>(value) || nb::len(value) != 2)
    fail_kind(name, value, expected);
  return {nb::borrow(value[0]), nb::borrow(value[1])};
}

// Accepts "f32", "float32", numpy.float32, numpy.dtype("float32") and torch.float32.
DType dtype(std::string_view name, nb::handle value) {
  nb::object spelled = nb::borrow(value);
  if (nb::hasattr(value, "name"))
    spelled = value.attr("name");
  else if (nb::hasattr(value, "__name__"))
    spelled = value.attr("__name__");
  std::string text = nb::cast<std::string>(nb::str(spelled));
  text.erase(0, text.rfind('.') + 1);
  for (const auto& [theirs, ours] :
       {std::pair{"float64", "f64"}, {"float32", "f32"}, {"float16", "f16"}, {"bfloat16", "bf16"}})
    if (text == theirs) text = ours;
  const std::optional<DType> found = dtype_named(text);
  if (!found) fail_value(name, value, "a dtype such as 'float32'");
  return *found;
}

GradientRequest gradients_named(nb::handle value) {
  using Word = std::pair<std::string_view, bool GradientRequest::*>;
  GradientRequest request{.query = false, .key = false, .value = false};
  each_name("gradients", value, [&](nb::handle name) {
    request.*word("gradients", name,
                  std::array{Word{"dq", &GradientRequest::query}, Word{"dk", &GradientRequest::key},
                             Word{"dv", &GradientRequest::value}, Word{"dbias", &GradientRequest::bias},
                             Word{"dsinks", &GradientRequest::sinks},
                             Word{"ddecay", &GradientRequest::decay}}) = true;
  });
  return request;
}

void set_argument(std::string_view function, Arguments& arguments, std::string_view name, nb::handle value) {
  const auto found =
      std::lower_bound(kSetters.begin(), kSetters.end(), name,
                       [](const Setter& setter, std::string_view key) { return setter.name < key; });
  if (found == kSetters.end() || found->name != name)
    fail_type(function, "() got an unexpected keyword argument '", name, "'", meant(name));
  if (!value.is_none()) found->set(arguments, value);
}

Arguments read_arguments(std::string_view function, const nb::kwargs& keywords) {
  Arguments arguments;
  bool seeded = false;
  for (const auto& [key, value] : keywords) {
    Py_ssize_t length = 0;
    const char* name = PyUnicode_AsUTF8AndSize(key.ptr(), &length);
    if (name == nullptr) throw nb::python_error();
    const std::string_view known(name, static_cast<std::size_t>(length));
    seeded = seeded || (known == "seed" && !value.is_none());
    set_argument(function, arguments, known, value);
  }
  if (arguments.options.dropout.probability > 0 && !seeded) {
    if (function == "attention_backward")
      fail("dropout is given without a seed; the seed of the forward call is expected");
    std::random_device entropy;
    arguments.options.dropout.seed = (std::uint64_t{entropy()} << 32) | entropy();
  }
  return arguments;
}

}  // namespace heed::python
