#include "step/state_pooling.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <span>

#include "checkpoint/dense_layers.h"
#include "engine_state.h"
#include "request/scheduler.h"
#include "step/sequence_life.h"
#include "support/check.h"

namespace mlc_native {

// For means, and the last rows of prompts.
int64_t StatePooling::max_rows() const {
  return context_.limits.max_num_pooled + context_.limits.max_num_sequence;
}

void StatePooling::Reserve(const StepBatch::Pooled& pooled) {
  const ModelMetadata& model = context_.model.metadata();
  const auto size = static_cast<size_t>(model.hidden_size);
  pooled.entry->pooled.resize(size);
  if (memory_ != nullptr) return;
  streams_ = {static_cast<int32_t>(model.num_layers + 1)};
  rows_.reserve(static_cast<size_t>(max_rows()));
  places_.reserve(static_cast<size_t>(max_rows()));
  states_.resize(static_cast<size_t>(max_rows()) * size);
  memory_ = context_.model.MakeStateMemory(StepQueue::kMaxInFlight * max_rows(), model.hidden_size);
}

HiddenStates StatePooling::Ask(const StepBatch& batch, int64_t flight) {
  rows_.clear();
  places_.clear();
  for (const StepBatch::Pooled& pooled : batch.pooled()) {
    try {
      Reserve(pooled);
    } catch (const std::exception& error) {
      throw SequenceError(pooled.sequence_idx,
                          std::string("no memory for an embedding: ") + error.what());
    }
    for (int32_t row = 0; row < pooled.num_rows; ++row) {
      places_.push_back(static_cast<int32_t>(flight * max_rows() + std::ssize(rows_)));
      rows_.push_back(pooled.first_row + row);
    }
  }
  if (rows_.empty()) return {};
  MLC_CHECK(std::ssize(rows_) <= max_rows()) << rows_.size() << " of " << max_rows();
  return {.rows = rows_, .streams = streams_, .memory = memory_.get(), .places = places_};
}

void StatePooling::Collect(const StepBatch& batch, int64_t flight) {
  int64_t num_rows = 0;
  for (const StepBatch::Pooled& pooled : batch.pooled()) num_rows += pooled.num_rows;
  if (num_rows == 0) return;
  const int64_t size = memory_->width();
  memory_->Read(flight * max_rows(), std::span(states_).first(num_rows * size));
  const float* states = states_.data();
  for (const StepBatch::Pooled& pooled : batch.pooled()) {
    if (!pooled.entry->finished()) Add(pooled, states);
    states += pooled.num_rows * size;
  }
}

void StatePooling::Add(const StepBatch::Pooled& pooled, const float* states) {
  RequestStateEntry& entry = *pooled.entry;
  RequestState& rstate = *entry.rstate;
  for (int32_t row = 0; row < pooled.num_rows; ++row) {
    for (double& sum : entry.pooled) sum += *states++;
  }
  if (entry.num_to_score() > 0) entry.num_scored += pooled.num_rows;
  if (!pooled.is_complete) return;
  if (!std::ranges::all_of(entry.pooled, [](double sum) { return std::isfinite(sum); })) {
    return EndRequest(context_, rstate, FinishReason::kError,
                      "the hidden states of the model are not finite numbers");
  }
  entry.is_embedded = true;
  context_.state.MarkDirty(rstate);
}

std::vector<float> EmbeddingOf(const RequestStateEntry& entry) {
  const Request& request = *entry.rstate->request;
  const EmbeddingConfig& config = *request.embedding;
  std::vector<double> state = entry.pooled;
  if (config.pooling == Pooling::kMean) {
    for (double& value : state) value /= static_cast<double>(request.prompt_len());
  }
  if (request.pooled_layers != nullptr) state = request.pooled_layers->Apply(state);
  if (config.dimensions) state.resize(static_cast<size_t>(*config.dimensions));
  double divisor = 1;
  if (*config.normalize) {
    double squares = 0;
    for (const double value : state) squares += value * value;
    if (squares > 0) divisor = std::sqrt(squares);
  }
  std::vector<float> embedding(state.size());
  constexpr double kMax = std::numeric_limits<float>::max();
  std::ranges::transform(state, embedding.begin(), [=](double value) {
    return static_cast<float>(std::clamp(value / divisor, -kMax, kMax));
  });
  return embedding;
}

}  // namespace mlc_native
