// MemoryReserve: memory that is given back when there is no other, so that what has begun can be
// ended: a request that has failed still gets its last output. An engine has one for its loops, the
// C API and the Python module have one for outputs on their way to the host.
//
// The pages come from the system and go back to it, so whatever allocates next can have them, on
// any thread. They are written once, so that a limit of resident memory counts them, too. Any
// thread.
#pragma once

#include <atomic>
#include <new>

#include "mlc_native/detail/export.h"

namespace mlc_native {

class MLC_NATIVE_PRIVATE_API MemoryReserve {
 public:
  // Throws std::bad_alloc.
  MemoryReserve();
  ~MemoryReserve() { Release(); }
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  // Gives the memory back. Returns false if that was done before.
  bool Release() noexcept;
  // Takes it again if there is that much. One load of an atomic if it is there.
  void Refill() noexcept;

  // Runs the action until it has the memory that it needs: again at once with what the reserve
  // gives back, later after pauses, in which the host may free some. What else the action throws is
  // thrown. Requires: an attempt that throws std::bad_alloc leaves all that the next one uses.
  template <typename Action>
  void Run(const Action& action) {
    while (true) {
      try {
        return action();
      } catch (const std::bad_alloc&) {
        if (Release()) continue;
      }
      Pause();
    }
  }

 private:
  static void Pause() noexcept;

  std::atomic<void*> pages_{nullptr};  // null: given back
};

}  // namespace mlc_native
