#include <exception>

#include "draft/sequence_drafts.h"

namespace mlc_native {
namespace {

// The drafters that there are, in the order in which they are asked.
struct DrafterKind {
  MakeDrafter make;
  bool is_prediction = false;
};
constexpr DrafterKind kDrafters[] = {{MakePredictionDrafter, /*is_prediction=*/true},
                                     {MakeLookupDrafter}};

}  // namespace

SequenceDrafts::SequenceDrafts(const DraftSource& source, std::unique_ptr<Drafter> extra) {
  if (extra != nullptr) sources_.push_back({std::move(extra)});
  for (const DrafterKind& kind : kDrafters) {
    if (auto drafter = kind.make(source)) {
      sources_.push_back({std::move(drafter), kind.is_prediction});
    }
  }
}

bool SequenceDrafts::Wanted(const DraftSource& source) {
  return source.request.speculative &&
         (source.engine.speculative_mode != SpeculativeMode::kDisable ||
          !source.request.prediction.empty());
}

void SequenceDrafts::Propose(std::span<const int32_t> tokens, int64_t prompt_len,
                             int64_t max_tokens) {
  proposal_.clear();
  try {
    for (const Source& source : sources_) {
      is_prediction_ = source.is_prediction;
      source.drafter->Propose(tokens, prompt_len, max_tokens, &proposal_);
      if (!proposal_.empty()) return;
    }
  } catch (...) {
    proposal_.clear();
    throw;
  }
}

}  // namespace mlc_native
