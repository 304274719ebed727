// The boundary to the hardware for products of warpgroups (Hopper's wgmma): the part of device.cuh
// that only GPUs of compute capability 9.0 have. The emulator has a version of its own.
//
// A warpgroup is four neighbouring warps, the first of which is a multiple of four. Together they
// multiply 64 rows, whose elements are in their registers, by up to 128 columns in shared memory,
// which the tensor cores read themselves, while the warps go on. The sum of 16 products and what
// they are added to has the bits of Mma, in whatever order the 16 are (measured on an H100).
#pragma once

#include <type_traits>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/numbers.cuh"

namespace mlc_native::kernels::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
inline constexpr bool kHasWarpgroups = false;
#else
inline constexpr bool kHasWarpgroups = true;
#endif
// Whether this code runs where there are none. The emulator has both.
inline constexpr bool kLacksWarpgroups = !kHasWarpgroups;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900 && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "compile for sm_90a instead of sm_90"
#endif

inline constexpr int kWarpgroup = 4 * kWarp;

// Whether the current device has them, and these files were compiled for it.
inline bool HasWarpgroups() {
  constexpr int kCompiledFor[] = {__CUDA_ARCH_LIST__};
  bool is_compiled = false;
  for (const int architecture : kCompiledFor) is_compiled |= architecture == 900;
  return is_compiled && ComputeCapability() == 90;
}
inline bool LacksWarpgroups() { return !HasWarpgroups(); }

// b[16, columns] in shared memory: of eight k of a column 16 bytes, columns one behind the other;
// the second eight k lie `half` bytes further. Both are multiples of 16.
class MmaColumns {
 public:
  static constexpr bool kIsTransposed = false;
  __device__ MmaColumns([[maybe_unused]] const void* shared, [[maybe_unused]] int half) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    low_ = at / 16 | static_cast<uint32_t>(half / 16) << 16;
#endif
  }
  // Those that lie `bytes` further.
  __device__ MmaColumns Behind(int bytes) const {
    MmaColumns columns = *this;
    columns.low_ += bytes / 16;
    return columns;
  }
  __device__ uint64_t descriptor() const {
    constexpr uint64_t kEightColumns = 8 * 16;
    return kEightColumns / 16 << 32 | low_;
  }

 private:
  uint32_t low_ = 0;
};

// The same b in another layout: of eight columns of a row (of one k) 16 bytes, rows one behind the
// other; the next eight columns lie `column_step` bytes further, a multiple of 16.
class MmaRows {
 public:
  static constexpr bool kIsTransposed = true;
  __device__ MmaRows([[maybe_unused]] const void* shared, [[maybe_unused]] int column_step) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    constexpr uint32_t kEightRows = 8 * 16;
    const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    low_ = at / 16 | kEightRows / 16 << 16;
    high_ = static_cast<uint32_t>(column_step / 16);
#endif
  }
  // Those that lie `bytes` further.
  __device__ MmaRows Behind(int bytes) const {
    MmaRows rows = *this;
    rows.low_ += bytes / 16;
    return rows;
  }
  __device__ uint64_t descriptor() const { return uint64_t{high_} << 32 | low_; }

 private:
  uint32_t low_ = 0;
  uint32_t high_ = 0;
};

// clang-format off
#define MLC_SUMS(tile) "+f"(c[tile][0]), "+f"(c[tile][1]), "+f"(c[tile][2]), "+f"(c[tile][3])
#define MLC_SUMS_4(tile) MLC_SUMS(tile), MLC_SUMS(tile + 1), MLC_SUMS(tile + 2), MLC_SUMS(tile + 3)
#define MLC_REGS_16(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) \
  "%" #a ", %" #b ", %" #c ", %" #d ", %" #e ", %" #f ", %" #g ", %" #h ", " \
  "%" #i ", %" #j ", %" #k ", %" #l ", %" #m ", %" #n ", %" #o ", %" #p
#define MLC_REGS_A MLC_REGS_16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#define MLC_REGS_B MLC_REGS_16(16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31)
#define MLC_REGS_C MLC_REGS_16(32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47)
#define MLC_REGS_D MLC_REGS_16(48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63)
#define MLC_WGMMA_4(type) \
  asm volatile( \
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %21, 0;\n" \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " {" MLC_REGS_A "}, " \
      "{%16, %17, %18, %19}, %20, adds, 1, 1, %22;\n}\n" \
      : MLC_SUMS_4(0) \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor), "r"(adds ? 1 : 0), "n"(B::kIsTransposed ? 1 : 0))
#define MLC_WGMMA_8(type) \
  asm volatile( \
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %37, 0;\n" \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" MLC_REGS_A ", " MLC_REGS_B "}, " \
      "{%32, %33, %34, %35}, %36, adds, 1, 1, %38;\n}\n" \
      : MLC_SUMS_4(0), MLC_SUMS_4(4) \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor), "r"(adds ? 1 : 0), "n"(B::kIsTransposed ? 1 : 0))
#define MLC_WGMMA_16(type) \
  asm volatile( \
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %69, 0;\n" \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" MLC_REGS_A ", " MLC_REGS_B ", " MLC_REGS_C ", " MLC_REGS_D "}, " \
      "{%64, %65, %66, %67}, %68, adds, 1, 1, %70;\n}\n" \
      : MLC_SUMS_4(0), MLC_SUMS_4(4), MLC_SUMS_4(8), MLC_SUMS_4(12) \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor), "r"(adds ? 1 : 0), "n"(B::kIsTransposed ? 1 : 0))
// clang-format on

// c[64, 8 kTiles] += a[64, 16] b[16, 8 kTiles], or = where it does not add; b is MmaColumns or
// MmaRows. Of the warpgroup's i-th warp 16 rows: its registers of a and c are those of Mma. Neither
// may be touched, nor b written, before WaitForMma.
template <typename T, int kTiles, typename B>
__device__ inline void StartMma([[maybe_unused]] float (&c)[kTiles][4],
                                [[maybe_unused]] const uint32_t (&a)[4],
                                [[maybe_unused]] const B& b, [[maybe_unused]] bool adds) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  static_assert(kTiles == 4 || kTiles == 8 || kTiles == 16);
  const uint64_t descriptor = b.descriptor();
  if constexpr (std::is_same_v<T, BFloat16>) {
    if constexpr (kTiles == 4) MLC_WGMMA_4("bf16");
    if constexpr (kTiles == 8) MLC_WGMMA_8("bf16");
    if constexpr (kTiles == 16) MLC_WGMMA_16("bf16");
  } else {
    if constexpr (kTiles == 4) MLC_WGMMA_4("f16");
    if constexpr (kTiles == 8) MLC_WGMMA_8("f16");
    if constexpr (kTiles == 16) MLC_WGMMA_16("f16");
  }
#endif
}
// Registers that the compiler shall neither read nor write on the other side of this.
template <int kTiles>
__device__ inline void PinRegisters(float (&registers)[kTiles][4]) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(registers[tile][i])::"memory");
  }
}
template <int kSteps>
__device__ inline void PinRegisters(uint32_t (&registers)[kSteps][4]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(registers[step][i])::"memory");
  }
}
// In front of the first StartMma after registers were written. The compiler moves no write of those
// that are named behind it.
template <typename... Registers>
__device__ inline void FenceMma(Registers&... written) {
  (PinRegisters(written), ...);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
// Behind the last one.
__device__ inline void CommitMma() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
// Until all but the `kLeft` newest groups of this warp are done. The compiler moves no use of the
// sums that are named in front of it.
template <int kLeft, typename... Registers>
__device__ inline void WaitForMma(Registers&... done) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
#endif
  (PinRegisters(done), ...);
}
// What this thread has stored in shared memory can be read by the tensor cores, behind a barrier.
__device__ inline void PublishToMma() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// ---- Warpgroups that take different branches ----

// In shared memory (mbarrier): its phases, which are counted from 0, end when as many threads as
// Init was told have arrived. Those who arrive do not wait, and those who wait do not arrive. What
// was done before an arrival is done for those who have waited.
class ArrivalBarrier {
 public:
  // By one thread, in front of a barrier of the block.
  __device__ void Init([[maybe_unused]] int count) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(Address()), "r"(count) : "memory");
#endif
  }
  __device__ void Arrive() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(Address()) : "memory");
#endif
  }
  // Until a phase of this parity has ended: the one that runs, or else the one before it. In front
  // of the first one there is an odd one.
  __device__ void Await([[maybe_unused]] uint32_t parity) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    asm volatile(
        "{\n.reg .pred ended;\n"
        "again:\nmbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n@!ended bra "
        "again;\n}\n" ::"r"(Address()),
        "r"(parity)
        : "memory");
#endif
  }

 private:
  __device__ uint32_t Address() const {
    return static_cast<uint32_t>(__cvta_generic_to_shared(this));
  }

  uint64_t state_;
};

// From here on a thread of this warpgroup has so many registers, fewer or more than the launch gave
// it.
template <int kCount>
__device__ inline void GiveRegistersAway() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
#endif
}
template <int kCount>
__device__ inline void TakeRegisters() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
#endif
}

#undef MLC_WGMMA_4
#undef MLC_WGMMA_8
#undef MLC_WGMMA_16
#undef MLC_REGS_A
#undef MLC_REGS_B
#undef MLC_REGS_C
#undef MLC_REGS_D
#undef MLC_REGS_16
#undef MLC_SUMS_4
#undef MLC_SUMS

}  // namespace mlc_native::kernels::cuda
