// Drafter guesses the next tokens of one sequence. The step computes the model's rows for the
// guesses and draws the model's own token at each of them, so a guess never changes an answer: it
// only decides how many tokens one step yields.
//
// A new kind of drafter is a file with its factory and a row in drafters.cc. A drafter is made when
// its sequence is to decode and is dropped when the sequence ends or loses its pages; it may keep
// whatever it derives from the tokens. Owned by the sequence; engine's thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "mlc_native/config.h"

namespace mlc_native {

// The most draft tokens of one sequence in one step. A prediction may have more where the length is
// automatic and no grammar must take them back: with what it says right, each step has as many
// rows as GPUs compute in the time of one.
inline constexpr int64_t kMaxDraftLength = 10;
inline constexpr int64_t kMaxPredictionLength = 31;

class PastAnswers;
class PredictedText;  // the index of a prediction (prediction.cc)

class Drafter {
 public:
  virtual ~Drafter() = default;

  // Appends at most max_tokens guesses of what follows `tokens`: the prompt, which is the first
  // prompt_len of them, and what has been generated. Between two calls `tokens` may have lost some
  // at its end and got others. Guesses may be wrong in any way, even tokens that do not exist.
  // An exception costs the sequence its draft of this step and nothing else.
  virtual void Propose(std::span<const int32_t> tokens, int64_t prompt_len, int64_t max_tokens,
                       std::vector<int32_t>* drafts) = 0;
  // The sequence has ended with these tokens.
  virtual void OnEnd(std::span<const int32_t> /*tokens*/, int64_t /*prompt_len*/) noexcept {}
};

// The text that a token adds to an answer; empty if there is no table of tokens.
using TokenText = std::function<std::string_view(int32_t token_id)>;

// What a drafter is made from. The references outlive the drafter.
struct DraftSource {
  const EngineConfig& engine;
  const GenerationConfig& request;
  PastAnswers* past_answers = nullptr;  // null unless the mode is "suffix"
  TokenText text_of = {};
  // What the drafters of a request share: made by the first of them. Null: each has its own.
  std::shared_ptr<const PredictedText>* predicted_text = nullptr;
};

// One way to draft. Returns null when the settings do not ask for it.
using MakeDrafter = std::unique_ptr<Drafter> (*)(const DraftSource&);

std::unique_ptr<Drafter> MakeLookupDrafter(const DraftSource& source);      // lookup.cc
std::unique_ptr<Drafter> MakeSuffixDrafter(const DraftSource& source);      // suffix.cc
std::unique_ptr<Drafter> MakePredictionDrafter(const DraftSource& source);  // prediction.cc

}  // namespace mlc_native
