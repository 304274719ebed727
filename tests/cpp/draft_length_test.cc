// How many tokens are guessed, and whether: what steps cost, and how often guesses are right.
#include "draft/draft_length.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace mlc_native {
namespace {

TEST(StepCosts, AreALineOverTheRows) {
  StepCosts costs;
  EXPECT_EQ(costs.SecondsPerRow(), 0);
  for (int i = 0; i < 100; ++i) costs.Observe(4, 0.010);
  EXPECT_EQ(costs.SecondsPerRow(), 0) << "a price that is not known is tried";
  EXPECT_NEAR(costs.Seconds(9), 0.010, 1e-9);
  for (int i = 0; i < 100; ++i) costs.Observe(1 + i % 8, 0.008 + 0.0005 * (1 + i % 8));
  EXPECT_NEAR(costs.SecondsPerRow(), 0.0005, 0.00001);
  EXPECT_NEAR(costs.Seconds(84), 0.050, 0.001);
}

TEST(DecodeCosts, AreThoseWithoutGuessesAndMasks) {
  DecodeCosts costs;
  EXPECT_EQ(costs.Seconds(4, 0), 0);
  EXPECT_FALSE(costs.is_row_known());
  // With guesses, the masks are fast.
  for (int i = 0; i < 100; ++i) {
    costs.Observe({.num_rows = 4, .num_masks = 2, .seconds = 0.004, .mask_seconds = 0.006});
    const int64_t guesses = 1 + i % 8;
    costs.Observe({.num_rows = 4 + guesses,
                   .num_guesses = guesses,
                   .num_masks = 2,
                   .seconds = 0.004 + 0.001 * static_cast<double>(guesses),
                   .mask_seconds = 0.002});
  }
  EXPECT_TRUE(costs.is_row_known());
  EXPECT_NEAR(costs.SecondsPerRow(), 0.001, 1e-5);
  EXPECT_NEAR(costs.SecondsPerMask(), 0.002, 0.0003);
  EXPECT_NEAR(costs.Seconds(4, 0), 0.004, 1e-5);
  EXPECT_NEAR(costs.Seconds(4, 3), 0.004 + 3 * costs.SecondsPerMask(), 1e-5);
}

TEST(GuessRest, BecomesLongerWhileNothingSpeaksForGuesses) {
  GuessRest rest;
  EXPECT_TRUE(rest.is_ready());
  const auto steps_until = [&](bool rests) {
    int steps = 0;
    for (; rest.rests() != rests; ++steps) rest.AfterStep(false, 0.1);
    return steps;
  };
  for (const int length : {64, 128, 256, 512, 1024, 2048, 4096, 4096}) {
    EXPECT_EQ(steps_until(true), 32);
    EXPECT_EQ(steps_until(false), length);
    EXPECT_FALSE(rest.is_ready()) << "it has to read first";
  }
  for (int i = 0; i < 16; ++i) rest.AfterStep(false, 0.1);
  EXPECT_TRUE(rest.is_ready());
}

TEST(GuessRest, IsShortForGuessesThatHaveBecomeBetter) {
  GuessRest rest;
  double rate = 0.1;
  const auto next_rest = [&] {
    while (!rest.rests()) rest.AfterStep(false, rate);
    int steps = 0;
    for (; rest.rests(); ++steps) rest.AfterStep(false, rate);
    return steps;
  };
  EXPECT_EQ(next_rest(), 64);
  EXPECT_EQ(next_rest(), 128);
  rate = 0.2;
  EXPECT_EQ(next_rest(), 64);
  EXPECT_EQ(next_rest(), 128);
  for (int i = 0; i < 100; ++i) rest.AfterStep(true, rate);
  EXPECT_FALSE(rest.rests());
  EXPECT_EQ(next_rest(), 64);
  while (!rest.rests()) rest.AfterStep(false, rate);
  rest.AfterStep(true, rate);
  EXPECT_FALSE(rest.rests()) << "guesses of a given length are asked for";
}

AcceptanceRate RateOf(bool first, bool second) {
  AcceptanceRate rate;
  for (int i = 0; i < 50; ++i) rate.Update(i % 2 == 0 ? first : second);
  return rate;
}

TEST(AcceptanceRate, ChoosesLongDraftsWhileTheyAreRight) {
  const AcceptanceRate right = RateOf(true, true);
  EXPECT_EQ(right.ChooseLength(0.5, 10), 10);
  EXPECT_EQ(right.ChooseLength(0.5, 4), 4);
  EXPECT_EQ(right.ChooseLength(1.5, 10), 0);
  const AcceptanceRate half = RateOf(false, true);
  EXPECT_EQ(half.ChooseLength(0, 10), 5) << "whatever it costs, one of twenty is too few";
  EXPECT_EQ(half.ChooseLength(0.7, 10), 0);
  const AcceptanceRate wrong = RateOf(false, false);
  EXPECT_EQ(wrong.ChooseLength(0, 10), 0);
}

// The chosen length is the one with the most tokens in the time.
TEST(AcceptanceRate, ChoosesTheFastestLength) {
  for (const double rate : {0.3, 0.5, 0.7, 0.8, 0.9}) {
    for (const double cost : {0.05, 0.1, 0.2, 0.4, 0.6}) {
      const auto speed = [&](int64_t length) {
        double tokens = 1;
        for (int64_t i = 1; i <= length; ++i) tokens += std::pow(rate, i);
        return tokens / (1 + cost * static_cast<double>(length));
      };
      const int64_t chosen = AcceptanceRate(rate).ChooseLength(cost, 10);
      for (int64_t length = 0; length <= 10; ++length) {
        if (std::pow(rate, length) < 0.05) break;
        EXPECT_GE(speed(chosen), speed(length) - 1e-9) << rate << ' ' << cost << ' ' << length;
        EXPECT_NEAR(AcceptanceRate(rate).Speedup(cost, length), speed(length), 1e-9);
      }
    }
  }
}

TEST(AcceptanceRate, ForgetsInFavourOfOthers) {
  AcceptanceRate rate = RateOf(false, false);
  for (int i = 0; i < 30; ++i) rate.Approach(0.9);
  EXPECT_GT(rate.rate(), 0.3);
}

// How many of the last steps have guesses that yield `tokens` in `seconds`; a step without yields
// one token in a second.
int NumGuessed(GuessTrial* trial, double seconds, int64_t tokens, double rate_without = 0) {
  constexpr int kSteps = 640;
  int num_guessed = 0;
  for (int step = 0; step < kSteps; ++step) {
    const bool may_guess = trial->MayGuess(rate_without);
    num_guessed += may_guess ? 1 : 0;
    trial->Observe(may_guess ? tokens : 1, may_guess ? seconds : 1);
  }
  return num_guessed * 100 / kSteps;
}

TEST(GuessTrial, GuessesWhereTheyPay) {
  GuessTrial gains, sure, loses, changes;
  EXPECT_GT(NumGuessed(&gains, 1.8, 2), 85);
  EXPECT_EQ(NumGuessed(&sure, 0.9, 2, 1), 100);
  EXPECT_LT(NumGuessed(&loses, 2.2, 2), 10);
  EXPECT_LT(NumGuessed(&changes, 2.5, 2), 10);
  EXPECT_GT(NumGuessed(&changes, 1.4, 2), 60);  // which a few steps have shown
  EXPECT_LT(NumGuessed(&changes, 4, 2), 20);
}

TEST(ProbeBudget, IsAHundredthOfTheTime) {
  ProbeBudget budget;
  EXPECT_TRUE(budget.MayProbe());
  double seconds = 0;
  double probing = 0;
  for (int step = 0; step < 10000; ++step) {
    budget.Earn(0.02);
    seconds += 0.02;
    if (!budget.MayProbe()) continue;
    budget.Spend(0.1);
    probing += 0.1;
  }
  EXPECT_NEAR(probing / seconds, 0.01, 0.002);
}

}  // namespace
}  // namespace mlc_native
