#include "arch/draft_config.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "support/error.h"

namespace mlc_native {
namespace {

// The layer is that of a plain decoder; whether q and k have norms shows in the tensors.
const ArchSpec& ArchOfLayer(const DraftLayout& layout, const HasTensor& has_tensor) {
  const bool qk_norm = has_tensor(std::string(layout.layer) + "self_attn.q_norm.weight");
  return *FindArchitecture(qk_norm ? "Qwen3ForCausalLM" : "LlamaForCausalLM");
}

// What enters layers 2, n / 2 and n - 3 of the target unless the file says otherwise.
std::vector<int32_t> ReadTargetStreams(const ConfigFields& root, int64_t num_layers) {
  const ConfigFields eagle = root.Object("eagle_config");
  const ConfigFields& fields = root.Has(kDraftStreamIds) ? root : eagle;
  std::vector<int64_t> ids = {2, num_layers / 2, num_layers - 3};
  if (fields.Has(kDraftStreamIds)) ids = fields.Sizes(kDraftStreamIds);
  const auto is_layer = [&](int64_t id) { return id >= 0 && id <= num_layers; };
  if (ids.empty() || !std::ranges::all_of(ids, is_layer)) {
    fields.FailValue(kDraftStreamIds, "a list of layers of the target, which has " +
                                          std::to_string(num_layers) +
                                          (fields.Has(kDraftStreamIds) ? "" : " and needs 3"));
  }
  return {ids.begin(), ids.end()};
}

void CheckFormat(const ConfigFields& root, const ConfigFields& fields) {
  constexpr char kType[] = "speculators_model_type";
  if (root.String(kType, "eagle3") != "eagle3") root.FailValue(kType, "\"eagle3\"");
  if (root.Object("eagle_config").Bool("use_aux_hidden_state", true) == false) {
    root.Fail("use_aux_hidden_state", "= false is not supported");
  }
  if (fields.Integer("num_hidden_layers", 1, 1, 4096) != 1) {
    fields.FailValue("num_hidden_layers", "1 for a draft head");
  }
}

void CheckEqual(const ConfigFields& fields, const char* field, int64_t value, int64_t of_target) {
  if (value == of_target) return;
  fields.Fail(field, "= " + std::to_string(value) + ", that of the model it drafts for is " +
                         std::to_string(of_target));
}

// An EAGLE-1 head reads what the target's own head reads.
std::vector<int32_t> StreamsOf(const DraftLayout& layout, const ConfigFields& root,
                               int64_t num_layers) {
  if (layout.joins_in_attention) return ReadTargetStreams(root, num_layers);
  return {static_cast<int32_t>(num_layers + 1)};
}

// Parts of a layer that a head can have only if its family has them, by a tensor that shows them.
constexpr struct {
  std::string_view tensor;
  std::string_view what;
  bool of_experts = true;
} kPartsOfFamilies[] = {
    {"self_attn.kv_a_proj_with_mqa", "latent attention (MLA)", false},
    {"mlp.experts.0.gate_proj", "experts (MoE)"},
    {"mlp.experts.gate_up_proj", "experts (MoE)"},
    {"mlp.gate", "experts (MoE)"},
};

bool HasExperts(const ModelConfig& config, const std::string& layer, const HasTensor& has_tensor) {
  return config.experts && FindExpertSpelling(config.arch->experts, layer, has_tensor) != nullptr;
}

struct UnsupportedPart {
  std::string tensor;
  std::string_view what;
};

std::optional<UnsupportedPart> FindUnsupportedPart(const ModelConfig& config,
                                                   const std::string& layer, bool has_experts,
                                                   const HasTensor& has_tensor) {
  for (const auto& part : kPartsOfFamilies) {
    const std::string tensor = layer + std::string(part.tensor);
    if (part.of_experts ? has_experts : config.latent.has_value()) continue;
    if (has_tensor(tensor + ".weight") || has_tensor(tensor)) return {{tensor, part.what}};
  }
  return std::nullopt;
}

ModelConfig ReadEagle(const std::string& folder, const ModelConfig& target,
                      const DraftLayout& layout, const HasTensor& has_tensor, int64_t longest) {
  const ConfigFields root = ReadConfigJson(folder);
  const ConfigFields fields = root.Flattened("transformer_layer_config");
  CheckFormat(root, fields);
  ModelConfig config = ReadDecoder(ArchOfLayer(layout, has_tensor), root, fields, longest);
  const auto num_layers = static_cast<int64_t>(target.layers.size());
  DraftHeadConfig head{.layout = &layout,
                       .info = {.target_streams = StreamsOf(layout, root, num_layers)},
                       .num_target_layers = num_layers};
  head.fuse_bias = has_tensor(std::string(layout.fuse) + ".bias");
  head.num_embeddings = config.vocab_size;
  head.target_hidden_size = root.Integer("target_hidden_size", config.hidden_size, 1, 1 << 24);
  CheckEqual(root, "vocab_size", head.num_embeddings, target.vocab_size);
  CheckEqual(root, "target_hidden_size", head.target_hidden_size, target.hidden_size);
  config.vocab_size = root.Integer("draft_vocab_size", config.vocab_size, 1, config.vocab_size);
  const bool has_head = has_tensor("lm_head.weight");
  if (!has_head) CheckEqual(root, "draft_vocab_size", config.vocab_size, target.vocab_size);
  if (!has_head || !has_tensor("embed_tokens.weight") || !layout.joins_in_attention) {
    CheckEqual(root, "hidden_size", config.hidden_size, target.hidden_size);
  }
  head.info.own_stream = root.Bool("norm_output", false) ? 2 : 1;
  head.norm_before_residual = root.Bool("norm_before_residual", root.Has("speculators_model_type"));
  head.norm_before_fuse = root.Bool("norm_before_fc", false);
  head.norm_each_state = root.Bool("fc_norm", false);
  if (head.norm_before_fuse && head.norm_each_state) {
    root.Fail("fc_norm", "and \"norm_before_fc\" exclude each other");
  }
  config.draft_head = std::move(head);
  return config;
}

// What the layer of a head in the target's folder has: the target's last one that has attention.
LayerConfig LayerOfHead(const ModelConfig& config) {
  const auto attends = std::find_if(config.layers.rbegin(), config.layers.rend(),
                                    [](const LayerConfig& layer) { return layer.attends(); });
  LayerConfig layer = attends == config.layers.rend() ? config.layers.back() : *attends;
  layer.is_recurrent = layer.attends_beside = false;
  layer.has_attention = layer.has_ffn = true;
  return layer;
}

ModelConfig ReadMtp(const std::string& folder, const ModelConfig& target, const DraftLayout& layout,
                    const HasTensor& has_tensor, int64_t longest) {
  ModelConfig config = ReadModelConfig(folder, longest);
  const auto num_layers = static_cast<int32_t>(config.layers.size());
  DraftHeadConfig head{.layout = &layout,
                       .info = {.target_streams = {num_layers + 1}},
                       .num_target_layers = num_layers};
  const std::string layer = head.Name(layout.layer);
  const bool has_experts = HasExperts(config, layer, has_tensor);
  if (const auto part = FindUnsupportedPart(config, layer, has_experts, has_tensor)) {
    throw LoadError(part->tensor, folder + ": the draft head has \"" + part->tensor +
                                      "\": " + std::string(part->what) +
                                      " in a draft head is not supported");
  }
  const ProjectionName& qkv =
      *std::ranges::find(config.projections, LinearRole::kQkv, &ProjectionName::role);
  config.qkv_bias = has_tensor(layer + std::string(qkv.name) + std::string(qkv.bias_ending));
  config.layers = {LayerOfHead(config)};
  config.layers.front().has_experts = has_experts;
  config.delta.reset();
  config.convolution.reset();
  config.mamba.reset();
  config.scan.reset();
  head.info.own_stream = layout.feeds_back_norm ? 2 : 1;
  head.target_hidden_size = config.hidden_size;
  head.num_embeddings = config.vocab_size;
  const ConfigFields root = ReadConfigJson(folder);
  CheckEqual(root, "vocab_size", config.vocab_size, target.vocab_size);
  CheckEqual(root, "hidden_size", config.hidden_size, target.hidden_size);
  CheckEqual(root, "num_hidden_layers", num_layers, std::ssize(target.layers));
  config.draft_head = std::move(head);
  return config;
}

// The heads of a folder of their own, without a decoder: the sizes that its config.json leaves out
// are the target's.
ModelConfig ReadMedusa(const std::string& folder, const ModelConfig& target,
                       const DraftLayout& layout, const HasTensor& has_tensor) {
  constexpr int64_t kMost = 64;
  const ConfigFields root = ReadConfigJson(folder);
  const bool of_vllm = !root.Has("medusa_num_heads");
  for (const auto& [field, of_target] : {std::pair("vocab_size", target.vocab_size),
                                         std::pair("truncated_vocab_size", target.vocab_size),
                                         std::pair("hidden_size", target.hidden_size)}) {
    CheckEqual(root, field, root.Integer(field, of_target, 1, 1 << 24), of_target);
  }
  ModelConfig config = target;
  config.layers.clear();
  config.dtype.reset();
  config.quantization.reset();
  const auto num_layers = static_cast<int32_t>(target.layers.size());
  DraftHeadConfig head{.layout = &layout,
                       .info = {.target_streams = {num_layers + 1}},
                       .num_target_layers = num_layers};
  head.info.max_length =
      root.Integer(of_vllm ? "num_heads" : "medusa_num_heads", std::nullopt, 1, kMost);
  head.target_hidden_size = target.hidden_size;
  head.num_embeddings = target.vocab_size;
  head.medusa_blocks =
      root.Integer(of_vllm ? "num_hidden_layers" : "medusa_num_layers", 1, 1, kMost);
  head.medusa_bias = has_tensor(NumberedName(layout.medusa_block, {0, 0}) + ".bias");
  head.medusa_shares_head =
      !has_tensor(NumberedName(layout.medusa_head, {0, head.medusa_blocks}) + ".weight");
  config.draft_head = std::move(head);
  return config;
}

}  // namespace

const DraftLayout* FindDraftLayout(int64_t num_layers, const HasTensor& has_tensor) {
  const auto has = [&](const std::string& name) { return has_tensor(name + ".weight"); };
  const auto is_it = [&](const DraftLayout& layout) {
    if (!layout.medusa_block.empty()) return has(NumberedName(layout.medusa_block, {0, 0}));
    const auto name = [&](std::string_view of) { return NumberedName(of, {num_layers}); };
    return has(name(layout.fuse)) && (layout.state_norm.empty() || has(name(layout.state_norm))) &&
           has(name(layout.layer) + "self_attn.o_proj");
  };
  const auto found = std::ranges::find_if(DraftLayouts(), is_it);
  return found == DraftLayouts().end() ? nullptr : &*found;
}

const DraftLayout* FindDraftLayout(const std::string& folder, const HasTensor& has_tensor) {
  return FindDraftLayout(ReadConfigJson(folder).Integer("num_hidden_layers", 0, 0, 4096),
                         has_tensor);
}

bool CanRunOwnHead(const DraftLayout& layout, const ModelConfig& target,
                   const HasTensor& has_tensor) {
  if (layout.in_target.empty()) return true;
  const std::string layer = NumberedName(layout.layer, {std::ssize(target.layers)});
  return !FindUnsupportedPart(target, layer, HasExperts(target, layer, has_tensor), has_tensor);
}

ModelConfig ReadDraftHeadConfig(const std::string& folder, const ModelConfig& target,
                                const HasTensor& has_tensor, int64_t longest) {
  const DraftLayout* const layout = FindDraftLayout(folder, has_tensor);
  if (layout == nullptr) {
    throw LoadError("model", folder + ": holds no draft head of a supported layout; supported: " +
                                 DraftLayoutList());
  }
  if (!layout->in_target.empty()) return ReadMtp(folder, target, *layout, has_tensor, longest);
  if (!layout->medusa_block.empty()) return ReadMedusa(folder, target, *layout, has_tensor);
  return ReadEagle(folder, target, *layout, has_tensor, longest);
}

}  // namespace mlc_native
