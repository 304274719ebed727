#include "arch/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace mlc_native {
namespace {

// theta^(2i / rotary_dim), the exponent and the power rounded to float32 as torch does.
std::vector<float> Wavelengths(const RopeConfig& config) {
  std::vector<float> out(static_cast<size_t>(config.rotary_dim / 2));
  const auto theta = static_cast<float>(config.theta);
  for (size_t i = 0; i < out.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(config.rotary_dim);
    out[i] =
        static_cast<float>(std::pow(static_cast<double>(theta), static_cast<double>(exponent)));
  }
  return out;
}

// "The Llama 3 herd of models", rope scaling of 3.1: wavelengths above the original context over
// low_freq_factor are stretched by factor, those below it over high_freq_factor are kept. Of Llama
// 4 both factors are the same, so that none is in between.
float Llama3Frequency(const RopeConfig& c, float frequency) {
  const auto context = static_cast<float>(c.original_max_positions);
  const auto factor = static_cast<float>(c.factor);
  const auto low = static_cast<float>(c.low_freq_factor);
  const auto high = static_cast<float>(c.high_freq_factor);
  const float wavelength = static_cast<float>(2.0 * std::numbers::pi) / frequency;
  const float low_wavelength =
      static_cast<float>(static_cast<double>(c.original_max_positions) / c.low_freq_factor);
  const float high_wavelength =
      static_cast<float>(static_cast<double>(c.original_max_positions) / c.high_freq_factor);
  if (wavelength > low_wavelength) return frequency / factor;
  if (wavelength < high_wavelength || low == high) return frequency;
  const float smooth = (context / wavelength - low) / (high - low);
  return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

// YaRN (arXiv:2309.00071): dimensions that turn more than beta_fast times in the original context
// keep their frequency, those that turn less than beta_slow times are stretched.
struct YarnRamp {
  float low;
  float high;

  explicit YarnRamp(const RopeConfig& c) {
    const auto dimension = [&](double turns) {
      const auto context = static_cast<double>(c.original_max_positions);
      return static_cast<double>(c.rotary_dim) *
             std::log(context / (turns * 2.0 * std::numbers::pi)) / (2.0 * std::log(c.theta));
    };
    double first = dimension(c.beta_fast);
    double last = dimension(c.beta_slow);
    if (c.truncate) {
      first = std::floor(first);
      last = std::ceil(last);
    }
    first = std::max(first, 0.0);
    last = std::min(last, static_cast<double>(c.rotary_dim - 1));
    if (first == last) last += 0.001;  // as transformers, against division by zero
    low = static_cast<float>(first);
    high = static_cast<float>(last);
  }

  float at(size_t i) const {
    return std::clamp((static_cast<float>(i) - low) / (high - low), 0.0f, 1.0f);
  }
};

void ScaleYarn(const RopeConfig& config, const std::vector<float>& wavelengths,
               std::vector<float>& frequencies) {
  const YarnRamp ramp(config);
  const auto factor = static_cast<float>(config.factor);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float kept = 1.0f - ramp.at(i);
    const float stretched = 1.0f / (factor * wavelengths[i]);
    frequencies[i] = stretched * (1.0f - kept) + frequencies[i] * kept;
  }
}

}  // namespace

std::vector<float> RopeFrequencies(const RopeConfig& config) {
  const std::vector<float> wavelengths = Wavelengths(config);
  std::vector<float> frequencies(wavelengths.size());
  for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] = 1.0f / wavelengths[i];
  switch (config.scaling) {
    case RopeScaling::kNone:
      break;
    case RopeScaling::kLinear:
      for (float& f : frequencies) f /= static_cast<float>(config.factor);
      break;
    case RopeScaling::kProportional:
      for (size_t i = 0; i < frequencies.size(); ++i) {
        const bool is_rotated = i < static_cast<size_t>(config.num_rotated);
        frequencies[i] = is_rotated ? frequencies[i] / static_cast<float>(config.factor) : 0.0f;
      }
      break;
    case RopeScaling::kLlama3:
      for (float& f : frequencies) f = Llama3Frequency(config, f);
      break;
    case RopeScaling::kYarn:
      ScaleYarn(config, wavelengths, frequencies);
      break;
    case RopeScaling::kLongRope:
      for (size_t i = 0; i < frequencies.size(); ++i) {
        frequencies[i] = 1.0f / (static_cast<float>(config.factors[i]) * wavelengths[i]);
      }
      break;
  }
  return frequencies;
}

RopeTable MakeRopeTable(const RopeConfig& config, int64_t num_positions) {
  const std::vector<float> frequencies = RopeFrequencies(config);
  const auto scale = static_cast<float>(config.attention_factor);
  const float sin_scale = config.backward ? -scale : scale;
  RopeTable table;
  table.cos.reserve(static_cast<size_t>(num_positions) * frequencies.size());
  table.sin.reserve(table.cos.capacity());
  for (int64_t position = 0; position < num_positions; ++position) {
    for (float frequency : frequencies) {
      const double angle =
          static_cast<float>(position) * frequency;  // a float32 in transformers too
      table.cos.push_back(static_cast<float>(std::cos(angle)) * scale);
      table.sin.push_back(static_cast<float>(std::sin(angle)) * sin_scale);
    }
  }
  return table;
}

RopeTable RopeOfRows(const RopeTable& table, std::span<const uint8_t> components,
                     std::span<const std::array<int32_t, 3>> positions) {
  RopeTable rows;
  rows.cos.reserve(positions.size() * components.size());
  rows.sin.reserve(positions.size() * components.size());
  for (const std::array<int32_t, 3>& position : positions) {
    for (size_t i = 0; i < components.size(); ++i) {
      const size_t at = static_cast<size_t>(position[components[i]]) * components.size() + i;
      rows.cos.push_back(table.cos[at]);
      rows.sin.push_back(table.sin[at]);
    }
  }
  return rows;
}

}  // namespace mlc_native
