#include "models/cuda/rank_threads.h"

#include <utility>

#include "support/library_thread.h"

namespace mlc_native {

RankThreads::RankThreads(int64_t num_ranks) {
  threads_.reserve(static_cast<size_t>(num_ranks));  // a thread that has started has a place
  try {
    for (int64_t rank = 1; rank < num_ranks; ++rank) {
      threads_.push_back(StartThread("mlcn-gpu", [this, rank] { Loop(rank); }));
    }
  } catch (...) {
    Stop();
    throw;
  }
}

RankThreads::~RankThreads() { Stop(); }

void RankThreads::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void RankThreads::Run(const Work& work) {
  {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    failure_ = nullptr;
    num_busy_ = static_cast<int64_t>(threads_.size());
    ++num_runs_;
  }
  changed_.notify_all();
  RunOne(0, work);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return num_busy_ == 0; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void RankThreads::RunOne(int64_t rank, const Work& work) {
  try {
    work(rank);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void RankThreads::Loop(int64_t rank) {
  int64_t num_done = 0;
  while (true) {
    const Work* work = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stops_ || num_runs_ > num_done; });
      if (stops_) return;
      num_done = num_runs_;
      work = work_;
    }
    RunOne(rank, *work);
    {
      const std::lock_guard lock(mutex_);
      --num_busy_;
    }
    changed_.notify_all();
  }
}

}  // namespace mlc_native
