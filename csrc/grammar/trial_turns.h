// TrialTurns decides which trial of a grammar has its turn, so that long trials never keep short
// ones waiting.
//
// How long a trial takes is not known before. Each begins as a short one. After kShortSeconds it
// becomes a long one: it goes on if fewer than kMaxLong do, and otherwise gives its turn back and
// waits for another one, which starts from the beginning. So of the kMaxTurns turns, one always
// serves short trials, and while a long trial waits, one serves long ones. Among the short trials,
// small texts are first. Thread-safe; never called on the engine's thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <stop_token>
#include <tuple>

#include "support/mutex.h"

namespace mlc_native {

class TrialTurns {
 public:
  static constexpr int kMaxTurns = 4;
  static constexpr int kMaxLong = 3;
  static constexpr double kShortSeconds = 0.5;
  static constexpr size_t kSmallBytes = 4096;

  enum class Kind : uint8_t { kShort, kLong };
  enum class Outcome : uint8_t { kTaken, kTimeout, kStopped };

  // Waits for a turn. Each that is taken is ended.
  Outcome Take(Kind kind, size_t text_bytes, std::chrono::steady_clock::time_point deadline,
               const std::stop_token& stop);
  // Makes a short turn a long one. False if there are too many; it is still a short one then.
  bool BecomeLong();
  void End(Kind kind);

  int num_waiting() const;

 private:
  // In the order in which they are served: kind, not small, arrival.
  using Waiter = std::tuple<Kind, bool, int64_t>;

  int num_taken() const MLC_REQUIRES(mutex_) { return num_short_ + num_long_; }
  bool MayTake(Kind kind) const MLC_REQUIRES(mutex_);
  bool IsNext(const Waiter& waiter) const MLC_REQUIRES(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  std::set<Waiter> waiting_ MLC_GUARDED_BY(mutex_);
  int64_t num_arrived_ MLC_GUARDED_BY(mutex_) = 0;
  int num_short_ MLC_GUARDED_BY(mutex_) = 0;  // turns taken
  int num_long_ MLC_GUARDED_BY(mutex_) = 0;
};

}  // namespace mlc_native
