#include "arch/expert_config.h"

#include <algorithm>
#include <string>

#include "arch/draft_layout.h"

namespace mlc_native {
namespace {

class Reader {
 public:
  Reader(const ConfigFields& fields, const ExpertRule& rule) : fields_(fields), rule_(rule) {}

  ExpertConfig Read() const {
    ExpertConfig config;
    config.router = ReadRouter();
    config.ffn_size = Size(rule_.ffn_size, rule_.absent.ffn_size);
    config.shared_ffn_size = ReadSharedSize(config.ffn_size);
    const std::string latent_size(rule_.latent_size);
    if (!latent_size.empty() && fields_.Has(latent_size.c_str())) {
      config.latent_size = Size(latent_size, 0);
    }
    config.biases = rule_.biases;
    config.scales_inputs = rule_.scales_inputs;
    if (rule_.clamped_swiglu) {
      config.swiglu_limit = static_cast<float>(fields_.Positive("swiglu_limit", 7.0));
      config.swiglu_sharpness = static_cast<float>(fields_.Positive("swiglu_alpha", 1.702));
    }
    if (rule_.clamped_silu) {
      config.swiglu_limit = static_cast<float>(fields_.Positive("swiglu_limit", 10.0));
      config.limits_silu = true;
    }
    config.shared_gate = rule_.shared_gate && config.shared_ffn_size > 0;
    if (config.shared_ffn_size > 0 && IsMean()) {
      constexpr float kHalf = 0.5f;
      config.router.scale *= kHalf;
      config.shared_scale = kHalf;
    }
    return config;
  }

 private:
  // 0: must be given.
  int64_t Size(std::string_view field, int64_t absent, int64_t most = kMaxDimension) const {
    const std::string name(field);
    const JsonValue* const value = fields_.Find(name.c_str());
    if (value != nullptr && value->is_array()) return SizeOfLayers(name, most);
    return fields_.Integer(name.c_str(),
                           absent == 0 ? std::nullopt : std::optional<int64_t>(absent), 1, most);
  }

  // That of all layers, of a list.
  int64_t SizeOfLayers(const std::string& field, int64_t most) const {
    const std::vector<int64_t> sizes = fields_.Sizes(field.c_str());
    const int64_t num_layers = fields_.Integer("num_hidden_layers", 0, 0, kMaxLayers);
    const bool same = !sizes.empty() && std::ssize(sizes) == num_layers &&
                      std::ranges::count(sizes, sizes.front()) == num_layers;
    if (!same || sizes.front() < 1 || sizes.front() > most) {
      fields_.FailValue(field.c_str(), "an integer in [1, " + std::to_string(most) +
                                           "], or a list of the same one for each layer");
    }
    return sizes.front();
  }

  // Which of two names a field has; absent: the first one, as of a family without the field.
  bool IsSecond(std::string_view named, const char* first, const char* second) const {
    if (named.empty()) return false;
    const std::string field(named);
    const std::string name = fields_.String(field.c_str(), first);
    if (name != first && name != second) {
      fields_.FailValue(field.c_str(), '"' + std::string(first) + "\" or \"" + second + '"');
    }
    return name == second;
  }

  // Whether a block gives the mean of what chosen experts and the shared one give.
  bool IsMean() const {
    return !rule_.combination.empty() && !IsSecond(rule_.combination, "average", "sum");
  }

  kernels::RouterScore ReadScoring() const {
    const std::string field(rule_.scoring);
    const std::string name = fields_.String(field.c_str(), "sqrtsoftplus");
    if (name == "sqrtsoftplus") return kernels::RouterScore::kRootSoftplus;
    if (name == "sigmoid") return kernels::RouterScore::kSigmoid;
    if (name == "softmax") return kernels::RouterScore::kSoftmax;
    fields_.FailValue(field.c_str(), "\"sqrtsoftplus\", \"sigmoid\" or \"softmax\"");
  }

  kernels::RouterRule ReadRouter() const {
    kernels::RouterRule router{.score = rule_.score, .judges_logits = rule_.judges_logits};
    if (IsSecond(rule_.score_name, "softmax", "sigmoid")) {
      router.score = kernels::RouterScore::kSigmoid;
    }
    if (!rule_.scoring.empty()) router.score = ReadScoring();
    // transformers has names of its own for some of them.
    const bool renamed = !fields_.Has(std::string(rule_.num_experts).c_str());
    const bool has_local = fields_.Has("num_local_experts");
    router.num_experts = Size(renamed && has_local ? "num_local_experts" : rule_.num_experts,
                              rule_.absent.num_experts, kernels::kMaxExperts);
    router.num_chosen = Size(rule_.num_chosen, rule_.absent.num_chosen, router.num_experts);
    if (router.num_chosen > router.num_experts) {  // the family's default, which is not checked
      fields_.FailValue(std::string(rule_.num_chosen).c_str(),
                        "given, in [1, " + std::to_string(router.num_experts) + "]");
    }
    ReadGroups(router);
    router.renormalize =
        rule_.renormalize.empty()
            ? rule_.absent.renormalize
            : fields_.Bool(std::string(rule_.renormalize).c_str(), rule_.absent.renormalize);
    if (!rule_.score_name.empty() && router.score == kernels::RouterScore::kSoftmax) {
      router.renormalize = true;
    }
    if (!rule_.smallest_sum.empty()) {
      router.smallest_sum = static_cast<float>(
          fields_.Positive(std::string(rule_.smallest_sum).c_str(), rule_.absent.smallest_sum));
    }
    if (!rule_.scale.empty()) {
      router.scale =
          static_cast<float>(fields_.Number(std::string(rule_.scale).c_str(), rule_.absent.scale));
    }
    if (!rule_.logit_cap.empty()) {
      const std::string field(rule_.logit_cap);
      const double cap = fields_.Number(field.c_str(), 0.0);
      if (cap < 0) fields_.FailValue(field.c_str(), "a number of at least 0");
      router.logit_cap = static_cast<float>(cap);
    }
    if (rule_.score == kernels::RouterScore::kSparseMixer) {
      if (router.num_chosen != 2) fields_.FailValue(std::string(rule_.num_chosen).c_str(), "2");
      router.jitter = static_cast<float>(fields_.Number("router_jitter_noise", 0.01));
    }
    return router;
  }

  void ReadGroups(kernels::RouterRule& router) const {
    if (!rule_.reads_groups || !HasGroups()) return;
    if (rule_.best_judges) router.num_judged = 1;
    const ExpertRule::Absent& absent = rule_.absent;
    router.num_groups = fields_.Integer("n_group", absent.num_groups, 1, router.num_experts);
    router.num_chosen_groups =
        fields_.Integer("topk_group", absent.num_chosen_groups, 1, router.num_groups);
    if (router.num_experts % router.num_groups != 0) {
      fields_.FailValue("n_group", "a divisor of the number of experts, which is " +
                                       std::to_string(router.num_experts));
    }
    if (!router.IsValid()) {
      fields_.Fail("topk_group", "= " + std::to_string(router.num_chosen_groups) +
                                     " leaves fewer experts than \"" +
                                     std::string(rule_.num_chosen) +
                                     "\" = " + std::to_string(router.num_chosen));
    }
  }

  bool HasGroups() const {
    if (!rule_.best_judges) return true;
    constexpr char kField[] = "topk_method";
    const std::string method = fields_.String(kField, "greedy");
    if (method != "greedy" && method != "group_limited_greedy") {
      fields_.FailValue(kField, "\"greedy\" or \"group_limited_greedy\"");
    }
    return method != "greedy";
  }

  int64_t ReadSharedSize(int64_t ffn_size) const {
    if (!rule_.shared_size.empty()) {
      const std::string field(rule_.shared_size);
      return fields_.Integer(field.c_str(), rule_.absent.shared_size, 0, kMaxDimension);
    }
    if (rule_.num_shared.empty()) return 0;
    const std::string field(rule_.num_shared);
    return ffn_size *
           fields_.Integer(field.c_str(), rule_.absent.num_shared, 0, kMaxDimension / ffn_size);
  }

  const ConfigFields& fields_;
  const ExpertRule& rule_;
};

constexpr char kLayerTypes[] = "mlp_layer_types";

bool IsListedAsSparse(const ConfigFields& fields, int64_t layer, int64_t num_layers) {
  constexpr const char* kField = kLayerTypes;
  const std::vector<std::string> types = fields.Strings(kField);
  if (std::ssize(types) != num_layers) {
    fields.Fail(kField, "has " + std::to_string(types.size()) +
                            " entries, \"num_hidden_layers\" is " + std::to_string(num_layers));
  }
  const std::string& type = types[static_cast<size_t>(layer)];
  if (type != "sparse" && type != "dense") {
    fields.Fail(kField, "= \"" + type + "\" is not supported; supported: dense, sparse");
  }
  return type == "sparse";
}

bool IsSparse(const ConfigFields& fields, const ExpertRule& rule, int64_t layer,
              int64_t num_layers) {
  switch (rule.layers) {
    case SparseLayers::kAll:
      return true;
    case SparseLayers::kEveryStep: {
      const int64_t step = fields.Integer("decoder_sparse_step", 1, 1, kMaxLayers);
      if ((layer + 1) % step != 0) return false;
      if (!fields.Has("mlp_only_layers")) return layer >= rule.absent.num_dense;
      return std::ranges::count(fields.Sizes("mlp_only_layers"), layer) == 0;
    }
    case SparseLayers::kListed:
      return fields.Has(kLayerTypes) ? IsListedAsSparse(fields, layer, num_layers) : layer > 0;
    case SparseLayers::kListedOrBehindFirst:
      if (fields.Has(kLayerTypes)) return IsListedAsSparse(fields, layer, num_layers);
      [[fallthrough]];
    case SparseLayers::kBehindFirst:
      return layer >= fields.Integer(std::string(rule.first_sparse).c_str(),
                                     rule.absent.first_sparse, 0, kMaxLayers);
    case SparseLayers::kInterleaved: {
      if (fields.Has("moe_layers")) {
        return std::ranges::count(fields.Sizes("moe_layers"), layer) > 0;
      }
      return (layer + 1) % fields.Integer("interleave_moe_layer_step", 1, 1, kMaxLayers) == 0;
    }
    case SparseLayers::kInterval: {
      const int64_t end = fields.Integer("moe_layer_end_index", -1, -1, kMaxLayers);
      return (layer + 1) % fields.Integer("moe_layer_interval", 1, 1, kMaxLayers) == 0 &&
             layer >= fields.Integer("moe_layer_start_index", 1, 0, kMaxLayers) &&
             layer <= (end < 0 ? num_layers - 1 : end);
    }
    case SparseLayers::kPeriod: {
      if (fields.Has(kLayerTypes)) return IsListedAsSparse(fields, layer, num_layers);
      const int64_t period = fields.Integer("expert_layer_period", 2, 1, kMaxLayers);
      const int64_t offset = fields.Integer("expert_layer_offset", 1, 0, kMaxLayers);
      if (offset >= period) {
        fields.FailValue("expert_layer_offset",
                         "less than \"expert_layer_period\" = " + std::to_string(period));
      }
      return layer % period == offset;
    }
  }
  return false;
}

bool HasExperts(const ConfigFields& fields, const ExpertRule& rule) {
  if (rule.num_experts.empty()) return false;
  if (rule.may_have_none && fields.Integer(std::string(rule.num_experts).c_str(),
                                           rule.absent.num_experts, 0, kernels::kMaxExperts) == 0) {
    return false;
  }
  if (rule.one_is_none) {
    const bool is_renamed = !fields.Has(std::string(rule.num_experts).c_str());
    const std::string name(is_renamed ? "num_local_experts" : rule.num_experts);
    if (fields.Integer(name.c_str(), rule.absent.num_experts, 0, kernels::kMaxExperts) <= 1) {
      return false;
    }
  }
  return rule.enabled_by.empty() || fields.Bool(std::string(rule.enabled_by).c_str(), false);
}

}  // namespace

const ExpertSpelling* FindExpertSpelling(const ExpertRule& rule, const std::string& layer,
                                         const HasTensor& has_tensor) {
  const auto is_there = [&](const ExpertSpelling& spelling) {
    return std::ranges::any_of(spelling.projections, [&](const ProjectionName& projection) {
      return projection.role == LinearRole::kExpertGateUp &&
             has_tensor(layer + NumberedName(projection.name, {0}) +
                        std::string(projection.ending));
    });
  };
  const auto has_correction = [&](const ExpertSpelling& spelling) {
    return spelling.correction.empty() || has_tensor(layer + std::string(spelling.correction));
  };
  auto found = std::ranges::find_if(rule.spellings, [&](const ExpertSpelling& spelling) {
    return is_there(spelling) && has_correction(spelling);
  });
  if (found == rule.spellings.end()) found = std::ranges::find_if(rule.spellings, is_there);
  return found == rule.spellings.end() ? nullptr : &*found;
}

std::optional<ExpertConfig> ReadExperts(const ConfigFields& fields, const ExpertRule& rule) {
  if (!HasExperts(fields, rule)) return std::nullopt;
  return Reader(fields, rule).Read();
}

std::vector<bool> ReadSparseLayers(const ConfigFields& fields, const ExpertRule& rule,
                                   size_t num_layers) {
  std::vector<bool> sparse(num_layers);
  if (!HasExperts(fields, rule)) return sparse;
  for (size_t i = 0; i < num_layers; ++i) {
    sparse[i] = IsSparse(fields, rule, static_cast<int64_t>(i), static_cast<int64_t>(num_layers));
  }
  return sparse;
}

}  // namespace mlc_native
