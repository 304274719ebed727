// Runs a function on several threads at once.
#pragma once

#include <thread>
#include <utility>
#include <vector>

namespace mlc_native::testing {

class Threads {
 public:
  // Calls fn(0) .. fn(count - 1), each on a thread of its own.
  template <typename F>
  Threads(int count, F fn) {
    for (int i = 0; i < count; ++i) threads_.emplace_back(fn, i);
  }
  // The destructor does the same.
  void Join() { threads_.clear(); }

 private:
  std::vector<std::jthread> threads_;
};

}  // namespace mlc_native::testing
