#include "model_files/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

#include "model_files/gguf_tokenizer.h"
#include "support/json.h"

namespace mlc_native {
namespace {

constexpr char kArchitecture[] = "general.architecture";
constexpr std::string_view kBeforeFfn = "pre_feedforward_layernorm";

constexpr GgufFamily kFamilies[] = {
    {.name = "llama", .architecture = "LlamaForCausalLM", .interleaves_heads = true},
    {.name = "qwen2", .architecture = "Qwen2ForCausalLM"},
    {.name = "qwen3", .architecture = "Qwen3ForCausalLM"},
    {.name = "qwen3moe", .architecture = "Qwen3MoeForCausalLM", .has_experts = true},
    {.name = "phi3", .architecture = "Phi3ForCausalLM", .ffn_up = "mlp.gate_up_proj"},
    {.name = "gemma", .architecture = "GemmaForCausalLM", .adds_one_to_norms = true},
    {.name = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .ffn_norm = kBeforeFfn,
     .adds_one_to_norms = true},
    {.name = "gemma3",
     .architecture = "Gemma3ForCausalLM",
     .ffn_norm = kBeforeFfn,
     .adds_one_to_norms = true},
    {.name = "olmo2", .architecture = "Olmo2ForCausalLM"},
    {.name = "granite", .architecture = "GraniteForCausalLM", .interleaves_heads = true},
    {.name = "smollm3", .architecture = "SmolLM3ForCausalLM", .interleaves_heads = true},
};

// A key of the family ("llama.<key>") and what it is called in config.json.
struct Renamed {
  const char* key;
  const char* field;
};
constexpr Renamed kIntegers[] = {
    {"embedding_length", "hidden_size"},
    {"feed_forward_length", "intermediate_size"},
    {"block_count", "num_hidden_layers"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"context_length", "max_position_embeddings"},
    {"attention.sliding_window", "sliding_window"},
    {"expert_count", "num_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
};
constexpr Renamed kNumbers[] = {
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"rope.freq_base", "rope_theta"},
    {"rope.freq_base_swa", "rope_local_base_freq"},
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {"attention.scale", "attention_multiplier"},
    {"embedding_scale", "embedding_multiplier"},
    {"residual_scale", "residual_multiplier"},
    {"logit_scale", "logits_scaling"},
};

class ConfigWriter {
 public:
  ConfigWriter(const GgufFile& file, const GgufFamily& family) : file_(file), family_(family) {}

  std::string Write() {
    const std::vector<int64_t> windows = WindowPattern();
    const bool is_olmo3 = family_.name == "olmo2" && !windows.empty();
    json_.BeginObject();
    json_.Name("architectures").BeginArray();
    json_.Put(is_olmo3 ? "Olmo3ForCausalLM" : family_.architecture).EndArray();
    for (const Renamed& r : kIntegers) Add(r.field, file_.Integer(Key(r.key)));
    for (const Renamed& r : kNumbers) Add(r.field, file_.Number(Key(r.key)));
    WriteExperts();
    WriteDerivedSizes();
    WriteLayerTypes(windows);
    WriteRope();
    if (family_.adds_one_to_norms) json_.Add("norms_hold_offset", true);
    json_.Add("dtype", DTypeOfMatrices());
    WriteTokens();
    json_.EndObject();
    return json_.Take();
  }

 private:
  // Which layers have a window; empty: every layer but each n-th one.
  std::vector<int64_t> WindowPattern() const {
    const std::string key = Key("attention.sliding_window_pattern");
    return file_.IsList(key) ? file_.Integers(key) : std::vector<int64_t>();
  }

  std::string Key(std::string_view name) const {
    return std::string(family_.name) + "." + std::string(name);
  }

  template <typename T>
  void Add(const char* field, const std::optional<T>& value) {
    if (value) json_.Add(field, *value);
  }

  // llama.cpp renormalizes the chosen experts' weights of every family here.
  void WriteExperts() {
    if (family_.has_experts) {
      json_.Add("norm_topk_prob", true);
    } else if (file_.Integer(Key("expert_count")).value_or(0) != 0) {
      file_.Fail(Key("expert_count"), "is given; experts of this family are not supported");
    }
  }

  // What config.json says and the metadata leaves to the tensors, or to the family.
  void WriteDerivedSizes() {
    if (const GgufTensor* embeddings = file_.FindTensor("token_embd.weight")) {
      json_.Add("vocab_size", embeddings->shape[0]);
    }
    json_.Add("tie_word_embeddings", file_.FindTensor("output.weight") == nullptr);
    json_.Add("attention_bias", file_.FindTensor("blk.0.attn_q.bias") != nullptr);
    json_.Add("mlp_bias", file_.FindTensor("blk.0.ffn_up.bias") != nullptr);
    const std::optional<int64_t> rotated = file_.Integer(Key("rope.dimension_count"));
    const std::optional<int64_t> heads = file_.Integer(Key("attention.head_count"));
    const std::optional<int64_t> hidden = file_.Integer(Key("embedding_length"));
    if (!heads || *heads < 1 || !hidden) return;  // which the reader of the configuration refuses
    const int64_t dim = file_.Integer(Key("attention.key_length")).value_or(*hidden / *heads);
    if (family_.name == "phi3" && rotated && dim > 0) {
      json_.Add("partial_rotary_factor", static_cast<double>(*rotated) / static_cast<double>(dim));
    }
    if (family_.name == "gemma2" || family_.name == "gemma3") {
      // llama.cpp knows the two models with another scale by their number of layers.
      const int64_t layers = file_.Integer(Key("block_count")).value_or(0);
      const bool is_27b = layers == (family_.name == "gemma2" ? 46 : 62);
      json_.Add("query_pre_attn_scalar", is_27b ? *hidden / *heads : dim);
    }
    const std::string pattern = Key("attention.sliding_window_pattern");
    if (!file_.IsList(pattern)) Add("sliding_window_pattern", file_.Integer(pattern));
  }

  void WriteLayerTypes(const std::vector<int64_t>& windows) {
    if (windows.empty()) return;
    json_.Name("layer_types").BeginArray();
    for (int64_t window : windows) {
      json_.Put(window != 0 ? "sliding_attention" : "full_attention");
    }
    json_.EndArray();
  }

  void PutNumbers(const char* field, const std::vector<double>& numbers) {
    json_.Name(field).BeginArray();
    for (double number : numbers) json_.Put(number);
    json_.EndArray();
  }

  // Factors of the wavelengths are tensors, if there are some.
  void WriteRope() {
    const GgufTensor* one = file_.FindTensor("rope_freqs.weight");
    const GgufTensor* longer = file_.FindTensor("rope_factors_long.weight");
    const GgufTensor* shorter = file_.FindTensor("rope_factors_short.weight");
    const std::string type = file_.String(Key("rope.scaling.type")).value_or("none");
    const bool by_factors = one != nullptr || (longer != nullptr && shorter != nullptr);
    if (!by_factors && type == "none") return;
    json_.Name("rope_scaling").BeginObject();
    json_.Add("rope_type", by_factors ? "longrope" : type);
    Add("factor", file_.Number(Key("rope.scaling.factor")));
    const std::optional<int64_t> original =
        file_.Integer(Key("rope.scaling.original_context_length"));
    std::optional<double> attention = file_.Number(Key("rope.scaling.attn_factor"));
    if (one != nullptr) {  // those of Llama 3.1, which hold for every length
      PutNumbers("short_factor", file_.ReadFloats(*one));
      PutNumbers("long_factor", file_.ReadFloats(*one));
      attention = 1.0;
    } else {
      if (by_factors) {
        PutNumbers("short_factor", file_.ReadFloats(*shorter));
        PutNumbers("long_factor", file_.ReadFloats(*longer));
      }
      Add("original_max_position_embeddings", original);
    }
    Add("attention_factor", attention);
    Add("beta_fast", file_.Number(Key("rope.scaling.yarn_beta_fast")));
    Add("beta_slow", file_.Number(Key("rope.scaling.yarn_beta_slow")));
    json_.EndObject();
  }

  // The type of what is not kept in its stored form: that of the matrices of floats; float32 where
  // a matrix has numbers that need it.
  const char* DTypeOfMatrices() const {
    // Types that a kernel reads.
    static constexpr std::string_view kKept[] = {"Q8_0", "Q4_0", "Q5_0", "IQ4_NL", "MXFP4"};
    const char* dtype = "float16";
    for (const GgufTensor& tensor : file_.tensors()) {
      const std::string_view type = tensor.type->name;
      const bool is_kept = std::ranges::find(kKept, type) != std::end(kKept);
      if (tensor.shape.size() < 2 || type == "F16" || is_kept) continue;
      if (type != "BF16") return "float32";
      dtype = "bfloat16";
    }
    return dtype;
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

  const GgufFile& file_;
  const GgufFamily& family_;
  JsonWriter json_;
};

}  // namespace

const GgufFamily& FamilyOf(const GgufFile& file) {
  const std::string name = file.String(kArchitecture).value_or("");
  const auto* found = std::ranges::find(kFamilies, name, &GgufFamily::name);
  if (found != std::end(kFamilies)) return *found;
  std::string list;
  for (const GgufFamily& family : kFamilies) {
    list += (list.empty() ? "" : ", ") + std::string(family.name);
  }
  file.Fail(kArchitecture, "= " + JsonExcerpt(JsonValue(name)) +
                               " is not supported in a GGUF file; supported: " + list);
}

std::string GgufConfigJson(const GgufFile& file) {
  return ConfigWriter(file, FamilyOf(file)).Write();
}

std::string GgufTokenizerConfigJson(const GgufFile& file) {
  const std::vector<std::string_view> tokens = file.Strings("tokenizer.ggml.tokens");
  JsonWriter json;
  json.BeginObject();
  const auto add_token = [&](const char* field, const char* key) {
    const std::optional<int64_t> id = file.Integer(key);
    if (!id || *id < 0 || static_cast<uint64_t>(*id) >= tokens.size()) return;
    json.Add(field, tokens[static_cast<size_t>(*id)]);
  };
  add_token("bos_token", "tokenizer.ggml.bos_token_id");
  add_token("eos_token", "tokenizer.ggml.eos_token_id");
  add_token("unk_token", "tokenizer.ggml.unknown_token_id");
  add_token("pad_token", "tokenizer.ggml.padding_token_id");
  if (const auto chat = file.String("tokenizer.chat_template")) json.Add("chat_template", *chat);
  json.EndObject();
  return json.Take();
}

}  // namespace mlc_native
