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

double StepCosts::RowShare(int64_t num_rows) const {
  const double seconds_per_row = SecondsPerRow();
  const double seconds = Seconds(num_rows);
  if (seconds_per_row <= 0) return 0;
  return seconds <= seconds_per_row ? 1 : seconds_per_row / seconds;
}

int64_t AcceptanceRate::ChooseLength(double least_yield, int64_t max_length) {
  least_yield = std::max(least_yield, kLeastYield);
  int64_t length = 0;
  double yield = rate_;
  while (length < max_length && yield >= least_yield) {
    yield *= rate_;
    ++length;
  }
  if (length > 0 || max_length <= 0) {
    num_skipped_ = 0;
    return length;
  }
  if (++num_skipped_ < kProbePeriod) return 0;
  num_skipped_ = 0;
  return 1;
}

}  // namespace mlc_native
