// kernels/cuda/runtime.h, on a GPU or the emulator: order on streams, graphs, what fails and how.
#include "kernels/cuda/runtime.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

#include "cuda/device_memory.h"
#include "kernels/cuda/kernels.h"

namespace mlc_native::kernels::cuda {
namespace {

constexpr int64_t kCount = 64;

// x = tanh(x): something whose second run shows.
void PutWork(const DeviceArray<float>& x, Stream stream) { SoftCap(x.data(), kCount, 1, stream); }

std::vector<float> Numbers() {
  std::vector<float> x(kCount);
  std::iota(x.begin(), x.end(), 1.0f);
  return x;
}

float Tanh(float x, int times) {
  for (int i = 0; i < times; ++i) x = std::tanh(x);
  return x;
}

void ExpectTanh(const std::vector<float>& got, int times) {
  const std::vector<float> start = Numbers();
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], Tanh(start[i], times), 1e-6) << i;
}

template <typename T>
T* As(const PinnedMemory& memory) {
  return reinterpret_cast<T*>(memory.data());
}

TEST(CudaRuntime, TellsOfItsDevices) {
  ASSERT_GE(DeviceCount(), 1);
  const DeviceInfo info = GetDeviceInfo(0);
  EXPECT_FALSE(info.name.empty());
  EXPECT_GE(info.compute_capability, 80);
  EXPECT_GT(info.num_multiprocessors, 0);
  EXPECT_GT(info.free_bytes, 0);
  EXPECT_GE(info.total_bytes, info.free_bytes);
  EXPECT_THROW(UseDevice(DeviceCount()), DeviceError);
  EXPECT_THROW(GetDeviceInfo(-1), DeviceError);
}

TEST(CudaRuntime, MemoryThatIsFreedCanBeHadAgain) {
  constexpr size_t kBytes = 32 << 20;
  UseDevice(0);  // another test may have used the second one
  const int64_t before = GetDeviceInfo(0).free_bytes;
  std::optional<DeviceMemory> memory(kBytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % 16, 0u);
  EXPECT_LE(GetDeviceInfo(0).free_bytes, before - static_cast<int64_t>(kBytes));
  const DeviceMemory moved = std::move(*memory);
  memory.reset();
  EXPECT_EQ(moved.size(), kBytes);
  {
    const DeviceMemory gone(kBytes);
  }
  EXPECT_LE(GetDeviceInfo(0).free_bytes, before - static_cast<int64_t>(kBytes));
}

TEST(CudaRuntime, TooLargeAnAllocationIsAnErrorOfItsOwn) {
  const auto too_large = static_cast<size_t>(GetDeviceInfo(0).total_bytes) + 1;
  EXPECT_THROW(DeviceMemory{too_large}, OutOfDeviceMemory);
  const DeviceArray<float> x(Numbers());  // nothing else has happened
  OwnedStream stream;
  PutWork(x, stream.get());
  stream.Synchronize();
  ExpectTanh(x.Download(), 1);
}

TEST(CudaRuntime, WorkOfAStreamRunsInOrder) {
  OwnedStream stream;
  DeviceArray<float> x(kCount);
  const PinnedMemory in(x.bytes()), out(x.bytes());
  std::memcpy(in.data(), Numbers().data(), x.bytes());
  CopyToDevice(x.data(), in.data(), x.bytes(), stream.get());
  PutWork(x, stream.get());
  PutWork(x, stream.get());
  CopyToHost(out.data(), x.data(), x.bytes(), stream.get());
  SetToZero(x.data(), x.bytes() / 2, stream.get());
  stream.Synchronize();
  ExpectTanh({As<float>(out), As<float>(out) + kCount}, 2);
  EXPECT_EQ(x.Download()[kCount / 2 - 1], 0.0f);
  EXPECT_NEAR(x.Download()[kCount / 2], Tanh(kCount / 2 + 1, 2), 1e-6);
}

TEST(CudaRuntime, AnEventIsAPlaceInAStream) {
  OwnedStream first, second;
  DeviceArray<float> x(Numbers());
  const PinnedMemory out(x.bytes());
  Event ready, done;
  done.Synchronize();  // never recorded
  PutWork(x, first.get());
  ready.Record(first.get());
  ready.MakeWait(second.get());
  CopyToHost(out.data(), x.data(), x.bytes(), second.get());
  done.Record(second.get());
  done.MakeWait(first.get());
  PutWork(x, first.get());
  done.Synchronize();
  ExpectTanh({As<float>(out), As<float>(out) + kCount}, 1);
  first.Synchronize();
  ExpectTanh(x.Download(), 2);
}

TEST(CudaRuntime, AGraphRunsWhatWasCapturedOnWhatLiesThereNow) {
  OwnedStream stream;
  DeviceArray<float> x(Numbers());
  const PinnedMemory in(x.bytes()), out(x.bytes());
  const Graph graph = Graph::Capture(stream.get(), [&] {
    CopyToDevice(x.data(), in.data(), x.bytes(), stream.get());
    PutWork(x, stream.get());
    CopyToHost(out.data(), x.data(), x.bytes(), stream.get());
  });
  stream.Synchronize();
  EXPECT_EQ(x.Download(), Numbers());  // nothing has run
  for (const float sign : {1.0f, -1.0f}) {
    for (int64_t i = 0; i < kCount; ++i) As<float>(in)[i] = sign * static_cast<float>(i);
    graph.Launch(stream.get());
    stream.Synchronize();
    for (int64_t i = 0; i < kCount; ++i) {
      ASSERT_NEAR(As<float>(out)[i], std::tanh(sign * static_cast<float>(i)), 1e-6) << i;
    }
  }
}

TEST(CudaRuntime, AFailedCaptureLeavesTheStreamUsable) {
  OwnedStream stream;
  const DeviceArray<float> x(Numbers());
  const auto fail = [&] {
    PutWork(x, stream.get());
    throw std::domain_error("planted");
  };
  EXPECT_THROW(Graph::Capture(stream.get(), fail), std::domain_error);
  EXPECT_THROW(Graph::Capture(stream.get(), [&] { stream.Synchronize(); }), DeviceError);
  EXPECT_FALSE(Graph());
  PutWork(x, stream.get());
  stream.Synchronize();
  ExpectTanh(x.Download(), 1);
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
