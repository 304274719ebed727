#include "weights/layer_map.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/residual_streams.h"
#include "support/check.h"
#include "weights/projection_rows.h"

namespace mlc_native {
namespace {

class LayerBuilder {
 public:
  LayerBuilder(const ModelConfig& config, size_t index, const WeightNames& names,
               const std::string& prefix, WeightMap* map)
      : config_(config),
        index_(index),
        layer_(config.layers[index]),
        names_(names),
        prefix_(prefix),
        map_(*map) {}

  LayerParameters Build() && {
    for (const ProjectionName& projection : config_.projections) {
      if (projection.role == LinearRole::kHeadKeyUp && layer_.attends()) {
        AddUpOfHeads(NameOf(projection.name) + std::string(projection.ending));
      } else if (projection.role == LinearRole::kGroupOut) {
        AddOutOfGroups(NameOf(projection.name) + std::string(projection.ending));
      } else {
        AddProjection(projection);
      }
    }
    if (layer_.has_experts) AddExperts(*names_.experts);
    for (const NormName& norm : config_.norms()) {
      if (config_.has_norm(layer_, norm.role)) AddNorm(norm);
    }
    for (const VectorName& vector : config_.arch->vectors) {
      if (IsOfDelta(vector.role) != layer_.is_recurrent) continue;
      if (vector.role == VectorRole::kEntryBias && layer_.tokens_per_entry == 0) continue;
      if (vector.role == VectorRole::kIndexEntryBias && !layer_.chooses_entries) continue;
      if (vector.role == VectorRole::kTokenExperts && !layer_.has_token_experts) continue;
      if (vector.role == VectorRole::kExpertScales && !layer_.has_experts) continue;
      const bool is_sink = vector.role == VectorRole::kSinks;
      if (is_sink && config_.arch->has_sinks_in_windows && layer_.window.size == 0) continue;
      if (vector.role == VectorRole::kConvolutionBias && !HasConvolutionBias()) continue;
      const bool is_norm = vector.role == VectorRole::kDeltaNorm;
      if (is_norm && config_.mamba && !config_.mamba->has_norm) continue;
      AddVector(vector.name.empty() ? "" : NameOf(vector.name), vector.role);
      map_.slots.back().joined.may_have_ones = vector.may_have_ones;
    }
    CheckRows();
    return std::move(parameters_);
  }

 private:
  std::string NameOf(std::string_view name) const { return prefix_ + std::string(name); }

  bool HasConvolutionBias() const {
    return config_.mamba ? config_.mamba->conv_bias : config_.scan->conv_bias;
  }

  void CheckRows() const {
    for (const LinearRole role : kLinearRoles) {
      const auto i = static_cast<size_t>(role);
      if (config_.num_linears(layer_, role) == 0) continue;
      MLC_CHECK(filled_[i] == config_.linear_rows(layer_, role))
          << config_.arch->architecture << " linear " << i << ": " << filled_[i] << " rows";
    }
  }

  // Whether it is the norm of the embeddings.
  bool IsOfEmbeddings(NormRole role) const {
    return index_ == 0 && role == NormRole::kPreAttention &&
           !config_.arch->names.embedding_norm.empty() && !config_.arch->has_norm_before_layers;
  }

  std::string NameOfNorm(const NormName& named) const {
    if (IsOfEmbeddings(named.role)) {
      return names_.prefix + std::string(config_.arch->names.embedding_norm);
    }
    if (!named.of_layer_before) return NameOf(named.name);
    MLC_CHECK(index_ > 0) << named.name;
    return PrefixOfLayer(config_, names_, index_ - 1) + std::string(named.name);
  }

  void AddNorm(const NormName& named) {
    const NormRole role = named.role;
    const std::string name = NameOfNorm(named);
    const std::vector<int64_t> shape = config_.norm_shape(layer_, role);
    NormParameters& norm = parameters_.norms[static_cast<size_t>(role)];
    norm.gives_residual = IsOfEmbeddings(role) || config_.arch->norms_give_residual;
    if (config_.arch->norms_lack_weights || named.name.empty()) {
      norm.weight = map_.AddWhole(ParameterForm::kVector, "", shape);
    } else if (name.find('#') == std::string::npos) {
      norm.weight = map_.AddWhole(ParameterForm::kVector, name + std::string(named.ending), shape);
    } else {  // [heads, head_dim], a tensor for each head
      norm.weight = map_.AddParameter(ParameterForm::kVector, shape[0] * shape[1], 1);
      for (int64_t head = 0; head < shape[0]; ++head) {
        map_.slots.push_back(
            {NumberedName(name, {head}) + ".weight", {shape[1]}, norm.weight, head * shape[1]});
      }
    }
    map_.parameters[norm.weight].scale = ScaleOf(role);
    const bool is_of_heads = role == NormRole::kQ || role == NormRole::kK;
    if (role == NormRole::kIndexKeys || (config_.arch->norm_bias && !is_of_heads)) {
      norm.bias = map_.AddWhole(ParameterForm::kVector, name + ".bias", shape);
    }
  }

  // What a norm's weight is multiplied with. What is added to the residual beside LAuReL is scaled
  // with it by the root of a half.
  float ScaleOf(NormRole role) const {
    const auto hidden = static_cast<float>(config_.hidden_size);
    switch (role) {
      case NormRole::kRouter:
        return 1.0f / std::sqrt(hidden);
      case NormRole::kStreamRouter:
        return 1.0f / hidden;
      case NormRole::kLaurel:
      case NormRole::kPostAttention:
        return config_.laurel_rank > 0 ? kRootOfHalf : 1.0f;
      default:
        return 1.0f;
    }
  }

  // Of the next part of a vector, behind `begin` elements.
  int64_t SizeOf(VectorRole role, int64_t begin) const {
    if (role == VectorRole::kScanNorm) {
      return begin == 0 ? config_.scan->rank : config_.scan->state_dim;
    }
    if (config_.scan && IsOfDelta(role)) return config_.scan->channels;
    switch (role) {
      case VectorRole::kSinks:
        return config_.heads_of(layer_);
      case VectorRole::kDecay:
      case VectorRole::kSkip:
        return config_.mamba ? config_.mamba->num_heads : config_.delta->num_value_heads;
      case VectorRole::kDecayBias:
        return config_.mamba ? config_.mamba->num_heads : config_.delta->decays_size();
      case VectorRole::kDeltaNorm:
        return config_.mamba ? config_.mamba->values_size() : config_.delta->value_dim;
      case VectorRole::kConvolutionBias:
        return config_.mamba->conv_size();
      case VectorRole::kExpertScales:
        return config_.experts->router.num_experts;
      default:
        return 1;
    }
  }

  // Of a vector of residual streams.
  std::vector<int64_t> StreamShape(VectorRole role) const {
    const int64_t count = config_.residual_streams->count;
    if (role == VectorRole::kStreamRouter) return {count, config_.hidden_size};
    if (role == VectorRole::kStreamPredictions) return {count * count, count};
    if (role == VectorRole::kStreamCorrections) return {count, count};
    return {config_.hidden_size};
  }

  // Of a vector of hyper-connections, of compressed attention or of experts of tokens; empty: it is
  // none of these.
  std::vector<int64_t> ShapeOf(VectorRole role) const {
    if (IsOfHyperConnections(role)) {
      const int64_t count = config_.hyper_connections->count;
      const int64_t mixes = kernels::NumMixes(count);
      const bool is_matrix = role == VectorRole::kAttentionMix || role == VectorRole::kFfnMix;
      if (is_matrix) return {mixes, count * config_.hidden_size};
      const bool is_base = role == VectorRole::kAttentionMixBase || role == VectorRole::kFfnMixBase;
      return {is_base ? mixes : 3};
    }
    if (role == VectorRole::kEntryBias) {
      return {layer_.tokens_per_entry, config_.entry_channels(layer_)};
    }
    if (role == VectorRole::kIndexEntryBias) {
      return {layer_.tokens_per_entry, config_.index_channels()};
    }
    if (role != VectorRole::kTokenExperts) return {};
    return {config_.vocab_size, config_.experts->router.num_chosen};
  }

  std::vector<int64_t> ConvolutionShape() const {
    if (config_.mamba) return {config_.mamba->conv_width, config_.mamba->conv_size()};
    if (config_.scan) return {config_.scan->conv_width, config_.scan->channels};
    if (config_.delta) return {config_.delta->conv_width, config_.delta->conv_size()};
    return {config_.convolution->width, config_.convolution->channels};
  }

  // Queries, keys and values may have a tensor each, in this order.
  void AddConvolution(const std::string& name, size_t* index) {
    if (*index != kAbsent) {
      WeightSlot& slot = map_.slots.back();
      MLC_CHECK(slot.parameter == *index && config_.delta) << name;
      const DeltaConfig& delta = *config_.delta;
      slot.beside.push_back({name, slot.beside.empty() ? delta.keys_size() : delta.values_size()});
      return;
    }
    *index = map_.AddWhole(ParameterForm::kVector, name, ConvolutionShape());
    map_.slots.back().joined = {.transposed = true, .of_channels = true};
    map_.parameters.back().in_float32 = true;
  }

  // The tensor is the next part of its role's vector, which it begins if there is none yet.
  void AddVector(const std::string& name, VectorRole role) {
    size_t& index = parameters_.vectors[static_cast<size_t>(role)];
    if (role == VectorRole::kConvolution) return AddConvolution(name, &index);
    if (const std::vector<int64_t> shape = ShapeOf(role); !shape.empty()) {
      index = map_.AddWhole(ParameterForm::kVector, name, shape);
      map_.parameters.back().in_float32 = true;
      if (role != VectorRole::kTokenExperts) return;
      map_.slots.back().num_integers = config_.experts->router.num_experts;
      return;
    }
    if (IsOfStreams(role)) {
      index = map_.AddWhole(ParameterForm::kVector, name, StreamShape(role));
      map_.parameters.back().in_float32 = true;
      return;
    }
    if (config_.scan && role == VectorRole::kDecay) {
      index = map_.AddWhole(ParameterForm::kVector, name,
                            {config_.scan->state_dim, config_.scan->channels});
      map_.slots.back().joined.transposed = true;
      map_.parameters.back().in_float32 = true;
      return;
    }
    if (index == kAbsent) index = map_.AddParameter(ParameterForm::kVector, 0, 1);
    const bool in_float32 = IsOfDelta(role) || role == VectorRole::kExpertScales;
    if (in_float32) map_.parameters[index].in_float32 = true;
    int64_t& rows = map_.parameters[index].rows;
    const int64_t size = SizeOf(role, rows);
    map_.slots.push_back({name, {size}, index, rows});
    rows += size;
  }

  void AddExperts(const ExpertSpelling& spelling) {
    for (const ProjectionName& projection : spelling.projections) AddProjection(projection);
    if (!spelling.post_norm.empty()) AddNorm({spelling.post_norm, NormRole::kPostFfn});
    if (spelling.correction.empty() || layer_.has_token_experts) return;
    const int64_t num_experts = config_.experts->router.num_experts;
    const size_t correction = map_.AddParameter(ParameterForm::kVector, num_experts, 1);
    map_.parameters.back().in_float32 = true;
    parameters_.vectors[static_cast<size_t>(VectorRole::kCorrection)] = correction;
    map_.slots.push_back({NameOf(spelling.correction),
                          {num_experts},
                          correction,
                          0,
                          {.count = spelling.correction_is_a_row ? 1 : 0}});
  }

  // Whether the layer has this part of a linear. It may lack gates, and keys and values.
  bool HasRows(Rows rows) const {
    if (rows == Rows::kAttentionGates) return config_.gates_attention();
    if (rows == Rows::kIndexChannels) return layer_.chooses_entries;
    if (rows != Rows::kKv && rows != Rows::kValues) return true;
    return layer_.has_own_kv() && !(layer_.keys_are_values && rows == Rows::kValues);
  }

  // The tensors of a projection, if the layer has it, fill the next rows of its linear, or of that
  // of each expert.
  void AddProjection(const ProjectionName& projection) {
    const LinearRole role = projection.role;
    const int64_t count = config_.num_linears(layer_, role);
    if (count == 0 || !HasRows(projection.rows)) return;
    int64_t& row_offset = filled_[static_cast<size_t>(role)];
    const std::vector<RunOfGroup> runs = RunsOfGroups(config_, projection.rows);
    if (runs.empty()) {
      for (int64_t i = 0; i < count; ++i) AddMatrix(projection, i, count, row_offset);
    } else {
      AddRunsOfGroups(projection, runs, row_offset);
    }
    row_offset += RowsOfProjection(config_, layer_, projection.rows);
  }

  // The `index`-th of `count` matrices, which may share a tensor.
  void AddMatrix(const ProjectionName& projection, int64_t index, int64_t count,
                 int64_t row_offset) {
    const LinearRole role = projection.role;
    const int64_t rows = RowsOfProjection(config_, layer_, projection.rows);
    const std::string name = NameOf(NumberedName(projection.name, {index}));
    const LinearParameters& linear = FindOrAdd({.role = role, .expert = static_cast<int>(index)});
    JoinedPlace place;
    if (IsOfExperts(role) && projection.name.find('#') == projection.name.npos) {
      place = {.count = count,
               .index = index,
               .transposed = projection.transposed,
               .alternating = projection.alternating,
               .may_be_plain = projection.may_be_plain};
    } else if (!IsOfExperts(role)) {
      place.transposed = projection.transposed;
    }
    map_.slots.push_back({name + std::string(projection.ending),
                          {rows, config_.linear_columns(layer_, role)},
                          linear.matrix,
                          row_offset,
                          place});
    map_.slots.back().padding = PaddingOf(projection);
    const ScaleOfRows scale = ScaleOfProjection(config_, projection, row_offset == 0);
    map_.slots.back().scale = scale.weight;
    if (linear.bias == kAbsent) return;
    place.transposed = false;
    const bool has_bias = !projection.bias_ending.empty();
    map_.slots.push_back({has_bias ? name + std::string(projection.bias_ending) : "",
                          {rows},
                          linear.bias,
                          row_offset,
                          place});
    map_.slots.back().scale = has_bias ? scale.bias : 0;
    if (projection.rows == Rows::kValues) map_.slots.back().padding = PaddingOf(projection);
  }

  // Values that are shorter than keys have zeros behind them, which what reads them ignores.
  PaddedHeads PaddingOf(const ProjectionName& projection) const {
    const bool is_out = projection.role == LinearRole::kOut;
    if (config_.stored_value_dim == 0 || (projection.rows != Rows::kValues && !is_out)) return {};
    return {.stored = config_.stored_value_dim,
            .padded = config_.head_dim_of(layer_),
            .in_columns = is_out};
  }

  void AddRunsOfGroups(const ProjectionName& projection, std::span<const RunOfGroup> runs,
                       int64_t row_offset) {
    const std::string name = NameOf(projection.name);
    const LinearParameters& linear = FindOrAdd({.role = projection.role});
    const int64_t columns = config_.linear_columns(layer_, projection.role);
    int64_t step = 0;
    for (const RunOfGroup& run : runs) step += run.run;
    const int64_t num_groups = RowsOfProjection(config_, layer_, projection.rows) / step;
    int64_t first = 0;
    for (const RunOfGroup& run : runs) {
      const int64_t rows = run.run * num_groups;
      const RowsOfTensor part{
          .num_rows = step * num_groups, .first = first, .run = run.run, .step = step};
      const int64_t to = row_offset + run.row_offset;
      map_.slots.push_back({name + ".weight", {rows, columns}, linear.matrix, to, {}, part});
      map_.slots.back().scale = run.scale;
      if (linear.bias != kAbsent && projection.bias_ending.empty()) {
        map_.slots.push_back({"", {rows}, linear.bias, to});
        map_.slots.back().scale = 0;
      } else if (linear.bias != kAbsent) {
        map_.slots.push_back({name + ".bias", {rows}, linear.bias, to, {}, part});
      }
      first += run.run;
    }
  }

  // The two matrices of each head, from tensors of their own or from parts of `tensor`.
  void AddUpOfHeads(const std::string& tensor) {
    const LatentConfig& latent = *config_.latent;
    const int64_t num_rows = config_.key_value_up_size();
    const auto add = [&](LinearRole role, int64_t head, std::string_view own, RowsOfTensor part) {
      const LinearParameters& linear = FindOrAdd({.role = role, .expert = static_cast<int>(head)});
      const bool splits = latent.splits_up_projection;
      map_.slots.push_back(
          {splits ? NameOf(NumberedName(own, {head})) + ".weight" : tensor,
           {config_.linear_rows(layer_, role), config_.linear_columns(layer_, role)},
           linear.matrix,
           0,
           {},
           splits ? RowsOfTensor{} : part});
      filled_[static_cast<size_t>(role)] = config_.linear_rows(layer_, role);
    };
    for (int64_t head = 0; head < config_.num_heads; ++head) {
      const int64_t first = head * (latent.plain_dim + latent.value_dim);
      add(LinearRole::kHeadKeyUp, head, "self_attn.k_b_proj.#",
          {.num_rows = num_rows, .first = first, .transposed = true});
      add(LinearRole::kHeadValueUp, head, "self_attn.v_b_proj.#",
          {.num_rows = num_rows, .first = first + latent.plain_dim});
    }
  }

  // One of each group of heads, of which the tensor has one behind the other.
  void AddOutOfGroups(const std::string& tensor) {
    const LinearRole role = LinearRole::kGroupOut;
    const int64_t rows = config_.linear_rows(layer_, role);
    for (int64_t group = 0; group < config_.num_linears(layer_, role); ++group) {
      const LinearParameters& linear = FindOrAdd({.role = role, .expert = static_cast<int>(group)});
      map_.slots.push_back({tensor,
                            {rows, config_.linear_columns(layer_, role)},
                            linear.matrix,
                            0,
                            {},
                            {.num_rows = config_.compression->out_size(), .first = group * rows}});
      filled_[static_cast<size_t>(role)] = rows;
    }
  }

  const LinearParameters& FindOrAdd(const LinearKey& key) {
    std::vector<LinearParameters>& linears = parameters_.linears;
    const auto found = std::ranges::find(linears, key, &LinearParameters::key);
    if (found != linears.end()) return *found;
    const int64_t rows = config_.linear_rows(layer_, key.role);
    LinearParameters& linear = linears.emplace_back();
    linear.key = key;
    linear.matrix =
        map_.AddParameter(ParameterForm::kPacked, rows, config_.linear_columns(layer_, key.role));
    map_.parameters.back().in_float32 = key.role == LinearRole::kRouter ||
                                        key.role == LinearRole::kDeltaGates ||
                                        key.role == LinearRole::kIndexWeights;
    if (config_.has_bias(key.role)) {
      linear.bias = map_.AddParameter(ParameterForm::kVector, rows, 1);
    }
    return linear;
  }

  const ModelConfig& config_;
  const size_t index_;
  const LayerConfig& layer_;
  const WeightNames& names_;
  const std::string& prefix_;
  WeightMap& map_;
  LayerParameters parameters_;
  std::array<int64_t, kNumLinearRoles> filled_{};  // rows
};

}  // namespace

std::string PrefixOfLayer(const ModelConfig& config, const WeightNames& names, size_t index) {
  return names.prefix + std::string(config.arch->names.layer) + std::to_string(index) + '.';
}

void AddLayer(const ModelConfig& config, size_t index, const WeightNames& names,
              const std::string& prefix, WeightMap* map) {
  map->layers.push_back(LayerBuilder(config, index, names, prefix, map).Build());
}

}  // namespace mlc_native
