// The boundary to the hardware: everything that kernels use of CUDA beyond the language itself
// (threadIdx, __syncthreads, warp shuffles, atomics). All inline PTX is here.
//
// tests/cpp/cuda/emulator has a second version of this file, with which a host compiler turns the
// same kernels into functions that run without a GPU. Kernels therefore use DynamicShared instead
// of `extern __shared__`, Launch instead of <<<>>>, warp collectives only on whole warps, and block
// sizes that are multiples of 32. A kernel has one argument, which is __grid_constant__ where its
// address is taken; otherwise it would be copied to the memory of each thread.
#pragma once

#include <cuda_runtime.h>
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
#include <cuda_fp8.h>
#endif

#include <cstdint>

#include "kernels/cuda/architectures.h"
#include "kernels/cuda/check_cuda.h"
#include "kernels/cuda/stream.h"

namespace mlc_native::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// ---- Numbers as bits ----

// Two floats rounded to nearest even; the first in the low half.
__device__ inline uint32_t PackBFloat16(float low, float high) {
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}
__device__ inline uint32_t PackFloat16(float low, float high) {
  uint32_t bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}
__device__ inline float Float16BitsToFloat(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
inline constexpr bool kConvertsFloat8 = false;
#else
inline constexpr bool kConvertsFloat8 = true;
#endif
// Two E4M3 numbers as float16, exactly. Requires: kConvertsFloat8.
__device__ inline uint32_t Float8PairToFloat16([[maybe_unused]] uint16_t codes) {
  uint32_t bits = 0;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(bits) : "h"(codes));
#endif
  return bits;
}
// E4M3, saturating.
__device__ inline uint8_t FloatToFloat8Bits(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
  return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
#else
  uint16_t bits;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(0.0f), "f"(value));
  return static_cast<uint8_t>(bits);
#endif
}
// Requires: kConvertsFloat8.
__device__ inline float Float8BitsToFloat(uint8_t bits) {
  return Float16BitsToFloat(static_cast<uint16_t>(Float8PairToFloat16(bits)));
}
// a * b + c on pairs of bfloat16, rounded once.
__device__ inline uint32_t FmaBFloat16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
__device__ inline uint32_t FmaFloat16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

// a & b | c, in one instruction also where b and c are constants.
__device__ inline uint32_t AndOr(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

// ---- Fast functions (about 2 ulp) ----

__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float ReciprocalSqrt(float x) { return rsqrtf(x); }
// x / y; 0 where |y| is above 2^126.
__device__ inline float FastDivide(float x, float y) { return __fdividef(x, y); }

// ---- Memory ----

// Loads 16 bytes that are not read again soon: weights.
__device__ inline uint4 LoadStreamed(const void* address) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
}
// The same of 16 or 8 bytes, or zeros if they are not `valid`, without a branch: keys and values.
__device__ inline void LoadStreamedIf(bool valid, const void* address, uint4& v) {
  asm volatile(
      "{\n"
      ".reg .pred valid;\n"
      "setp.ne.u32 valid, %5, 0;\n"
      "mov.u32 %0, 0;\n"
      "mov.u32 %1, 0;\n"
      "mov.u32 %2, 0;\n"
      "mov.u32 %3, 0;\n"
      "@valid ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n"
      "}\n"
      : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
      : "l"(address), "r"(valid ? 1u : 0u));
}
__device__ inline void LoadStreamedIf(bool valid, const void* address, uint2& v) {
  asm volatile(
      "{\n"
      ".reg .pred valid;\n"
      "setp.ne.u32 valid, %3, 0;\n"
      "mov.u32 %0, 0;\n"
      "mov.u32 %1, 0;\n"
      "@valid ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];\n"
      "}\n"
      : "=&r"(v.x), "=&r"(v.y)
      : "l"(address), "r"(valid ? 1u : 0u));
}

// Stores 16 or 8 bytes at once. The compiler may take an assignment of them apart.
__device__ inline void StoreAtOnce(void* address, const uint4& v) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}
__device__ inline void StoreAtOnce(void* address, const uint2& v) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(address), "r"(v.x), "r"(v.y) : "memory");
}

// Loads what another block of the same launch has written before it counted (CountForOthers).
template <typename T>
__device__ inline T LoadOthers(const T* address) {
  return __ldcg(address);
}

// Adds to a counter of all blocks and returns what it was. By one thread behind a barrier: what its
// block has written before is there for the block that counts next, behind a barrier of its own.
__device__ inline int32_t CountForOthers(int32_t* counter) {
  int32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(counter)
               : "memory");
  return before;
}

// The block's dynamic shared memory, 16-byte aligned.
__device__ inline void* DynamicShared() {
  extern __shared__ __align__(16) unsigned char dynamic_shared_memory[];
  return dynamic_shared_memory;
}

// Copies 16 bytes from global to shared memory asynchronously; zeros if not `valid`. The copies of
// a thread since its last commit form a group. WaitForCopies<n> returns when all groups except the
// n newest have arrived; they are visible to the same thread, and to others after a barrier.
__device__ inline void CopyAsync16(void* shared, const void* global, bool valid) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes)
               : "memory");
}
// The same of 4, 8 or 16 bytes, through the level-1 cache.
template <int kBytes>
__device__ inline void CopyAsyncFew(void* shared, const void* global, bool valid) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = valid ? kBytes : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(global), "n"(kBytes),
               "r"(bytes)
               : "memory");
}
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int n>
__device__ inline void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
}

// ---- Clusters (sm_90 and later) ----
//
// kBlocks neighbouring blocks that run at the same time and read each other's shared memory
// (LaunchShape::cluster). A cluster of one block is no cluster, on any GPU.

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr bool kHasClusters = false;
#else
inline constexpr bool kHasClusters = true;
#endif
// Whether this code runs where there are none. The emulator has both.
inline constexpr bool kLacksClusters = !kHasClusters;

// All threads of all blocks of the cluster. What they have written to shared memory is there.
template <int kBlocks>
__device__ inline void ClusterBarrier() {
  if constexpr (kBlocks == 1) {
    __syncthreads();
  } else {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
  }
}

// Loads what lies in block `rank` of the cluster where `shared` is in this block.
template <int kBlocks>
__device__ inline float4 LoadOfCluster(const float* shared, [[maybe_unused]] int rank) {
  if constexpr (kBlocks == 1) {
    return *reinterpret_cast<const float4*>(shared);
  } else {
    float4 v{};
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    const auto own = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    uint32_t from;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(from) : "r"(own), "r"(rank));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(from)
                 : "memory");
#endif
    return v;
  }
}

// ---- Tensor cores (whole warps) ----

// Four 8x8 matrices of 16-bit elements; lane 8 i + r passes the address of row r of matrix i.
// r[i] of lane l: elements 2 (l % 4) and the next of row l / 4 of matrix i; Transposed: of its
// transpose.
__device__ inline void LoadMatrices(uint32_t (&r)[4], const void* shared) {
  const auto from = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}
__device__ inline void LoadMatricesTransposed(uint32_t (&r)[4], const void* shared) {
  const auto from = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}

// The transpose of an 8x8 matrix of 16-bit elements, of which a lane holds two, as of LoadMatrices.
__device__ inline uint32_t TransposeMatrix(uint32_t r) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(r));
  return transposed;
}

// c[16, 8] += a[16, 16] b[16, 8] with float sums. With g = lane / 4 and t = lane % 4:
//   a: rows g, g + 8, g, g + 8; columns 2t and the next, the last two registers 8 further
//   b: rows 2t and the next, the second register 8 further; column g
//   c: row g, columns 2t and the next; then row g + 8
__device__ inline void MmaBFloat16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                   uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void MmaFloat16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---- Kernels that follow one another ----

// Lets the next kernel of the stream begin on multiprocessors that are free, and waits until the
// kernel before this one has ended and all it has written is there. On GPUs of compute capability
// 9.0 and later the edge between two kernels thus costs less, and what stands in front of the wait
// (the first loads of weights) costs nothing. Elsewhere, and where the launch does not ask for it
// (LaunchOrder), kernels follow one another as always. The rules:
//   * Every thread of every kernel waits, even one that has nothing to do. A kernel has then ended
//     only when all kernels before it have ended: whoever waits for its predecessor has waited for
//     all. A kernel that did not wait would let the next one run beside those before it.
//   * In front of the wait, only memory may be read that no kernel ever writes: weights, and
//     nothing of a step's inputs, which kernels complete. Nothing may be written.
// The emulator ends the process where a kernel breaks one of them.
__device__ inline void WaitForPrevious() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ---- Launch ----

// Whether what a GPU of this compute capability (90 is 9.0) runs of these files has waits.
constexpr bool HasWaits(int compute_capability) {
  return HasWaits({__CUDA_ARCH_LIST__}, compute_capability);
}

// What a launch does on the host is compiled once for each file, instead of for each kernel. It is
// hidden: a kernel is known to the copy of the CUDA runtime in its own library or program alone, so
// that another's function could not launch it.
#define MLC_CUDA_HOST [[gnu::noinline, gnu::visibility("hidden")]] inline

// Of the current device: 90 is 9.0.
MLC_CUDA_HOST int ComputeCapability() {
  int device = 0;
  int major = 0;
  int minor = 0;
  CheckCuda(cudaGetDevice(&device), "current device");
  CheckCuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
            "compute capability");
  CheckCuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
            "compute capability");
  return 10 * major + minor;
}

// Whether the current device has clusters, and what it runs of these files uses them.
MLC_CUDA_HOST bool HasClusters() { return HasWaits(ComputeCapability()); }

inline bool LacksClusters() { return !HasClusters(); }

// The number of multiprocessors of the current device.
MLC_CUDA_HOST int NumMultiprocessors() {
  int device = 0;
  int count = 0;
  CheckCuda(cudaGetDevice(&device), "current device");
  CheckCuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
            "number of multiprocessors");
  return count;
}

// The shared memory that the blocks of a multiprocessor of the current device have together.
MLC_CUDA_HOST size_t SharedBytesOfMultiprocessor() {
  int device = 0;
  int bytes = 0;
  CheckCuda(cudaGetDevice(&device), "current device");
  CheckCuda(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device),
            "shared memory of a multiprocessor");
  return static_cast<size_t>(bytes);
}

// What every supported GPU lets a block have (compute capability 8.6, 8.9 and 12.0 no more).
inline constexpr size_t kMostSharedBytes = 99 * 1024;
// What those of compute capability 9.0 do.
inline constexpr size_t kMostSharedBytesOf90 = 227 * 1024;

struct LaunchShape {
  dim3 grid;
  unsigned threads;
  size_t shared_bytes = 0;  // dynamic, at most kMostSharedBytes, or with is_of_90 that
  bool is_of_90 = false;    // a kernel for compute capability 9.0 alone
  unsigned cluster = 1;     // blocks along x that form a cluster; more than 1: HasClusters()
};

// `args`: the address of the kernel's argument.
MLC_CUDA_HOST void LaunchKernel(const void* kernel, const LaunchShape& shape, Stream stream,
                                const void* args) {
  constexpr size_t kAlwaysThere = 48 * 1024;
  if (shape.shared_bytes > kAlwaysThere) {
    CheckCuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(shape.shared_bytes)),
              "shared memory of a kernel");
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream.handle();
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (HasWaits(stream.dependent_capability())) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = shape.cluster;
    cluster.val.clusterDim.y = 1;
    cluster.val.clusterDim.z = 1;
  }
  void* all_args[] = {const_cast<void*>(args)};  // which are only read
  CheckCuda(cudaLaunchKernelExC(&config, kernel, all_args), "launch of a kernel");
}

template <typename Args>
void Launch(void (*kernel)(Args), const LaunchShape& shape, Stream stream, const Args& args) {
  LaunchKernel(reinterpret_cast<const void*>(kernel), shape, stream, &args);
}

}  // namespace mlc_native::kernels::cuda
