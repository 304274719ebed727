#include "step/token_blocks.h"

#include <utility>

#include "draft/drafter.h"
#include "request/request_state.h"
#include "sampling/logit_processor.h"

namespace mlc_native {
namespace {

constexpr int64_t kBlockPlaces = TokenBlock::NumPlaces(kMaxDraftLength);

}  // namespace

int64_t TokenBlocks::NumPlaces(int64_t max_sequences) {
  return max_sequences * (StepQueue::kMaxInFlight * kBlockPlaces + kMaxDraftLength);
}

std::unique_ptr<TokenBlocks> TokenBlocks::Make(Model& target, StepQueue* drafter,
                                               int64_t max_sequences) {
  if (target.step_queue() == nullptr || drafter == nullptr) return nullptr;
  std::unique_ptr<TokenMemory> memory =
      target.MakeTokenMemory(static_cast<int32_t>(NumPlaces(max_sequences)));
  if (memory == nullptr) return nullptr;
  return std::unique_ptr<TokenBlocks>(
      new TokenBlocks(std::move(memory), target.step_queue(), drafter, max_sequences));
}

TokenBlocks::TokenBlocks(std::unique_ptr<TokenMemory> memory, StepQueue* target, StepQueue* drafter,
                         int64_t max_sequences)
    : memory_(std::move(memory)),
      target_(target),
      drafter_(drafter),
      max_sequences_(max_sequences) {}

bool TokenBlocks::Allows(const RequestStateEntry& leaf) {
  const GenerationConfig& config = leaf.rstate->config();
  return leaf.rstate->may_draft && !leaf.is_root_of_branches() && leaf.slow == nullptr &&
         leaf.grammar_matcher == nullptr && !leaf.is_limited && !HasPenalties(config) &&
         config.prediction.empty();
}

TokenBlock TokenBlocks::BlockOf(int64_t slot, int64_t i, int64_t num_guesses) const {
  if (i >= max_sequences_ || num_guesses > kMaxDraftLength) return {};
  return {.place = static_cast<int32_t>((slot * max_sequences_ + i) * kBlockPlaces),
          .num_guesses = static_cast<int32_t>(num_guesses)};
}

int32_t TokenBlocks::FirstGuess(int64_t i) const {
  const int64_t blocks = StepQueue::kMaxInFlight * max_sequences_ * kBlockPlaces;
  return static_cast<int32_t>(blocks + i * kMaxDraftLength);
}

void TokenBlocks::BeginChain() {
  has_chain_ = true;
  drafter_->RunBehind(*target_);
}

void TokenBlocks::BeginStep() {
  if (has_chain_) target_->RunBehind(*drafter_);
}

}  // namespace mlc_native
