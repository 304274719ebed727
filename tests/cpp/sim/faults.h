// Faults: what goes wrong within a call into the engine. Drawn by the seed, armed before the call,
// disarmed after it; says whether a fault has fired, which is what excuses an error.
//
// One thread, except that grammar masks may be filled on another.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "fake_model/fake_model.h"
#include "sim/random.h"
#include "sim/scenario.h"
#include "testing/allocations.h"
#include "testing/fake_grammar.h"

namespace mlc_native::sim {

// What a matcher throws when it is told to.
struct GrammarError : std::runtime_error {
  GrammarError() : std::runtime_error("the grammar fails") {}
};

class Faults {
 public:
  explicit Faults(const Scenario& scenario) : scenario_(scenario) {}

  // Faults of the model happen in this one from now on.
  void Attach(testing::FakeModel* model);
  testing::FakeGrammarHooks grammar_hooks();

  void ArmStep(SimRandom& rng);
  // False when nothing goes wrong.
  bool ArmAdmission(SimRandom& rng);
  // Runs a call, whose allocations fail if that is armed.
  template <typename Call>
  void Run(const Call& call) {
    if (!allocations_fail()) return call();
    const testing::FailingAllocation failing(&allocation_countdown_);
    call();
  }
  void DisarmAdmission();
  // Whether a fault has fired since the step was armed.
  bool DisarmStep();
  // A fault excuses errors of its own step and of the next one that collects: `ended_early` is a
  // step that may not have done so. To be called after the outputs of a disarmed step were looked
  // at.
  void ForgetStep(bool ended_early) {
    fired_before_ = fired_.exchange(false) || (ended_early && fired_before_);
  }

  bool armed() const { return armed_; }
  bool allocations_fail() const { return allocation_countdown_ != 0; }
  bool excuses_errors() const { return fired_ || fired_before_; }

 private:
  bool Happens(SimRandom& rng, Feature feature) const {
    return rng.Chance(scenario_.rate(feature));
  }
  void OnForward(const ForwardBatch& batch);
  void FailOnce(bool* armed, const char* what);
  void OnFill();
  void OnAccept();

  const Scenario& scenario_;
  testing::FakeModel* model_ = nullptr;
  bool armed_ = false;
  bool forward_fails_ = false;
  bool sample_fails_ = false;
  bool collect_fails_ = false;
  std::optional<int> sequence_fails_;
  int64_t copy_fails_at_ = 0;         // 0: not armed
  int64_t allocation_countdown_ = 0;  // 0: not armed
  int accepts_until_failure_ = 0;     // 0: not armed
  // Read where masks are filled, on a thread of the engine's and in no fixed order: all fail or
  // none does.
  std::atomic<bool> fills_fail_ = false;
  std::atomic<bool> fired_ = false;
  bool fired_before_ = false;
};

}  // namespace mlc_native::sim
