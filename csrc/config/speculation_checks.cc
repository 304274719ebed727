#include "config/speculation_checks.h"

#include <string>
#include <utility>

#include "support/error.h"

namespace mlc_native {
namespace {

// The fewest and the most additional models.
std::pair<size_t, size_t> NumAdditionalModels(SpeculativeMode mode) {
  switch (mode) {
    case SpeculativeMode::kSmallDraft:
    case SpeculativeMode::kEagle3:
    case SpeculativeMode::kEagle:
    case SpeculativeMode::kMedusa:
      return {1, 1};
    case SpeculativeMode::kMtp:
    case SpeculativeMode::kAuto:
      return {0, 1};
    default:
      return {0, 0};
  }
}

}  // namespace

bool HasDraftHead(SpeculativeMode mode) {
  return mode == SpeculativeMode::kEagle3 || mode == SpeculativeMode::kEagle ||
         mode == SpeculativeMode::kMtp || mode == SpeculativeMode::kMedusa;
}

void CheckAdditionalModels(const EngineConfig& config) {
  const auto [least, most] = NumAdditionalModels(config.speculative_mode);
  const size_t number = config.additional_models.size();
  if (number >= least && number <= most) return;
  const char* const must = most == 0    ? "be empty"
                           : least == 0 ? "name at most one model"
                                        : "name one model";
  throw InvalidConfig("additional_models", std::string("\"additional_models\" must ") + must +
                                               " while \"speculative_mode\" is \"" +
                                               std::string(NameOf(config.speculative_mode)) +
                                               "\", got " + std::to_string(number) + " models");
}

}  // namespace mlc_native
