// Completion: one thread waits until another has done something. It is std::promise<void> without
// std::call_once, whose thread-local storage makes a library need the dynamic loader by name.
//
// The two ends share a state; each end belongs to one thread at a time.
#pragma once

#include <exception>
#include <memory>
#include <stdexcept>
#include <utility>

#include "support/mutex.h"

namespace mlc_native {

class Completion {
  struct State {
    Mutex mutex;
    CondVar changed;
    bool done MLC_GUARDED_BY(mutex) = false;
    bool given_up MLC_GUARDED_BY(mutex) = false;
    std::exception_ptr failure MLC_GUARDED_BY(mutex);
  };

 public:
  // The end of the thread that waits.
  class Waiter {
   public:
    // Blocks until it is done, and rethrows what it threw. Throws std::runtime_error if the other
    // end was given up. Called once.
    void Wait() {
      std::exception_ptr failure;
      bool given_up = false;
      {
        const MutexLock lock(state_->mutex);
        while (!state_->done) state_->changed.Wait(state_->mutex);
        failure = std::move(state_->failure);  // this thread alone has it from here on
        given_up = state_->given_up;
      }
      if (given_up) throw std::runtime_error("It was given up");
      if (failure != nullptr) std::rethrow_exception(std::move(failure));
    }

   private:
    friend class Completion;
    explicit Waiter(std::shared_ptr<State> state) : state_(std::move(state)) {}
    std::shared_ptr<State> state_;
  };

  Completion() = default;
  Completion(Completion&& other) noexcept : state_(std::move(other.state_)) {}
  Completion& operator=(Completion&& other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  // Takes no memory: an instruction is given up where there is none to send it.
  ~Completion() {
    if (state_ != nullptr) End(nullptr, /*given_up=*/true);
  }

  Waiter waiter() const { return Waiter(state_); }
  // Null: it succeeded. Requires: it is neither finished nor moved from.
  void Finish(std::exception_ptr failure = nullptr) { End(std::move(failure), false); }

 private:
  void End(std::exception_ptr failure, bool given_up) {
    const std::shared_ptr<State> state = std::move(state_);
    {
      const MutexLock lock(state->mutex);
      state->done = true;
      state->given_up = given_up;
      state->failure = std::move(failure);
    }
    state->changed.NotifyAll();
  }

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace mlc_native
