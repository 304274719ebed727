// What a model folder says besides its weights. Read before the loaded model is unloaded for
// another one, so that a wrong path costs nothing. Pure functions of the folder; any thread.
#pragma once

#include <string>

#include "mlc_native/config.h"

namespace mlc_native {

// Of generation_config.json, these fields count: eos_token_id, max_new_tokens and min_new_tokens;
// with do_sample true temperature, top_p, top_k, min_p and repetition_penalty; do_sample false is
// temperature 0, with repetition_penalty. Throws LoadError when a file is missing or damaged.
ModelDefaults ReadModelDefaults(const std::string& model_path);

}  // namespace mlc_native
