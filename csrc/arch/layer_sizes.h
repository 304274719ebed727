// Layers with sizes of their own: heads of layers without a window, and layers that read the keys
// and values of others; and inputs of layers. Values; any thread.
#pragma once

#include "arch/model_config.h"
#include "support/config_fields.h"

namespace mlc_native {

// Of a family with arch.reads_layer_sizes, sets what the layers have of their own. Requires: the
// decoder's sizes and the windows of its layers are known. Throws LoadError.
//
// Fields: per_layer_config, with an object for each layer whose head_dim or num_key_value_heads is
// its own, as transformers writes it; or global_head_dim and, with attention_k_eq_v,
// num_global_key_value_heads, of the layers without a window. The projection of keys gives the
// values, too, in layers without a window if attention_k_eq_v. The last num_kv_shared_layers read
// the keys and values of the last layer of their kind in front of them, and have feed-forward
// blocks of twice the size if use_double_wide_mlp.
void ReadLayerSizes(const ConfigFields& fields, ModelConfig& config);

// Of a family with arch.reads_layer_inputs, sets config.layer_inputs. Requires: its norm_eps is
// known. Throws LoadError.
void ReadLayerInputs(const ConfigFields& fields, ModelConfig& config);

}  // namespace mlc_native
