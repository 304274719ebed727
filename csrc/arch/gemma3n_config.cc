// What a config.json of Gemma 3n says about gates that are cut, residual streams and LAuReL.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "kernels/residual_streams.h"

namespace mlc_native {
namespace {

constexpr double kNoCut = -1e29;  // below any that leaves a gate as it is

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

}  // namespace

void ReadGateCuts(const ConfigFields& fields, ModelConfig& config) {
  constexpr char kField[] = "activation_sparsity_pattern";
  constexpr char kDeviations[] = "activation_sparsity_deviations";
  if (!config.arch->cuts_gates) return;
  const size_t num_layers = config.layers.size();
  const auto check = [&](const char* field, const std::vector<double>& numbers, const auto& fits,
                         const char* allowed) {
    if (numbers.size() == num_layers && std::ranges::all_of(numbers, fits)) return;
    fields.FailValue(field, "a list of \"num_hidden_layers\" = " + std::to_string(num_layers) +
                                " numbers" + allowed);
  };
  if (fields.Has(kDeviations)) {
    const std::vector<double> cuts = fields.Numbers(kDeviations);
    check(kDeviations, cuts, [](double) { return true; }, "");
    for (size_t i = 0; i < num_layers; ++i) {
      if (cuts[i] > kNoCut) config.layers[i].gate_cut = static_cast<float>(cuts[i]);
    }
    return;
  }
  std::vector<double> shares = fields.Numbers(kField);
  if (!fields.Has(kField)) {
    constexpr size_t kSparse = 10;
    shares.assign(num_layers, 0.0);
    if (num_layers > kSparse) std::fill_n(shares.begin(), kSparse, 0.95);
  }
  check(kField, shares, [](double share) { return share >= 0.0 && share < 1.0; }, " in [0, 1)");
  for (size_t i = 0; i < num_layers; ++i) {
    // In float32, as transformers has it.
    if (shares[i] > 0.0) config.layers[i].gate_cut = DeviationsAbove(static_cast<float>(shares[i]));
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
