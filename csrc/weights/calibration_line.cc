#include "weights/calibration_line.h"

#include <cinttypes>
#include <cstdio>

#include "kernels/error_feedback.h"
#include "support/hash64.h"

namespace mlc_native {
namespace {

constexpr std::string_view kCalibrated = "calibrated on ";
constexpr std::string_view kTokens = " tokens";

}  // namespace

std::string MakeCalibrationLine(std::span<const int32_t> token_ids, int64_t length) {
  char line[kMaxCalibrationLine];
  std::snprintf(
      line, sizeof line,
      "calibrated on %zu tokens in sequences of %" PRId64 " hash %016" PRIx64 " feedback %d\n",
      token_ids.size(), length, Hash64(std::as_bytes(token_ids)), kernels::kFeedbackVersion);
  return line;
}

bool IsCalibrationLine(std::string_view line) {
  return line.starts_with(kCalibrated) && line.find(kTokens) != line.npos && line.ends_with('\n');
}

std::string DescribeCalibration(std::string_view line) {
  return std::string(line.substr(0, line.find(kTokens) + kTokens.size()));
}

}  // namespace mlc_native
