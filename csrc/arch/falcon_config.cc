// What a config.json says about the blocks of Falcon, whose releases differ in them.
#include "arch/model_config.h"
#include "arch/tensor_names.h"

namespace mlc_native {
namespace {

constexpr NormName kOneNorm[] = {{"input_layernorm", NormRole::kPreAttention}};
constexpr NormName kTwoNorms[] = {
    {"ln_attn", NormRole::kPreAttention},
    {"ln_mlp", NormRole::kPreFfn},
};
constexpr NormName kTwoNormsOfGguf[] = {
    {"ln_attn", NormRole::kPreAttention},
    {"input_layernorm", NormRole::kPreFfn},
};

}  // namespace

void ReadFalcon(const ConfigFields& fields, ModelConfig& config) {
  if (!config.arch->is_falcon) return;
  const bool is_new = fields.Bool("new_decoder_architecture", false);
  if (is_new) config.parallel_blocks = true;
  if (!config.parallel_blocks) return;
  const int64_t count = fields.Integer("num_ln_in_parallel_attn", is_new ? 2 : 1, 1, 2);
  if (!is_new || count == 1) {
    config.own_norms = kOneNorm;
  } else if (fields.Bool("has_split_projections", false)) {
    config.own_norms = kTwoNormsOfGguf;
  } else {
    config.own_norms = kTwoNorms;
  }
}

}  // namespace mlc_native
