// Models that others trained: a folder as Hugging Face's transformers writes it, run here, looked into, and
// let write on.
//
// All products are in f32 whatever the weights are stored as, and have the same bits for every number of
// threads.
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

#include "heed/attention.hpp"
#include "heed/export.hpp"
#include "heed/kv_cache.hpp"
#include "heed/model_folder.hpp"
#include "heed/tensor.hpp"
#include "heed/text_tokenizer.hpp"

namespace heed {

/// What a model is, as its config.json says.
struct ModelInfo {
  std::string family;  ///< its model_type: "bert", "gpt2", "llama", …
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;   ///< divides heads
  std::int64_t head_dim = 0;   ///< of queries, keys and values
  std::int64_t model_dim = 0;  ///< width of the residual stream
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;     ///< tokens that it was made for
  bool fixed_context = false;   ///< it has no positions for more (learned ones)
  bool causal = true;           ///< false: every token sees all others (BERT)
  bool predicts = true;         ///< it has a head that gives logits
  bool symbols = false;         ///< tokens have no meaning: the model only copies what came before
  std::int64_t parameters = 0;  ///< numbers in its weights; MLPs of one unit that add 0 do not count
  /// That begins a text of none, and those that end one, as config.json and generation_config.json say.
  std::optional<std::int64_t> begin_token{};
  std::vector<std::int64_t> end_tokens{};
  /// Sentences about what the files say and heed leaves aside.
  std::vector<std::string> notes{};
};

struct ModelHead {
  std::int64_t layer = 0;
  std::int64_t head = 0;
  friend bool operator==(const ModelHead&, const ModelHead&) = default;
};

/// The attention of one layer for the tokens that are being read.
struct LayerCall {
  std::int64_t layer = 0;
  TensorView query;                ///< [H, L, d], as the scores are made of: behind norms and rope
  TensorView key, value;           ///< [Hkv, L, d]
  AttentionOptions options;        ///< the model's scale, masks, softcap
  const KvCache* cache = nullptr;  ///< where tokens were read before: all keys and values, these appended
};

/// What to see of a run, and to change in it. All are called on the calling thread, layer after layer.
struct ModelHooks {
  /// In place of attention(): gives its output [H, L, d] (or [1, H, L, d]).
  std::function<Tensor(const LayerCall& call)> attend{};
  /// The outputs of the heads of a layer, [L, H, d], before W_O: what is written there is what goes on.
  std::function<void(std::int64_t layer, const MutableTensorView& heads)> heads{};
  /// The residual stream [L, D] before layer `layer`, and behind the last, where `layer` is their number.
  std::function<void(std::int64_t layer, const TensorView& stream)> stream{};
};

/// A text as a model reads it.
struct ModelTokens {
  std::vector<std::int64_t> ids;
  std::vector<TextToken> places;   ///< where each lies in the text
  std::vector<std::string> shown;  ///< as people read them (TextTokenizer::shown())
};

namespace detail {
struct ModelParts;
}

/// The keys and values of tokens that a model has read, so that each is read once.
class HEED_API ModelCache {
 public:
  /// Of an empty text. Throws Error (invalid_argument) for a format that cannot keep the model's heads.
  ModelCache(const ModelInfo& info, CacheFormat format);
  /// Takes one cache for each layer. Model::hidden_states() checks that they fit the model.
  explicit ModelCache(std::vector<KvCache> layers) noexcept : layers_(std::move(layers)) {}
  ModelCache(ModelCache&&) noexcept = default;
  ModelCache& operator=(ModelCache&&) noexcept = default;
  [[nodiscard]] std::int64_t length() const;
  /// Forgets all.
  void clear();
  /// A deep copy.
  [[nodiscard]] ModelCache copy() const;
  [[nodiscard]] std::span<const KvCache> layers() const noexcept { return layers_; }

 private:
  friend class Model;
  std::vector<KvCache> layers_;
};

/// Weights stay in their files, which are mapped: a file that is cut short while the model runs ends the
/// process (SIGBUS). Calls do not change the model; several threads may run it.
class HEED_API Model {
 public:
  HEED_HIDDEN explicit Model(std::unique_ptr<const detail::ModelParts> parts);
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  [[nodiscard]] const ModelInfo& info() const noexcept;
  /// Nothing where the folder has none that heed reads, and for a model that heed trained, whose tokens are
  /// characters or symbols.
  [[nodiscard]] const TextTokenizer* tokenizer() const noexcept;
  /// The text's tokens, special ones added as the tokenizer does. Throws Error (invalid_argument) that begins
  /// with `source` for text that it cannot read, that has no tokens or one that the model has no embedding
  /// for, and where there is no tokenizer.
  [[nodiscard]] ModelTokens tokenize(std::string_view text, const std::string& source = "the text") const;
  /// Ids [L], i64 or i32, as tokens without a text. `shown` has them as people read them; it is empty where
  /// the model has no text for one of them. Throws Error (invalid_argument) as hidden_states() does for ids.
  [[nodiscard]] ModelTokens tokens_of(const TensorView& ids) const;
  /// What people read for token `id` beside a text: as ModelTokens::shown has it; "#17" where the model has
  /// no text for it. What a symbol of a model that heed trained stands for depends on the text
  /// (Tokenizer::text_of()). Throws Error (invalid_argument) for an id that is not in [0, vocabulary).
  [[nodiscard]] std::string text_of(std::int64_t id, const ModelTokens& beside) const;

  /// tokens [L], i64 or i32, each in [0, vocabulary) → hidden states behind the last norm, [L, D], f32.
  /// `threads` 0: what the machine has. Throws Error (invalid_argument) for tokens that the model does not
  /// have, none, or more than a fixed context.
  [[nodiscard]] Tensor hidden_states(const TensorView& tokens, const ModelHooks& hooks = {},
                                     int threads = 0) const;
  /// The same for tokens that come after those in the cache, which keeps them. Throws Error
  /// (invalid_argument) if the cache does not fit the model.
  [[nodiscard]] Tensor hidden_states(const TensorView& tokens, ModelCache& cache,
                                     const ModelHooks& hooks = {}, int threads = 0) const;
  /// hidden [R, D] → logits [R, vocabulary]: of a causal model what comes next, of another what stands there.
  /// Throws Error (invalid_argument) where the model does not predict.
  [[nodiscard]] Tensor logits(const TensorView& hidden, int threads = 0) const;
  /// value [Hkv, L, d] of a layer, as hooks see it → |v_j W_O| for each head's slice of W_O, [H, L], f32:
  /// before a norm that may come behind W_O (Gemma 2).
  [[nodiscard]] Tensor moved_norms(std::int64_t layer, const TensorView& value, int threads = 0) const;

  /// For heed's own sources.
  [[nodiscard]] const detail::ModelParts& parts() const noexcept { return *parts_; }

 private:
  std::unique_ptr<const detail::ModelParts> parts_;
};

/// Reads a model by its name (model_folder()). A folder holds config.json, model.safetensors (or
/// model.safetensors.index.json and the files that it names), tokenizer.json (or BERT's vocab.txt, or GPT-2's
/// vocab.json and merges.txt, with their settings), or vocabulary.json of a model that heed trained. Files
/// are hostile until checked: an architecture that heed does not have, tensors that are missing, left over,
/// or of another shape than the configuration gives throw Error (io), naming the file, before anything is
/// computed.
///
/// Or a GGUF file (its name ends in ".gguf") of the architectures llama, qwen2 and qwen3, with tensors of
/// F32, F16, BF16, Q8_0, Q4_0, Q4_K and Q6_K, which are mapped and become f32 as they are read, and its
/// tokenizer.
[[nodiscard]] HEED_API Model load_model(const std::string& name);

}  // namespace heed
