#include "weights/decoder_map.h"

#include <utility>

#include "support/check.h"
#include "weights/layer_map.h"

namespace mlc_native {
namespace {

LinearParameters AddLinear(WeightMap* map, const std::string& name,
                           const std::vector<int64_t>& shape, bool has_bias) {
  LinearParameters linear;
  linear.matrix = map->AddWhole(ParameterForm::kPacked, name + ".weight", shape);
  if (has_bias) linear.bias = map->AddWhole(ParameterForm::kVector, name + ".bias", {shape[0]});
  return linear;
}

size_t AddNorm(WeightMap* map, const std::string& name, int64_t size) {
  if (name.empty()) return kAbsent;
  return map->AddWhole(ParameterForm::kVector, name + ".weight", {size});
}

// Of a draft head, if it has one.
size_t AddOwnHead(WeightMap* map, const ModelConfig& config, const WeightNames& names) {
  if (names.head.empty()) return kAbsent;
  return map->AddWhole(ParameterForm::kPacked, names.head, {config.vocab_size, config.hidden_size});
}

// The parameters of a draft head: its entry, its layer, and the rest as far as it has them.
WeightMap MapOfDraftHead(const ModelConfig& config, const WeightNames& names) {
  WeightMap map;
  const DraftHeadConfig& head = *config.draft_head;
  const DraftLayout& layout = *head.layout;
  const int64_t hidden = config.hidden_size;
  const int64_t states = config.draft_input_size();
  const int64_t fused = layout.joins_in_attention ? states : 2 * hidden;
  map.entry.fuse = AddLinear(&map, head.Name(layout.fuse), {hidden, fused}, head.fuse_bias);
  map.entry.embedding_norm = AddNorm(&map, head.Name(layout.embedding_norm), hidden);
  map.entry.state_norm = AddNorm(&map, head.Name(layout.state_norm), hidden);
  if (head.norm_before_fuse) map.entry.fuse_norm = AddNorm(&map, "input_norm", states);
  for (int64_t i = 0; head.norm_each_state && i < head.num_target_states(); ++i) {
    map.entry.state_norms.push_back(
        AddNorm(&map, "fc_norm." + std::to_string(i), head.target_hidden_size));
  }
  AddLayer(config, 0, names, head.Name(layout.layer), &map);
  map.final_norm.weight = AddNorm(&map, head.Name(layout.final_norm), hidden);
  map.head = AddOwnHead(&map, config, names);
  if (!names.embeddings.empty()) {
    map.embeddings =
        map.AddWhole(ParameterForm::kTable, names.embeddings, {head.num_embeddings, hidden});
  }
  return map;
}

// The parameters of Medusa's heads.
WeightMap MapOfMedusa(const ModelConfig& config, const WeightNames& names) {
  WeightMap map;
  const DraftHeadConfig& medusa = *config.draft_head;
  const int64_t hidden = config.hidden_size;
  for (int64_t i = 0; i < medusa.info.max_length; ++i) {
    MedusaParameters& head = map.medusa.emplace_back();
    for (int64_t block = 0; block < medusa.medusa_blocks; ++block) {
      head.blocks.push_back(AddLinear(&map, NumberedName(medusa.layout->medusa_block, {i, block}),
                                      {hidden, hidden}, medusa.medusa_bias));
    }
    if (medusa.medusa_shares_head) continue;
    const std::string name = NumberedName(medusa.layout->medusa_head, {i, medusa.medusa_blocks});
    head.head = map.AddWhole(ParameterForm::kPacked, name + ".weight", {config.vocab_size, hidden});
  }
  map.head = AddOwnHead(&map, config, names);
  return map;
}

void AddEmbeddingsAndHead(WeightMap* map, const ModelConfig& config, const WeightNames& names) {
  const std::string embeddings = names.prefix + std::string(config.arch->names.embeddings);
  const std::vector<int64_t> shape = {config.vocab_size, config.hidden_size};
  const bool normalized = config.arch->normalizes_embeddings;
  if (names.head.empty() && !normalized) {
    map->head = map->AddWhole(ParameterForm::kPacked, embeddings, shape);
  } else {
    map->embeddings = map->AddWhole(ParameterForm::kTable, embeddings, shape);
    if (normalized) map->slots.back().row_norm_eps = config.norm_eps;
    map->head =
        map->AddWhole(ParameterForm::kPacked, names.head.empty() ? embeddings : names.head, shape);
  }
  if (!config.head_bias) return;
  map->head_bias = map->AddWhole(ParameterForm::kVector, names.head_bias, {config.vocab_size});
}

// Rows in front of that of position 0 are left out.
void AddPositions(WeightMap* map, const ModelConfig& config, const std::string& prefix) {
  const PositionTable& table = config.arch->positions;
  if (table.name.empty()) return;
  map->positions = map->AddWhole(ParameterForm::kTable, prefix + std::string(table.name),
                                 {config.max_positions, config.hidden_size});
  if (table.first == 0) return;
  map->slots.back().part = {.num_rows = table.first + config.max_positions, .first = table.first};
}

void AddTextTypes(WeightMap* map, const ModelConfig& config, const std::string& prefix) {
  if (config.num_text_types == 0) return;
  map->text_types =
      map->AddWhole(ParameterForm::kTable, prefix + std::string(config.arch->text_types),
                    {config.num_text_types, config.hidden_size});
}

// In front of the first layer, as far as the family has them.
void AddEmbeddingNorm(WeightMap* map, const ModelConfig& config, const std::string& prefix) {
  if (!config.arch->has_norm_before_layers) return;
  const std::string name = prefix + std::string(config.arch->names.embedding_norm);
  map->embedding_norm.gives_residual = true;
  map->embedding_norm.weight = AddNorm(map, name, config.hidden_size);
  if (!config.arch->norm_bias) return;
  map->embedding_norm.bias =
      map->AddWhole(ParameterForm::kVector, name + ".bias", {config.hidden_size});
}

void AddDistances(WeightMap* map, const ModelConfig& config, const std::string& prefix) {
  const auto& [num_heads, slopes, buckets, rows] = config.distances;
  if (buckets.count == 0 && !rows.exists()) return;
  const TensorNames& names = config.arch->names;
  const std::vector<int64_t> shape = rows.exists() ? std::vector{rows.count(), config.hidden_size}
                                                   : std::vector{buckets.count, num_heads};
  map->distances =
      map->AddWhole(ParameterForm::kVector, prefix + std::string(names.distances), shape);
  map->parameters.back().in_float32 = true;
  if (!rows.has_norm) return;
  const std::string norm = prefix + std::string(names.distance_norm);
  map->distance_norm.weight = AddNorm(map, norm, config.hidden_size);
  map->distance_norm.bias =
      map->AddWhole(ParameterForm::kVector, norm + ".bias", {config.hidden_size});
}

// Of a decoder whose layers have inputs.
void AddLayerInputs(WeightMap* map, const ModelConfig& config, const std::string& prefix) {
  if (!config.layer_inputs) return;
  const LayerInputConfig& inputs = *config.layer_inputs;
  const int64_t size = config.layer_inputs_size();
  LayerInputParameters& parameters = map->layer_inputs;
  parameters.embeddings = map->AddWhole(
      ParameterForm::kTable, prefix + "embed_tokens_per_layer.weight", {inputs.vocab_size, size});
  parameters.projection =
      AddLinear(map, prefix + "per_layer_model_projection", {size, config.hidden_size}, false);
  parameters.norm = AddNorm(map, prefix + "per_layer_projection_norm", inputs.size);
  map->parameters.back().scale = kRootOfHalf;
}

// Of a decoder with residual streams.
void AddStreams(WeightMap* map, const ModelConfig& config, const std::string& prefix) {
  if (!config.residual_streams) return;
  const std::vector<int64_t> shape = {config.hidden_size, config.hidden_size};
  for (int64_t i = 0; i + 1 < config.residual_streams->count; ++i) {
    const std::string number = '.' + std::to_string(i);
    map->streams_in.push_back(AddLinear(map, prefix + "altup_projections" + number, shape, false));
    map->streams_out.push_back(
        AddLinear(map, prefix + "altup_unembed_projections" + number, shape, false));
  }
}

// Of a decoder with hyper-connections.
void AddLeave(WeightMap* map, const ModelConfig& config, const std::string& prefix) {
  if (!config.hyper_connections) return;
  const int64_t count = config.hyper_connections->count;
  const auto add = [&](const char* name, std::vector<int64_t> shape) {
    const size_t index = map->AddWhole(ParameterForm::kVector, prefix + name, std::move(shape));
    map->parameters[index].in_float32 = true;
    return index;
  };
  map->leave.mix = add("hc_head.hc_fn", {count, count * config.hidden_size});
  map->leave.base = add("hc_head.hc_base", {count});
  map->leave.scales = add("hc_head.hc_scale", {1});
}

void AddFinalNorm(WeightMap* map, const ModelConfig& config, const std::string& name) {
  NormParameters& norm = map->final_norm;
  norm.weight =
      map->AddWhole(ParameterForm::kVector, config.arch->norms_lack_weights ? "" : name + ".weight",
                    {config.hidden_size});
  map->parameters.back().scale = config.final_norm_scale;
  const bool has_bias = config.arch->norm_bias;
  if (has_bias) {
    norm.bias = map->AddWhole(ParameterForm::kVector, name + ".bias", {config.hidden_size});
  }
  MLC_CHECK(config.final_norm_scale == 1 || (config.norm_weight_offset == 0 && !has_bias))
      << config.arch->architecture << ": the final norm is more than its weight";
}

}  // namespace

WeightMap MakeWeightMap(const ModelConfig& config, const WeightNames& names) {
  if (config.draft_head) {
    return config.layers.empty() ? MapOfMedusa(config, names) : MapOfDraftHead(config, names);
  }
  WeightMap map;
  AddEmbeddingsAndHead(&map, config, names);
  AddPositions(&map, config, names.prefix);
  AddTextTypes(&map, config, names.prefix);
  AddEmbeddingNorm(&map, config, names.prefix);
  AddDistances(&map, config, names.prefix);
  AddLayerInputs(&map, config, names.prefix);
  AddStreams(&map, config, names.prefix);
  AddLeave(&map, config, names.prefix);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    AddLayer(config, i, names, PrefixOfLayer(config, names, i), &map);
  }
  const std::string& of_norm = config.arch->norms_give_residual
                                   ? PrefixOfLayer(config, names, config.layers.size() - 1)
                                   : names.prefix;
  AddFinalNorm(&map, config, of_norm + std::string(config.arch->names.final_norm));
  return map;
}

}  // namespace mlc_native
