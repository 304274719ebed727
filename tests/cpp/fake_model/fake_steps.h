// FakeSteps is the StepQueue of a FakeModel with "run_ahead", for an engine that does not wait.
//
// The tokens of a step are drawn at once, in the order of the steps, but become known only in
// Collect, as its hidden states do. What it leaves in a TokenMemory, and its hidden states, are
// there for another queue once that one runs behind it. It refuses what a device cannot do: a third
// step in flight, a pending token of no step or of no row, a place that nothing was written to yet.
// The model's options inject failures, and the places that lost steps have written are spoiled. One
// thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "fake_model/fake_model_options.h"
#include "mlc_native/model.h"
#include "step/host_steps.h"

namespace mlc_native::testing {

class FakeModel;

class FakeSteps : public StepQueue {
 public:
  explicit FakeSteps(FakeModel* model);

  void Forward(const ForwardBatch& batch) override;
  void Sample(std::span<const TokenRow> rows) override;
  void Collect(std::vector<DrawnToken>* tokens) override;
  void SampleInto(std::span<const TokenRow> rows, std::span<const int32_t> places) override;
  void RunBehind(StepQueue& other) override;

  // Pages are copied behind the steps in flight: what these have written to the destination is
  // gone, and what they have written to the source is in the destination, too.
  void NotePageCopies(std::span<const PageCopy> copies);

  // Called at the start of every Sample and Collect; what they throw comes out of those.
  void set_on_sample(std::function<void()> hook) { on_sample_ = std::move(hook); }
  void set_on_collect(std::function<void()> hook) { on_collect_ = std::move(hook); }
  int64_t num_samples() const { return num_samples_; }
  int64_t num_collects() const { return num_collects_; }
  int64_t num_in_flight() const { return std::ssize(in_flight_); }
  // Places that were read before they were written.
  int64_t num_early_reads() const { return num_early_reads_; }

 private:
  // A token or a count that other queues do not see yet.
  struct Written {
    int32_t* at;
    int32_t value;
  };
  // A forward as the model takes it, with what it reads of places and counts.
  struct Resolved {
    explicit Resolved(const ForwardBatch& batch)
        : token_ids(batch.token_ids.begin(), batch.token_ids.end()),
          sequences(batch.sequences.begin(), batch.sequences.end()),
          input_rows(batch.input_rows.begin(), batch.input_rows.end()),
          logits_rows(batch.logits_rows.begin(), batch.logits_rows.end()),
          state_places(batch.draft.places.begin(), batch.draft.places.end()) {}
    std::vector<int32_t> token_ids;
    std::vector<SequenceSlice> sequences;
    std::vector<InputRows> input_rows;
    std::vector<int32_t> logits_rows;
    std::vector<int32_t> state_places;
    std::vector<int64_t> spoiled;  // of the model's stored tokens: rows of no sequence
  };
  struct Step {
    std::vector<DrawnToken> drawn;
    std::vector<int64_t> written;                // FakeModel::written
    std::vector<float> states;                   // hidden states
    std::vector<float*> places;                  // where their rows belong; null: are overwritten
    void WriteStates();                          // to those places
    std::chrono::steady_clock::time_point done;  // with the costs of the model's options
  };

  int32_t DrawnBefore(int64_t row) const;
  int32_t ReadPlace(const TokenMemory& memory, int32_t place);
  int32_t ReadCount(const TokenMemory& memory, int32_t place, int32_t most);
  void WritePlace(const TokenMemory& memory, int32_t place, int32_t value);
  void ReadTokens(const ForwardBatch& batch, Resolved* resolved);
  // Moves a row of logits by a count and takes the rows behind it out of the batch.
  void MoveLogits(size_t index, int32_t count, Resolved* resolved);
  void WriteBlocks(std::vector<DrawnToken>* drawn);
  std::vector<DrawnToken> Draw(std::span<const TokenRow> rows);
  // Shows other queues what steps have left on the device.
  void Publish();
  // Runs a forward whose hidden states are not there yet.
  void ForwardWithStates(ForwardBatch batch);

  FakeModel& model_;
  HostSteps steps_;
  std::deque<Step> in_flight_;
  std::vector<int32_t> newest_;                 // token ids that the step put last draws
  bool has_forward_ = false;                    // without its Sample
  Step next_;                                   // what is known of it since its Forward
  Resolved next_rows_{{}};                      // so is this
  TokenMemory* tokens_ = nullptr;               // and this
  std::vector<Written> unpublished_;            // in order
  std::chrono::steady_clock::time_point done_;  // of the newest step
  std::function<void()> on_sample_;
  std::function<void()> on_collect_;
  int64_t num_samples_ = 0;
  int64_t num_collects_ = 0;
  int64_t num_early_reads_ = 0;
};

// A TokenMemory whose places are empty until a queue shows what it has written.
class FakeTokens : public TokenMemory {
 public:
  static constexpr int32_t kEmpty = -1;

  explicit FakeTokens(int32_t num_places) : FakeTokens(std::vector<int32_t>(num_places, kEmpty)) {}
  void Read(int32_t first_place, std::span<int32_t> values) const override {
    std::copy_n(data() + first_place, values.size(), values.begin());
  }
  void Write(int32_t first_place, std::span<const int32_t> values) override {
    std::ranges::copy(values, data() + first_place);
  }

 private:
  explicit FakeTokens(std::vector<int32_t> values)
      : TokenMemory(values.data(), static_cast<int32_t>(values.size())),
        values_(std::move(values)) {}
  const std::vector<int32_t> values_;
};

}  // namespace mlc_native::testing
