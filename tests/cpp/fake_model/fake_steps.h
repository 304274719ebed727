// FakeSteps is the StepQueue of a FakeModel with "run_ahead", for an engine that does not wait.
//
// The tokens of a step are drawn at once, in the order of the steps, but become known only in
// Collect, as its hidden states do. It refuses what a device cannot do: a third step in flight, a
// pending token of no step or of no row. The model's options inject
// failures, and the places that lost steps have written are spoiled. One thread.
#pragma once

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

  // Called at the start of every Sample and Collect; what they throw comes out of those.
  void set_on_sample(std::function<void()> hook) { on_sample_ = std::move(hook); }
  void set_on_collect(std::function<void()> hook) { on_collect_ = std::move(hook); }
  int64_t num_samples() const { return num_samples_; }
  int64_t num_collects() const { return num_collects_; }
  int64_t num_in_flight() const { return std::ssize(in_flight_); }

 private:
  struct Step {
    std::vector<DrawnToken> drawn;
    std::vector<int64_t> written;                // FakeModel::written
    std::vector<float> states;                   // hidden states
    std::vector<float*> places;                  // where their rows belong
    std::chrono::steady_clock::time_point done;  // with the costs of the model's options
  };

  int32_t DrawnBefore(int64_t row) const;
  // Runs a forward whose hidden states are not there yet.
  void ForwardWithStates(ForwardBatch batch);

  FakeModel& model_;
  HostSteps steps_;
  std::deque<Step> in_flight_;
  std::vector<int32_t> newest_;                 // token ids that the step put last draws
  bool has_forward_ = false;                    // without its Sample
  Step next_;                                   // what is known of it since its Forward
  std::chrono::steady_clock::time_point done_;  // of the newest step
  std::function<void()> on_sample_;
  std::function<void()> on_collect_;
  int64_t num_samples_ = 0;
  int64_t num_collects_ = 0;
};

}  // namespace mlc_native::testing
