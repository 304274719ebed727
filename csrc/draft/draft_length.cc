#include "draft/draft_length.h"

#include <algorithm>
#include <utility>

namespace mlc_native {

void StepCosts::Observe(int64_t num_rows, double seconds) {
  constexpr double kDecay = 0.99;
  const auto x = static_cast<double>(num_rows);
  for (double* sum : {&weight_, &x_, &y_, &xx_, &xy_}) *sum *= kDecay;
  weight_ += 1;
  x_ += x;
  y_ += seconds;
  xx_ += x * x;
  xy_ += x * seconds;
}

double StepCosts::SecondsPerRow() const {
  const double covariance = weight_ * xy_ - x_ * y_;
  return has_different_sizes() && covariance > 0 ? covariance / Variance() : 0;
}

bool StepCosts::has_different_sizes() const {
  return weight_ > 0 && Variance() >= 1e-3 * weight_ * weight_;
}

double StepCosts::Seconds(int64_t num_rows) const {
  if (weight_ == 0) return 0;
  const double more_rows = static_cast<double>(num_rows) - x_ / weight_;
  return std::max(0.0, y_ / weight_ + SecondsPerRow() * more_rows);
}

void DecodeCosts::Observe(const Step& step) {
  all_.Observe(step.num_rows, step.seconds);
  if (step.num_guesses == 0) without_.Observe(step.num_rows, step.seconds);
  if (step.num_masks == 0) return;
  constexpr double kGain = 0.02;
  const double per_mask = step.mask_seconds / static_cast<double>(step.num_masks);
  seconds_per_mask_ += (seconds_per_mask_ == 0 ? 1 : kGain) * (per_mask - seconds_per_mask_);
}

double DecodeCosts::Seconds(int64_t num_rows, int64_t num_masks) const {
  const StepCosts& costs = without_.weight() >= kEnough ? without_ : all_;
  const double seconds = costs.Seconds(num_rows);
  return seconds > 0 ? seconds + static_cast<double>(num_masks) * seconds_per_mask_ : 0;
}

void GuessTrial::Speed::Observe(int64_t num_tokens, double step_seconds) {
  for (double* sum : {&weight, &tokens, &seconds}) *sum *= kDecay;
  weight += 1;
  tokens += static_cast<double>(num_tokens);
  seconds += step_seconds;
}

void GuessTrial::Observe(int64_t num_tokens, double seconds) {
  if (static_cast<double>(num_tokens) < better_rate() * seconds) turn_left_ = 0;
  (may_guess_ ? with_ : without_).Observe(num_tokens, seconds);
}

bool GuessTrial::MayGuess(double rate_without) {
  if (num_steps_++ % kPeriod == 0) turn_left_ = kTurn;
  const bool is_turn = turn_left_ > 0;
  if (is_turn) --turn_left_;
  const bool is_without_known = without_.weight >= kEnough;
  if (is_without_known) rate_without = without_.rate();
  if (with_.weight < kEnough) return may_guess_ = true;
  if (rate_without > 0 && with_.rate() >= kSure * rate_without) return may_guess_ = true;
  if (!is_without_known) return may_guess_ = false;
  return may_guess_ = (with_.rate() >= rate_without) != is_turn;
}

void GuessRest::AfterStep(bool pays, double rate) {
  if (pays) {
    if (std::exchange(rests_, false)) num_awake_ = 0;
    steps_left_ = kPatience;
    next_rest_ = kShortest;
    return;
  }
  if (!rests_) ++num_awake_;
  if (--steps_left_ > 0) return;
  rests_ = !rests_;
  num_awake_ = 0;
  steps_left_ = kPatience;
  if (!rests_) return;
  if (rate > rate_) next_rest_ = kShortest;
  steps_left_ = next_rest_;
  next_rest_ = std::min(2 * next_rest_, kLongest);
  rate_ = rate;
}

void AcceptanceRate::Update(bool is_right) {
  const double gain = std::max(kLeastGain, 1.0 / (2 + num_updates_++));
  rate_ += gain * ((is_right ? 1.0 : 0.0) - rate_);
}

double AcceptanceRate::Speedup(double cost, int64_t length) const {
  double tokens = 1;
  double yield = rate_;
  for (int64_t i = 0; i < length; ++i, yield *= rate_) tokens += yield;
  return tokens / (1 + cost * static_cast<double>(length));
}

int64_t AcceptanceRate::ChooseLength(double cost, int64_t max_length) const {
  int64_t length = 0;
  double yield = rate_;
  double tokens = 1;
  double time = 1;
  while (length < max_length && yield >= kLeastYield && yield * time >= cost * tokens) {
    ++length;
    tokens += yield;
    time += cost;
    yield *= rate_;
  }
  return length;
}

void ProbeBudget::Earn(double seconds) {
  seconds_ = std::min(seconds_ + kShare * seconds, 0.0);
  since_last_ += seconds;
}

}  // namespace mlc_native
