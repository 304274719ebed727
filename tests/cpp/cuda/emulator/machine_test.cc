// What the emulated machine (emulator.h) notices: hosts that do not wait, pointers and devices
// mixed up, and what its hooks make fail.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <thread>

#include "cuda/device_memory.h"
#include "cuda/emulator/emulator.h"
#include "kernels/cuda/kernels.h"

namespace mlc_native::kernels::cuda {
namespace {

constexpr int64_t kNumFloats = 8;

void PutWork(float* x, Stream stream) { SoftCap(x, kNumFloats, 1, stream); }

class EmulatedMachineTest : public ::testing::Test {
 protected:
  ~EmulatedMachineTest() override {
    mlc_native_emulated_lose_device(0, -1);
    mlc_native_emulated_allow_graphs(1);
    UseDevice(0);
  }

  static void Fill(const PinnedMemory& memory, float value) {
    std::fill_n(reinterpret_cast<float*>(memory.data()), kNumFloats, value);
  }
  static float First(const PinnedMemory& memory) {
    return *reinterpret_cast<const float*>(memory.data());
  }

  const OwnedStream stream_;
  const DeviceArray<float> x_{std::vector<float>(kNumFloats, 0.5f)};
  const PinnedMemory pinned_{kNumFloats * sizeof(float)};
};

TEST_F(EmulatedMachineTest, AHostThatReadsTooEarlyFindsPoison) {
  Fill(pinned_, 1);
  CopyToHost(pinned_.data(), x_.data(), x_.bytes(), stream_.get());
  EXPECT_TRUE(std::isnan(First(pinned_)));
  stream_.Synchronize();
  EXPECT_EQ(First(pinned_), 0.5f);
}

TEST_F(EmulatedMachineTest, AHostThatWritesTooEarlySendsWhatItWrote) {
  Fill(pinned_, 1);
  CopyToDevice(x_.data(), pinned_.data(), x_.bytes(), stream_.get());
  Fill(pinned_, 2);
  stream_.Synchronize();
  EXPECT_EQ(x_.Download()[0], 2);
}

TEST_F(EmulatedMachineTest, WhatIsNotPinnedIsReadAtOnceAndArrivesInItsTurn) {
  std::vector<float> host(kNumFloats, 1.0f);
  CopyToDevice(x_.data(), host.data(), x_.bytes(), stream_.get());
  host.assign(host.size(), 2.0f);
  const OwnedStream other;
  CopyToHost(pinned_.data(), x_.data(), x_.bytes(), other.get());
  other.Synchronize();
  EXPECT_EQ(First(pinned_), 0.5f);
  stream_.Synchronize();
  EXPECT_EQ(x_.Download()[0], 1.0f);
}

TEST_F(EmulatedMachineTest, AGraphPoisonsWhatItWillCopyTo) {
  const Graph graph = Graph::Capture(
      stream_.get(), [&] { CopyToHost(pinned_.data(), x_.data(), x_.bytes(), stream_.get()); });
  Fill(pinned_, 1);
  graph.Launch(stream_.get());
  EXPECT_TRUE(std::isnan(First(pinned_)));
}

TEST_F(EmulatedMachineTest, PointersOfTheHostAreNoArguments) {
  std::vector<float> host(kNumFloats);
  float on_stack[kNumFloats] = {};
  EXPECT_THROW(PutWork(host.data(), stream_.get()), DeviceError);
  EXPECT_THROW(PutWork(on_stack, stream_.get()), DeviceError);
  EXPECT_THROW(PutWork(reinterpret_cast<float*>(pinned_.data()), stream_.get()), DeviceError);
  EXPECT_THROW(SetToZero(host.data(), 4, stream_.get()), DeviceError);
  EXPECT_THROW(CopyToHost(pinned_.data(), host.data(), 4, stream_.get()), DeviceError);
}

TEST_F(EmulatedMachineTest, DevicesAreKeptApart) {
  EXPECT_EQ(DeviceCount(), emulator::kNumDevices);
  UseDevice(1);
  EXPECT_THROW(PutWork(x_.data(), stream_.get()), DeviceError);
  const OwnedStream other;
  EXPECT_THROW(CopyToHost(pinned_.data(), x_.data(), x_.bytes(), other.get()), DeviceError);
  EXPECT_THROW(PutWork(x_.data(), other.get()), DeviceError) << "memory of device 0";
  const DeviceMemory memory(4096);
  EXPECT_EQ(mlc_native_emulated_used_memory(1), 4096);
}

// Work of device 0 waits for work of device 1, which another thread runs meanwhile, or which it
// runs itself.
TEST_F(EmulatedMachineTest, StreamsOfTwoDevicesMeet) {
  for (const bool has_thread : {true, false}) {
    UseDevice(1);
    const OwnedStream other;
    bool is_there = false;
    emulator::WorkPlace place;
    emulator::PutLaunch(
        other.get().handle(), [&] { is_there = true; },
        [&](const emulator::WorkPlace& at) { place = at; });
    UseDevice(0);
    bool has_met = false;
    emulator::PutLaunch(stream_.get().handle(), [&] {
      if (!has_thread) emulator::RunUpTo(place);
      has_met = emulator::WaitUntil([&] { return is_there; }, std::chrono::seconds(20));
    });
    EXPECT_FALSE(is_there);
    std::thread thread;
    if (has_thread) {
      thread = std::thread([&] {
        UseDevice(1);
        other.Synchronize();
      });
    }
    stream_.Synchronize();
    if (has_thread) thread.join();
    EXPECT_TRUE(has_met);
    PutWork(x_.data(), stream_.get());  // the thread still uses device 0
  }
}

TEST_F(EmulatedMachineTest, AWaitForWhatNeverComesEnds) {
  bool has_met = true;
  emulator::PutLaunch(stream_.get().handle(), [&] {
    has_met = emulator::WaitUntil([] { return false; }, std::chrono::seconds(0));
  });
  stream_.Synchronize();
  EXPECT_FALSE(has_met);
}

TEST_F(EmulatedMachineTest, ALostDeviceFailsEveryCall) {
  mlc_native_emulated_lose_device(0, 2);
  PutWork(x_.data(), stream_.get());
  EXPECT_THROW(PutWork(x_.data(), stream_.get()), DeviceError);
  EXPECT_THROW(stream_.Synchronize(), DeviceError);
  EXPECT_THROW(DeviceMemory{16}, DeviceError);
  EXPECT_THROW(GetDeviceInfo(0), DeviceError);
  mlc_native_emulated_lose_device(0, -1);
  PutWork(x_.data(), stream_.get());
  stream_.Synchronize();
}

TEST_F(EmulatedMachineTest, GraphsCanFail) {
  mlc_native_emulated_allow_graphs(0);
  const auto work = [&] { PutWork(x_.data(), stream_.get()); };
  EXPECT_THROW(Graph::Capture(stream_.get(), work), DeviceError);
  PutWork(x_.data(), stream_.get());
  stream_.Synchronize();
  EXPECT_NE(x_.Download()[0], 0.5f);
}

TEST_F(EmulatedMachineTest, MemoryIsAsMuchAsATestSays) {
  const int64_t before = GetDeviceInfo(0).total_bytes;
  mlc_native_emulated_set_memory(mlc_native_emulated_used_memory(0) + 100);
  EXPECT_THROW(DeviceMemory{101}, OutOfDeviceMemory);
  {
    const DeviceMemory fits(100);
  }
  mlc_native_emulated_set_memory(before);
}

TEST_F(EmulatedMachineTest, CountsWhatIsDone) {
  const auto launches = mlc_native_emulated_counter(MLC_NATIVE_EMULATED_LAUNCHES);
  const auto waits = mlc_native_emulated_counter(MLC_NATIVE_EMULATED_WAITS);
  const Graph graph = Graph::Capture(stream_.get(), [&] { PutWork(x_.data(), stream_.get()); });
  graph.Launch(stream_.get());
  graph.Launch(stream_.get());
  stream_.Synchronize();
  EXPECT_EQ(mlc_native_emulated_counter(MLC_NATIVE_EMULATED_LAUNCHES), launches + 2);
  EXPECT_EQ(mlc_native_emulated_counter(MLC_NATIVE_EMULATED_WAITS), waits + 1);
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
