// SequenceDrafts: what drafts for one sequence. The first drafter that has a guess is asked.
//
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

class SequenceDrafts {
 public:
  // `extra` may be null; it is asked first.
  SequenceDrafts(const DraftSource& source, std::unique_ptr<Drafter> extra);

  // True if these settings let a sequence have drafts.
  static bool Wanted(const DraftSource& source);

  // Replaces the proposal by at most max_tokens guesses of what follows `tokens`. May throw; then
  // the proposal is empty.
  void Propose(std::span<const int32_t> tokens, int64_t prompt_len, int64_t max_tokens);
  // Valid until the next Propose. The caller may shorten it.
  std::vector<int32_t>& proposal() { return proposal_; }
  // The proposal is from GenerationConfig::prediction.
  bool is_prediction() const { return is_prediction_; }

  AcceptanceRate& acceptance() { return acceptance_; }

 private:
  struct Source {
    std::unique_ptr<Drafter> drafter;
    bool is_prediction = false;
  };

  std::vector<Source> sources_;
  std::vector<int32_t> proposal_;
  bool is_prediction_ = false;
  AcceptanceRate acceptance_;
};

}  // namespace mlc_native
