// The emulator's version of csrc/kernels/cuda/warpgroup.cuh: each warp multiplies its 16 rows for
// itself, in some blocks when the product is started, in the others when it is waited for. Fences
// that are missing end the process.
#pragma once

#include <cstring>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/numbers.cuh"

namespace mlc_native::kernels::cuda {

inline constexpr bool kHasWarpgroups = true;
inline constexpr bool kLacksWarpgroups = true;
inline constexpr int kWarpgroup = 4 * kWarp;
inline bool HasWarpgroups() { return true; }
inline bool LacksWarpgroups() { return true; }  // so Gemm computes what WarpgroupGemm does, too

class MmaColumns {
 public:
  MmaColumns(const void* shared, int half)
      : shared_(static_cast<const unsigned char*>(shared)), half_(half) {
    emulator::CheckAligned(shared_, 16);
    emulator::CheckAligned(shared_ + half, 16);
  }

  MmaColumns Behind(int bytes) const { return {shared_ + bytes, half_}; }

  // Elements 2 `pair` and the next of eight k of a column.
  uint32_t at(int half, int column, int pair) const {
    const unsigned char* const from = shared_ + half * half_ + column * 16 + pair * 4;
    emulator::CheckPublished(from);
    uint32_t bits;
    std::memcpy(&bits, from, sizeof bits);
    return bits;
  }

 private:
  const unsigned char* shared_;
  int half_;
};

class MmaRows {
 public:
  MmaRows(const void* shared, int column_step)
      : shared_(static_cast<const unsigned char*>(shared)), column_step_(column_step) {
    emulator::CheckAligned(shared_, 16);
    emulator::CheckAligned(shared_ + column_step, 16);
  }

  MmaRows Behind(int bytes) const { return {shared_ + bytes, column_step_}; }

  uint32_t at(int half, int column, int pair) const {
    const unsigned char* of_column = shared_ + column / 8 * column_step_ + column % 8 * 2;
    uint16_t bits[2];
    for (int i = 0; i < 2; ++i) {
      const unsigned char* const from = of_column + (8 * half + 2 * pair + i) * 16;
      emulator::CheckPublished(from);
      std::memcpy(&bits[i], from, sizeof bits[i]);
    }
    return bits[0] | static_cast<uint32_t>(bits[1]) << 16;
  }

 private:
  const unsigned char* shared_;
  int column_step_;
};

template <typename T, int kTiles, typename B>
void StartMma(float (&c)[kTiles][4], const uint32_t (&a)[4], const B& b, bool adds) {
  emulator::MultiplyLater([sums = &c, rows = &a, b, adds] {
    const int column = static_cast<int>(threadIdx.x) % 32 / 4;
    const int pair = static_cast<int>(threadIdx.x) % 4;
    for (int tile = 0; tile < kTiles; ++tile) {
      for (float& sum : (*sums)[tile]) sum = adds ? sum : 0.0f;
      Mma<T>((*sums)[tile], *rows, b.at(0, 8 * tile + column, pair),
             b.at(1, 8 * tile + column, pair));
    }
  });
}
template <typename... Registers>
void FenceMma(Registers&...) {
  emulator::FenceProducts();
}
inline void CommitMma() { emulator::CommitProducts(); }
template <int kLeft, typename... Registers>
void WaitForMma(Registers&...) {
  emulator::WaitForProducts(kLeft);
}
inline void PublishToMma() { emulator::Publish(); }

class ArrivalBarrier {
 public:
  void Init(int count) {
    count_ = count;
    missing_ = count;
    phase_ = 0;
  }
  void Arrive() {
    if (--missing_ == 0) {
      missing_ = count_;
      ++phase_;
    }
    emulator::NoteProgress();
  }
  void Await(uint32_t parity) {
    emulator::AwaitOthers([&] { return phase_ % 2 != parity; });
  }

 private:
  int16_t count_;
  int16_t missing_;
  uint32_t phase_;  // that runs
};
static_assert(sizeof(ArrivalBarrier) == 8);

template <int kCount>
void GiveRegistersAway() {}
template <int kCount>
void TakeRegisters() {}

}  // namespace mlc_native::kernels::cuda
