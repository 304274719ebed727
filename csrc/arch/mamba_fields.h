// How the config.json of a family calls the sizes of its layers with Mamba-2, or with Mamba-1. A
// row of names; immutable, any thread.
#pragma once

#include <cstdint>

namespace mlc_native {

// A null pointer is a field that the family lacks.
struct MambaFields {
  const char* activation = "hidden_act";  // which must be SiLU
  const char* num_heads = "mamba_n_heads";
  const char* head_dim = "mamba_d_head";
  const char* num_groups = "mamba_n_groups";
  const char* state_dim = "mamba_d_state";
  const char* conv_width = "mamba_d_conv";
  const char* conv_bias = "mamba_conv_bias";
  const char* biases = "mamba_proj_bias";  // of both projections, which is not supported
  const char* expand = "mamba_expand";     // hidden_size * this is the size of all heads together,
  const char* size = nullptr;              // unless this says it
  const char* norm = nullptr;  // whether there is one of what the heads give; without it: there is

  struct Absent {          // values of absent fields
    int64_t head_dim = 0;  // 0: as the size of all heads says
    int64_t num_groups = 1;
    int64_t state_dim = 256;
    int64_t size = 0;
  } absent{};
};

inline constexpr MambaFields kUsualMambaFields{};
inline constexpr MambaFields kFalconMambaFields{
    .size = "mamba_d_ssm", .norm = "mamba_rms_norm", .absent = {.size = 1024}};
inline constexpr MambaFields kNemotronMambaFields{
    .activation = "mamba_hidden_act",
    .num_heads = "mamba_num_heads",
    .head_dim = "mamba_head_dim",
    .num_groups = "n_groups",
    .state_dim = "ssm_state_size",
    .conv_width = "conv_kernel",
    .conv_bias = "use_conv_bias",
    .biases = "use_bias",
    .expand = nullptr,
    .absent = {.head_dim = 64, .num_groups = 8, .state_dim = 128}};
inline constexpr MambaFields kMamba2Fields{
    .num_heads = "num_heads",
    .head_dim = "head_dim",
    .num_groups = "n_groups",
    .state_dim = "state_size",
    .conv_width = "conv_kernel",
    .conv_bias = "use_conv_bias",
    .biases = "use_bias",
    .expand = "expand",
    .absent = {.head_dim = 64, .num_groups = 8, .state_dim = 128}};

// Whether what steps come from, keys and queries are normalized, each by itself.
enum class ScanNorms : uint8_t { kNone, kWithoutWeights, kWithWeights };

// The same of Mamba-1, the selective scan.
struct ScanFields {
  const char* activation = "hidden_act";  // which must be SiLU
  const char* state_dim = "state_size";
  const char* conv_width = "conv_kernel";
  const char* conv_bias = "use_conv_bias";
  const char* biases = "use_bias";         // of the first projection and of the last one
  const char* expand = "expand";           // hidden_size * this is how many channels there are,
  const char* size = "intermediate_size";  // unless this says it; null: the family lacks it
  const char* rank = "time_step_rank";     // "auto": a sixteenth of hidden_size
  const char* attn_period = nullptr;       // one of so many layers attends instead; null: none
  const char* attn_offset = nullptr;       // the first one that does
  ScanNorms norms = ScanNorms::kNone;
  const char* norm_eps = nullptr;  // null: as other norms
};

inline constexpr ScanFields kScanFields{};
inline constexpr ScanFields kPlainNormScanFields{.norms = ScanNorms::kWithoutWeights,
                                                 .norm_eps = "mixer_rms_eps"};
inline constexpr ScanFields kJambaFields{.state_dim = "mamba_d_state",
                                         .conv_width = "mamba_d_conv",
                                         .conv_bias = "mamba_conv_bias",
                                         .biases = "mamba_proj_bias",
                                         .expand = "mamba_expand",
                                         .size = nullptr,
                                         .rank = "mamba_dt_rank",
                                         .attn_period = "attn_layer_period",
                                         .attn_offset = "attn_layer_offset",
                                         .norms = ScanNorms::kWithWeights};

}  // namespace mlc_native
