// How many tokens a draft should have: from how often the guesses of a sequence are right and from
// what a further row costs.
//
// One more draft row pays if the tokens that it yields on average, over the time that it takes, are
// more than what the step yields without it. The measured times choose lengths and never tokens.
// Engine's thread only.
#pragma once

#include <cstdint>

namespace mlc_native {

// The time of a decode step as a line over its rows, fitted to the recent ones.
class StepCosts {
 public:
  void Observe(int64_t num_rows, double seconds);
  // Returns the time of a step of num_rows rows; 0 while none has been seen.
  double Seconds(int64_t num_rows) const;
  // Returns the share of the time of a step of num_rows rows that one row more would add. 0 while
  // steps of different sizes have not been seen, so that they are tried.
  double RowShare(int64_t num_rows) const;

 private:
  // 0 while steps of different sizes have not been seen.
  double SecondsPerRow() const;

  // Sums over the steps, which lose weight with each new one: rows are x, seconds y.
  double weight_ = 0, x_ = 0, y_ = 0, xx_ = 0, xy_ = 0;
};

// How often the next guess of a sequence is right: a moving average.
class AcceptanceRate {
 public:
  void Update(bool is_right) { rate_ += kGain * ((is_right ? 1.0 : 0.0) - rate_); }
  double rate() const { return rate_; }

  // Returns how many guesses pay, at most max_length: as long as the tokens that one more yields
  // are at least `least_yield`. Once in a while 1 where that is none, because answers change.
  int64_t ChooseLength(double least_yield, int64_t max_length);

 private:
  static constexpr double kGain = 0.2;
  static constexpr double kLeastYield = 0.05;  // whatever a row costs
  static constexpr int kProbePeriod = 8;       // steps

  double rate_ = 0.8;  // optimistic, so that it is tried
  int num_skipped_ = 0;
};

}  // namespace mlc_native
