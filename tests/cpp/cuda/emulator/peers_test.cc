// Sums over the devices of the emulated machine, through the fake NCCL.
#include "models/cuda/peers.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "cuda/emulator/emulator.h"
#include "cuda/fake_nccl/fake_nccl.h"
#include "cuda/test_util.h"
#include "models/cuda/rank_threads.h"

namespace mlc_native {
namespace {

using kernels::cuda::Decode;
using kernels::cuda::DeviceBytes;
using kernels::cuda::Encode;
using kernels::cuda::Floats;
using kernels::cuda::kDTypes;
using kernels::cuda::OwnedStream;

class PeersTest : public ::testing::TestWithParam<int> {
 protected:
  PeersTest() { setenv("MLC_NATIVE_NCCL_LIB", FAKE_NCCL, 1); }
  ~PeersTest() override {
    EXPECT_EQ(fake_nccl_num_comms(), 0);
    unsetenv("MLC_NATIVE_NCCL_LIB");
    kernels::cuda::UseDevice(0);
  }

  // Numbers whose sum depends on its order.
  static std::vector<Floats> SomeParts(DType dtype, int64_t size, int64_t count) {
    std::mt19937 random(static_cast<unsigned>(size * 1000 + count));
    std::uniform_real_distribution<float> exponent(-6, 6);
    std::uniform_real_distribution<float> mantissa(-1, 1);
    std::vector<Floats> parts(static_cast<size_t>(size), Floats(static_cast<size_t>(count)));
    for (Floats& part : parts) {
      for (float& x : part) x = std::exp2(exponent(random)) * mantissa(random);
      part = Decode(dtype, Encode(dtype, part));
    }
    return parts;
  }
  // In the order of the ranks, in float32, and rounded once.
  static Floats SumOf(DType dtype, const std::vector<Floats>& parts) {
    Floats sum = parts.front();
    for (size_t rank = 1; rank < parts.size(); ++rank) {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += parts[rank][i];
    }
    return Decode(dtype, Encode(dtype, sum));
  }
  // What each rank has of a sum of their parts.
  static std::vector<Floats> SumOnDevices(DType dtype, const std::vector<Floats>& parts) {
    const auto size = std::ssize(parts);
    std::vector<int> devices(parts.size());
    for (size_t i = 0; i < devices.size(); ++i) devices[i] = static_cast<int>(i);
    Peers peers(devices);
    RankThreads threads(size);
    std::vector<Floats> sums(parts.size());
    threads.Run([&](int64_t rank) {
      const auto i = static_cast<size_t>(rank);
      kernels::cuda::UseDevice(devices[i]);
      const OwnedStream stream;
      const auto count = std::ssize(parts[i]);
      DeviceBytes data(Encode(dtype, parts[i]));
      DeviceBytes memory(static_cast<size_t>(Peers::NumParts(size, count)) * DTypeSize(dtype) + 16);
      peers.Sum(rank, data.data(), count, dtype, memory.data(), stream.get());
      stream.Synchronize();
      sums[i] = Decode(dtype, data.Download());
    });
    return sums;
  }
};

TEST_P(PeersTest, ASumHasTheOrderOfTheRanksForEveryCount) {
  const int64_t size = GetParam();
  const int64_t most_in_whole = (int64_t{1} << 21) / size;  // see peers.cc
  for (const DType dtype : kDTypes) {
    for (const int64_t count : {int64_t{8}, int64_t{80}, int64_t{4096}, most_in_whole / 8 * 8,
                                most_in_whole / 8 * 8 + 8, most_in_whole + 8 * size * 100}) {
      const std::vector<Floats> parts = SomeParts(dtype, size, count / 8 * 8);
      const Floats want = SumOf(dtype, parts);
      for (const Floats& sum : SumOnDevices(dtype, parts)) {
        ASSERT_EQ(sum, want) << count << " elements of " << size << " ranks";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, PeersTest, ::testing::Range(2, emulator::kNumDevices + 1));

}  // namespace
}  // namespace mlc_native
