// SequenceDrafts: what drafts for one sequence. The first drafter that has a guess worth its cost
// is asked.
//
// Each drafter has a rate of its own at which its guesses are right. While guesses of it do not
// pay, they are compared with the tokens that come instead of being computed, so that it is noticed
// at no cost when they would. At a cost at which no guess pays, however sure, no drafter is asked.
// Made when the sequence is to decode and dropped with its pages: a sequence that waits or prefills
// has none. Owned by the sequence; engine's thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "draft/draft_length.h"
#include "draft/drafter.h"

namespace mlc_native {

// How many guesses a sequence may have.
struct DraftLimits {
  int64_t max_length = 0;
  int64_t max_prediction = 0;  // for guesses of a prediction, if it is more
  int64_t length = 0;          // 0: as many as pay
  double cost = 0;             // AcceptanceRate::ChooseLength
};

class SequenceDrafts {
 public:
  // The drafters of `extra`, which may be null, are asked first. model_rate is how often the
  // guesses of the model that the caller asks are right for all sequences; it outlives this.
  SequenceDrafts(const DraftSource& source, std::vector<std::unique_ptr<Drafter>> extra,
                 AcceptanceRate* model_rate);

  // True if these settings let a sequence have drafts.
  static bool Wanted(const DraftSource& source);

  // Replaces the proposal by guesses of what follows `tokens`. May throw; then the proposal is
  // empty.
  void Propose(std::span<const int32_t> tokens, int64_t prompt_len, const DraftLimits& limits);
  // Valid until the next Propose. The caller may shorten it, or fill it with guesses of a model if
  // it is empty.
  std::vector<int32_t>& proposal() { return proposal_; }
  // The proposal is from GenerationConfig::prediction.
  bool is_prediction() const { return proposer_ != nullptr && proposer_->is_prediction; }
  // Whether the next guess of the proposal was right.
  void Verified(bool is_right);
  void OnEnd(std::span<const int32_t> tokens, int64_t prompt_len) noexcept;

  // Returns how many guesses of the model pay, and how often its guesses are right here.
  int64_t ChooseModelLength(const DraftLimits& limits);
  const AcceptanceRate& model_acceptance() const { return model_acceptance_; }

 private:
  struct Source {
    std::unique_ptr<Drafter> drafter;
    bool is_prediction = false;
    AcceptanceRate acceptance = {};
    // A guess that was not computed: the token at this position. Negative: none.
    int64_t unverified_at = -1;
    int32_t unverified = 0;
  };

  static int64_t Choose(const AcceptanceRate& acceptance, const DraftLimits& limits);
  static void CheckUnverified(Source& source, std::span<const int32_t> tokens);

  std::vector<Source> sources_;
  std::vector<int32_t> proposal_;
  Source* proposer_ = nullptr;  // of the proposal; null if it is the model's
  AcceptanceRate* const model_rate_;
  AcceptanceRate model_acceptance_;
};

}  // namespace mlc_native
