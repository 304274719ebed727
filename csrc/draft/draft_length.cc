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

double StepCosts::RowShare(int64_t num_rows) const {
  // Both are weight^2 times the variance of the rows and their covariance with the seconds.
  const double variance = weight_ * xx_ - x_ * x_;
  const double covariance = weight_ * xy_ - x_ * y_;
  if (variance < 1e-3 * weight_ * weight_ || covariance <= 0) return 0;
  const double seconds_per_row = covariance / variance;
  const double mean_rows = x_ / weight_;
  const double seconds =
      y_ / weight_ + seconds_per_row * (static_cast<double>(num_rows) - mean_rows);
  return seconds <= seconds_per_row ? 1 : seconds_per_row / seconds;
}

int64_t AcceptanceRate::ChooseLength(double least_yield, int64_t max_length) {
  least_yield = std::max(least_yield, kLeastYield);
  int64_t length = 0;
  for (double yield = rate_; length < max_length && yield >= least_yield; yield *= rate_) ++length;
  if (length > 0 || max_length <= 0) {
    num_skipped_ = 0;
    return length;
  }
  if (++num_skipped_ < kProbePeriod) return 0;
  num_skipped_ = 0;
  return 1;
}

}  // namespace mlc_native
