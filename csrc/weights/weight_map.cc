#include "weights/weight_map.h"

#include <algorithm>
#include <cmath>

#include "support/check.h"

namespace mlc_native {
namespace {

int64_t RowsOf(const ModelConfig& config, const LayerConfig& layer, Rows rows) {
  switch (rows) {
    case Rows::kQ:
      return config.q_size(layer);
    case Rows::kKv:
    case Rows::kValues:
      return config.kv_size(layer);
    case Rows::kQkv:
    case Rows::kQkvOfGroups:
      return config.qkv_size(layer);
    case Rows::kHidden:
      return config.hidden_size;
    case Rows::kFfn:
      return config.ffn_size_of(layer);
    case Rows::kGateUp:
      return 2 * config.ffn_size_of(layer);
    case Rows::kExperts:
      return config.experts->router.num_experts;
    case Rows::kOne:
      return 1;
    case Rows::kExpertFfn:
      return config.experts->ffn_size;
    case Rows::kExpertGateUp:
      return 2 * config.experts->ffn_size;
    case Rows::kSharedFfn:
      return config.experts->shared_ffn_size;
    case Rows::kSharedGateUp:
      return 2 * config.experts->shared_ffn_size;
    case Rows::kQueryLatent:
      return config.query_latent_size();
    case Rows::kKeyValueLatent:
      return config.latent->kv_rank + config.latent->rope_dim;
    case Rows::kQueryUp:
      return config.query_up_size();
    case Rows::kKeyValueUp:
      return config.key_value_up_size();
    case Rows::kGatedQ:
      return 2 * config.q_size();
    case Rows::kDeltaQkv:
      return config.delta->conv_size();
    case Rows::kDeltaValues:
      return config.delta->values_size();
    case Rows::kDeltaHeads:
      return config.delta->num_value_heads;
    case Rows::kDeltaInputsOfGroups:
      return config.delta->inputs_size();
    case Rows::kDeltaGatesOfGroups:
      return 2 * config.delta->num_value_heads;
    case Rows::kLayerInput:
      return config.layer_inputs->size;
  }
  return 0;
}

class Builder {
 public:
  explicit Builder(const ModelConfig& config) : config_(config) {}

  size_t AddParameter(ParameterForm form, int64_t rows, int64_t columns) {
    map_.parameters.push_back({form, rows, columns});
    return map_.parameters.size() - 1;
  }

  size_t AddWhole(ParameterForm form, const std::string& name, std::vector<int64_t> shape) {
    const size_t index = AddParameter(form, shape[0], shape.size() > 1 ? shape[1] : 1);
    map_.slots.push_back({name, std::move(shape), index, 0});
    return index;
  }

  void AddLayer(const LayerConfig& config, const WeightNames& names, const std::string& prefix) {
    LayerParameters layer;
    std::array<int64_t, kNumLinearRoles> filled{};  // rows
    for (const ProjectionName& projection : config_.projections) {
      if (projection.role == LinearRole::kHeadKeyUp) {
        AddUpOfHeads(prefix + std::string(projection.name) + std::string(projection.ending), prefix,
                     config, &filled, &layer);
      } else {
        AddProjection(prefix, projection, config, &filled, &layer);
      }
    }
    if (config.has_experts) AddExperts(prefix, *names.experts, config, &filled, &layer);
    for (const NormName& norm : config_.arch->norms) {
      if (!config_.has_norm(config, norm.role)) continue;
      layer.norms[static_cast<size_t>(norm.role)] = AddLayerNorm(prefix, norm, config);
    }
    for (const VectorName& vector : config_.arch->vectors) {
      if (IsOfDelta(vector.role) != config.is_recurrent) continue;
      if (vector.role == VectorRole::kExpertScales && !config.has_experts) continue;
      AddVector(prefix + std::string(vector.name), vector.role,
                &layer.vectors[static_cast<size_t>(vector.role)]);
    }
    for (const LinearRole role : kLinearRoles) {
      const auto i = static_cast<size_t>(role);
      if (config_.num_linears(config, role) == 0) continue;
      MLC_CHECK(filled[i] == config_.linear_rows(config, role))
          << config_.arch->architecture << " linear " << i << ": " << filled[i] << " rows";
    }
    map_.layers.push_back(std::move(layer));
  }

  // The parameters of a draft head: its entry, its layer, and the rest as far as it has them.
  void AddDraftHead(const WeightNames& names) {
    const DraftHeadConfig& head = *config_.draft_head;
    const DraftLayout& layout = *head.layout;
    const int64_t hidden = config_.hidden_size;
    const int64_t states = config_.draft_input_size();
    const int64_t fused = layout.joins_in_attention ? states : 2 * hidden;
    map_.entry.fuse = AddLinear(head.Name(layout.fuse), {hidden, fused}, head.fuse_bias);
    map_.entry.embedding_norm = AddNorm(head.Name(layout.embedding_norm), hidden);
    map_.entry.state_norm = AddNorm(head.Name(layout.state_norm), hidden);
    if (head.norm_before_fuse) map_.entry.fuse_norm = AddNorm("input_norm", states);
    for (int64_t i = 0; head.norm_each_state && i < head.num_target_states(); ++i) {
      map_.entry.state_norms.push_back(
          AddNorm("fc_norm." + std::to_string(i), head.target_hidden_size));
    }
    AddLayer(config_.layers.front(), names, head.Name(layout.layer));
    map_.final_norm.weight = AddNorm(head.Name(layout.final_norm), hidden);
    AddHead(names);
    if (!names.embeddings.empty()) {
      map_.embeddings =
          AddWhole(ParameterForm::kTable, names.embeddings, {head.num_embeddings, hidden});
    }
  }

  // Of a decoder whose layers have inputs.
  void AddLayerInputs(const std::string& prefix) {
    if (!config_.layer_inputs) return;
    const LayerInputConfig& inputs = *config_.layer_inputs;
    const int64_t size = config_.layer_inputs_size();
    LayerInputParameters& parameters = map_.layer_inputs;
    parameters.embeddings = AddWhole(
        ParameterForm::kTable, prefix + "embed_tokens_per_layer.weight", {inputs.vocab_size, size});
    parameters.projection =
        AddLinear(prefix + "per_layer_model_projection", {size, config_.hidden_size}, false);
    parameters.norm = AddNorm(prefix + "per_layer_projection_norm", inputs.size);
    map_.parameters.back().scale = kRootOfHalf;
  }

  // The parameters of Medusa's heads.
  void AddMedusa(const WeightNames& names) {
    const DraftHeadConfig& medusa = *config_.draft_head;
    const int64_t hidden = config_.hidden_size;
    for (int64_t i = 0; i < medusa.info.max_length; ++i) {
      MedusaParameters& head = map_.medusa.emplace_back();
      for (int64_t block = 0; block < medusa.medusa_blocks; ++block) {
        head.blocks.push_back(AddLinear(NumberedName(medusa.layout->medusa_block, {i, block}),
                                        {hidden, hidden}, medusa.medusa_bias));
      }
      if (medusa.medusa_shares_head) continue;
      const std::string name = NumberedName(medusa.layout->medusa_head, {i, medusa.medusa_blocks});
      head.head = AddWhole(ParameterForm::kPacked, name + ".weight", {config_.vocab_size, hidden});
    }
    AddHead(names);
  }

  WeightMap& map() { return map_; }

 private:
  LinearParameters AddLinear(const std::string& name, const std::vector<int64_t>& shape,
                             bool has_bias) {
    LinearParameters linear;
    linear.matrix = AddWhole(ParameterForm::kPacked, name + ".weight", shape);
    if (has_bias) linear.bias = AddWhole(ParameterForm::kVector, name + ".bias", {shape[0]});
    return linear;
  }

  size_t AddNorm(const std::string& name, int64_t size) {
    return name.empty() ? kAbsent : AddWhole(ParameterForm::kVector, name + ".weight", {size});
  }

  NormParameters AddLayerNorm(const std::string& prefix, const NormName& named,
                              const LayerConfig& config) {
    const NormRole role = named.role;
    const std::string name = prefix + std::string(named.name);
    const std::vector<int64_t> shape = config_.norm_shape(config, role);
    NormParameters norm;
    if (config_.arch->norms_lack_weights || named.name.empty()) {
      norm.weight = AddWhole(ParameterForm::kVector, "", shape);
    } else if (name.find('#') == std::string::npos) {
      norm.weight = AddWhole(ParameterForm::kVector, name + std::string(named.ending), shape);
    } else {  // [heads, head_dim], a tensor for each head
      norm.weight = AddParameter(ParameterForm::kVector, shape[0] * shape[1], 1);
      for (int64_t head = 0; head < shape[0]; ++head) {
        map_.slots.push_back(
            {NumberedName(name, {head}) + ".weight", {shape[1]}, norm.weight, head * shape[1]});
      }
    }
    if (role == NormRole::kRouter) {
      map_.parameters.back().scale = 1.0f / std::sqrt(static_cast<float>(config_.hidden_size));
    }
    if (config_.arch->norm_bias && role != NormRole::kQ && role != NormRole::kK) {
      norm.bias = AddWhole(ParameterForm::kVector, name + ".bias", shape);
    }
    return norm;
  }

  int64_t SizeOf(VectorRole role) const {
    switch (role) {
      case VectorRole::kSinks:
        return config_.num_heads;
      case VectorRole::kDecay:
      case VectorRole::kDecayBias:
        return config_.delta->num_value_heads;
      case VectorRole::kDeltaNorm:
        return config_.delta->value_dim;
      case VectorRole::kExpertScales:
        return config_.experts->router.num_experts;
      default:
        return 1;
    }
  }

  // The tensor is the next part of the vector *index, which it begins if there is none yet.
  void AddVector(const std::string& name, VectorRole role, size_t* index) {
    if (role == VectorRole::kConvolution) {
      const std::vector<int64_t> shape = {config_.delta->conv_width, config_.delta->conv_size()};
      *index = AddWhole(ParameterForm::kVector, name, shape);
      map_.slots.back().joined = {.transposed = true, .of_channels = true};
      map_.parameters.back().in_float32 = true;
      return;
    }
    const int64_t size = SizeOf(role);
    if (*index == kAbsent) *index = AddParameter(ParameterForm::kVector, 0, 1);
    if (IsOfDelta(role)) map_.parameters[*index].in_float32 = true;
    int64_t& rows = map_.parameters[*index].rows;
    map_.slots.push_back({name, {size}, *index, rows});
    rows += size;
  }

  // Of a draft head, if it has one.
  void AddHead(const WeightNames& names) {
    const std::vector<int64_t> shape = {config_.vocab_size, config_.hidden_size};
    map_.head = names.head.empty() ? kAbsent : AddWhole(ParameterForm::kPacked, names.head, shape);
  }

  void AddExperts(const std::string& prefix, const ExpertSpelling& spelling,
                  const LayerConfig& config, std::array<int64_t, kNumLinearRoles>* filled,
                  LayerParameters* layer) {
    for (const ProjectionName& projection : spelling.projections) {
      AddProjection(prefix, projection, config, filled, layer);
    }
    if (!spelling.post_norm.empty()) {
      layer->norms[static_cast<size_t>(NormRole::kPostFfn)] =
          AddLayerNorm(prefix, {spelling.post_norm, NormRole::kPostFfn}, config);
    }
    if (spelling.correction.empty()) return;
    const int64_t num_experts = config_.experts->router.num_experts;
    const size_t correction = AddParameter(ParameterForm::kVector, num_experts, 1);
    map_.parameters.back().in_float32 = true;
    layer->vectors[static_cast<size_t>(VectorRole::kCorrection)] = correction;
    map_.slots.push_back({prefix + std::string(spelling.correction),
                          {num_experts},
                          correction,
                          0,
                          {.count = spelling.correction_is_a_row ? 1 : 0}});
  }

  // Whether the layer has this part of a linear, which those of keys and values may lack.
  static bool HasRows(const LayerConfig& config, const ProjectionName& projection) {
    const bool is_of_values = projection.rows == Rows::kValues;
    if (projection.rows != Rows::kKv && !is_of_values) return true;
    return config.has_own_kv() && !(config.keys_are_values && is_of_values);
  }

  // The tensors of a projection, if the layer has it, fill the next rows of its linear, or of that
  // of each expert.
  void AddProjection(const std::string& prefix, const ProjectionName& projection,
                     const LayerConfig& config, std::array<int64_t, kNumLinearRoles>* filled,
                     LayerParameters* layer) {
    const LinearRole role = projection.role;
    const int64_t count = config_.num_linears(config, role);
    if (count == 0 || !HasRows(config, projection)) return;
    const int64_t rows = RowsOf(config_, config, projection.rows);
    const int64_t columns = config_.linear_columns(config, role);
    const bool joined = IsOfExperts(role) && projection.name.find('#') == projection.name.npos;
    int64_t& row_offset = (*filled)[static_cast<size_t>(role)];
    if (const std::vector<RunOfGroup> runs = RunsOfGroups(projection.rows); !runs.empty()) {
      AddRunsOfGroups(prefix + std::string(projection.name), projection, runs, row_offset, config,
                      layer);
      row_offset += rows;
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      const std::string name = prefix + NumberedName(projection.name, {i});
      const LinearParameters& linear =
          FindOrAdd({.role = role, .expert = static_cast<int>(i)}, config, layer);
      JoinedPlace place;
      if (joined) {
        place = {.count = count,
                 .index = i,
                 .transposed = projection.transposed,
                 .alternating = projection.alternating,
                 .may_be_plain = projection.may_be_plain};
      }
      map_.slots.push_back({name + std::string(projection.ending),
                            {rows, columns},
                            linear.matrix,
                            row_offset,
                            place});
      if (linear.bias != kAbsent) {
        place.transposed = false;
        map_.slots.push_back(
            {name + std::string(projection.bias_ending), {rows}, linear.bias, row_offset, place});
      }
    }
    row_offset += rows;
  }

  // Rows of a tensor that has groups of them, one after the other: `run` rows of each group are
  // those from row_offset on, group by group.
  struct RunOfGroup {
    int64_t run = 0;
    int64_t row_offset = 0;
  };

  // How the rows of a group are divided; empty: the rows have no groups.
  std::vector<RunOfGroup> RunsOfGroups(Rows rows) const {
    const int64_t q = config_.q_size(), size = config_.head_dim;
    switch (rows) {
      case Rows::kQkvOfGroups:
        return {{q / config_.num_kv_heads, 0}, {size, q}, {size, q + config_.kv_size()}};
      case Rows::kGatedQ:
        return {{size, q}, {size, 0}};  // gates come before the queries
      case Rows::kDeltaInputsOfGroups: {
        const DeltaConfig& delta = *config_.delta;
        const int64_t values = delta.values_size() / delta.num_key_heads;
        return {{delta.key_dim, 0},
                {delta.key_dim, delta.keys_size()},
                {values, 2 * delta.keys_size()},
                {values, delta.conv_size()}};
      }
      case Rows::kDeltaGatesOfGroups: {
        const int64_t heads = config_.delta->num_value_heads;
        const int64_t values = heads / config_.delta->num_key_heads;
        return {{values, 0}, {values, heads}};
      }
      default:
        return {};
    }
  }

  void AddRunsOfGroups(const std::string& name, const ProjectionName& projection,
                       std::span<const RunOfGroup> runs, int64_t row_offset,
                       const LayerConfig& config, LayerParameters* layer) {
    const LinearParameters& linear = FindOrAdd({.role = projection.role}, config, layer);
    const int64_t columns = config_.linear_columns(config, projection.role);
    int64_t step = 0;
    for (const RunOfGroup& run : runs) step += run.run;
    const int64_t num_groups = RowsOf(config_, config, projection.rows) / step;
    int64_t first = 0;
    for (const RunOfGroup& run : runs) {
      const int64_t rows = run.run * num_groups;
      const RowsOfTensor part{
          .num_rows = step * num_groups, .first = first, .run = run.run, .step = step};
      const int64_t to = row_offset + run.row_offset;
      map_.slots.push_back({name + ".weight", {rows, columns}, linear.matrix, to, {}, part});
      if (linear.bias != kAbsent) {
        map_.slots.push_back({name + ".bias", {rows}, linear.bias, to, {}, part});
      }
      first += run.run;
    }
  }

  // The two matrices of each head, from tensors of their own or from parts of `tensor`.
  void AddUpOfHeads(const std::string& tensor, const std::string& prefix, const LayerConfig& config,
                    std::array<int64_t, kNumLinearRoles>* filled, LayerParameters* layer) {
    const LatentConfig& latent = *config_.latent;
    const int64_t num_rows = config_.key_value_up_size();
    const auto add = [&](LinearRole role, int64_t head, std::string_view own, RowsOfTensor part) {
      const LinearParameters& linear =
          FindOrAdd({.role = role, .expert = static_cast<int>(head)}, config, layer);
      const bool splits = latent.splits_up_projection;
      map_.slots.push_back(
          {splits ? prefix + NumberedName(own, {head}) + ".weight" : tensor,
           {config_.linear_rows(config, role), config_.linear_columns(config, role)},
           linear.matrix,
           0,
           {},
           splits ? RowsOfTensor{} : part});
      (*filled)[static_cast<size_t>(role)] = config_.linear_rows(config, role);
    };
    for (int64_t head = 0; head < config_.num_heads; ++head) {
      const int64_t first = head * (latent.plain_dim + latent.value_dim);
      add(LinearRole::kHeadKeyUp, head, "self_attn.k_b_proj.#",
          {.num_rows = num_rows, .first = first, .transposed = true});
      add(LinearRole::kHeadValueUp, head, "self_attn.v_b_proj.#",
          {.num_rows = num_rows, .first = first + latent.plain_dim});
    }
  }

  const LinearParameters& FindOrAdd(const LinearKey& key, const LayerConfig& config,
                                    LayerParameters* layer) {
    const auto found = std::ranges::find(layer->linears, key, &LinearParameters::key);
    if (found != layer->linears.end()) return *found;
    const int64_t rows = config_.linear_rows(config, key.role);
    LinearParameters& linear = layer->linears.emplace_back();
    linear.key = key;
    linear.matrix =
        AddParameter(ParameterForm::kPacked, rows, config_.linear_columns(config, key.role));
    map_.parameters.back().in_float32 =
        key.role == LinearRole::kRouter || key.role == LinearRole::kDeltaGates;
    if (config_.has_bias(key.role)) linear.bias = AddParameter(ParameterForm::kVector, rows, 1);
    return linear;
  }

  const ModelConfig& config_;
  WeightMap map_;
};

}  // namespace

std::vector<int64_t> RowsOfTensor::StoredShape(std::span<const int64_t> shape) const {
  if (shape.size() == 1) return {num_rows};
  return {num_rows, shape[transposed ? 0 : 1]};
}

bool WeightMap::IsSensitive(size_t parameter) const {
  if (parameter == head) return true;
  return !layers.empty() &&
         std::ranges::count(layers.front().linears, parameter, &LinearParameters::matrix) > 0;
}

std::vector<bool> WeightMap::ParametersOfExperts() const {
  std::vector<bool> found(parameters.size(), false);
  for (const LayerParameters& layer : layers) {
    for (const LinearParameters& linear : layer.linears) {
      if (!IsOfExperts(linear.key.role)) continue;
      for (const size_t parameter : {linear.matrix, linear.bias}) {
        if (parameter != kAbsent) found[parameter] = true;
      }
    }
  }
  return found;
}

WeightMap MakeWeightMap(const ModelConfig& config, const WeightNames& names) {
  Builder builder(config);
  if (config.draft_head) {
    if (config.layers.empty()) {
      builder.AddMedusa(names);
    } else {
      builder.AddDraftHead(names);
    }
    return std::move(builder.map());
  }
  const TensorNames& tensors = config.arch->names;
  const std::string embeddings = names.prefix + std::string(tensors.embeddings);
  const std::vector<int64_t> shape = {config.vocab_size, config.hidden_size};
  const bool normalized = config.arch->normalizes_embeddings;
  if (names.head.empty() && !normalized) {
    builder.map().head = builder.AddWhole(ParameterForm::kPacked, embeddings, shape);
  } else {
    builder.map().embeddings = builder.AddWhole(ParameterForm::kTable, embeddings, shape);
    if (normalized) builder.map().slots.back().row_norm_eps = config.norm_eps;
    builder.map().head = builder.AddWhole(ParameterForm::kPacked,
                                          names.head.empty() ? embeddings : names.head, shape);
  }
  if (config.head_bias) {
    builder.map().head_bias =
        builder.AddWhole(ParameterForm::kVector, names.head_bias, {config.vocab_size});
  }
  builder.AddLayerInputs(names.prefix);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    builder.AddLayer(config.layers[i], names,
                     names.prefix + std::string(tensors.layer) + std::to_string(i) + ".");
  }
  const std::string final_norm = names.prefix + std::string(tensors.final_norm);
  NormParameters& norm = builder.map().final_norm;
  norm.weight = builder.AddWhole(ParameterForm::kVector,
                                 config.arch->norms_lack_weights ? "" : final_norm + ".weight",
                                 {config.hidden_size});
  builder.map().parameters.back().scale = config.final_norm_scale;
  const bool has_bias = config.arch->norm_bias;
  if (has_bias) {
    norm.bias =
        builder.AddWhole(ParameterForm::kVector, final_norm + ".bias", {config.hidden_size});
  }
  MLC_CHECK(config.final_norm_scale == 1 || (config.norm_weight_offset == 0 && !has_bias))
      << config.arch->architecture << ": the final norm is more than its weight";
  return std::move(builder.map());
}

}  // namespace mlc_native
