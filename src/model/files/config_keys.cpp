#include "model/files/config_keys.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "io/json_text.hpp"

namespace heed::detail {
namespace {

using Json = nlohmann::ordered_json;

// transformers applies these rules to any family: settings for single layers, and caches that evict.
constexpr const char* kOnly = R"({"per_layer_config": {}, "layer_types": null, "sliding_window": null,
    "attention_chunk_size": null, "kv_sharing_modes": null, "pruned_heads": {}})";

// Keys that name the form of attention or the type of layers, and the names of forms with a softmax over
// keys.
constexpr const char* kFormKeys = R"(attention_type attention_types attn_type attn_types attn_type_list
    layer_type layer_types layers_block_type block_type block_types mixer_type mixer_types token_mixer)";
constexpr const char* kSoftmaxForms = R"(full_attention sliding_attention chunked_attention attention full
    softmax self_attention global local causal standard default sdpa eager flash_attention_2)";

// These keys do not affect inference in any family.
constexpr std::array<const char*, 7> kUnused = {
    // Training: initial weights, dropout, memory.
    R"(initializer_range hidden_dropout_prob attention_probs_dropout_prob attention_dropout hidden_dropout
       dropout embd_pdrop attn_pdrop resid_pdrop gradient_checkpointing)",
    // Heads for whole texts, and their labels.
    R"(id2label label2id num_labels problem_type finetuning_task task_specific_params classifier_dropout
       qa_dropout seq_classif_dropout summary_type summary_use_proj summary_activation
       summary_proj_to_labels summary_first_dropout)",
    // Results of a call, and the code that computes them.
    R"(output_hidden_states output_attentions return_dict tie_last_hidden_states chunk_size_feed_forward
       attn_implementation experts_implementation torchscript use_cache)",
    // Cross-attention. A family whose layers could have it names these keys itself.
    "is_decoder add_cross_attention is_encoder_decoder cross_attention_hidden_size tie_encoder_decoder",
    // The folder's origin, and dtypes, which the weights state themselves.
    R"(architectures transformers_version name_or_path _name_or_path _model_name_or_path _commit_hash dtype
       torch_dtype transformers.js_config
       use_bfloat16 _attn_implementation_internal _experts_implementation_internal
       _attn_implementation_autoset)",
    // Keys that other code reads.
    "heed format tokenizer_class quantization_config bos_token_id eos_token_id",
    // Tokens with a meaning, and settings of generation: options of heed, or read in model.cpp.
    R"(pad_token_id unk_token_id cls_token_id mask_token_id sep_token_id decoder_start_token_id prefix max_length min_length min_new_tokens early_stopping do_sample
       num_beams num_beam_groups diversity_penalty temperature top_k top_p min_p typical_p epsilon_cutoff eta_cutoff
       top_h xtc_probability mirostat
       repetition_penalty encoder_repetition_penalty length_penalty no_repeat_ngram_size
       encoder_no_repeat_ngram_size bad_words_ids forced_bos_token_id forced_eos_token_id
       remove_invalid_values exponential_decay_length_penalty suppress_tokens begin_suppress_tokens
       num_return_sequences output_scores return_dict_in_generate cache_implementation num_assistant_tokens
       num_assistant_tokens_schedule assistant_confidence_threshold assistant_lookbehind
       target_lookbehind forced_decoder_ids sequence_bias guidance_scale constraints force_words_ids
       penalty_alpha dola_layers stop_strings token_healing watermarking_config)"};

// Keys of rope_parameters. The last two lines belong to rules that heed refuses, and to types of layers.
constexpr const char* kRope =
    R"(rope_type type rope_theta partial_rotary_factor factor low_freq_factor high_freq_factor
       original_max_position_embeddings
       attention_factor beta_fast beta_slow mscale mscale_all_dim truncate short_factor long_factor
       full_attention sliding_attention)";

// Whether the names, separated by spaces and line ends, contain `name`.
bool lists(std::string_view names, std::string_view name) {
  if (name.empty() || name.find_first_of(" \n") != name.npos) return false;
  const auto parts = [&](std::size_t at) {
    return at >= names.size() || names[at] == ' ' || names[at] == '\n';
  };
  for (std::size_t at = 0; (at = names.find(name, at)) != names.npos; ++at)
    if ((at == 0 || parts(at - 1)) && parts(at + name.size())) return true;
  return false;
}

bool is_unused(const ConfigKeys& keys, std::string_view name) {
  return lists(keys.unused, name) ||
         std::ranges::any_of(kUnused, [&](const char* names) { return lists(names, name); });
}

// Refuses layers without a softmax over keys, such as sigmoid attention or Mamba.
void check_form(const ModelConfig& config, const std::string& name, const Json& value) {
  if (!lists(kFormKeys, name)) return;
  const Json forms = value.flatten();
  for (const auto& [at, form] : forms.items())
    if (!form.is_null() && !(form.is_string() && lists(kSoftmaxForms, form.get<std::string>())))
      config.fail("has ", name, " ", shown(form), "; heed's ", config.text("model_type"),
                  " expects softmax attention, such as \"full_attention\"");
}

void add_unknown_of_rope(const std::string& at, const Json& rope, std::vector<std::string>& unknown) {
  if (!rope.is_object()) return;
  for (const auto& [name, value] : rope.items()) {
    if (!lists(kRope, name)) unknown.push_back(at + "." + name);
    add_unknown_of_rope(at + "." + name, value, unknown);
  }
}

}  // namespace

std::string shown(const Json& value) {
  constexpr std::size_t kLongest = 64;
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > kLongest ? text.substr(0, kLongest) + "…" : text;
}

ModelConfig with_defaults(const ModelConfig& config, const ConfigKeys& keys,
                          std::vector<std::string>& unknown) {
  const SharedKeys shared = keys.shared == nullptr ? SharedKeys() : *keys.shared;
  Json made = parsed_in_order(shared.read), only = parsed_in_order(kOnly);
  made.update(parsed_in_order(keys.read));
  const Json renamed = parsed_in_order(keys.renamed);
  made["model_type"] = nullptr;
  for (const char* values : {shared.only, keys.only}) only.update(parsed_in_order(values));
  for (const auto& [name, value] : config.json().items()) {
    if (made.contains(name)) {
      made[name] = value;
      continue;
    }
    check_form(config, name, value);
    if (only.contains(name) && !value.is_null() && value != only[name])
      config.fail("has ", name, " ", shown(value), "; heed's ", config.text("model_type"), " expects ",
                  only[name].dump());
    else if (!only.contains(name) && !renamed.contains(name) && !is_unused(keys, name))
      unknown.push_back(name);
  }
  // Another name takes precedence over the family's own, as in transformers.
  for (const auto& [name, own] : renamed.items())
    if (config.contains(name.c_str())) made[own.get<std::string>()] = config.json()[name];
  for (const char* rope : {"rope_parameters", "rope_scaling"})
    if (made.contains(rope)) add_unknown_of_rope(rope, made[rope], unknown);
  return {std::move(made), config.path()};
}

}  // namespace heed::detail
