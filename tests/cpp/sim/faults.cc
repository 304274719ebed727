#include "sim/faults.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "support/error.h"
#include "testing/fake_slow_calls.h"

namespace mlc_native::sim {
namespace {

constexpr int64_t kMaxAllocation = 300;  // of a step, counted from 1
// Of a slow grammar, in seconds: far beyond grammar_step_budget_s, while all calls of a request
// stay below grammar_time_limit_s.
constexpr double kLongestCall = 0.25;

}  // namespace

void Faults::Attach(testing::FakeModel* model) {
  model_ = model;
  model_->set_on_forward([this](const ForwardBatch& batch) { OnForward(batch); });
  model_->steps().set_on_sample([this] { FailOnce(&sample_fails_, "the sampling fails"); });
  model_->steps().set_on_collect([this] { FailOnce(&collect_fails_, "the collect fails"); });
}

testing::FakeGrammarHooks Faults::grammar_hooks() {
  return {
      .on_compile = {},
      .on_fill = [this] { OnFill(); },
      .on_accept = [this](int32_t) { OnAccept(); },
      .on_work =
          [](double seconds) { testing::FakeSlowCalls::Spend(std::min(seconds, kLongestCall)); }};
}

void Faults::ArmStep(SimRandom& rng) {
  armed_ = true;
  fired_ = false;
  forward_fails_ = Happens(rng, Feature::kForwardFails);
  sample_fails_ = Happens(rng, Feature::kSampleFails);
  collect_fails_ = Happens(rng, Feature::kCollectFails);
  if (Happens(rng, Feature::kSequenceFails)) sequence_fails_ = static_cast<int>(rng.Range(-1, 12));
  if (Happens(rng, Feature::kGrammarFails)) {
    fills_fail_ = rng.Chance(0.5);
    if (!fills_fail_) accepts_until_failure_ = static_cast<int>(rng.LogRange(1, 10));
  }
  if (Happens(rng, Feature::kCopyFails)) {
    copy_fails_at_ = model_->num_copies() + 1;
    model_->options().fail_copy_at = {copy_fails_at_};
  }
  if (Happens(rng, Feature::kAllocationFails)) {
    allocation_countdown_ = rng.LogRange(1, kMaxAllocation);
  }
}

bool Faults::ArmAdmission(SimRandom& rng) {
  if (!Happens(rng, Feature::kAllocationFails)) return false;
  armed_ = true;
  allocation_countdown_ = rng.LogRange(1, 40);
  return true;
}

void Faults::DisarmAdmission() {
  armed_ = false;
  allocation_countdown_ = 0;
}

bool Faults::DisarmStep() {
  armed_ = false;
  forward_fails_ = false;
  sample_fails_ = false;
  collect_fails_ = false;
  sequence_fails_.reset();
  fills_fail_ = false;
  accepts_until_failure_ = 0;
  if (copy_fails_at_ > 0) {
    if (model_->num_copies() >= copy_fails_at_) fired_ = true;
    model_->options().fail_copy_at.clear();
    copy_fails_at_ = 0;
  }
  if (allocation_countdown_ < 0) fired_ = true;
  allocation_countdown_ = 0;
  return fired_;
}

void Faults::OnForward(const ForwardBatch& batch) {
  if (sequence_fails_) {
    const int index = *std::exchange(sequence_fails_, std::nullopt);
    fired_ = true;
    const int last = static_cast<int>(batch.sequences.size()) - 1;
    throw SequenceError(std::min(index, last), "a sequence fails");
  }
  FailOnce(&forward_fails_, "the forward fails");
}

void Faults::FailOnce(bool* armed, const char* what) {
  if (!std::exchange(*armed, false)) return;
  fired_ = true;
  throw std::runtime_error(what);
}

void Faults::OnFill() {
  if (!fills_fail_) return;
  fired_ = true;
  throw GrammarError();
}

void Faults::OnAccept() {
  if (accepts_until_failure_ == 0 || --accepts_until_failure_ > 0) return;
  fired_ = true;
  throw GrammarError();
}

}  // namespace mlc_native::sim
