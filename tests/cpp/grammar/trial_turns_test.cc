// Whose turn it is among trials of grammars, without any.
#include "grammar/trial_turns.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

namespace mlc_native {
namespace {

using Kind = TrialTurns::Kind;
using Outcome = TrialTurns::Outcome;

constexpr auto kNever = std::chrono::steady_clock::time_point::max();
constexpr size_t kLargeBytes = TrialTurns::kSmallBytes + 1;

class TrialTurnsTest : public ::testing::Test {
 protected:
  void Take(Kind kind) { ASSERT_EQ(turns_.Take(kind, 1, kNever, {}), Outcome::kTaken); }
  // Not after any time.
  bool MayTakeNow(Kind kind) {
    return turns_.Take(kind, 1, std::chrono::steady_clock::now(), {}) == Outcome::kTaken;
  }

  // A thread that waits for a turn and keeps it.
  struct Waiter {
    std::atomic<bool> has_turn = false;
    std::stop_source source;
    Outcome outcome = Outcome::kTimeout;
    std::jthread thread;
  };
  void Wait(Waiter* waiter, Kind kind, size_t text_bytes) {
    const int num_waiting = turns_.num_waiting();
    waiter->thread = std::jthread([this, waiter, kind, text_bytes] {
      waiter->outcome = turns_.Take(kind, text_bytes, kNever, waiter->source.get_token());
      waiter->has_turn = waiter->outcome == Outcome::kTaken;
    });
    while (turns_.num_waiting() == num_waiting) std::this_thread::yield();
  }

  TrialTurns turns_;
};

TEST_F(TrialTurnsTest, LongOnesLeaveATurnToShortOnes) {
  for (int i = 0; i < TrialTurns::kMaxLong; ++i) Take(Kind::kLong);
  EXPECT_FALSE(MayTakeNow(Kind::kLong));
  Take(Kind::kShort);
  EXPECT_FALSE(MayTakeNow(Kind::kShort));
  EXPECT_FALSE(turns_.BecomeLong());
  turns_.End(Kind::kShort);
  EXPECT_TRUE(MayTakeNow(Kind::kShort));
}

TEST_F(TrialTurnsTest, ShortOnesBecomeLongWhileThereIsRoom) {
  for (int i = 0; i < TrialTurns::kMaxTurns; ++i) Take(Kind::kShort);
  for (int i = 0; i < TrialTurns::kMaxLong; ++i) EXPECT_TRUE(turns_.BecomeLong());
  EXPECT_FALSE(turns_.BecomeLong());
  turns_.End(Kind::kLong);
  EXPECT_TRUE(turns_.BecomeLong());
}

TEST_F(TrialTurnsTest, ALongOneThatWaitsGetsATurnFromShortOnes) {
  for (int i = 0; i < TrialTurns::kMaxTurns; ++i) Take(Kind::kShort);
  Waiter long_one, short_one;
  Wait(&long_one, Kind::kLong, 1);
  Wait(&short_one, Kind::kShort, 1);
  turns_.End(Kind::kShort);
  long_one.thread.join();
  EXPECT_TRUE(long_one.has_turn);
  turns_.End(Kind::kShort);
  short_one.thread.join();
  EXPECT_TRUE(short_one.has_turn);
}

TEST_F(TrialTurnsTest, SmallTextsAreFirst) {
  for (int i = 0; i < TrialTurns::kMaxTurns; ++i) Take(Kind::kShort);
  Waiter large, small;
  Wait(&large, Kind::kShort, kLargeBytes);
  Wait(&small, Kind::kShort, TrialTurns::kSmallBytes);
  turns_.End(Kind::kShort);
  small.thread.join();
  EXPECT_TRUE(small.has_turn);
  EXPECT_FALSE(large.has_turn);
  turns_.End(Kind::kShort);
  large.thread.join();
}

TEST_F(TrialTurnsTest, AWaitEndsWithItsTimeOrItsStop) {
  for (int i = 0; i < TrialTurns::kMaxTurns; ++i) Take(Kind::kShort);
  EXPECT_FALSE(MayTakeNow(Kind::kShort));
  Waiter stopped;
  Wait(&stopped, Kind::kShort, 1);
  stopped.source.request_stop();
  stopped.thread.join();
  EXPECT_EQ(stopped.outcome, Outcome::kStopped);
  EXPECT_EQ(turns_.num_waiting(), 0);
  turns_.End(Kind::kShort);
  EXPECT_TRUE(MayTakeNow(Kind::kShort));
}

}  // namespace
}  // namespace mlc_native
