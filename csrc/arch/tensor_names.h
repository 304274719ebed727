// The names of tensors that families share, and what combines them. For the tables of rows of
// arch_table.cc.
#pragma once

#include <algorithm>
#include <array>

#include "arch/arch_spec.h"

namespace mlc_native {

// The rows of the arrays, one array after another.
template <typename T, size_t... kSizes>
constexpr auto Join(const T (&... parts)[kSizes]) {
  std::array<T, (kSizes + ...)> joined;
  auto end = joined.begin();
  ((end = std::copy(std::begin(parts), std::end(parts), end)), ...);
  return joined;
}

inline constexpr ProjectionName kSeparateQkv[] = {
    {"self_attn.q_proj", LinearRole::kQkv, Rows::kQ},
    {"self_attn.k_proj", LinearRole::kQkv, Rows::kKv},
    {"self_attn.v_proj", LinearRole::kQkv, Rows::kValues},
};
inline constexpr ProjectionName kFusedQkv[] = {
    {"self_attn.qkv_proj", LinearRole::kQkv, Rows::kQkv}};
inline constexpr ProjectionName kMlcQwenQkv[] = {
    {"self_attn.c_attn", LinearRole::kQkv, Rows::kQkv}};
inline constexpr ProjectionName kOut[] = {{"self_attn.o_proj", LinearRole::kOut, Rows::kHidden}};
inline constexpr ProjectionName kSeparateFfn[] = {
    {"mlp.gate_proj", LinearRole::kGateUp, Rows::kFfn},
    {"mlp.up_proj", LinearRole::kGateUp, Rows::kFfn},
    {"mlp.down_proj", LinearRole::kDown, Rows::kHidden},
};
inline constexpr ProjectionName kPlainFfn[] = {
    {"mlp.up_proj", LinearRole::kGateUp, Rows::kFfn},
    {"mlp.down_proj", LinearRole::kDown, Rows::kHidden},
};
inline constexpr ProjectionName kFusedFfn[] = {
    {"mlp.gate_up_proj", LinearRole::kGateUp, Rows::kGateUp},
    {"mlp.down_proj", LinearRole::kDown, Rows::kHidden},
};
inline constexpr auto kSeparateProjections = Join(kSeparateQkv, kOut, kSeparateFfn);
inline constexpr auto kFusedProjections = Join(kFusedQkv, kOut, kFusedFfn);
inline constexpr auto kSeparateQkvFusedFfn = Join(kSeparateQkv, kOut, kFusedFfn);
inline constexpr auto kPlainProjections = Join(kSeparateQkv, kOut, kPlainFfn);
inline constexpr auto kMlcQwen = Join(kMlcQwenQkv, kOut, kFusedFfn);

inline constexpr NormName kPreNorms[] = {
    {"input_layernorm", NormRole::kPreAttention},
    {"post_attention_layernorm", NormRole::kPreFfn},
};
inline constexpr NormName kPostNorms[] = {
    {"post_attention_layernorm", NormRole::kPostAttention},
    {"post_feedforward_layernorm", NormRole::kPostFfn},
};
inline constexpr NormName kSandwichNorms[] = {
    {"input_layernorm", NormRole::kPreAttention},
    {"post_attention_layernorm", NormRole::kPostAttention},
    {"pre_feedforward_layernorm", NormRole::kPreFfn},
    {"post_feedforward_layernorm", NormRole::kPostFfn},
};
inline constexpr NormName kQkNorms[] = {
    {"self_attn.q_norm", NormRole::kQ},
    {"self_attn.k_norm", NormRole::kK},
};
inline constexpr auto kPreNormsQk = Join(kPreNorms, kQkNorms);
inline constexpr auto kPostNormsQk = Join(kPostNorms, kQkNorms);
inline constexpr auto kSandwichNormsQk = Join(kSandwichNorms, kQkNorms);

inline constexpr std::string_view kVisionParts[] = {"vision_tower.", "multi_modal_projector.",
                                                    "model.vision_tower.",
                                                    "model.multi_modal_projector."};

inline constexpr Switch kAttentionBias = {.field = "attention_bias"};
inline constexpr Switch kMlpBias = {.field = "mlp_bias"};
inline constexpr Switch kUseBias = {.field = "use_bias"};

inline constexpr Multipliers kGraniteMultipliers = {.embedding = "embedding_multiplier",
                                                    .residual = "residual_multiplier",
                                                    .attention = "attention_multiplier",
                                                    .logits_divisor = "logits_scaling"};

}  // namespace mlc_native
