// The emulator's version of csrc/kernels/cuda/warpgroup.cuh: each warp multiplies its 16 rows at
// once, when the product is started.
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
      : shared_(static_cast<const unsigned char*>(shared)), half_(half) {}

  MmaColumns Behind(int bytes) const { return {shared_ + bytes, half_}; }

  // Elements 2 `pair` and the next of eight k of a column.
  uint32_t at(int half, int column, int pair) const {
    uint32_t bits;
    std::memcpy(&bits, shared_ + half * half_ + column * 16 + pair * 4, sizeof bits);
    return bits;
  }

 private:
  const unsigned char* shared_;
  int half_;
};

template <typename T, int kTiles>
void StartMma(float (&c)[kTiles][4], const uint32_t (&a)[4], const MmaColumns& b, bool adds) {
  const int column = static_cast<int>(threadIdx.x) % 32 / 4;
  const int pair = static_cast<int>(threadIdx.x) % 4;
  for (int tile = 0; tile < kTiles; ++tile) {
    for (float& sum : c[tile]) sum = adds ? sum : 0.0f;
    Mma<T>(c[tile], a, b.at(0, 8 * tile + column, pair), b.at(1, 8 * tile + column, pair));
  }
}
inline void FenceMma() {}
inline void CommitMma() {}
template <int kLeft>
void WaitForMma() {}
inline void PublishToMma() {}
template <int kCount>
void GiveRegistersAway() {}
template <int kCount>
void TakeRegisters() {}

}  // namespace mlc_native::kernels::cuda
