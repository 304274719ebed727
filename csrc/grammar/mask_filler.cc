#include "grammar/mask_filler.h"

#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

namespace mlc_native {
namespace {

// Never throws, not even without memory: the owner handles the error of the row later.
void FillRow(MaskRow* row) noexcept {
  row->constrained = false;
  row->error = nullptr;
  try {
    row->constrained = row->matcher->FillMask(row->mask);
  } catch (...) {
    row->error = std::current_exception();
  }
}

}  // namespace

MaskFiller::~MaskFiller() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    exiting_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void MaskFiller::Start(std::span<MaskRow> rows) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    rows_ = rows;
    next_row_.store(0, std::memory_order_relaxed);
    has_batch_ = true;
  }
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { RunThread(); });
    } catch (const std::system_error&) {
      return;  // no thread can be started: Wait fills all rows
    }
  }
  changed_.notify_all();
}

double MaskFiller::Wait() {
  const double seconds = FillRows(rows_);
  std::unique_lock<std::mutex> lock(mutex_);
  has_batch_ = false;
  changed_.wait(lock, [this] { return !thread_busy_; });
  rows_ = {};
  return seconds + std::exchange(thread_seconds_, 0);
}

void MaskFiller::RunThread() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return has_batch_ || exiting_; });
    if (exiting_) return;
    has_batch_ = false;
    thread_busy_ = true;
    const std::span<MaskRow> rows = rows_;
    lock.unlock();
    const double seconds = FillRows(rows);
    lock.lock();
    thread_seconds_ = seconds;
    thread_busy_ = false;
    changed_.notify_all();
  }
}

double MaskFiller::FillRows(std::span<MaskRow> rows) {
  const auto start = std::chrono::steady_clock::now();
  bool any = false;
  for (size_t i = next_row_.fetch_add(1); i < rows.size(); i = next_row_.fetch_add(1)) {
    FillRow(&rows[i]);
    any = true;
  }
  if (!any) return 0;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace mlc_native
