// How many tokens a draft should have: from how often the guesses of a sequence are right and from
// what a further guess costs.
//
// One more guess pays if the tokens that it yields on average, over the time that it takes, are
// more than what the step yields with the guesses before it. The measured times choose lengths and
// never tokens. Engine's thread only.
#pragma once

#include <cstdint>

namespace mlc_native {

// The time of a decode step as a line over its rows, fitted to the recent ones.
class StepCosts {
 public:
  void Observe(int64_t num_rows, double seconds);
  // Returns the time of a step of num_rows rows; 0 while none has been seen.
  double Seconds(int64_t num_rows) const;
  // Returns the time that a row adds. 0 while steps of different sizes have not been seen, so that
  // they are tried.
  double SecondsPerRow() const;

 private:
  // Sums over the steps, which lose weight with each new one: rows are x, seconds y.
  double weight_ = 0, x_ = 0, y_ = 0, xx_ = 0, xy_ = 0;
};

// How often the next guess is right: a moving average that the first guesses move most.
class AcceptanceRate {
 public:
  AcceptanceRate() = default;
  explicit AcceptanceRate(double rate) : rate_(rate) {}

  void Update(bool is_right);
  // Forgets part of what it has seen, in favour of the rate of others.
  void Approach(double rate) { rate_ += kApproach * (rate - rate_); }
  double rate() const { return rate_; }

  // Returns the tokens of a step with `length` guesses over its time, as a multiple of those of a
  // step without.
  double Speedup(double cost, int64_t length) const;
  // Returns how many guesses pay, at most max_length. `cost` is what one of each sequence adds to
  // the time of the step, as a share of it.
  int64_t ChooseLength(double cost, int64_t max_length) const;

 private:
  static constexpr double kLeastGain = 0.2;
  static constexpr double kApproach = 0.02;
  static constexpr double kLeastYield = 0.05;  // whatever a guess costs

  double rate_ = 0.8;  // optimistic, so that it is tried
  int num_updates_ = 0;
};

// Lets guesses be made that do not seem to pay, so that it is noticed when they do: for a hundredth
// of the time.
class ProbeBudget {
 public:
  // `seconds` have passed.
  void Earn(double seconds);
  // `reading` is what it takes to get ready for the guess: at most a hundredth of the time since
  // the last one.
  bool MayProbe(double reading = 0) const {
    return seconds_ >= 0 && reading <= kShare * since_last_;
  }
  void Spend(double seconds) {
    seconds_ -= seconds;
    since_last_ = 0;
  }

 private:
  static constexpr double kShare = 0.01;

  double seconds_ = 0;  // never positive: time that was not used is not saved
  double since_last_ = 0;
};

}  // namespace mlc_native
