#include "models/cuda/drawn_tokens.h"

#include <algorithm>
#include <limits>

#include "sampling/sampler.h"
#include "support/check.h"

namespace mlc_native {
namespace {

using namespace kernels::cuda;  // NOLINT: the vocabulary of this file

constexpr size_t kRowBytes =
    2 * sizeof(int32_t) + sizeof(float) + kMaxTopLogprobs * (sizeof(int32_t) + sizeof(float));

}  // namespace

DrawnTokens::DrawnTokens(int64_t max_rows) : max_rows_(max_rows) {
  const size_t bytes = static_cast<size_t>(max_rows) * kRowBytes;
  for (Step& step : steps_) {
    step.results = DeviceMemory(bytes);
    step.copy = PinnedMemory(bytes);
    step.rows.reserve(static_cast<size_t>(max_rows));
  }
}

size_t DrawnTokens::Bytes(int64_t max_rows) {
  return StepQueue::kMaxInFlight * static_cast<size_t>(max_rows) * kRowBytes;
}

// Tokens first, then guesses: mostly nothing else is copied.
DrawnTokens::Arrays DrawnTokens::Place(std::byte* memory) const {
  auto* tokens = reinterpret_cast<int32_t*>(memory);
  int32_t* guesses = tokens + max_rows_;
  auto* logprobs = reinterpret_cast<float*>(guesses + max_rows_);
  auto* top_ids = reinterpret_cast<int32_t*>(logprobs + max_rows_);
  return {.tokens = tokens,
          .guesses = guesses,
          .logprobs = logprobs,
          .top_ids = top_ids,
          .top_logprobs = reinterpret_cast<float*>(top_ids + max_rows_ * kMaxTopLogprobs)};
}

const int32_t* DrawnTokens::tokens() const {
  const int64_t last = num_submitted_ + StepQueue::kMaxInFlight - 1;
  return Place(steps_[Index(last)].results.data()).tokens;
}

void DrawnTokens::PlaceInto(int64_t first, SampleArgs* args) const {
  const Arrays arrays = Place(steps_[Index(num_submitted_)].results.data());
  args->tokens = arrays.tokens + first;
  args->logprobs = arrays.logprobs + first;
  args->top_ids = arrays.top_ids + first * kMaxTopLogprobs;
  args->top_logprobs = arrays.top_logprobs + first * kMaxTopLogprobs;
}

int32_t* DrawnTokens::guesses() const {
  return Place(steps_[Index(num_submitted_)].results.data()).guesses;
}

void DrawnTokens::Submit(std::span<const TokenRow> rows, std::span<const GuessedRows> blocks,
                         Stream stream) {
  MLC_CHECK(num_submitted_ - num_collected_ < StepQueue::kMaxInFlight) << num_submitted_;
  Step& step = steps_[Index(num_submitted_)];
  step.rows.clear();
  for (const TokenRow& row : rows) {
    step.rows.push_back({.logprobs = row.config->logprobs || row.scored_token != TokenRow::kNone,
                         .top_logprobs = row.num_top(),
                         .scored_token = row.scored_token});
  }
  bool has_guesses = false;
  for (const GuessedRows& block : blocks) {
    for (int32_t i = 0; i < block.num_guesses; ++i) {
      step.rows[static_cast<size_t>(block.first_drawn + i)].has_guess = has_guesses = true;
    }
  }
  const bool has_logprobs = std::ranges::any_of(step.rows, &Row::logprobs);
  const size_t num_ids = rows.size() + (has_guesses ? static_cast<size_t>(max_rows_) : 0);
  const size_t bytes = has_logprobs ? step.results.size() : num_ids * sizeof(int32_t);
  CopyToHost(step.copy.data(), step.results.data(), bytes, stream);
  step.done.Record(stream);
  ++num_submitted_;
}

void DrawnTokens::Collect(std::vector<DrawnToken>* tokens) {
  MLC_CHECK(num_collected_ < num_submitted_) << "no step in flight";
  const Step& step = steps_[Index(num_collected_)];
  step.done.Synchronize();
  ++num_collected_;
  tokens->resize(step.rows.size());
  const Arrays arrays = Place(step.copy.data());
  for (size_t i = 0; i < step.rows.size(); ++i) Read(arrays, i, step.rows[i], &(*tokens)[i]);
}

void DrawnTokens::Read(const Arrays& arrays, size_t row, const Row& wanted, DrawnToken* out) {
  const int32_t token = arrays.tokens[row];
  *out = DrawnToken();
  out->result.token.token_id = token;
  if (wanted.has_guess) out->draft_token = arrays.guesses[row];
  if (token == kNothingAllowed && wanted.scored_token != TokenRow::kNone) {
    out->result.token = {wanted.scored_token, -std::numeric_limits<float>::infinity()};
    return;
  }
  if (token == kBadLogits) out->error = kBadLogitsMessage;
  if (token == kNothingAllowed) out->error = kNothingAllowedMessage;
  if (!out->error.empty() || !wanted.logprobs) return;
  out->result.token.logprob = arrays.logprobs[row];
  const size_t first = row * kMaxTopLogprobs;
  for (size_t i = first; i < first + static_cast<size_t>(wanted.top_logprobs); ++i) {
    if (arrays.top_ids[i] < 0) break;
    out->result.top_logprobs.push_back({arrays.top_ids[i], arrays.top_logprobs[i]});
  }
}

}  // namespace mlc_native
