// The barriers of a block that count the bytes of copies, and the copies that are on their way. A
// function that takes part in a wrong use returns what is wrong, else null. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace mlc_native::emulator {

class BulkCopies {
 public:
  // Forgets all barriers, of a block that has ended.
  void Clear();

  const char* Init(const void* barrier);
  void Fence();
  const char* Expect(const void* barrier, int bytes);
  // `late`: it stays on its way until ArriveOne.
  const char* Copy(void* to, const void* from, int bytes, const void* barrier, bool late);
  // Lets one of the copies arrive, the one that `chosen` says, modulo their number; of one barrier,
  // or of all (null). Returns whether there was one.
  bool ArriveOne(const void* barrier, uint64_t chosen);

  const char* Check(const void* barrier) const;
  bool IsOnItsWay(const void* barrier) const;
  // Whether the phase of this parity is over.
  bool HasEnded(const void* barrier, uint32_t parity) const;
  bool IsIdle() const { return late_.empty(); }

 private:
  struct Barrier {
    bool is_fenced = false;
    bool is_announced = false;  // what comes in this phase
    int64_t bytes_left = 0;
    uint32_t phase = 0;
  };
  struct Pending {
    void* to;
    const void* from;
    int bytes;
    const void* barrier;
  };
  void Arrive(const Pending& copy);
  static void EndIfComplete(Barrier& barrier);

  std::map<const void*, Barrier> barriers_;
  std::vector<Pending> late_;
};

}  // namespace mlc_native::emulator
