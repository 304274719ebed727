// What attention adds by the distance of query and key, made of the weights when they are loaded:
// biases, or the vectors of distances of each layer.
#include <algorithm>
#include <vector>

#include "models/transformer.h"

namespace mlc_native {
namespace {

// How far apart rows of a text can be, as far as their vectors differ.
int64_t ReachOfVectors(const ModelConfig& config) {
  return std::min(config.distances.rows.Reach(), config.max_positions - 1);
}

// Floats of a table of DistanceVectors; each layer has NumProducts() - 1 of them.
size_t SizeOfVectors(const ModelConfig& config, int64_t reach) {
  return static_cast<size_t>(config.q_size() * kernels::DistanceRowSize(reach));
}

}  // namespace

size_t Transformer::DistanceVectorBytes(const ModelConfig& config) {
  const DistanceRows& rows = config.distances.rows;
  if (!rows.exists()) return 0;
  const auto tables = static_cast<size_t>(rows.NumProducts() - 1);
  return config.layers.size() * tables * SizeOfVectors(config, ReachOfVectors(config)) *
         sizeof(float);
}

void Transformer::MakeDistances() {
  if (weights_.distances == nullptr) return;
  if (config_.distances.rows.exists()) return MakeDistanceVectors();
  const DistanceBuckets& buckets = config_.distances.buckets;
  const int64_t num_heads = config_.distances.num_heads;
  const auto count = static_cast<size_t>(buckets.count * num_heads);
  distances_ = kernels::PadDistances(buckets.Entries({weights_.distances, count}), num_heads,
                                     buckets.Reach());
}

// The rows of the table go through the matrices of each layer as the rows of a text do.
void Transformer::MakeDistanceVectors() {
  const DistanceRows& rows = config_.distances.rows;
  const int64_t hidden = config_.hidden_size, count = rows.count();
  distance_reach_ = ReachOfVectors(config_);
  const int64_t reach = distance_reach_, row_size = kernels::DistanceRowSize(reach);
  distance_vectors_ = TensorStorage(DistanceVectorBytes(config_), "model");
  const size_t table_size = static_cast<size_t>(count * hidden);
  std::vector<float> table(weights_.distances, weights_.distances + table_size);
  if (rows.has_norm) {
    kernels::Normalize(cpu_, {.x = table.data(),
                              .ldx = hidden,
                              .y = table.data(),
                              .ldy = hidden,
                              .weight = weights_.distance_norm.weight,
                              .bias = weights_.distance_norm.bias,
                              .eps = config_.norm_eps,
                              .m = count,
                              .dim = hidden,
                              .subtract_mean = true});
  }
  const int64_t width = config_.qkv_size();
  std::vector<float> projected(static_cast<size_t>(count * width));
  auto* next = reinterpret_cast<float*>(distance_vectors_.data());
  const TensorStorage workspace(kernels::LinearWorkspaceBytes(count, hidden), "model");
  for (size_t layer = 0; layer < config_.layers.size(); ++layer) {
    const auto& qkv = weights_.layers[layer].linear(LinearRole::kQkv);
    kernels::Linear(cpu_, qkv.matrix,
                    {.x = table.data(),
                     .ldx = hidden,
                     .m = count,
                     .bias = qkv.bias,
                     .y = projected.data(),
                     .ldy = width,
                     .workspace = workspace.data()});
    // Entry i of each row is of the distance i - kDistancePadding - reach, or the nearest there is.
    const auto fill = [&](int64_t first, int64_t heads_per_vector) {
      for (int64_t i = 0; i < row_size; ++i) {
        const int64_t distance = std::clamp(i - kernels::kDistancePadding - reach, -reach, reach);
        const float* const from = projected.data() + rows.RowOf(distance) * width + first;
        for (int64_t head = 0; head < config_.num_heads; ++head) {
          const float* const vector = from + head / heads_per_vector * config_.head_dim;
          float* const to = next + head * config_.head_dim * row_size + i;
          for (int64_t e = 0; e < config_.head_dim; ++e) to[e * row_size] = vector[e];
        }
      }
      next += config_.q_size() * row_size;
    };
    if (rows.of_keys) fill(config_.q_size(), config_.num_heads / config_.num_kv_heads);
    if (rows.of_queries) fill(0, 1);
  }
}

kernels::DistanceBias Transformer::distance_bias() const {
  const std::vector<float>& slopes = config_.distances.slopes;
  if (!slopes.empty()) return {.slopes = slopes.data()};
  if (distances_.empty()) return {};
  return {.table = distances_.data(), .reach = config_.distances.buckets.Reach()};
}

kernels::DistanceVectors Transformer::distance_vectors(size_t layer) const {
  const DistanceRows& rows = config_.distances.rows;
  if (!rows.exists()) return {};
  const size_t table = SizeOfVectors(config_, distance_reach_);
  const auto per_layer = static_cast<size_t>(rows.NumProducts() - 1);
  const float* next =
      reinterpret_cast<const float*>(distance_vectors_.data()) + layer * per_layer * table;
  kernels::DistanceVectors vectors{.reach = distance_reach_};
  if (rows.of_keys) {
    vectors.keys = next;
    next += table;
  }
  if (rows.of_queries) vectors.queries = next;
  return vectors;
}

}  // namespace mlc_native
