#include "grammar/mask_filler.h"

#include <chrono>
#include <exception>
#include <utility>

#include "support/check.h"
#include "support/library_thread.h"

namespace mlc_native {
namespace {

void FillMask(GrammarMatcher& matcher, MaskRow* row) noexcept {
  row->constrained = false;
  row->error = nullptr;
  try {
    row->constrained = matcher.FillMask(row->mask);
  } catch (...) {
    row->error = std::current_exception();
  }
}

void FillBehind(MaskRow* row) {
  GrammarMatcher& matcher = *row->matcher;
  int64_t num_accepted = 0;
  std::exception_ptr error;
  for (size_t i = 0; i < row->behind.size(); ++i) {
    MaskRow& behind = row->behind[i];
    try {
      if (error == nullptr) {
        MLC_CHECK(matcher.AcceptToken(row->draft_tokens[i])) << "token " << row->draft_tokens[i];
        ++num_accepted;
        behind.completed = matcher.IsCompleted();
      }
    } catch (...) {
      error = std::current_exception();
    }
    if (error == nullptr) {
      FillMask(matcher, &behind);
    } else {
      behind.error = error;  // and of all behind it
    }
    // After an error the matcher may not be where it was, so that no row of it can be used.
    if (behind.error != nullptr) row->error = behind.error;
  }
  if (num_accepted > 0) matcher.Rollback(num_accepted);
}

// Never throws, not even without memory: the owner handles the errors of the rows later.
void FillRow(MaskRow* row) noexcept {
  FillMask(*row->matcher, row);
  if (row->behind.empty()) return;
  try {
    FillBehind(row);
  } catch (...) {  // the matcher is not where it was
    row->error = std::current_exception();
  }
}

}  // namespace

MaskFiller::~MaskFiller() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    exiting_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void MaskFiller::Start(std::span<MaskRow> rows) {
  {
    const MutexLock lock(mutex_);
    rows_ = rows;
    next_row_.store(0, std::memory_order_relaxed);
    has_batch_ = true;
  }
  if (!thread_.joinable()) {
    try {
      thread_ = StartThread("mlcn-masks", [this] { RunThread(); });
    } catch (const std::exception&) {
      return;  // no thread can be started, or no memory for one: Wait fills all rows
    }
  }
  changed_.NotifyAll();
}

double MaskFiller::Wait() {
  std::span<MaskRow> rows;
  {
    const MutexLock lock(mutex_);
    rows = rows_;
  }
  const double seconds = FillRows(rows);
  const MutexLock lock(mutex_);
  has_batch_ = false;
  while (thread_busy_) changed_.Wait(mutex_);
  rows_ = {};
  return seconds + std::exchange(thread_seconds_, 0);
}

void MaskFiller::RunThread() {
  while (const std::optional<std::span<MaskRow>> rows = TakeBatch()) FinishBatch(FillRows(*rows));
}

std::optional<std::span<MaskRow>> MaskFiller::TakeBatch() {
  const MutexLock lock(mutex_);
  while (!has_batch_ && !exiting_) changed_.Wait(mutex_);
  if (exiting_) return std::nullopt;
  has_batch_ = false;
  thread_busy_ = true;
  return rows_;
}

void MaskFiller::FinishBatch(double seconds) {
  {
    const MutexLock lock(mutex_);
    thread_seconds_ = seconds;
    thread_busy_ = false;
  }
  changed_.NotifyAll();
}

double MaskFiller::FillRows(std::span<MaskRow> rows) {
  const auto start = std::chrono::steady_clock::now();
  bool any = false;
  for (size_t i = next_row_.fetch_add(1); i < rows.size(); i = next_row_.fetch_add(1)) {
    MatcherCost* const cost = calls_ != nullptr ? rows[i].cost : nullptr;
    const double row_start = cost != nullptr ? cost->Start(*calls_) : 0;
    FillRow(&rows[i]);
    if (cost != nullptr) cost->Stop(*calls_, row_start);
    any = true;
  }
  if (!any) return 0;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace mlc_native
