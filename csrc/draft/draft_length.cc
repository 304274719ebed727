#include "draft/draft_length.h"

#include <algorithm>

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
  // Both are weight^2 times the variance of the rows and their covariance with the seconds.
  const double variance = weight_ * xx_ - x_ * x_;
  const double covariance = weight_ * xy_ - x_ * y_;
  if (variance < 1e-3 * weight_ * weight_ || covariance <= 0) return 0;
  return covariance / variance;
}

double StepCosts::Seconds(int64_t num_rows) const {
  if (weight_ == 0) return 0;
  const double more_rows = static_cast<double>(num_rows) - x_ / weight_;
  return std::max(0.0, y_ / weight_ + SecondsPerRow() * more_rows);
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
