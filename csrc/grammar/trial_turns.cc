#include "grammar/trial_turns.h"

namespace mlc_native {

TrialTurns::Outcome TrialTurns::Take(Kind kind, size_t text_bytes,
                                     std::chrono::steady_clock::time_point deadline,
                                     const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] {
    const MutexLock lock(mutex_);
    changed_.NotifyAll();
  });
  const MutexLock lock(mutex_);
  const Waiter waiter(kind, text_bytes > kSmallBytes, num_arrived_++);
  waiting_.insert(waiter);
  Outcome outcome = Outcome::kTaken;
  while (outcome == Outcome::kTaken && !IsNext(waiter)) {
    if (stop.stop_requested()) {
      outcome = Outcome::kStopped;
    } else if (!changed_.WaitUntil(mutex_, deadline)) {
      outcome = IsNext(waiter) ? Outcome::kTaken : Outcome::kTimeout;
      break;
    }
  }
  if (stop.stop_requested()) outcome = Outcome::kStopped;
  waiting_.erase(waiter);
  if (outcome == Outcome::kTaken) ++(kind == Kind::kShort ? num_short_ : num_long_);
  changed_.NotifyAll();  // another one may be the next
  return outcome;
}

bool TrialTurns::BecomeLong() {
  const MutexLock lock(mutex_);
  if (num_long_ == kMaxLong) return false;
  --num_short_;
  ++num_long_;
  changed_.NotifyAll();
  return true;
}

void TrialTurns::End(Kind kind) {
  const MutexLock lock(mutex_);
  --(kind == Kind::kShort ? num_short_ : num_long_);
  changed_.NotifyAll();
}

int TrialTurns::num_waiting() const {
  const MutexLock lock(mutex_);
  return static_cast<int>(waiting_.size());
}

bool TrialTurns::MayTake(Kind kind) const {
  if (num_taken() == kMaxTurns) return false;
  if (kind == Kind::kLong) return num_long_ < kMaxLong;
  const bool any_long_waits =
      !waiting_.empty() && std::get<Kind>(*waiting_.rbegin()) == Kind::kLong;
  return num_short_ < kMaxTurns - (any_long_waits ? 1 : 0);
}

bool TrialTurns::IsNext(const Waiter& waiter) const {
  for (const Waiter& each : waiting_) {
    if (MayTake(std::get<Kind>(each))) return each == waiter;
  }
  return false;
}

}  // namespace mlc_native
