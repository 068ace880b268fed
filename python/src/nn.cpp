// heed.nn: the library's layers. Parameters are NumPy arrays over the layer's own memory, which they keep
// alive.
#include "heed/nn/layers.hpp"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <optional>
#include <type_traits>
#include <utility>

#include "calls.hpp"
#include "fail.hpp"
#include "heed/random.hpp"
#include "held.hpp"
#include "saved.hpp"

namespace heed::python {
namespace {

/// The output and intermediate values of a layer.
struct Layer {
  nb::object output = nb::none();
  nb::object query = nb::none();
  nb::object key = nb::none();
  nb::object value = nb::none();
  nb::object attention = nb::none();
};

constexpr std::pair<const char*, nb::object Layer::*> kLayerArrays[] = {
    {"output", &Layer::output}, {"query", &Layer::query}, {"key", &Layer::key}, {"value", &Layer::value}};

// The caller's Generator, or a new one from a seed.
class Source {
 public:
  explicit Source(nb::handle from) {
    if (nb::isinstance<Generator>(from))
      theirs_ = nb::inst_ptr<Generator>(from);
    else if (!from.is_none())
      own_.manual_seed(static_cast<std::uint64_t>(integer("generator", from)));
  }
  Generator& get() { return theirs_ == nullptr ? own_ : *theirs_; }

 private:
  Generator own_;
  Generator* theirs_ = nullptr;
};

Dims dims(const std::vector<std::int64_t>& sizes) { return Dims(std::span(sizes)); }

template <class Module>
nb::dict parameters(nb::handle self) {
  nb::dict all;
  for (const nn::NamedParameter& parameter : nb::cast<Held<Module>&>(self).module.parameters())
    all[parameter.name.c_str()] = numpy_view(parameter.value->mutable_view(), self);
  return all;
}

template <class Module>
void save(Held<Module>& layer, const std::filesystem::path& path) {
  const std::vector<nn::NamedParameter> parameters = layer.module.parameters();
  layer.read([&](const Module&) { nn::save_parameters(path, parameters); });
}

template <class Module>
void load(Held<Module>& layer, const std::filesystem::path& path) {
  layer.write([&](Module& module) { nn::load_parameters(path, module.parameters()); });
}

// Copies the parameters. For MultiHeadAttention, also stores its head counts.
template <class Module>
NamedTensors tensors_of(const Held<Module>& layer) {
  Module copy = layer.read([](const Module& module) { return module; });
  NamedTensors all;
  for (const nn::NamedParameter& parameter : copy.parameters())
    all.emplace_back(parameter.name, std::move(*parameter.value));
  if constexpr (std::is_same_v<Module, nn::MultiHeadAttention>)
    all.emplace_back("heads", Tensor::from({copy.heads(), copy.kv_heads()}, {2}));
  return all;
}

Tensor parameter(const Restored& saved, const std::string& name) { return Tensor::copy_of(saved.at(name)); }

nn::Linear linear_from(const Restored& saved, const std::string& prefix) {
  std::optional<Tensor> bias;
  if (const TensorView* found = saved.find(prefix + "bias")) bias = Tensor::copy_of(*found);
  return nn::Linear(parameter(saved, prefix + "weight"), std::move(bias));
}

void make_of(const Restored& saved, std::optional<nn::Embedding>& layer) {
  layer.emplace(parameter(saved, "weight"));
}
void make_of(const Restored& saved, std::optional<nn::Linear>& layer) { layer = linear_from(saved, ""); }
void make_of(const Restored& saved, std::optional<nn::SelfAttention>& layer) {
  layer.emplace(parameter(saved, "query.weight"), parameter(saved, "key.weight"),
                parameter(saved, "value.weight"));
}
void make_of(const Restored& saved, std::optional<nn::MultiHeadAttention>& layer) {
  std::optional<nn::Linear> out;
  if (saved.find("out_proj.weight") != nullptr) out = linear_from(saved, "out_proj.");
  const Tensor heads = parameter(saved, "heads");
  if (heads.dtype() != DType::i64 || heads.shape() != Dims{2})
    fail("heads of the pickled state is ", name_of(heads.dtype()), " ", to_string(heads.shape()),
         "; i64 [2] is expected");
  layer.emplace(linear_from(saved, "query."), linear_from(saved, "key."), linear_from(saved, "value."),
                std::move(out), heads.at<std::int64_t>(0), heads.at<std::int64_t>(1));
}

template <class Module>
nb::class_<Held<Module>> define(nb::module_& in, const char* name, const char* meaning) {
  return nb::class_<Held<Module>>(in, name, meaning)
      .def(copied([](const Held<Module>& self) {
        return Held<Module>(self.read([](const Module& module) { return module; }));
      }))
      .def(pickled([](const Held<Module>& self) { return saved(tensors_of(self)); },
                   [](nb::handle state) {
                     std::optional<Module> made;
                     make_of(Restored(state), made);
                     return Held<Module>(*std::move(made));
                   }))
      .def("parameters", parameters<Module>, "the arrays by name, in the layer's own memory")
      .def("save", save<Module>, nb::arg("path"), "writes a safetensors file")
      .def("load", load<Module>, nb::arg("path"),
           "reads a safetensors file into the same memory, also a file of torch.nn.MultiheadAttention");
}

template <class Module>
nb::object forward_plain(const Held<Module>& layer, nb::handle x) {
  const Borrowed input("x", x);
  Tensor output = layer.read([&](const Module& module) { return module.forward(input.view()); });
  return to_python(std::move(output), array_type(x).kind);
}

nb::object give(nn::LayerResult&& result, const Arguments& arguments, Kind kind) {
  nb::object output = to_python(std::move(result.output), kind);
  if (!arguments.asked) return output;
  Layer layer;
  layer.output = std::move(output);
  layer.query = to_python(std::move(result.query), kind);
  layer.key = to_python(std::move(result.key), kind);
  layer.value = to_python(std::move(result.value), kind);
  nb::object contexts = to_python(std::move(result.attention.output), kind);
  Result attention = to_result(std::move(result.attention), arguments.options, kind);
  attention.output = std::move(contexts);
  layer.attention = nb::cast(std::move(attention));
  return nb::cast(std::move(layer));
}

Arguments layer_arguments(const nb::kwargs& keywords) {
  Arguments arguments = read_arguments("forward", keywords);
  if (arguments.out) fail_type("forward() got an unexpected keyword argument 'out'");
  return arguments;
}

nb::object forward_self(const Held<nn::SelfAttention>& layer, nb::handle x, const nb::kwargs& keywords) {
  const Borrowed input("x", x);
  const Arguments arguments = layer_arguments(keywords);
  nn::LayerResult result = layer.read(
      [&](const nn::SelfAttention& module) { return module.forward(input.view(), arguments.options); });
  return give(std::move(result), arguments, array_type(x).kind);
}

nb::object forward_heads(const Held<nn::MultiHeadAttention>& layer, nb::handle x, nb::handle context,
                         const nb::kwargs& keywords) {
  const Borrowed input("x", x);
  std::optional<Borrowed> other;
  if (!context.is_none()) other.emplace("context", context);
  const Arguments arguments = layer_arguments(keywords);
  nn::LayerResult result = layer.read([&](const nn::MultiHeadAttention& module) {
    return other ? module.forward(input.view(), other->view(), arguments.options)
                 : module.forward(input.view(), arguments.options);
  });
  return give(std::move(result), arguments, array_type(x).kind);
}

nb::dict layer_result_state(const Layer& layer) {
  nb::dict state;
  for (const auto& [name, member] : kLayerArrays) state[name] = layer.*member;
  state["attention"] = layer.attention;
  return state;
}

Layer layer_result_from(nb::handle state) {
  const ResultFields fields(state);
  Layer layer;
  for (const auto& [name, member] : kLayerArrays) layer.*member = fields.array(name);
  layer.attention = fields.at("attention");
  if (!nb::isinstance<Result>(layer.attention))
    fail_type("attention of the pickled state is of type ", nb::inst_name(layer.attention).c_str(),
              "; an AttentionResult is expected");
  return layer;
}

void define_generator(nb::module_& module) {
  using Sizes = const std::vector<std::int64_t>&;
  nb::class_<Generator>(module, "Generator", "PyTorch's random numbers on a CPU for the same seed.")
      .def(
          "__init__",
          [](Generator* self, nb::handle seed) { new (self) Generator(unsigned_integer("seed", seed)); },
          nb::arg("seed").none() = Generator::kDefaultSeed)
      .def(copied([](const Generator& self) { return self; }))
      .def(pickled(
          [](const Generator& self) {
            return saved({{"state", self.state()}});
          },
          [](nb::handle state) {
            Generator made;
            made.set_state(Restored(state).at("state"));
            return made;
          }))
      .def(
          "rand",
          [](Generator& self, Sizes shape, nb::handle type) {
            return to_python(rand(self, dims(shape), dtype("dtype", type)), Kind::numpy);
          },
          nb::arg("shape"), nb::arg("dtype") = "float32")
      .def(
          "randn",
          [](Generator& self, Sizes shape, nb::handle type) {
            return to_python(randn(self, dims(shape), dtype("dtype", type)), Kind::numpy);
          },
          nb::arg("shape"), nb::arg("dtype") = "float32")
      .def(
          "randint",
          [](Generator& self, std::int64_t low, std::int64_t high, Sizes shape) {
            return to_python(randint(self, low, high, dims(shape)), Kind::numpy);
          },
          nb::arg("low"), nb::arg("high"), nb::arg("shape"))
      .def(
          "randperm",
          [](Generator& self, std::int64_t n) { return to_python(randperm(self, n), Kind::numpy); },
          nb::arg("n"));
}

void define_plain_layers(nb::module_& module) {
  define<nn::Embedding>(module, "Embedding", "torch.nn.Embedding")
      .def(nb::new_([](std::int64_t count, std::int64_t dim, nb::handle generator, nb::handle type) {
             Source source(generator);
             return Held(nn::Embedding(count, dim, source.get(), dtype("dtype", type)));
           }),
           nb::arg("count"), nb::arg("dim"), nb::arg("generator").none() = nb::none(),
           nb::arg("dtype") = "float32")
      .def("forward", forward_plain<nn::Embedding>, nb::arg("ids"))
      .def("__call__", forward_plain<nn::Embedding>, nb::arg("ids"));
  define<nn::Linear>(module, "Linear", "torch.nn.Linear")
      .def(nb::new_([](std::int64_t in, std::int64_t out, bool bias, nb::handle generator, nb::handle type) {
             Source source(generator);
             return Held(nn::Linear(in, out, bias, source.get(), dtype("dtype", type)));
           }),
           nb::arg("in_features"), nb::arg("out_features"), nb::arg("bias") = true,
           nb::arg("generator").none() = nb::none(), nb::arg("dtype") = "float32")
      .def("forward", forward_plain<nn::Linear>, nb::arg("x"))
      .def("__call__", forward_plain<nn::Linear>, nb::arg("x"));
}

void define_attention_layers(nb::module_& module) {
  nb::class_<Layer>(module, "LayerResult", "The intermediate results of an attention layer.")
      .def(pickled(layer_result_state, layer_result_from))
      .def_ro("output", &Layer::output)
      .def_ro("query", &Layer::query)
      .def_ro("key", &Layer::key)
      .def_ro("value", &Layer::value)
      .def_ro("attention", &Layer::attention)
      .def("__repr__", [](const Layer& result) {
        return "LayerResult(output " +
               nb::cast<std::string>(nb::repr(nb::tuple(result.output.attr("shape")))) + ", " +
               nb::cast<std::string>(nb::repr(result.attention)) + ")";
      });
  define<nn::SelfAttention>(module, "SelfAttention",
                            "One head without biases and without an output projection.")
      .def(nb::new_([](std::int64_t dim, std::int64_t key_dim, std::int64_t value_dim, nb::handle generator,
                       nb::handle type) {
             Source source(generator);
             return Held(nn::SelfAttention(dim, key_dim, value_dim, source.get(), dtype("dtype", type)));
           }),
           nb::arg("dim"), nb::arg("key_dim"), nb::arg("value_dim"), nb::arg("generator").none() = nb::none(),
           nb::arg("dtype") = "float32")
      .def("forward", forward_self, nb::arg("x"), nb::arg("options"))
      .def("__call__", forward_self, nb::arg("x"), nb::arg("options"));
  define<nn::MultiHeadAttention>(module, "MultiHeadAttention", "torch.nn.MultiheadAttention, batch first.")
      .def(nb::new_([](std::int64_t dim, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                       std::int64_t value_dim, std::int64_t context_dim, bool bias, bool output_projection,
                       nb::handle generator, nb::handle type) {
             Source source(generator);
             const nn::MultiHeadOptions options{dim,       heads,       kv_heads, head_dim,
                                                value_dim, context_dim, bias,     output_projection};
             return Held(nn::MultiHeadAttention(options, source.get(), dtype("dtype", type)));
           }),
           nb::arg("dim"), nb::arg("heads"), nb::arg("kv_heads") = 0, nb::arg("head_dim") = 0,
           nb::arg("value_dim") = 0, nb::arg("context_dim") = 0, nb::arg("bias") = true,
           nb::arg("output_projection") = true, nb::arg("generator").none() = nb::none(),
           nb::arg("dtype") = "float32")
      .def("forward", forward_heads, nb::arg("x"), nb::arg("context").none() = nb::none(), nb::arg("options"))
      .def("__call__", forward_heads, nb::arg("x"), nb::arg("context").none() = nb::none(),
           nb::arg("options"))
      .def_prop_ro("heads", [](const Held<nn::MultiHeadAttention>& layer) { return layer.module.heads(); })
      .def_prop_ro("kv_heads",
                   [](const Held<nn::MultiHeadAttention>& layer) { return layer.module.kv_heads(); });
}

}  // namespace

void define_nn(nb::module_& module) {
  define_generator(module);
  define_plain_layers(module);
  define_attention_layers(module);
}

}  // namespace heed::python
