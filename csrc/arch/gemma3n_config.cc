// What a config.json of Gemma 3n says about gates that are cut, residual streams and LAuReL.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "kernels/residual_streams.h"

namespace mlc_native {
namespace {

// How many standard deviations above the mean of a normal distribution `share` of it ends: Newton's
// method in the tail, whose logarithm is concave.
float DeviationsAbove(double share) {
  constexpr int kMostSteps = 64;
  constexpr double kRootOfTwo = 1.4142135623730951, kRootOfTwoPi = 2.5066282746310002;
  const bool is_below = share < 0.5;
  const double tail = is_below ? share : 1.0 - share;
  double x = 0.0;
  for (int i = 0; i < kMostSteps; ++i) {
    const double above = 0.5 * std::erfc(x / kRootOfTwo);
    const double step = above * std::log(above / tail) * kRootOfTwoPi * std::exp(0.5 * x * x);
    x += step;
    if (std::abs(step) < 1e-14 * x) break;
  }
  return static_cast<float>(is_below ? -x : x);
}

// Throws LoadError unless there is a number for each layer, of which `is_valid` is true.
template <typename F>
std::vector<double> NumbersOfLayers(const ConfigFields& fields, const char* field,
                                    size_t num_layers, const char* allowed, const F& is_valid) {
  std::vector<double> numbers = fields.Numbers(field);
  if (numbers.size() != num_layers || !std::ranges::all_of(numbers, is_valid)) {
    fields.FailValue(field, "a list of \"num_hidden_layers\" = " + std::to_string(num_layers) +
                                " numbers" + allowed);
  }
  return numbers;
}

}  // namespace

void ReadGateCuts(const ConfigFields& fields, ModelConfig& config) {
  constexpr char kShares[] = "activation_sparsity_pattern";
  constexpr char kDeviations[] = "activation_sparsity_deviations";
  if (!config.arch->cuts_gates) return;
  std::vector<LayerConfig>& layers = config.layers;
  if (fields.Has(kDeviations)) {
    constexpr double kMost = 1000.0, kNone = -1e29;
    const auto is_valid = [](double cut) { return std::abs(cut) <= kMost || cut < kNone; };
    const std::vector<double> cuts =
        NumbersOfLayers(fields, kDeviations, layers.size(), " in [-1000, 1000]", is_valid);
    for (size_t i = 0; i < cuts.size(); ++i) {
      if (cuts[i] > kNone) layers[i].gate_cut = static_cast<float>(cuts[i]);
    }
    return;
  }
  if (!fields.Has(kShares)) {
    constexpr size_t kSparse = 10;
    const size_t count = layers.size() > kSparse ? kSparse : 0;
    for (size_t i = 0; i < count; ++i) layers[i].gate_cut = DeviationsAbove(0.95f);
    return;
  }
  // In float32, as transformers has them.
  const auto is_valid = [](double share) {
    return share >= 0.0 && share < 1.0 && static_cast<float>(share) < 1.0f;
  };
  const std::vector<double> shares =
      NumbersOfLayers(fields, kShares, layers.size(), " in [0, 1)", is_valid);
  for (size_t i = 0; i < shares.size(); ++i) {
    const auto share = static_cast<float>(shares[i]);
    if (share > 0.0f) layers[i].gate_cut = DeviationsAbove(share);
  }
}

void ReadResidualStreams(const ConfigFields& fields, ModelConfig& config) {
  const int64_t rank = config.arch->defaults.laurel_rank;
  if (rank > 0) config.laurel_rank = fields.Integer("laurel_rank", rank, 1, kMaxDimension);
  if (!config.arch->has_residual_streams) return;
  if (!config.layer_inputs) {
    fields.FailValue("hidden_size_per_layer_input", "at least 1: the residual streams need it");
  }
  ResidualStreamConfig streams;
  streams.count = fields.Integer("altup_num_inputs", 4, 2, kernels::kMaxStreams);
  streams.active = fields.Integer("altup_active_idx", 0, 0, streams.count - 1);
  streams.scales_active = fields.Bool("altup_correct_scale", true);
  config.residual_streams = streams;
}

}  // namespace mlc_native
