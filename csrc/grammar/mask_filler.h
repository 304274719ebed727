// MaskFiller fills the token masks of a batch while its owner does other work.
//
// Start hands the rows to a thread and returns. Wait fills remaining rows itself, so a thread that
// wakes up late delays nothing. The thread starts with the first batch and sleeps between batches.
// The masks do not depend on the thread that filled them. Owned by one engine; all calls on the
// engine's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <thread>

#include "grammar/slow_calls.h"
#include "mlc_native/grammar.h"
#include "support/mutex.h"

namespace mlc_native {

struct MaskRow {
  GrammarMatcher* matcher = nullptr;
  std::span<int32_t> mask;      // [TokenMaskWords(vocab_size)]
  bool constrained = false;     // result: false if every token is allowed; mask is then unspecified
  std::exception_ptr error;     // result: an exception of the matcher, for this row or behind it
  bool completed = false;       // result, of a row behind draft tokens: IsCompleted
  MatcherCost* cost = nullptr;  // of the matcher, which filling is added to; may be null

  // Further rows of the same sequence: behind[i] is filled behind the first i + 1 draft tokens. The
  // matcher is where it was when all are filled. It accepts the draft tokens and can take them
  // back.
  std::span<const int32_t> draft_tokens = {};
  std::span<MaskRow> behind = {};  // as draft_tokens; each has `mask` only
};

class MaskFiller {
 public:
  // Costs are measured by the clocks of `calls`; null: they are not.
  explicit MaskFiller(const SlowCalls* calls = nullptr) : calls_(calls) {}
  ~MaskFiller();
  MaskFiller(const MaskFiller&) = delete;
  MaskFiller& operator=(const MaskFiller&) = delete;

  // Requires: the caller does not use the rows and their matchers until Wait has returned.
  void Start(std::span<MaskRow> rows);
  // Returns the time spent on filling this batch, summed over threads.
  double Wait();

 private:
  void RunThread();
  // Blocks until there is a batch. Nothing when the thread has to end.
  std::optional<std::span<MaskRow>> TakeBatch();
  void FinishBatch(double seconds);
  // Returns the seconds it took.
  double FillRows(std::span<MaskRow> rows);

  const SlowCalls* const calls_;
  std::atomic<size_t> next_row_ = 0;
  Mutex mutex_;
  CondVar changed_;
  std::span<MaskRow> rows_ MLC_GUARDED_BY(mutex_);
  // Between Start and Wait, until the thread has taken the batch.
  bool has_batch_ MLC_GUARDED_BY(mutex_) = false;
  bool thread_busy_ MLC_GUARDED_BY(mutex_) = false;
  bool exiting_ MLC_GUARDED_BY(mutex_) = false;
  double thread_seconds_ MLC_GUARDED_BY(mutex_) = 0;  // of this batch

  std::thread thread_;
};

}  // namespace mlc_native
