#include "weights/unused_tensors.h"

#include <algorithm>
#include <set>

#include "arch/draft_config.h"
#include "support/error.h"

namespace mlc_native {
namespace {

constexpr size_t kMaxNamesInError = 8;

// Buffers that are not needed: derived ones of old checkpoints (of some families also masks), the
// constants of xIELU, and what is part of the configuration of a GGUF file, or behind its decoder.
bool IsKnownBuffer(const std::string& name) {
  constexpr std::string_view kEndings[] = {"rotary_emb.inv_freq",
                                           "act_fn.beta",
                                           "act_fn.eps",
                                           "attention.bias",
                                           "attention.masked_bias",
                                           "attn.bias",
                                           "attn.masked_bias",
                                           "attn.causal_mask",
                                           "rope_freqs.weight",
                                           "rope_factors_long.weight",
                                           "rope_factors_short.weight",
                                           "dense_2.weight",
                                           "dense_3.weight"};
  return std::ranges::any_of(kEndings, [&](std::string_view end) { return name.ends_with(end); });
}

// The prefix of the tensors of a draft head that is in the folder of the model; "" without one.
std::string PrefixOfDraftHead(const ModelConfig& config, const WeightSet& weights) {
  const auto num_layers = static_cast<int64_t>(config.layers.size());
  const DraftLayout* const layout =
      FindDraftLayout(num_layers, [&](const std::string& name) { return weights.Has(name); });
  return layout == nullptr ? "" : NumberedName(layout->in_target, {num_layers});
}

// Whether it belongs to a part of the model that reads no text.
bool IsOfIgnoredPart(const ModelConfig& config, const std::string& name) {
  return std::ranges::any_of(config.ignored_prefixes(),
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// Whether it is a norm of what experts give. The released checkpoints of A.X-K1 have one in layers
// without experts, too.
bool IsNormOfExperts(const ModelConfig& config, const std::string& name) {
  return std::ranges::any_of(config.arch->experts.spellings, [&](const ExpertSpelling& spelling) {
    return !spelling.post_norm.empty() &&
           name.ends_with(std::string(spelling.post_norm) + ".weight");
  });
}

// Whether it belongs to what an encoder has in place of a head: for masks, for classes, or to pool.
bool IsBehindEncoder(const ModelConfig& config, const std::string& name) {
  if (!config.arch->is_encoder) return false;
  constexpr std::string_view kHeads[] = {
      "cls.",         "lm_head.",        "head.",           "decoder.",
      "classifier.",  "dense.",          "pre_classifier.", "pooler.",
      "bert.pooler.", "roberta.pooler.", "vocab_",          "nomic_bert.pooler.",
      "gte.pooler.",  "mpnet.pooler.",   "lm_predictions.", "mask_predictions."};
  return name.ends_with("position_ids") ||
         std::ranges::any_of(kHeads, [&](std::string_view head) { return name.starts_with(head); });
}

// Whether it is a weight of keys or values, by its name within a layer.
bool IsOfKeys(const ModelConfig& config, std::string_view name) {
  const auto is_one = [&](const ProjectionName& projection) {
    return (projection.rows == Rows::kKv || projection.rows == Rows::kValues) &&
           name.starts_with(projection.name);
  };
  const auto is_norm = [&](const NormName& norm) {
    return norm.role == NormRole::kK && name.starts_with(norm.name);
  };
  return std::ranges::any_of(config.projections, is_one) ||
         std::ranges::any_of(config.norms(), is_norm);
}

// Whether it is one of a layer that reads the keys and values of another one. The released
// checkpoints of Gemma 4 have them.
bool IsOfSharedKeys(const ModelConfig& config, const std::string& name) {
  const std::string layer_name(config.arch->names.layer);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (!config.layers[i].reads_other_kv()) continue;
    const std::string layer = '.' + layer_name + std::to_string(i) + '.';
    const size_t at = name.find(layer);
    if (at == std::string::npos) continue;
    return IsOfKeys(config, std::string_view(name).substr(at + layer.size()));
  }
  return false;
}

}  // namespace

std::string_view NameOf(const ModelConfig& config) {
  return config.draft_head ? config.draft_head->layout->name : config.architecture();
}

std::string JoinNames(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kMaxNamesInError); ++i) {
    out += (i > 0 ? ", " : "") + names[i];
  }
  if (names.size() > kMaxNamesInError) {
    out += " and " + std::to_string(names.size() - kMaxNamesInError) + " more";
  }
  return out;
}

void NoteIgnored(const ModelConfig& config, const WeightSet& weights,
                 std::vector<std::string>* unused) {
  if (config.draft_head && !config.draft_head->layout->in_target.empty()) return;
  const std::string of_head = PrefixOfDraftHead(config, weights);
  const auto count = std::ranges::count_if(weights.checkpoint().entries(), [&](const auto& entry) {
    const std::string& name = entry.tensor->name;
    return IsOfIgnoredPart(config, name) && (of_head.empty() || !name.starts_with(of_head));
  });
  if (count > 0) unused->push_back(std::to_string(count) + " of parts that read no text");
}

std::vector<std::string> FindUnused(const ModelConfig& config, const WeightSet& weights,
                                    std::span<const std::unique_ptr<WeightSource>> sources) {
  if (config.draft_head && !config.draft_head->layout->in_target.empty()) return {};
  const std::string of_head = PrefixOfDraftHead(config, weights);
  std::set<const TensorInfo*> used;
  for (const auto& source : sources) {
    for (const Checkpoint::Entry* part : source->parts()) used.insert(part->tensor);
  }
  std::vector<std::string> unused;
  for (const Checkpoint::Entry& entry : weights.checkpoint().entries()) {
    const std::string& name = entry.tensor->name;
    const auto& heads = config.arch->names.heads;
    const bool known = used.contains(entry.tensor) || IsKnownBuffer(name) ||
                       (config.draft_head && (name == "d2t" || name == "t2d")) ||
                       weights.IsEmptyBias(entry) ||
                       (config.has_classes && name.starts_with("score.")) ||
                       (config.tie_word_embeddings && name.ends_with(heads.front())) ||
                       (!of_head.empty() && name.starts_with(of_head)) ||
                       IsOfIgnoredPart(config, name) || IsNormOfExperts(config, name) ||
                       IsOfSharedKeys(config, name) || IsBehindEncoder(config, name);
    if (!known) unused.push_back(name);
  }
  for (const std::string& file : weights.checkpoint().extra_shards()) {
    unused.push_back("all of " + file + ", which the index does not name");
  }
  return unused;
}

[[noreturn]] void RefuseUnused(const ModelConfig& config, const std::vector<std::string>& unused) {
  throw LoadError(unused[0], "the checkpoint has tensors that " + std::string(NameOf(config)) +
                                 " does not use: " + JoinNames(unused) +
                                 "; without \"strict_weights\" they are ignored");
}

}  // namespace mlc_native
