#include "look/source.hpp"

#include <utility>

#include "captured_run.hpp"
#include "command.hpp"
#include "given_tokens.hpp"
#include "heed/model/model.hpp"
#include "look/subject.hpp"
#include "looked_at.hpp"
#include "model_name.hpp"
#include "options.hpp"
#include "text.hpp"

namespace heed::cli {
namespace {

// Whether the options under this help heading define the call, rather than the question or the output.
bool belongs_to_call(const std::string& group) {
  return group.starts_with("Inputs") || group == "Scores" || group == kRankGroup ||
         group.starts_with("Masks") || group == "Words";
}

void refuse_call_options(const CLI::App& app, const char* holder) {
  if (given(app, "--kernel"))
    refuse_usage("--kernel is given together with ", holder, ", whose kernel is fixed");
  for (const GivenOption& option : given_options(app))
    if (belongs_to_call(option.group))
      refuse_usage(option.name, " is given together with ", holder, ", which contains the call");
}

void complete_model(const CLI::App& app, LookSource& source) {
  refuse_call_options(app, "--model");
  const bool has_text = !source.document.empty() || !source.texts.empty();
  check_given_tokens(source.model, source.given, has_text);
  if (source.repeats && (has_text || !source.given.empty()))
    refuse_usage("--protocol is given together with a text; it makes its own");
  if (!has_text && source.given.empty() && !source.repeats)
    refuse_usage("no text is given; WORDS or --text FILE is expected after --model DIR");
  source.text = typed_text(joined_words(std::exchange(source.document, {}), source.words));
}

void check_tensors(const CLI::App& app, const LookSource& source) {
  if (source.layer) refuse_usage("--layer is given without --model DIR or DOC, which have layers");
  if (!given(app, "--query") && !given(app, "--key") && !given(app, "--value"))
    refuse_usage("no input is given; DOC.safetensors, or --query, --key and --value, is expected");
  require_call_options(app);
}

// The arguments that name what the model reads.
std::string text_arguments(const LookSource& source) {
  if (source.repeats) return "--protocol induction";
  if (!source.given.empty()) return source.given.arguments();
  if (!source.texts.empty()) return "--text " + shell_quoted(source.texts.front());
  return shell_quoted(source.text);
}

Document read_call(const LookSource& source) {
  AttendInputs inputs = read_attend_inputs(source.call, source.read);
  Document call;
  call.query = inputs.query;
  call.key = inputs.key;
  call.value = inputs.value;
  call.options = inputs.options;
  call.tensors = std::move(inputs.tensors);
  // Token counts need axis -2. attention() refuses tensors of other ranks with a precise message.
  for (const TensorView& view : {call.query, call.key, call.value})
    if (view.rank() < 2 || view.rank() > 4 || view.rank() != call.query.rank())
      (void)attention(call.query, call.key, call.value, call.options);
  std::vector<std::string>& query_tokens = call.report.query_tokens;
  std::vector<std::string>& key_tokens = call.report.key_tokens;
  if (!source.tokens.empty())
    query_tokens = read_tokens("--tokens", source.tokens, call.query.size(-2), "queries");
  if (!source.key_tokens.empty())
    key_tokens = read_tokens("--key-tokens", source.key_tokens, call.key.size(-2), "keys");
  if (key_tokens.empty() && call.query.size(-2) == call.key.size(-2)) key_tokens = query_tokens;
  return call;
}

}  // namespace

bool LookSource::is_run() const { return model.empty() && is_folder(document); }

bool LookSource::has_several_texts() const { return texts.size() + (text.empty() ? 0 : 1) > 1; }

void add_source_options(CLI::App& app, LookSource& source) {
  add_argument(app, "DOC", source.document,
               "a file written by heed look --save or heed explain --save, instead of query, key and value; "
               "or a folder written by heed.transformers.capture(to=…)");
  add_argument(
      app, "WORDS", source.words,
      "with --model: the text to read; its first word takes the place of DOC; - reads standard input");
  begin_group(app, "Model");
  add_model_option(app, source.model);
  add_texts_option(app, "--text", "FILE", source.texts,
                   "a text file to read; may be repeated: the summary then covers all rows of all texts");
  add_given_tokens(app, source.given);
  add_choice(
      app, "--protocol", {"induction"}, [&](std::size_t) { source.repeats = true; },
      "with --model: read random tokens twice, and list the heads that find each token's earlier copy");
  add_choice(
      app, "--by", {"attention", "norm"},
      [&](std::size_t i) { source.by = i == 0 ? WeighedBy::attention : WeighedBy::norm; },
      "what a weight means: the attention weight (default), or, with norm, its share of what the row moves: "
      "weight times norm of the value after the output projection");
  add_text_option(app, "--layer", "N", source.layer,
                  "show only the heads of this layer, counted from 0: of a model, of a document with layers, "
                  "or of a captured folder");
  add_call_options(app, source.call);
  begin_group(app, "Words");
  add_text(app, "--tokens", "FILE", source.tokens, "a text file with one token per line, one for each query");
  add_text(app, "--key-tokens", "FILE", source.key_tokens,
           "the same for the keys, if they are not the queries' tokens");
}

void complete_source(const CLI::App& app, LookSource& source) {
  if (!source.model.empty()) return complete_model(app, source);
  check_document("look", source.document, source.words);
  check_given_tokens(source.model, source.given, false);
  if (source.repeats) refuse_usage("--protocol is given without --model DIR, which would read its tokens");
  if (!source.texts.empty()) refuse_usage("--text is given without --model, which would read it");
  if (source.is_run()) return;
  if (source.document.empty()) return check_tensors(app, source);
  refuse_call_options(app, "DOC");
  require_ending("DOC", source.document, ".safetensors");
}

std::vector<NamedFile> input_files(const LookSource& source) {
  if (source.is_run()) return {};
  if (!source.document.empty()) return {{"DOC", source.document}};
  if (!source.model.empty()) {
    std::vector<NamedFile> files = {{"--model", model_file(source.model)}};
    for (const std::string& path : source.texts) files.push_back({"--text", path});
    for (NamedFile& file : files_of(source.given)) files.push_back(std::move(file));
    return files;
  }
  std::vector<NamedFile> files = attend_input_files(source.call);
  files.push_back({"--tokens", source.tokens});
  files.push_back({"--key-tokens", source.key_tokens});
  return files;
}

std::string question_command(const CLI::App& app, const LookSource& source, const std::string& saved) {
  const std::string& document = saved.empty() ? source.document : saved;
  if (!document.empty()) return "heed look " + shell_quoted(document);
  if (!source.model.empty())
    return "heed look --model " + shell_quoted(source.model) +
           (source.layer ? " --layer " + *source.layer : "") +
           (source.by == WeighedBy::norm ? " --by norm " : " ") + text_arguments(source);
  std::string command = "heed look";
  for (const GivenOption& option : given_options(app)) {
    if (!belongs_to_call(option.group)) continue;
    command += ' ';
    command += option.name;
    for (const std::string& value : option.values) command += " " + shell_quoted(value);
  }
  return command;
}

SourceText read_text(const Model& model, const LookSource& source) {
  if (source.repeats) return {"", draw_repeated_tokens(model)};
  if (!source.given.empty()) return {"", read_given_tokens(model, source.given)};
  const std::string name = source.texts.empty() ? "WORDS" : source.texts.front();
  std::string text = source.texts.empty() ? source.text : file_text(name);
  ModelTokens tokens = read_tokens_of(model, text, name_of_text(name));
  return {std::move(text), std::move(tokens)};
}

std::optional<std::int64_t> layer_of(const Model& model, const LookSource& source) {
  if (!source.layer) return std::nullopt;
  std::vector<LayerHeads> layers;
  for (std::int64_t n = 0; n < model.info().layers; ++n)
    layers.push_back({std::to_string(n), model.info().heads});
  return heads_of_layer(layers, *source.layer).begin / model.info().heads;
}

Document document_of(const Model& model, const SourceText& text, const LookSource& source) {
  return document_of_text(
      model, text.tokens,
      {.by = source.by, .layer = layer_of(model, source), .threads = source.call.options.threads});
}

Document read_document(const LookSource& source) {
  if (!source.document.empty()) {
    Document document = open_document(source.document);
    document.options.threads = source.call.options.threads;
    return document;
  }
  if (source.model.empty()) return read_call(source);
  const Model model = read_model(source.model, source.given.fast);
  return document_of(model, read_text(model, source), source);
}

}  // namespace heed::cli
