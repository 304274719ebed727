// Rotary embeddings: the frequencies of each scaling rule, and the tables of cosines and sines that
// the kernels read. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mlc_native/detail/export.h"

namespace mlc_native {

enum class RopeScaling : uint8_t {
  kNone,    // also "dynamic", which is the same up to max_position_embeddings, the longest context
  kLinear,  // frequencies / factor
  kLlama3,  // low frequencies / factor, a smooth step to the high ones
  kYarn,    // a ramp between both, cos and sin scaled
  kLongRope,      // frequencies / factors[i], cos and sin scaled
  kProportional,  // frequencies / factor, 0 from pair num_rotated on
};

// The fields of transformers' rope_parameters.
struct RopeConfig {
  RopeScaling scaling = RopeScaling::kNone;
  double theta = 1e4;
  int64_t rotary_dim = 0;   // even, <= head_dim
  int64_t num_rotated = 0;  // pairs of kProportional
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_positions = 0;
  double attention_factor = 1.0;  // of cos and sin
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;
  bool backward = false;          // rotates by the negative angles
  std::vector<double> factors{};  // [rotary_dim / 2] the short or the long ones of kLongRope
  // [rotary_dim / 2] which number of a RowPosition (data.h) each pair turns by; empty: positions
  // are one number.
  std::vector<uint8_t> components{};

  bool operator==(const RopeConfig&) const = default;
};

// Returns [rotary_dim / 2] frequencies in radians per position, rounded to float32 as in
// transformers.
std::vector<float> RopeFrequencies(const RopeConfig& config);

// cos and sin [num_positions, rotary_dim / 2].
struct RopeTable {
  std::vector<float> cos;
  std::vector<float> sin;
};
MLC_NATIVE_PRIVATE_API RopeTable MakeRopeTable(const RopeConfig& config, int64_t num_positions);
// [positions, rotary_dim / 2]: each pair from the row of `table` that its component names.
RopeTable RopeOfRows(const RopeTable& table, std::span<const uint8_t> components,
                     std::span<const std::array<int32_t, 3>> positions);

}  // namespace mlc_native
