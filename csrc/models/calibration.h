// Calibration: packs a model whose matrices are rounded for the inputs that a text gives them.
//
// The text runs through the decoder once, in one batch of sequences, so that each layer has all
// rows before the next one begins. A matrix is packed when its inputs are there (LinearObserver),
// with ErrorFeedback, and is then computed with: so each is rounded for what the matrices before it
// make of the text after their own rounding, and makes up for some of it. Neither the floats of the
// model nor what is known of all inputs are in memory at once.
//
// Experts that no token chooses are rounded without calibration, and so is a head whose rows are
// also the embeddings, which are read before its inputs are known. Loading thread and its pool.
#pragma once

#include <cstdint>
#include <span>

#include "mlc_native/detail/export.h"
#include "mlc_native/model.h"
#include "weights/weight_loader.h"

namespace mlc_native {

inline constexpr int64_t kMinCalibrationTokens = 256;
inline constexpr int64_t kMaxCalibrationTokens = 8192;  // that are computed
inline constexpr int64_t kCalibrationSequence = 512;    // tokens, or the model's context

// Writes the calibrated weights that LoadBuiltinModel takes from source.weight_cache_dir in place
// of others. Of a text of more tokens than are computed, parts from beginning to end are. Throws as
// LoadBuiltinModel does; InvalidConfig about "quantization", without one of a format that can be
// calibrated; LoadError, for a checkpoint whose matrices are integers; and InvalidConfig about
// "calibrate", for a text that is too short. Requires: there is a weight_cache_dir.
MLC_NATIVE_PRIVATE_API PackedFile PackCalibratedModel(const ModelSource& source,
                                                      std::span<const int32_t> token_ids);

}  // namespace mlc_native
