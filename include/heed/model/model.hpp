// Pretrained models in folders of Hugging Face's transformers: heed runs them, inspects them, and generates
// text.
//
// All products are in f32, whatever the stored dtype of the weights, unless ModelOptions::fast asks for less.
// Bits are the same for every number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heed/attention/attention.hpp"
#include "heed/attention/kv_cache.hpp"
#include "heed/export.hpp"
#include "heed/io/model_folder.hpp"
#include "heed/model/tokenizer.hpp"
#include "heed/tensor.hpp"

namespace heed {

/// Properties of a model, from its config.json.
struct ModelInfo {
  std::string family;  ///< model_type: "bert", "gpt2", "llama", …
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;   ///< divides heads
  std::int64_t head_dim = 0;   ///< size of a head of queries, keys and values
  std::int64_t model_dim = 0;  ///< width of the residual stream
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;     ///< context length in tokens
  bool fixed_context = false;   ///< cannot exceed `context` (learned positions)
  bool causal = true;           ///< false: every token attends all others (BERT)
  bool predicts = true;         ///< has an output head that gives logits
  bool symbols = false;         ///< tokens have no meaning: the model only copies earlier ones
  bool fast = false;            ///< ModelOptions::fast
  std::int64_t parameters = 0;  ///< number of parameters, without MLPs of one unit that add 0
  /// The BOS token, for an empty prompt, and the EOS tokens, from config.json and generation_config.json.
  std::optional<std::int64_t> begin_token{};
  std::vector<std::int64_t> end_tokens{};
  /// Warnings about settings in the files that heed ignores, one sentence each.
  std::vector<std::string> notes{};
};

/// A head of a model; both numbers count from 0.
struct ModelHead {
  std::int64_t layer = 0;
  std::int64_t head = 0;
  friend bool operator==(const ModelHead&, const ModelHead&) = default;
};

/// The attention call of one layer for the tokens being read.
struct LayerCall {
  std::int64_t layer = 0;
  TensorView query;          ///< [H, L, d], after norms and rope
  TensorView key, value;     ///< [Hkv, L, d]
  AttentionOptions options;  ///< the model's scale, masks, softcap
  /// All keys and values, including these, if earlier tokens are cached; else null.
  const KvCache* cache = nullptr;
};

/// Hooks that observe or change a run. All are called on the calling thread, layer after layer.
struct ModelHooks {
  /// Replaces attention(): returns its output [H, L, d] (or [1, H, L, d]).
  std::function<Tensor(const LayerCall& call)> attend{};
  /// Receives the outputs of the heads of a layer, [L, H, d], before W_O. The run continues with what the
  /// hook writes there.
  std::function<void(std::int64_t layer, const MutableTensorView& heads)> heads{};
  /// Receives the residual stream [L, D] before layer `layer`. `layer` = number of layers means after the
  /// last.
  std::function<void(std::int64_t layer, const TensorView& stream)> stream{};
};

/// A text as tokens of a model.
struct ModelTokens {
  std::vector<std::int64_t> ids;
  std::vector<TextToken> places;   ///< position of each in the text
  std::vector<std::string> shown;  ///< readable form of each (Tokenizer::shown())
};

namespace detail {
struct ModelParts;
}

/// The KV caches of a model's layers for the tokens read so far.
class HEED_API ModelCache {
 public:
  /// Creates an empty cache. Throws Error (invalid_argument) for a format that cannot store the model's
  /// heads.
  ModelCache(const ModelInfo& info, CacheFormat format);
  /// Takes one cache for each layer. Model::hidden_states() checks that they fit the model.
  explicit ModelCache(std::vector<KvCache> layers) noexcept : layers_(std::move(layers)) {}
  ModelCache(ModelCache&&) noexcept = default;
  ModelCache& operator=(ModelCache&&) noexcept = default;
  [[nodiscard]] std::int64_t length() const;
  /// Removes all tokens.
  void clear();
  /// A deep copy.
  [[nodiscard]] ModelCache copy() const;
  [[nodiscard]] std::span<const KvCache> layers() const noexcept { return layers_; }

 private:
  friend class Model;
  std::vector<KvCache> layers_;
};

/// A pretrained model. Weights stay in their memory-mapped files; if such a file is truncated while the model
/// runs, the process dies (SIGBUS). Calls do not change the model, so several threads may run it.
class HEED_API Model {
 public:
  HEED_HIDDEN explicit Model(std::unique_ptr<const detail::ModelParts> parts);
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  [[nodiscard]] const ModelInfo& info() const noexcept;
  /// nullptr if the folder has no tokenizer that heed supports, and for a model that heed trained, whose
  /// tokens are characters or symbols.
  [[nodiscard]] const Tokenizer* tokenizer() const noexcept;
  /// The tokens of the text, with `add_special` also those that the tokenizer adds. Throws Error
  /// (invalid_argument), starting with `source`, for text that it cannot read, text without tokens, or a
  /// token without an embedding. Also throws if there is no tokenizer.
  [[nodiscard]] ModelTokens tokenize(std::string_view text, const std::string& source = "the text",
                                     bool add_special = true) const;
  /// Makes tokens without a text from ids [L], i64 or i32. `shown` holds their readable forms, or is empty if
  /// the model has no text for one of them. Throws Error (invalid_argument) as hidden_states() does for ids.
  [[nodiscard]] ModelTokens tokens_of(const TensorView& ids) const;
  /// The readable form of token `id`, as in ModelTokens::shown; "#17" if the model has no text for it.
  /// `beside` matters only for symbols of a model that heed trained, whose meaning depends on the text
  /// (TrainedTokenizer::text_of()). Throws Error (invalid_argument) for an id outside [0, vocabulary).
  [[nodiscard]] std::string text_of(std::int64_t id, const ModelTokens& beside) const;

  /// tokens [L], i64 or i32, each in [0, vocabulary) → hidden states after the final norm, [L, D], f32.
  /// `threads` 0: all processors. Throws Error (invalid_argument) for no tokens, unknown tokens, or more
  /// tokens than a fixed context holds.
  [[nodiscard]] Tensor hidden_states(const TensorView& tokens, const ModelHooks& hooks = {},
                                     int threads = 0) const;
  /// The same for tokens that follow those in the cache, and adds them to it. Throws Error (invalid_argument)
  /// if the cache does not fit the model.
  [[nodiscard]] Tensor hidden_states(const TensorView& tokens, ModelCache& cache,
                                     const ModelHooks& hooks = {}, int threads = 0) const;
  /// hidden [R, D] → logits [R, vocabulary]: for the next token (causal models) or the token itself (others).
  /// Throws Error (invalid_argument) if the model does not predict.
  [[nodiscard]] Tensor logits(const TensorView& hidden, int threads = 0) const;
  /// value [Hkv, L, d] of a layer, as in LayerCall → |v_j W_O| with each head's slice of W_O, [H, L], f32. A
  /// norm after W_O (Gemma 2) or a factor (Granite) is not applied.
  [[nodiscard]] Tensor moved_norms(std::int64_t layer, const TensorView& value, int threads = 0) const;

  /// For internal use.
  [[nodiscard]] const detail::ModelParts& parts() const noexcept { return *parts_; }

 private:
  std::unique_ptr<const detail::ModelParts> parts_;
};

/// How load_model() makes a model run.
struct ModelOptions {
  /// Multiplies rounded numbers where this processor gains from it. With weights in blocks (GGUF), up to
  /// eight rows are rounded to signed bytes, with a scale for each 32 numbers (AVX2, VNNI). More than eight
  /// rows and all weights are rounded to bf16 (AVX-512 or matrix tiles with bf16). Other products stay exact.
  /// The error is some 0.5 % of a product; docs/models.md has its effect on real models.
  bool fast = false;
};

/// Reads a model by its name (model_folder()). A folder has config.json, and model.safetensors or
/// model.safetensors.index.json with the files that it names. Its tokenizer is tokenizer.json, BERT's
/// vocab.txt, GPT-2's vocab.json and merges.txt (each with their settings), or vocabulary.json of a model
/// that heed trained. All files are checked as untrusted input. Throws Error (io), naming the file, for an
/// unsupported architecture, and for tensors that are missing, unexpected or of the wrong shape, before
/// anything is computed.
///
/// Also reads a GGUF file (".gguf") of the architectures that docs/formats.md lists, with its tokenizer. Its
/// tensors are F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS or MXFP4; they are
/// mapped and converted to f32 as they are read.
[[nodiscard]] HEED_API Model load_model(const std::string& name, const ModelOptions& options = {});

}  // namespace heed
