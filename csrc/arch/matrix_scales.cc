// What a config.json says about multipliers that become a part of the matrices.
#include <algorithm>
#include <string>
#include <vector>

#include "arch/model_config.h"

namespace mlc_native {
namespace {

std::vector<double> ReadList(const ConfigFields& fields, const char* field, size_t count) {
  if (!fields.Has(field)) return std::vector<double>(count, 1.0);
  std::vector<double> numbers = fields.Numbers(field);
  if (numbers.size() != count) {
    fields.FailValue(field, "a list of " + std::to_string(count) + " numbers");
  }
  return numbers;
}

// What reads the values has the factor in their place: it is stored in more bits than they are.
void ReadScaleOfValues(const ConfigFields& fields, ModelConfig& config) {
  const Multipliers& names = config.arch->multipliers;
  const std::string field(names.values);
  if (field.empty() || fields.IsNull(field.c_str())) return;
  config.matrix_scales = {
      .attention_out = static_cast<float>(fields.Number(field.c_str(), names.absent_values))};
}

}  // namespace

void ReadMatrixScales(const ConfigFields& fields, ModelConfig& config) {
  ReadScaleOfValues(fields, config);
  if (!config.arch->reads_matrix_scales) return;
  const auto number = [&](const char* field) { return fields.Number(field, 1.0); };
  const std::vector<double> mamba = ReadList(fields, "ssm_multipliers", 5);
  const std::vector<double> ffn = ReadList(fields, "mlp_multipliers", 2);
  const double mamba_in = number("ssm_in_multiplier");
  MatrixScales scales{
      .attention_in = static_cast<float>(number("attention_in_multiplier")),
      .keys = static_cast<float>(number("key_multiplier")),
      .attention_out = static_cast<float>(number("attention_out_multiplier")),
      .mamba_out = static_cast<float>(number("ssm_out_multiplier")),
      .gates = static_cast<float>(ffn[0]),
      .down = static_cast<float>(ffn[1]),
  };
  std::ranges::transform(mamba, scales.mamba_in.begin(),
                         [&](double part) { return static_cast<float>(part * mamba_in); });
  config.matrix_scales = scales;
}

}  // namespace mlc_native
