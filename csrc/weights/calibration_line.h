// The line that a file of calibrated weights has behind its key: what decided the rounding besides
// the checkpoint and the layout. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace mlc_native {

inline constexpr size_t kMaxCalibrationLine = 200;  // bytes

// The line of a calibration that computes these tokens, in sequences of at most `length`.
std::string MakeCalibrationLine(std::span<const int32_t> token_ids, int64_t length);
bool IsCalibrationLine(std::string_view line);
// For people: "calibrated on 8192 tokens". Requires: IsCalibrationLine.
std::string DescribeCalibration(std::string_view line);

}  // namespace mlc_native
