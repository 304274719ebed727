#include "weights/weight_map.h"

#include <algorithm>

#include "support/check.h"

namespace mlc_native {
namespace {

int64_t RowsOf(const ModelConfig& config, Rows rows) {
  switch (rows) {
    case Rows::kQ:
      return config.q_size();
    case Rows::kKv:
      return config.kv_size();
    case Rows::kQkv:
      return config.qkv_size();
    case Rows::kHidden:
      return config.hidden_size;
    case Rows::kFfn:
      return config.ffn_size;
    case Rows::kGateUp:
      return 2 * config.ffn_size;
  }
  return 0;
}

int64_t NormSize(const ModelConfig& config, Vector vector) {
  const bool whole = config.arch->qk_norm == QkNorm::kWholeProjection;
  if (vector == Vector::kQNorm) return whole ? config.q_size() : config.head_dim;
  if (vector == Vector::kKNorm) return whole ? config.kv_size() : config.head_dim;
  return config.hidden_size;
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

  void AddLayer(const std::string& prefix) {
    LayerParameters layer{std::vector<size_t>(kNumMatrices, LayerParameters::kAbsent),
                          std::vector<size_t>(kNumVectors, LayerParameters::kAbsent)};
    int64_t filled[kNumMatrices] = {};
    for (const ProjectionName& projection : config_.projections) {
      const auto m = static_cast<size_t>(projection.matrix);
      const int64_t rows = RowsOf(config_, projection.rows);
      AddProjection(prefix + std::string(projection.name), projection.matrix, rows, filled[m],
                    layer);
      filled[m] += rows;
    }
    for (const NormName& norm : config_.arch->norms) {
      layer.vectors[static_cast<size_t>(norm.vector)] =
          AddWhole(ParameterForm::kVector, prefix + std::string(norm.name) + ".weight",
                   {NormSize(config_, norm.vector)});
    }
    for (int m = 0; m < kNumMatrices; ++m) {
      MLC_CHECK(filled[m] == config_.matrix_rows(static_cast<Matrix>(m)))
          << config_.arch->architecture << " matrix " << m << ": " << filled[m] << " rows";
    }
    map_.layers.push_back(std::move(layer));
  }

  WeightMap& map() { return map_; }

 private:
  void AddProjection(const std::string& name, Matrix matrix, int64_t rows, int64_t row_offset,
                     LayerParameters& layer) {
    const int64_t all_rows = config_.matrix_rows(matrix);
    const int64_t columns = config_.matrix_columns(matrix);
    size_t& weight = layer.matrices[static_cast<size_t>(matrix)];
    if (weight == LayerParameters::kAbsent) {
      weight = AddParameter(ParameterForm::kPacked, all_rows, columns);
    }
    map_.slots.push_back({name + ".weight", {rows, columns}, weight, row_offset});
    if (!config_.has_bias(matrix)) return;
    size_t& bias =
        layer.vectors[static_cast<size_t>(Vector::kQkvBias) + static_cast<size_t>(matrix)];
    if (bias == LayerParameters::kAbsent) bias = AddParameter(ParameterForm::kVector, all_rows, 1);
    map_.slots.push_back({name + ".bias", {rows}, bias, row_offset});
  }

  const ModelConfig& config_;
  WeightMap map_;
};

}  // namespace

bool WeightMap::IsSensitive(size_t parameter) const {
  return parameter == head || std::ranges::count(layers.front().matrices, parameter) > 0;
}

WeightMap MakeWeightMap(const ModelConfig& config, const WeightNames& names) {
  Builder builder(config);
  const std::string embeddings = names.prefix + "embed_tokens.weight";
  const std::vector<int64_t> shape = {config.vocab_size, config.hidden_size};
  if (names.head.empty()) {
    builder.map().head = builder.AddWhole(ParameterForm::kPacked, embeddings, shape);
  } else {
    builder.map().embeddings = builder.AddWhole(ParameterForm::kTable, embeddings, shape);
    builder.map().head = builder.AddWhole(ParameterForm::kPacked, names.head, shape);
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    builder.AddLayer(names.prefix + "layers." + std::to_string(i) + ".");
  }
  builder.map().final_norm =
      builder.AddWhole(ParameterForm::kVector, names.prefix + "norm.weight", {config.hidden_size});
  return std::move(builder.map());
}

}  // namespace mlc_native
