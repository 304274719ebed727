#include <algorithm>
#include <utility>

#include "draft/sequence_drafts.h"

namespace mlc_native {
namespace {

// The drafters that there are, in the order in which they are asked.
struct DrafterKind {
  MakeDrafter make;
  bool is_prediction = false;
};
constexpr DrafterKind kDrafters[] = {
    {MakePredictionDrafter, /*is_prediction=*/true}, {MakeLookupDrafter}, {MakeSuffixDrafter}};

// How often a prediction is right, until it has been seen: the caller expects it to be.
constexpr double kPredicted = 0.95;

// A guess that costs more than a step does not pay even if it is always right. Then no drafter is
// asked, because some take longer to ask than a step of few rows: forced text walks a grammar.
constexpr double kSureCost = 1;

}  // namespace

SequenceDrafts::SequenceDrafts(const DraftSource& source,
                               std::vector<std::unique_ptr<Drafter>> extra,
                               AcceptanceRate* model_rate)
    : model_rate_(model_rate), model_acceptance_(model_rate->rate()) {
  for (std::unique_ptr<Drafter>& drafter : extra) {
    if (drafter != nullptr) sources_.push_back({std::move(drafter)});
  }
  for (const DrafterKind& kind : kDrafters) {
    if (auto drafter = kind.make(source)) {
      sources_.push_back({.drafter = std::move(drafter), .is_prediction = kind.is_prediction});
      if (kind.is_prediction) sources_.back().acceptance = AcceptanceRate(kPredicted);
    }
  }
}

bool SequenceDrafts::Wanted(const DraftSource& source) {
  return source.request.speculative &&
         (source.engine.speculative_mode != SpeculativeMode::kDisable ||
          !source.request.prediction.empty());
}

void SequenceDrafts::Propose(std::span<const int32_t> tokens, int64_t prompt_len,
                             const DraftLimits& limits) {
  proposal_.clear();
  proposer_ = nullptr;
  if (limits.length == 0 && limits.cost > kSureCost) return;
  try {
    for (Source& source : sources_) {
      CheckUnverified(source, tokens);
      DraftLimits own = limits;
      if (source.is_prediction) own.max_length = std::max(own.max_length, own.max_prediction);
      const int64_t length = Choose(source.acceptance, own);
      source.drafter->Propose(tokens, prompt_len, std::max<int64_t>(length, 1), &proposal_);
      if (proposal_.empty()) continue;
      if (length > 0) {
        if (std::ssize(proposal_) > length) proposal_.resize(static_cast<size_t>(length));
        proposer_ = &source;
        return;
      }
      source.unverified_at = std::ssize(tokens);
      source.unverified = proposal_.front();
      proposal_.clear();
    }
  } catch (...) {
    proposal_.clear();
    throw;
  }
}

int64_t SequenceDrafts::Choose(const AcceptanceRate& acceptance, const DraftLimits& limits) {
  return limits.length > 0 ? std::min(limits.length, limits.max_length)
                           : acceptance.ChooseLength(limits.cost, limits.max_length);
}

int64_t SequenceDrafts::ChooseModelLength(const DraftLimits& limits) {
  const int64_t length = Choose(model_acceptance_, limits);
  if (length == 0) model_acceptance_.Approach(model_rate_->rate());
  return length;
}

void SequenceDrafts::Verified(bool is_right) {
  if (proposer_ != nullptr) return proposer_->acceptance.Update(is_right);
  model_acceptance_.Update(is_right);
  model_rate_->Update(is_right);
}

void SequenceDrafts::CheckUnverified(Source& source, std::span<const int32_t> tokens) {
  const int64_t position = std::exchange(source.unverified_at, -1);
  if (position < 0 || position >= std::ssize(tokens)) return;
  source.acceptance.Update(tokens[static_cast<size_t>(position)] == source.unverified);
}

void SequenceDrafts::OnEnd(std::span<const int32_t> tokens, int64_t prompt_len) noexcept {
  for (const Source& source : sources_) source.drafter->OnEnd(tokens, prompt_len);
}

}  // namespace mlc_native
