// heed.Tokenizer: tokenizes text as a tokenizer.json specifies.
#include "heed/model/tokenizer.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "calls.hpp"
#include "saved.hpp"

namespace heed::python {
namespace {

using Spans = std::vector<std::pair<std::size_t, std::size_t>>;

// Converts spans from bytes to characters. They begin and end between characters.
Spans in_characters(std::string_view text, const std::vector<TextToken>& tokens) {
  std::vector<std::size_t> characters(text.size() + 1, 0);  // characters before each byte
  for (std::size_t byte = 0; byte < text.size(); ++byte)
    characters[byte + 1] = characters[byte] + ((static_cast<unsigned char>(text[byte]) & 0xC0u) != 0x80u);
  Spans spans;
  spans.reserve(tokens.size());
  for (const TextToken& one : tokens) spans.emplace_back(characters[one.begin], characters[one.end]);
  return spans;
}

std::pair<std::vector<std::int64_t>, Spans> encode(const Tokenizer& tokenizer, std::string_view text,
                                                   bool add_special) {
  const nb::gil_scoped_release released;
  const std::vector<TextToken> tokens = tokenizer.encode(text, add_special);
  std::vector<std::int64_t> ids;
  ids.reserve(tokens.size());
  for (const TextToken& one : tokens) ids.push_back(one.id);
  return {std::move(ids), in_characters(text, tokens)};
}

}  // namespace

void define_tokenizer(nb::module_& module) {
  nb::class_<Tokenizer>(module, "Tokenizer")
      .def(CopiedAsItself())
      .def(NotPickled("_heed.Tokenizer cannot be pickled; pickle the heed.Tokenizer that has it"))
      .def(
          "encode",
          [](const Tokenizer& tokenizer, const nb::bytes& text, bool add_special) {
            return encode(tokenizer, {text.c_str(), text.size()}, add_special);
          },
          nb::arg("text"), nb::arg("add_special"))
      .def(
          "decode",
          [](const Tokenizer& tokenizer, const std::vector<std::int64_t>& ids, bool skip_special) {
            return tokenizer.decode(ids, skip_special);
          },
          nb::arg("ids"), nb::arg("skip_special"))
      .def(
          "shown",
          [](const Tokenizer& tokenizer, const std::vector<std::int64_t>& ids) {
            return tokenizer.shown(ids);
          },
          nb::arg("ids"))
      .def("size", &Tokenizer::size)
      .def("token", &Tokenizer::token, nb::arg("id"))
      .def("id", &Tokenizer::id, nb::arg("token"))
      .def("is_special", &Tokenizer::is_special, nb::arg("id"));
  module.def("read_tokenizer", Tokenizer::from_file, nb::arg("path"),
             nb::call_guard<nb::gil_scoped_release>());
  module.def("tokenizer_from", Tokenizer::from_json, nb::arg("text"), nb::arg("name"),
             nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace heed::python
