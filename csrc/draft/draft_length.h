// How many tokens a draft should have: from how often the guesses of a sequence are right and from
// what a further guess costs.
//
// One more guess pays if the tokens that it yields on average, over the time that it takes, are
// more than what the step yields with the guesses before it. The measured times choose lengths and
// never tokens. Engine's thread only.
#pragma once

#include <algorithm>
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
  bool has_different_sizes() const;
  double weight() const { return weight_; }  // of the steps, the recent ones 1

 private:
  // Sums over the steps, which lose weight with each new one: rows are x, seconds y.
  double weight_ = 0, x_ = 0, y_ = 0, xx_ = 0, xy_ = 0;

  // Times weight^2, as the covariance.
  double Variance() const { return weight_ * xx_ - x_ * x_; }
};

// The times of decode steps. What a grammar costs is apart: its masks are slow where the text is
// free and guesses are few, so that a line over all rows would be too flat.
class DecodeCosts {
 public:
  struct Step {
    int64_t num_rows = 0;
    int64_t num_guesses = 0;  // of the rows
    int64_t num_masks = 0;    // of the rows
    double seconds = 0;       // without waiting for the masks
    double mask_seconds = 0;
  };
  void Observe(const Step& step);

  // Returns the time of a step without guesses that has these rows, of which num_masks have masks;
  // 0 while none has been seen.
  double Seconds(int64_t num_rows, int64_t num_masks) const;
  // As StepCosts. Of a row without a mask.
  double SecondsPerRow() const { return all_.SecondsPerRow(); }
  bool is_row_known() const { return all_.has_different_sizes(); }
  bool has_steps_without() const { return without_.weight() > 0; }  // guesses
  double SecondsPerMask() const { return seconds_per_mask_; }

 private:
  static constexpr double kEnough = 8;  // steps without guesses

  StepCosts all_;
  StepCosts without_;  // guesses
  double seconds_per_mask_ = 0;
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

// Whether guesses pay at all: tokens per second in turns with and without them. The costs above are
// a model of the step; this is the step itself, with all that guesses cost in it. One per number of
// sequences, because a row costs more the more there are, and apart for grammars.
class GuessTrial {
 public:
  // Tokens that a step has yielded, of which the caller has asked MayGuess before.
  void Observe(int64_t num_tokens, double seconds);
  // To be asked once before each step that is observed. `rate_without` is a guess of the tokens per
  // second without guesses, until steps without them have been seen; 0 if there is none.
  bool MayGuess(double rate_without);

 private:
  // Of the recent steps, each with the weight kDecay of the one behind it.
  struct Speed {
    static constexpr double kDecay = 0.95;
    double weight = 0, tokens = 0, seconds = 0;

    void Observe(int64_t num_tokens, double step_seconds);
    double rate() const { return seconds > 0 ? tokens / seconds : 0; }
  };
  static constexpr double kEnough = 6;    // steps, by weight
  static constexpr double kSure = 2;      // so much faster that no step without guesses is tried
  static constexpr int64_t kPeriod = 64;  // steps, of which up to kTurn are for the slower way:
  static constexpr int64_t kTurn = 4;     // those up to the first that is slower

  double better_rate() const { return std::max(with_.rate(), without_.rate()); }

  Speed with_, without_;
  bool may_guess_ = true;
  int64_t num_steps_ = 0;
  int64_t turn_left_ = 0;  // steps
};

// When the model that guesses rests because its guesses do not pay. While it rests, it reads
// nothing of the sequences and is asked for nothing. Rests become longer unless its guesses become
// better.
class GuessRest {
 public:
  // A step has ended in which there could have been guesses. `rate`: of the guesses so far.
  void AfterStep(bool pays, double rate);
  bool rests() const { return rests_; }
  // It has read enough since the last rest for a guess that shows what it can do.
  bool is_ready() const { return !rests_ && num_awake_ >= kFirstSteps; }

 private:
  static constexpr int64_t kPatience = 32;  // steps without guesses that pay
  static constexpr int64_t kFirstSteps = 16;
  static constexpr int64_t kShortest = 64;
  static constexpr int64_t kLongest = 4096;

  bool rests_ = false;
  int64_t num_awake_ = kFirstSteps;  // steps since the last rest
  int64_t steps_left_ = kPatience;
  int64_t next_rest_ = kShortest;
  double rate_ = 0;  // at the last rest
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
