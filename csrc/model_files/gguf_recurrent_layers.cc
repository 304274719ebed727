#include "model_files/gguf_recurrent_layers.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model_files/gguf_layer_keys.h"

namespace mlc_native {
namespace {

constexpr char kHeadCountKv[] = "attention.head_count_kv";
constexpr char kFeedForward[] = "feed_forward_length";
constexpr char kSsmSize[] = "ssm.inner_size";
constexpr char kSsmHeads[] = "ssm.time_step_rank";

// Sizes of Mamba-2, and what families call them.
struct SsmSize {
  const char* key;
  const char* field;
  const char* nemotron_field;
  const char* mamba2_field;
};
constexpr SsmSize kSsmSizes[] = {
    {"ssm.time_step_rank", "mamba_n_heads", "mamba_num_heads", "num_heads"},
    {"ssm.group_count", "mamba_n_groups", "n_groups", "n_groups"},
    {"ssm.state_size", "mamba_d_state", "ssm_state_size", "state_size"},
    {"ssm.conv_kernel", "mamba_d_conv", "conv_kernel", "conv_kernel"},
};

class RecurrentLayers : GgufLayerKeys {
 public:
  RecurrentLayers(const GgufParts& parts, const GgufFamily& family, JsonWriter& json)
      : GgufLayerKeys(parts.first(), family.name),
        parts_(parts),
        file_(parts.first()),
        family_(family),
        json_(json) {}

  void Write() {
    if (family_.is_hybrid) WriteDelta();
    if (family_.decays_channels) WriteKimiDelta();
    if (family_.has_convolutions) WriteConvolutions();
    if (family_.mamba == GgufMamba::kNone) return;
    if (family_.mamba == GgufMamba::kScanAlone) return WriteScanAlone();
    if (family_.mamba == GgufMamba::kScanInSomeLayers) return WriteScanInSomeLayers();
    ReadHeads();
    switch (family_.mamba) {
      case GgufMamba::kNone:
      case GgufMamba::kScanAlone:
      case GgufMamba::kScanInSomeLayers:
        break;
      case GgufMamba::kSomeLayers:
        WriteMambaInSomeLayers();
        break;
      case GgufMamba::kBesideAttention:
        WriteMambaBesideAttention();
        break;
      case GgufMamba::kSingleBlocks:
        WriteSingleBlocks();
        break;
      case GgufMamba::kAlone:
        WriteMambaAlone();
        break;
    }
    WriteMambaSizes();
  }

 private:
  bool Has(int64_t layer, const char* tensor) const {
    return parts_.Has("blk." + std::to_string(layer) + '.' + tensor);
  }

  static int64_t FirstLayer(const std::vector<int64_t>& of_layers, bool with_one) {
    const auto found =
        std::ranges::find(of_layers, with_one, [](int64_t value) { return value != 0; });
    return found == of_layers.end() ? 0 : found - of_layers.begin();
  }

  // The KV heads of each layer, of which some attend.
  std::vector<int64_t> WriteKvHeads() {
    std::vector<int64_t> kv_heads = OfLayers(kHeadCountKv);
    const int64_t count = OnlyOne(kHeadCountKv, kv_heads, "attention");
    if (count == 0) Fail(kHeadCountKv, "has no layer with attention");
    json_.Add("num_key_value_heads", count);
    return kv_heads;
  }

  // Layers without KV heads are of another kind.
  void WriteKinds(const std::vector<int64_t>& kv_heads, const char* without, const char* with) {
    json_.Name("layer_types").BeginArray();
    for (int64_t heads : kv_heads) json_.Put(heads == 0 ? without : with);
    json_.EndArray();
  }
  std::vector<int64_t> WriteKindsByKvHeads(const char* without, const char* with) {
    std::vector<int64_t> kv_heads = WriteKvHeads();
    WriteKinds(kv_heads, without, with);
    return kv_heads;
  }

  // Those of linear attention or Mamba-2.
  void ReadHeads() {
    heads_size_ = Required(kSsmSize);
    num_heads_ = Required(kSsmHeads);
    CheckMultiple(kSsmSize, heads_size_, kSsmHeads, num_heads_);
  }

  // What has no key of its own.
  void WriteDelta() {
    for (const char* key : {"ssm.group_count", "ssm.state_size", "ssm.conv_kernel"}) Require(key);
    ReadHeads();
    json_.Add("linear_value_head_dim", heads_size_ / num_heads_);
    json_.Add("has_split_projections", !Has(0, "ssm_in.weight"));
  }

  // As many heads as attention has. The numbers of KV heads are of no matter beyond that, which
  // latents share.
  void WriteKimiDelta() {
    Require("ssm.conv_kernel");
    WriteKinds(OfLayers(kHeadCountKv), "linear_attention", "full_attention");
    json_.Add("linear_num_heads", Required("attention.head_count"));
    json_.Add("linear_head_dim", Required("kda.head_dim"));
  }

  void WriteConvolutions() {
    WriteKindsByKvHeads("conv", "full_attention");
    json_.Add("conv_L_cache", Required("shortconv.l_cache"));
    json_.Add("block_auto_adjust_ff_dim", false);
    if (const auto eps = file_.Number(Key("attention.layer_norm_rms_epsilon"))) {
      json_.Add("norm_eps", *eps);
    }
    constexpr char kWindow[] = "attention.sliding_window";
    if (file_.Integer(Key(kWindow)).value_or(0) != 0) {
      Fail(kWindow, "is not supported for this family");
    }
  }

  void WriteMambaSizes() {
    const int64_t head_dim = heads_size_ / num_heads_;
    json_.Add("mamba_d_ssm", heads_size_);
    json_.Add("mamba_d_head", head_dim).Add("mamba_head_dim", head_dim);
    const bool is_alone = family_.mamba == GgufMamba::kAlone;
    for (const SsmSize& s : kSsmSizes) {
      const int64_t value = Required(s.key);
      if (is_alone) {
        json_.Add(s.mamba2_field, value);
      } else {
        json_.Add(s.field, value).Add(s.nemotron_field, value);
      }
    }
    if (is_alone) json_.Add("head_dim", head_dim);
    const bool has_bias = Has(first_mamba_.value_or(0), "ssm_conv1d.bias");
    json_.Add("mamba_conv_bias", has_bias).Add("use_conv_bias", has_bias);
  }

  // How often the heads have the size of the hidden states.
  int64_t Expansion() const {
    const int64_t hidden = Required("embedding_length");
    CheckMultiple(kSsmSize, heads_size_, "embedding_length", hidden);
    return heads_size_ / hidden;
  }

  void WriteMambaAlone() {
    json_.Add("expand", Expansion());
    WriteEpsilon();
  }

  // Of Mamba-1, where "ssm.time_step_rank" is that.
  void WriteScanAlone() {
    json_.Add("intermediate_size", Required(kSsmSize)).Add("time_step_rank", Required(kSsmHeads));
    json_.Add("state_size", Required("ssm.state_size"));
    json_.Add("conv_kernel", Required("ssm.conv_kernel"));
    json_.Add("use_conv_bias", Has(0, "ssm_conv1d.bias"));
    WriteEpsilon();
  }

  // Layers have experts where they have a router.
  void WriteScanInSomeLayers() {
    const std::vector<int64_t> kv_heads = WriteKindsByKvHeads("linear_attention", "full_attention");
    heads_size_ = Required(kSsmSize);
    json_.Add("mamba_expand", Expansion()).Add("mamba_dt_rank", Required(kSsmHeads));
    json_.Add("mamba_d_state", Required("ssm.state_size"));
    json_.Add("mamba_d_conv", Required("ssm.conv_kernel"));
    json_.Add("mamba_conv_bias", Has(FirstLayer(kv_heads, false), "ssm_conv1d.bias"));
    if (!file_.Has(Key("expert_count"))) json_.Add("num_experts", 1);
    json_.Name("mlp_layer_types").BeginArray();
    for (int64_t i = 0; i < std::ssize(kv_heads); ++i) {
      json_.Put(Has(i, "ffn_gate_inp.weight") ? "sparse" : "dense");
    }
    json_.EndArray();
  }

  void WriteMambaInSomeLayers() {
    const std::vector<int64_t> kv_heads = WriteKindsByKvHeads("mamba", "attention");
    first_mamba_ = FirstLayer(kv_heads, false);
    json_.Add("attention_bias", Has(FirstLayer(kv_heads, true), "attn_q.bias"));
    json_.Add("mamba_expand", Expansion()).Add("has_split_projections", true);
    if (!file_.Has(Key("expert_count"))) json_.Add("num_local_experts", 0);
    if (!file_.Has(Key("expert_shared_feed_forward_length"))) {
      json_.Add("shared_intermediate_size", Required(kFeedForward));
    }
  }

  // All multipliers are a part of the matrices, so none is a field here. Norms follow the gate.
  void WriteMambaBesideAttention() {
    json_.Add("mamba_rms_norm", Has(0, "ssm_norm.weight")).Add("mamba_norm_before_gate", false);
  }

  void WriteSingleBlocks() {
    const bool has_experts = family_.gating != GgufGating::kNone;
    const std::vector<int64_t> kv_heads = WriteKvHeads();
    const std::vector<int64_t> ffn = OfLayers(kFeedForward);
    json_.Name("layers_block_type").BeginArray();
    for (size_t i = 0; i < ffn.size(); ++i) {
      if (ffn[i] != 0 && kv_heads[i] != 0) {
        Fail(kFeedForward, "gives layer " + std::to_string(i) + " a feed-forward block, and " +
                               Key(kHeadCountKv) + " gives it attention");
      }
      const bool is_mamba = ffn[i] == 0 && kv_heads[i] == 0;
      if (is_mamba && !first_mamba_) first_mamba_ = static_cast<int64_t>(i);
      const char* const other = kv_heads[i] != 0 ? "attention" : has_experts ? "moe" : "mlp";
      json_.Put(is_mamba ? "mamba" : other);
    }
    json_.EndArray();
    // The reader of the configuration wants a size also where no layer has such a block.
    const int64_t size = OnlyOne(kFeedForward, ffn, "a feed-forward block");
    json_.Add("intermediate_size", size != 0 ? size : Required("embedding_length"));
    json_.Add("mlp_bias", Has(FirstLayer(ffn, true), "ffn_up.bias"));
    WriteEpsilon();
    if (has_experts) WriteSizesOfExperts();
  }

  // As for llama.cpp, one key counts, and the other one where it is absent.
  void WriteEpsilon() {
    const auto given = file_.Number(Key("attention.layer_norm_rms_epsilon"));
    const auto usual = file_.Number(Key("attention.layer_norm_epsilon"));
    if (given || usual) json_.Add("layer_norm_epsilon", given ? *given : *usual);
  }

  void WriteSizesOfExperts() {
    for (const char* key : {"expert_count", "expert_feed_forward_length"}) Require(key);
    constexpr char kShared[] = "expert_shared_feed_forward_length";
    json_.Add("moe_shared_expert_intermediate_size", Required(kShared));
    const int64_t latent = file_.Integer(Key("moe_latent_size")).value_or(0);
    if (latent != 0) json_.Add("moe_latent_size", latent);
  }

  const GgufParts& parts_;
  const GgufFile& file_;  // the first, which has the metadata
  const GgufFamily& family_;
  JsonWriter& json_;
  int64_t heads_size_ = 0;  // of all heads together
  int64_t num_heads_ = 0;
  std::optional<int64_t> first_mamba_;  // the first layer with Mamba-2; nullopt: the first one
};

}  // namespace

void WriteGgufRecurrentLayers(const GgufParts& parts, const GgufFamily& family, JsonWriter& json) {
  RecurrentLayers(parts, family, json).Write();
}

}  // namespace mlc_native
