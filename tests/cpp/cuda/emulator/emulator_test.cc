// What the emulator promises (fibers.h, the emulated device.cuh): that it computes what the
// hardware does, and that it notices what would go wrong there.
#include <cmath>
#include <cstring>
#include <numeric>

#include "cuda/test_util.h"
#include "kernels/cuda/gemv_formats.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/warpgroup.cuh"

namespace mlc_native::kernels::cuda {
namespace {

class EmulatorTest : public CudaKernelTest {};

struct Arrays {
  float* out;
  const float* in;
};

// ---- Threads ----

void ReverseKernel(const Arrays args) {
  WaitForPrevious();
  auto* shared = static_cast<float*>(DynamicShared());
  shared[threadIdx.x] = args.in[threadIdx.x];
  __syncthreads();
  args.out[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

void RacyReverseKernel(const Arrays args) {
  WaitForPrevious();
  auto* shared = static_cast<float*>(DynamicShared());
  shared[threadIdx.x] = args.in[threadIdx.x];
  args.out[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

TEST_F(EmulatorTest, AMissingBarrierShows) {
  const Floats in = Random(DType::kFloat32, 64);
  const Floats want(in.rbegin(), in.rend());
  DeviceArray<float> device_in(in), out(64);
  const LaunchShape shape{.grid = dim3(1), .threads = 64, .shared_bytes = 64 * sizeof(float)};
  Launch(ReverseKernel, shape, nullptr, {out.data(), device_in.data()});
  EXPECT_EQ(out.Download(), want);
  Launch(RacyReverseKernel, shape, nullptr, {out.data(), device_in.data()});
  EXPECT_NE(out.Download(), want);
}

void BlockSumKernel(const Arrays args) {
  WaitForPrevious();
  __shared__ float shared[8];
  const float sum = ReduceBlock(args.in[threadIdx.x], Plus(), shared);
  args.out[blockIdx.x * blockDim.x + threadIdx.x] = sum + static_cast<float>(blockIdx.x);
}

TEST_F(EmulatorTest, AllThreadsOfABlockGetItsSum) {
  const Floats in = Random(DType::kFloat32, 160);
  const double sum = std::accumulate(in.begin(), in.end(), 0.0);
  DeviceArray<float> device_in(in), out(320);
  Launch(BlockSumKernel, {.grid = dim3(2), .threads = 160}, nullptr,
         {out.data(), device_in.data()});
  const Floats got = out.Download();
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], sum + i / 160, 1e-4) << i;
}

template <typename Args>
void LaunchAndWait(void (*kernel)(Args), unsigned threads, const Args& args) {
  OwnedStream stream;
  Launch(kernel, {.grid = dim3(1), .threads = threads, .shared_bytes = 16}, stream.get(), args);
  stream.Synchronize();
}

void LostThreadKernel(const Arrays) {
  WaitForPrevious();
  if (threadIdx.x == 3) return;
  __syncthreads();
}
void LostArrivalKernel(const Arrays) {
  WaitForPrevious();
  auto& barrier = *static_cast<ArrivalBarrier*>(DynamicShared());
  if (threadIdx.x == 0) barrier.Init(2);
  __syncthreads();
  if (threadIdx.x == 0) barrier.Arrive();
  barrier.Await(0);
}
void PastTheEndKernel(const Arrays args) {
  WaitForPrevious();
  args.out[threadIdx.x] = 0;
}

TEST_F(EmulatorTest, DiesOfWhatTheHardwareWouldNotForgive) {
  DeviceArray<float> out(32);
  EXPECT_DEATH(LaunchAndWait(LostThreadKernel, 32, Arrays{}), "barrier that not all threads reach");
  EXPECT_DEATH(LaunchAndWait(LostArrivalKernel, 32, Arrays{}), "waits for what never happens");
  EXPECT_DEATH(LaunchAndWait(PastTheEndKernel, 64, Arrays{out.data(), nullptr}), "");
}

// ---- Kernels that follow one another ----

// out[i] = 2 in[i], in a block of 32 threads; what is done too early shall be noticed.
enum class Fault { kNone, kEarlyRead, kEarlyCopy, kEarlyWrite, kNoWait };
struct DoubleArgs {
  float* out;
  const float* in;
  Fault fault;
};

void DoubleKernel(const DoubleArgs args) {
  auto* shared = static_cast<float*>(DynamicShared());
  const unsigned i = threadIdx.x;
  if (args.fault == Fault::kNoWait && i == 7) return;
  float x = 0;
  if (args.fault == Fault::kEarlyRead) x = args.in[i];
  if (args.fault == Fault::kEarlyCopy && i % 4 == 0) CopyAsync16(shared + i, args.in + i, true);
  if (args.fault == Fault::kEarlyWrite) args.out[i] = 0;
  WaitForPrevious();
  if (args.fault != Fault::kEarlyRead) x = args.in[i];
  args.out[i] = 2 * x;
}

// Doubles `in` into `middle`, something else, and then, with the fault, `middle` into `out`.
Floats DoubleTwice(const Floats& in, Fault fault, bool last_reads_in = false) {
  const OwnedStream stream;
  const DeviceArray<float> device_in(in), middle(32), other(32), out(32);
  const LaunchShape shape{.grid = dim3(1), .threads = 32, .shared_bytes = 32 * sizeof(float)};
  const auto run = [&](const DeviceArray<float>& to, const DeviceArray<float>& from, Fault f) {
    Launch(DoubleKernel, shape, stream.get(), DoubleArgs{to.data(), from.data(), f});
  };
  run(middle, device_in, Fault::kNone);
  run(other, device_in, Fault::kNone);
  run(out, last_reads_in ? device_in : middle, fault);
  stream.Synchronize();
  return out.Download();
}

TEST_F(EmulatorTest, AKernelThatDoesNotWaitForThePreviousOnesDies) {
  const Floats in = Random(DType::kFloat32, 32);
  EXPECT_EQ(DoubleTwice(in, Fault::kNone)[5], 4 * in[5]);
  EXPECT_DEATH(DoubleTwice(in, Fault::kEarlyRead), "uses what kernels write before it waits");
  EXPECT_DEATH(DoubleTwice(in, Fault::kEarlyCopy), "uses what kernels write before it waits");
  EXPECT_DEATH(DoubleTwice(in, Fault::kEarlyWrite), "writes before it waits");
  EXPECT_DEATH(DoubleTwice(in, Fault::kNoWait), "does not wait for the previous launch");
  // What no kernel writes may be read early.
  EXPECT_EQ(DoubleTwice(in, Fault::kEarlyRead, true)[5], 2 * in[5]);
}

// ---- Copies ----

struct CopyArgs {
  float* out;
  const float* in;
  bool waits;
};

void CopyKernel(const CopyArgs args) {
  WaitForPrevious();
  auto* shared = static_cast<float*>(DynamicShared());
  const int at = static_cast<int>(threadIdx.x) * 4;
  CopyAsync16(shared + at, args.in + at, threadIdx.x != 1);
  CommitCopies();
  if (args.waits) WaitForCopies<0>();
  for (int i = at; i < at + 4; ++i) args.out[i] = shared[i];
}

TEST_F(EmulatorTest, CopiesArriveAsLateOrAsEarlyAsTheyMay) {
  const Floats in = Random(DType::kFloat32, 128);
  DeviceArray<float> device_in(in), out(128);
  const LaunchShape shape{.grid = dim3(1), .threads = 32, .shared_bytes = 128 * sizeof(float)};
  Launch(CopyKernel, shape, nullptr, {out.data(), device_in.data(), true});
  Floats want = in;
  std::fill_n(want.begin() + 4, 4, 0.0f);
  EXPECT_EQ(out.Download(), want);
  Launch(CopyKernel, shape, nullptr, {out.data(), device_in.data(), false});
  for (float x : out.Download()) EXPECT_TRUE(std::isnan(x));
  LaunchShape two_blocks = shape;  // the second one's arrive at once
  two_blocks.grid = dim3(2);
  Launch(CopyKernel, two_blocks, nullptr, {out.data(), device_in.data(), false});
  EXPECT_EQ(out.Download(), want);
}

// Copies 16 bytes and loads 16, from a place in global memory and by way of one in shared memory.
struct PlaceArgs {
  const float* in;
  int from;
  int to;
  bool loads;
};

void PlaceKernel(const PlaceArgs args) {
  WaitForPrevious();
  if (args.loads) LoadStreamed(args.in + args.from);
  CopyAsync16(static_cast<float*>(DynamicShared()) + args.to, args.in + args.from, true);
}

TEST_F(EmulatorTest, DiesOfAddressesThatAreNotAligned) {
  const DeviceArray<float> in(32);
  const auto run = [&](int from, int to, bool loads) {
    const OwnedStream stream;
    Launch(PlaceKernel, {.grid = dim3(1), .threads = 32, .shared_bytes = 64}, stream.get(),
           PlaceArgs{in.data(), from, to, loads});
    stream.Synchronize();
  };
  run(4, 8, true);
  EXPECT_DEATH(run(2, 8, true), "an address that is not aligned");
  EXPECT_DEATH(run(2, 8, false), "an address that is not aligned");
  EXPECT_DEATH(run(4, 6, false), "an address that is not aligned");
}

// ---- Tensor cores ----

struct TransposeArgs {
  const uint32_t* in;
  uint32_t* out;
};

void TransposeKernel(const TransposeArgs args) {
  WaitForPrevious();
  args.out[threadIdx.x] = TransposeMatrix(args.in[threadIdx.x]);
}

TEST_F(EmulatorTest, TransposesMatrices) {
  std::vector<uint32_t> in(32), want(32);
  for (unsigned row = 0; row < 8; ++row) {
    for (unsigned column = 0; column < 8; ++column) {
      const auto put = [](std::vector<uint32_t>& to, unsigned r, unsigned c, uint32_t value) {
        to[4 * r + c / 2] |= value << (c % 2 * 16);
      };
      put(in, row, column, 8 * row + column);
      put(want, column, row, 8 * row + column);
    }
  }
  const DeviceArray<uint32_t> device_in(in), out(32);
  Launch(TransposeKernel, {.grid = dim3(1), .threads = 32}, nullptr,
         TransposeArgs{device_in.data(), out.data()});
  EXPECT_EQ(out.Download(), want);
}

// c = a b through shared memory: a [16, 16], b [16, 8] row-major, 16-bit elements.
template <typename T>
struct ProductArgs {
  const T* a;
  const T* b;
  float* c;
};

template <typename T>
void ProductKernel(const ProductArgs<T> args) {
  WaitForPrevious();
  auto* shared = static_cast<T*>(DynamicShared());
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 256; i += kWarp) shared[i] = args.a[i];
  for (int i = lane; i < 128; i += kWarp) shared[256 + i] = args.b[i];
  __syncthreads();
  const int matrix = lane / 8;
  const int row = lane % 8;
  uint32_t a[4], b[4];
  LoadMatrices(a, shared + (matrix % 2 * 8 + row) * 16 + matrix / 2 * 8);
  LoadMatricesTransposed(b, shared + 256 + (matrix % 2 * 8 + row) * 8);
  float c[4] = {};
  Mma<T>(c, a, b[0], b[1]);
  for (int i = 0; i < 4; ++i) {
    args.c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = c[i];
  }
}

TEST_F(EmulatorTest, MultipliesMatrices) {
  const auto check = [&]<typename T>(DType dtype, T) {
    const Floats a = Random(dtype, 256);
    const Floats b = Random(dtype, 128);
    DeviceBytes device_a(Encode(dtype, a)), device_b(Encode(dtype, b));
    DeviceArray<float> c(128);
    const ProductArgs<T> args{reinterpret_cast<const T*>(device_a.data()),
                              reinterpret_cast<const T*>(device_b.data()), c.data()};
    Launch(ProductKernel<T>, {.grid = dim3(1), .threads = 32, .shared_bytes = 768}, nullptr, args);
    reference::Matrix transposed(128);
    for (int i = 0; i < 128; ++i) transposed[i % 8 * 16 + i / 8] = b[i];
    ExpectClose(c.Download(), reference::Linear(ToDouble(a), transposed, {}, 16), 1e-6);
  };
  check(DType::kBFloat16, BFloat16());
  check(DType::kFloat16, Float16());
}

// ---- Numbers ----

TEST_F(EmulatorTest, EightBitsBecomeSixteenByMovingThem) {
  const auto check = [](DType dtype, auto tag, float factor) {
    const auto pair_of = [](uint32_t bytes) { return ShrunkFloat8<decltype(tag)>::Pair(bytes); };
    for (uint32_t bits = 0; bits < 256; ++bits) {
      const float value = Float8Value(static_cast<uint8_t>(bits));
      if (std::isnan(value)) continue;
      const uint32_t pair = pair_of(bits << 8 | (bits ^ 0x80) << 24 | 0x00a5005a);
      std::vector<uint8_t> bytes(sizeof pair);
      std::memcpy(bytes.data(), &pair, sizeof pair);
      const Floats got = Decode(dtype, bytes);
      EXPECT_EQ(got[0] * factor, value);
      EXPECT_EQ(got[1] * factor, -value);
    }
  };
  using Of16 = ShrunkFloat8<BFloat16>;
  check(DType::kBFloat16, BFloat16(), Of16::kOfKeys * Of16::kOfScores);
  check(DType::kFloat16, Float16(), ShrunkFloat8<Float16>::kOfScores);
}

TEST_F(EmulatorTest, RoundsToEightBits) {
  for (int bits = 0; bits < 256; ++bits) {
    const float value = Float8Value(static_cast<uint8_t>(bits));
    if (std::isnan(value)) continue;
    EXPECT_EQ(Float8BitsToFloat(static_cast<uint8_t>(bits)), value);
    EXPECT_EQ(Float8ByBits(static_cast<uint8_t>(bits)), value);
    EXPECT_EQ(std::signbit(Float8ByBits(static_cast<uint8_t>(bits))), bits >= 128);
    EXPECT_EQ(FloatToFloat8Bits(value), bits);
    EXPECT_EQ(FloatToFloat8Bits(value * 1.01f), FloatToFloat8Bits(value)) << value;
  }
  EXPECT_EQ(Float8BitsToFloat(FloatToFloat8Bits(1e6f)), 448.0f);
  EXPECT_EQ(Float8BitsToFloat(FloatToFloat8Bits(17.0f)), 16.0f);  // halfway, to even
  EXPECT_EQ(Float8BitsToFloat(FloatToFloat8Bits(19.0f)), 20.0f);
}

// All numbers of E4M3, at all places.
TEST_F(EmulatorTest, NumbersOfEightBitsAreThoseOfSixteen) {
  for (uint32_t first = 0; first < 256; ++first) {
    for (uint32_t second = 0; second < 256; ++second) {
      const float low = Float8Value(static_cast<uint8_t>(first));
      const float high = Float8Value(static_cast<uint8_t>(second));
      if (std::isnan(low) || std::isnan(high)) continue;
      for (const int byte : {0, 2}) {
        const uint32_t others = byte == 0 ? 0xffff0000u : 0xffffu;
        const uint32_t word = others | (first | second << 8) << (8 * byte);
        ASSERT_EQ(Float8Format<BFloat16>::Pair(word, byte), Pack<BFloat16>(low, high)) << word;
      }
    }
  }
}

TEST_F(EmulatorTest, PicksBytes) {
  EXPECT_EQ(__byte_perm(0x33221100u, 0x77665544u, 0x7654u), 0x77665544u);
  EXPECT_EQ(__byte_perm(0x33221100u, 0x77665544u, 0x4103u), 0x44110033u);
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
