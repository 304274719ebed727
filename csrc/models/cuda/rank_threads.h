// RankThreads runs work on one thread per GPU: rank 0's on the thread that asks for it, the other
// ranks' on threads that wait for it in between. One thread at a time asks.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace mlc_native {

class RankThreads {
 public:
  // Throws std::system_error if no thread can be started.
  explicit RankThreads(int64_t num_ranks);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  // Runs work(rank) for each rank at the same time and waits for all of them. Throws what the first
  // of them to fail has thrown.
  using Work = std::function<void(int64_t rank)>;
  void Run(const Work& work);

 private:
  void Loop(int64_t rank);
  void RunOne(int64_t rank, const Work& work);
  void Stop();

  std::mutex mutex_;
  std::condition_variable changed_;
  const Work* work_ = nullptr;  // of the current Run
  int64_t num_runs_ = 0;
  int64_t num_busy_ = 0;  // ranks of the current Run, without rank 0
  std::exception_ptr failure_;
  bool stops_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mlc_native
