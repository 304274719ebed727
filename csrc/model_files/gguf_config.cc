#include "model_files/gguf_config.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model_files/gguf_encoders.h"
#include "model_files/gguf_families.h"
#include "model_files/gguf_images.h"
#include "model_files/gguf_layer_sizes.h"
#include "model_files/gguf_recurrent_layers.h"
#include "model_files/gguf_streams.h"
#include "model_files/gguf_tokenizer.h"
#include "support/json.h"

namespace mlc_native {
namespace {

// A key of the family ("llama.<key>") and what it is called in config.json.
struct Renamed {
  const char* key;
  const char* field;
};
constexpr Renamed kIntegers[] = {
    {"embedding_length", "hidden_size"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"context_length", "max_position_embeddings"},
    {"pooling_type", "pooling_type"},
    {"expert_count", "num_local_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_used_count", "top_k_experts"},
    {"expert_used_count", "moe_k"},
    {"expert_used_count", "moe_topk"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
    {"expert_shared_feed_forward_length", "shared_intermediate_size"},
    {"expert_shared_count", "n_shared_experts"},
    {"expert_shared_count", "moe_num_shared_experts"},
    {"expert_shared_count", "num_shared_experts"},
    {"expert_group_count", "n_group"},
    {"expert_group_used_count", "topk_group"},
    {"leading_dense_block_count", "first_k_dense_replace"},
    {"leading_dense_block_count", "moe_layer_start_index"},
    {"leading_dense_block_count", "num_dense_layers"},
    {"interleave_moe_layer_step", "moe_layer_interval"},
    {"interleave_moe_layer_step", "interleave_moe_layer_step"},
    {"full_attention_interval", "full_attention_interval"},
    {"ssm.group_count", "linear_num_key_heads"},
    {"ssm.state_size", "linear_key_head_dim"},
    {"ssm.time_step_rank", "linear_num_value_heads"},
    {"ssm.conv_kernel", "linear_conv_kernel_dim"},
    {"attention.indexer.head_count", "index_n_heads"},
    {"attention.indexer.key_length", "index_head_dim"},
    {"attention.indexer.top_k", "index_topk"},
};
constexpr Renamed kNumbers[] = {
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.layer_norm_epsilon", "layer_norm_eps"},
    {"attention.layer_norm_epsilon", "norm_epsilon"},
    {"attention.layer_norm_epsilon", "norm_eps"},
    {"attention.layer_norm_epsilon", "layer_norm_epsilon"},
    {"attention.clamp_kqv", "clip_qkv"},
    {"attention.max_alibi_bias", "alibi_bias_max"},
    {"rope.freq_base_swa", "rope_local_base_freq"},
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {"attention.scale", "attention_multiplier"},
    {"embedding_scale", "embedding_multiplier"},
    {"residual_scale", "residual_multiplier"},
    {"logit_scale", "logits_scaling"},
    {"logit_scale", "logit_scale"},
    {"expert_weights_scale", "routed_scaling_factor"},
    {"expert_weights_scale", "route_scale"},
};

constexpr int64_t kMostLayers = 1 << 16;  // above what the reader of the configuration allows

class ConfigWriter {
 public:
  explicit ConfigWriter(const GgufParts& parts)
      : parts_(parts), file_(parts.first()), family_(FamilyOf(file_)) {}

  std::string Write() {
    json_.BeginObject();
    json_.Name("architectures").BeginArray().Put(Architecture()).EndArray();
    Require("context_length");
    Require(family_.norm_eps);
    for (const Renamed& r : kIntegers) {
      if (!HasOwnMeaning(r.key)) Add(r.field, file_.IntegerOfLayers(Key(r.key)));
    }
    for (const Renamed& r : kNumbers) Add(r.field, file_.Number(Key(r.key)));
    Add("num_hidden_layers", NumLayers());
    WriteExperts();
    WriteProperties();
    WriteSizes();
    WriteWindows();
    WriteGgufImages(file_, family_, json_);
    if (family_.adds_one_to_norms) json_.Add("norms_hold_offset", true);
    json_.Add("dtype", parts_.DTypeOfMatrices());
    WriteTokens();
    json_.EndObject();
    return json_.Take();
  }

 private:
  std::string Key(std::string_view name) const {
    return std::string(family_.name) + "." + std::string(name);
  }

  template <typename T>
  void Add(const char* field, const std::optional<T>& value) {
    if (value) json_.Add(field, *value);
  }

  // A key of which no value can be taken for granted.
  void Require(std::string_view key) const {
    if (!file_.Has(Key(key))) file_.Fail(Key(key), "is missing");
  }

  bool IsVariant() const {
    if (family_.is_encoder) return HasGgufClasses(parts_);
    const std::string key = Key(family_.variant_key);
    return !family_.variant_key.empty() &&
           (file_.IsList(key) || file_.Integer(key).value_or(0) != 0);
  }
  std::string_view Architecture() const {
    if (HasSigmoids()) return family_.of_sigmoids;
    if (ScalesQueries() && !family_.of_scaled_queries.empty()) return family_.of_scaled_queries;
    return IsVariant() ? family_.variant : family_.architecture;
  }

  // Of a family with both kinds of scores. Old files have no key for it, but what is added to
  // sigmoids for the choice.
  bool HasSigmoids() const {
    if (family_.of_sigmoids.empty()) return false;
    const std::optional<int64_t> given = file_.Integer(Key("expert_gating_func"));
    if (given.value_or(0) != 0) return *given == static_cast<int64_t>(GgufGating::kSigmoid);
    const int64_t first = file_.Integer(Key("leading_dense_block_count")).value_or(0);
    return Has("blk." + std::to_string(first) + ".exp_probs_b.bias");
  }

  bool ScalesQueries() const {
    return file_.Number(Key("attention.temperature_scale")).value_or(0) != 0;
  }

  // Layers that guess further tokens are the last ones of the file. nullopt: which the reader of
  // the configuration refuses.
  std::optional<int64_t> NumLayers() const {
    const std::optional<int64_t> count = file_.Integer(Key("block_count"));
    const int64_t guess = file_.Integer(Key("nextn_predict_layers")).value_or(0);
    return count && guess >= 0 && guess < *count ? std::optional(*count - guess) : std::nullopt;
  }

  void WriteExperts() {
    if (file_.Integer(Key("expert_count")).value_or(0) == 0) return;
    if (family_.gating == GgufGating::kNone) {
      file_.Fail(Key("expert_count"), "is given; experts of this family are not supported");
    }
    Require("expert_used_count");
    const std::string key = Key("expert_gating_func");
    const auto known = static_cast<int64_t>(HasSigmoids() ? GgufGating::kSigmoid : family_.gating);
    const int64_t given = file_.Integer(key).value_or(0);
    if (given != 0 && given != known) {
      file_.Fail(key, "= " + std::to_string(given) + " is not supported for this family (only " +
                          std::to_string(known) + ")");
    }
    json_.Add("enable_moe_block", true)
        .Add("norm_topk_prob",
             file_.Bool(Key("expert_weights_norm")).value_or(family_.renormalizes));
  }

  bool Has(std::string_view tensor) const { return parts_.Has(tensor); }

  // What the metadata leaves to the tensors.
  void WriteProperties() {
    const bool qkv_bias = Has("blk.0.attn_q.bias") || Has("blk.0.attn_qkv.bias");
    for (const char* field : {"attention_bias", "qkv_bias", "use_qkv_bias", "use_bias"}) {
      json_.Add(field, qkv_bias);
    }
    for (const char* field : {"use_qk_norm", "qk_layernorm"}) {
      json_.Add(field, family_.is_chunked ? !IsMaverick() : Has("blk.0.attn_q_norm.weight"));
    }
    json_.Add("mup_enabled", true);  // of all files with AFMoE
    if (family_.sees_both_directions) {
      json_.Add("use_bidirectional_attention", true);
    } else {
      Add("is_causal", file_.Bool(Key("attention.causal")));
    }
    json_.Add("attention_out_bias", Has("blk.0.attn_output.bias"));
    json_.Add("mlp_bias", Has("blk.0.ffn_up.bias")).Add("lm_head_bias", Has("output.bias"));
    json_.Add("use_parallel_residual",
              file_.Bool(Key("use_parallel_residual")).value_or(!Has("blk.0.ffn_norm.weight")));
    json_.Add("tie_word_embeddings", !Has("output.weight"));
    if (family_.splits_qkv) WriteFusedProjections(qkv_bias);
    if (const auto embeddings = parts_.Find("token_embd.weight"); embeddings.tensor != nullptr) {
      json_.Add("vocab_size", embeddings.tensor->shape[0]);
    }
  }

  // Of families whose folders have q, k and v in one tensor. All of Falcon's are as its last ones.
  void WriteFusedProjections(bool qkv_bias) {
    json_.Add("has_split_projections", true);
    json_.Add("multi_query", file_.IntegerOfLayers(Key("attention.head_count_kv")) == 1);
    if (family_.name != "falcon") return;
    json_.Add("bias", qkv_bias).Add("new_decoder_architecture", true);
    json_.Add("num_ln_in_parallel_attn", Has("blk.0.attn_norm_2.weight") ? 2 : 1);
  }

  // Whether a key says something else where heads are made of latents, or layers differ.
  bool HasOwnMeaning(std::string_view key) const {
    const bool is_of_kv = key == "attention.head_count_kv";
    const bool is_of_heads = is_of_kv || key == "attention.key_length";
    const bool is_of_ffn = key == "feed_forward_length";
    if (family_.is_chunked) return is_of_ffn || key == "expert_feed_forward_length";
    if (family_.mamba == GgufMamba::kAlone || family_.mamba == GgufMamba::kScanAlone) {
      return is_of_heads || is_of_ffn || key == "attention.head_count";
    }
    if (family_.mamba == GgufMamba::kSingleBlocks) return is_of_kv || is_of_ffn;
    if (family_.has_streams) return is_of_ffn;
    if (family_.has_convolutions || family_.mamba == GgufMamba::kSomeLayers ||
        family_.mamba == GgufMamba::kScanInSomeLayers) {
      return is_of_kv;
    }
    return family_.layers_differ ? is_of_heads || is_of_ffn : family_.is_latent && is_of_heads;
  }

  void WriteSizes() {
    if (family_.is_encoder) WriteGgufEncoder(parts_, family_, json_);
    if (family_.layers_differ) return WriteGgufLayerSizes(parts_, family_.name, json_);
    WriteGgufRecurrentLayers(parts_, family_, json_);
    if (family_.is_chunked) WriteChunks();
    if (family_.has_streams) WriteGgufStreams(parts_, family_.name, json_);
    family_.is_latent ? WriteLatentSizes() : WriteDerivedSizes();
    if (!family_.lacks_ropes) WriteRope();
  }

  // As llama.cpp tells the models of Llama 4 apart, of which one does not normalize heads.
  bool IsMaverick() const { return file_.Integer(Key("expert_count")).value_or(0) == 128; }

  // What llama.cpp knows by the family: the size of chunks and which layers have rope. A window of
  // 0 says that no layer has chunks and all have rope.
  void WriteChunks() {
    constexpr int64_t kSize = 8192, kInterval = 4;
    json_.Add("intermediate_size_mlp", Required("feed_forward_length"))
        .Add("intermediate_size", Required("expert_feed_forward_length"));
    Require("interleave_moe_layer_step");
    const std::string pattern = Key("attention.sliding_window_pattern");
    if (file_.Has(pattern) && (file_.IsList(pattern) || file_.Integer(pattern) != kInterval)) {
      file_.Fail(pattern, "is supported as " + std::to_string(kInterval) + " alone");
    }
    const bool has_chunks = file_.Integer(Key("attention.sliding_window")).value_or(kSize) != 0;
    json_.Name("attention_chunk_size");
    has_chunks ? json_.Put(kSize) : json_.Null();
    json_.Add("no_rope_layer_interval", has_chunks ? kInterval : NumLayers().value_or(0) + 1);
  }

  int64_t Required(std::string_view key) const {
    Require(key);
    return file_.Integer(Key(key)).value_or(0);
  }

  // Not all layers have latents, perhaps.
  bool HasSplitLatents() const {
    const int64_t num_layers = std::min(NumLayers().value_or(0), kMostLayers);
    for (int64_t i = 0; i < num_layers; ++i) {
      const std::string layer = "blk." + std::to_string(i) + '.';
      if (Has(layer + "attn_kv_a_mqa.weight")) return Has(layer + "attn_k_b.weight");
    }
    return false;
  }

  // What a family with latent attention calls otherwise, or leaves out if it changes nothing. Where
  // the up-projection is in two parts, and in all files of Kimi Linear, the sizes of heads have
  // "_mla" behind their names.
  void WriteLatentSizes() {
    const bool is_split = HasSplitLatents();
    const std::string_view suffix = is_split || family_.decays_channels ? "_mla" : "";
    const std::string key_length = "attention.key_length" + std::string(suffix);
    const int64_t key = Required(key_length);
    const int64_t rope = Required("rope.dimension_count");
    if (rope < 1 || key <= rope) {
      file_.Fail(Key(key_length), "= " + std::to_string(key) + " must be more than " +
                                      Key("rope.dimension_count") + " = " + std::to_string(rope));
    }
    json_.Add("qk_nope_head_dim", key - rope).Add("qk_rope_head_dim", rope);
    json_.Add("v_head_dim", Required("attention.value_length" + std::string(suffix)));
    json_.Add("kv_lora_rank", Required("attention.kv_lora_rank"));
    const int64_t q_rank = file_.Integer(Key("attention.q_lora_rank")).value_or(0);
    json_.Name("q_lora_rank");
    q_rank == 0 ? json_.Null() : json_.Put(q_rank);
    json_.Add("num_key_value_heads", Required("attention.head_count"));
    json_.Add("has_split_kv_b_proj", is_split);
    if (ScalesQueries()) CheckQueryScaling();
    if (family_.chooses_keys) WriteIndices();
    const std::string groups = Key("expert_group_count");
    if (!file_.Has(groups)) json_.Add("n_group", 1).Add("topk_group", 1);
    const bool has_groups = file_.Integer(groups).value_or(1) > 1;
    json_.Add("topk_method", has_groups ? "group_limited_greedy" : "greedy");
    if (!file_.Has(Key("expert_weights_scale"))) json_.Add("routed_scaling_factor", 1.0);
  }

  // A layer without an index shares the choice of one in front of it.
  void WriteIndices() {
    for (const char* key : {"head_count", "key_length", "top_k"}) {
      Require("attention.indexer." + std::string(key));
    }
    json_.Name("indexer_types").BeginArray();
    for (int64_t i = 0; i < std::min(NumLayers().value_or(0), kMostLayers); ++i) {
      json_.Put(Has("blk." + std::to_string(i) + ".indexer.attn_k.weight") ? "full" : "shared");
    }
    json_.EndArray();
  }

  // Of latent attention: that of Mistral Large 3.
  void CheckQueryScaling() const {
    const std::string scale = Key("attention.temperature_scale");
    if (HasSigmoids()) file_.Fail(scale, "is not supported where experts have sigmoids");
    if (file_.String(Key("rope.scaling.type")).value_or("") != "yarn") {
      file_.Fail(scale, "is supported with " + Key("rope.scaling.type") + " = \"yarn\" alone");
    }
    const std::string length = Key("attention.temperature_length");
    const std::string original = Key("rope.scaling.original_context_length");
    if (file_.Integer(length) != file_.Integer(original)) {
      file_.Fail(length, "must be " + original);
    }
  }

  // What llama.cpp knows by the family.
  void WriteDerivedSizes() {
    Require("attention.head_count");
    const std::optional<int64_t> heads = file_.IntegerOfLayers(Key("attention.head_count"));
    const std::optional<int64_t> hidden = file_.IntegerOfLayers(Key("embedding_length"));
    if (!heads || *heads < 1 || !hidden) return;  // which the reader of the configuration refuses
    if (!file_.Has(Key("attention.head_count_kv"))) json_.Add("num_key_value_heads", *heads);
    if (!file_.Has(Key("attention.key_length"))) json_.Add("head_dim", *hidden / *heads);
    const int64_t dim =
        file_.IntegerOfLayers(Key("attention.key_length")).value_or(*hidden / *heads);
    const int64_t rotated = file_.Integer(Key("rope.dimension_count")).value_or(dim);
    if (dim > 0 && !family_.lacks_ropes) {
      const double part = static_cast<double>(rotated) / static_cast<double>(dim);
      for (const char* field : {"partial_rotary_factor", "rotary_pct"}) json_.Add(field, part);
    }
    if (family_.name == "gemma-embedding") json_.Add("query_pre_attn_scalar", dim);
    if (family_.name == "gemma2" || family_.name == "gemma3") {
      // The two models with another scale have a number of layers of their own.
      const int64_t layers = file_.Integer(Key("block_count")).value_or(0);
      const bool is_27b = layers == (family_.name == "gemma2" ? 46 : 62);
      json_.Add("query_pre_attn_scalar", is_27b ? *hidden / *heads : dim);
    }
  }

  void PutLayerTypes(const std::vector<int64_t>& has_window) {
    json_.Name("layer_types").BeginArray();
    for (int64_t has : has_window) json_.Put(has != 0 ? "sliding_attention" : "full_attention");
    json_.EndArray();
  }

  // A window of 0 is none. The pattern is a list, or says that every n-th layer has no window.
  void WriteWindows() {
    const std::optional<int64_t> window = file_.Integer(Key("attention.sliding_window"));
    if (window.value_or(0) != 0) {
      json_.Add("sliding_window", *window);
    } else if (window || family_.may_lack_windows) {
      json_.Name("sliding_window").Null();
      constexpr int64_t kMost = 1 << 16;  // above what the reader of the configuration allows
      const auto layers =
          static_cast<size_t>(std::clamp<int64_t>(NumLayers().value_or(0), 0, kMost));
      if (family_.may_lack_windows) return PutLayerTypes(std::vector<int64_t>(layers));
    }
    const std::string key = Key("attention.sliding_window_pattern");
    if (!file_.IsList(key)) return Add("sliding_window_pattern", file_.Integer(key));
    PutLayerTypes(file_.Integers(key));
  }

  void PutNumbers(const char* field, const GgufParts::Place& place) {
    json_.Name(field).BeginArray();
    for (double number : place.file->ReadFloats(*place.tensor)) json_.Put(number);
    json_.EndArray();
  }

  // Sections are of the positions in images. In one family, the rows of q and k have another order
  // where some are given.
  void RefuseSections() const {
    const std::string key = Key("rope.dimension_sections");
    if (!family_.sections_reorder_heads) return;
    if (std::ranges::any_of(file_.Integers(key), [](int64_t size) { return size != 0; })) {
      file_.Fail(key, "is not supported for this family: a model that also sees images");
    }
  }

  // Factors of the wavelengths are tensors, if there are some.
  void WriteRope() {
    RefuseSections();
    const double base = file_.Number(Key("rope.freq_base")).value_or(10000.0);
    for (const char* field : {"rope_theta", "rotary_emb_base"}) json_.Add(field, base);
    if (family_.name == "olmo2" && IsVariant()) {  // whose layers with a window have their own
      json_.Name("rope_parameters").BeginObject().Name("sliding_attention").BeginObject();
      json_.Add("rope_theta", file_.Number(Key("rope.freq_base_swa")).value_or(base));
      json_.EndObject().EndObject();
    }
    const GgufParts::Place one = parts_.Find("rope_freqs.weight");
    const GgufParts::Place longer = parts_.Find("rope_factors_long.weight");
    const GgufParts::Place shorter = parts_.Find("rope_factors_short.weight");
    const bool has_one = one.file != nullptr;
    std::optional<double> factor = file_.Number(Key("rope.scaling.factor"));
    if (!factor) factor = file_.Number(Key("rope.scale_linear"));  // of old files
    // As for llama.cpp, a factor without a type is linear, and a factor of 0 is none.
    const std::string type = file_.String(Key("rope.scaling.type"))
                                 .value_or(factor.value_or(0) == 0 ? "none" : "linear");
    const bool by_factors = has_one || (longer.file != nullptr && shorter.file != nullptr);
    std::optional<double> attention = file_.Number(Key("rope.scaling.attn_factor"));
    if (!attention) attention = file_.Number(Key("rope.scaling.yarn_attn_factor"));
    const std::string original = Key("rope.scaling.original_context_length");
    // Phi-3 reads it here, Ministral 3 below.
    if (!has_one) Add("original_max_position_embeddings", file_.Integer(original));
    json_.Name("rope_scaling").BeginObject();
    json_.Add("rope_type", by_factors ? "longrope" : type == "none" ? "default" : type);
    WriteGgufImagePositions(file_, family_, json_);
    Add("factor", factor);
    if (has_one && type != "none" && factor.value_or(1) != 1) {
      file_.Fail(Key("rope.scaling.factor"),
                 "is not supported beside the tensor \"rope_freqs.weight\"");
    }
    if (has_one) {  // those of Llama 3.1, which hold for every length
      PutNumbers("short_factor", one);
      PutNumbers("long_factor", one);
      attention = 1.0;
    } else {
      if (by_factors) {
        PutNumbers("short_factor", shorter);
        PutNumbers("long_factor", longer);
      }
      Add("original_max_position_embeddings", file_.Integer(original));
    }
    Add("attention_factor", attention);
    if (type == "yarn") WriteYarn();
    json_.EndObject();
  }

  void WriteYarn() {
    json_.Add("truncate", family_.truncates_yarn);
    Add("beta_fast", file_.Number(Key("rope.scaling.yarn_beta_fast")));
    Add("beta_slow", file_.Number(Key("rope.scaling.yarn_beta_slow")));
    if (const auto all_dim = file_.Number(Key("rope.scaling.yarn_log_multiplier"))) {
      // The converter of this family writes a tenth.
      const double mscale = family_.is_latent ? 10 * *all_dim : *all_dim;
      json_.Add("mscale", family_.is_latent ? mscale : 1.0).Add("mscale_all_dim", mscale);
    }
    Add("llama_4_scaling_beta", file_.Number(Key("attention.temperature_scale")));
  }

  void WriteTokens() {
    const std::vector<int64_t> ends = GgufEndTokens(file_);
    if (!ends.empty()) {
      json_.Name("eos_token_id").BeginArray();
      for (int64_t id : ends) json_.Put(id);
      json_.EndArray();
    }
    Add("bos_token_id", file_.Integer("tokenizer.ggml.bos_token_id"));
  }

  const GgufParts& parts_;
  const GgufFile& file_;  // the first, which has the metadata
  const GgufFamily& family_;
  JsonWriter json_;
};

}  // namespace

std::string GgufConfigJson(const GgufParts& parts) { return ConfigWriter(parts).Write(); }

}  // namespace mlc_native
