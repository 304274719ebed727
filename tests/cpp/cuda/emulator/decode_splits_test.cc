// How the keys of decode rows are divided (decode_items.cuh).
#include <numeric>

#include "cuda/test_util.h"
#include "kernels/cuda/decode_items.cuh"

namespace mlc_native::kernels::cuda {
namespace {

class DecodeSplitsTest : public CudaKernelTest {
 protected:
  static std::vector<DecodeSplit> List(const std::vector<int32_t>& lengths,
                                       const std::vector<int32_t>& tables, int64_t window) {
    const DeviceArray<int32_t> device_lengths(lengths);
    const DeviceArray<int32_t> device_tables(tables);
    int64_t max_splits = 0;
    for (const int32_t length : lengths) max_splits += MaxDecodeSplits(length);
    const DeviceArray<DecodeSplit> memory(DecodeSplitsBytes(max_splits) / sizeof(DecodeSplit));
    ListSplits({.lengths = device_lengths.data(),
                .tables = device_tables.data(),
                .m = std::ssize(lengths),
                .max_splits = max_splits,
                .splits = memory.data()},
               window, nullptr);
    std::vector<DecodeSplit> all = memory.Download();
    // The number of splits, the first one of each row, and their number again.
    std::vector<int32_t> head(lengths.size() + 2);
    std::memcpy(head.data(), all.data(), head.size() * sizeof(int32_t));
    all.erase(all.begin(), all.begin() + kSplitsHeadBytes / sizeof(DecodeSplit));
    EXPECT_EQ(head.back(), head.front());
    all.resize(static_cast<size_t>(head.front()));
    for (int32_t row = 0; row < std::ssize(lengths); ++row) {
      const auto first = std::ranges::find_if(all, [&](const auto& s) { return s.row >= row; });
      EXPECT_EQ(head[row + 1], first - all.begin()) << row;
    }
    return all;
  }

  // The splits of each row cover its keys from the page of the first visible one on, in order.
  static void Check(const std::vector<int32_t>& lengths, int64_t window) {
    std::vector<int32_t> tables(lengths.size());
    std::iota(tables.rbegin(), tables.rend(), 5);
    const std::vector<DecodeSplit> splits = List(lengths, tables, window);
    size_t at = 0;
    for (size_t row = 0; row < lengths.size(); ++row) {
      const auto first = window > 0 ? std::max<int64_t>(0, lengths[row] - window) : 0;
      auto next = static_cast<int32_t>(first / kKvPageSize * kKvPageSize);
      const size_t begin = at;
      while (next < lengths[row]) {
        ASSERT_LT(at, splits.size());
        const DecodeSplit& split = splits[at];
        EXPECT_EQ(split.row, row);
        EXPECT_EQ(split.table, tables[row]);
        EXPECT_EQ(split.begin, next);
        EXPECT_EQ(split.of_row, at - begin);
        EXPECT_EQ(split.skipped, std::max<int64_t>(first - next, 0));
        EXPECT_LE(split.count, kMaxSplit);
        ASSERT_GT(split.count, split.skipped);
        next += split.count;
        ++at;
      }
      EXPECT_EQ(next, std::max(lengths[row], next));
      for (size_t i = begin; i < at; ++i) EXPECT_EQ(splits[i].num_splits, at - begin);
    }
    EXPECT_EQ(at, splits.size());
  }
};

// Also those of shorter rows, which a step may turn out to have.
TEST_F(DecodeSplitsTest, AreAtMostAsManyAsALengthPromises) {
  for (const int32_t length :
       {1, 128, 129, 1024, 1025, 1200, 3071, 3073, 6145, 12288, 12289, 12800, 20000}) {
    for (int32_t shorter = length; shorter > 0; shorter -= 509) {
      for (const int64_t window : {0, 1, 100, 3073, 5000}) {
        const size_t most = static_cast<size_t>(MaxDecodeSplits(length));
        ASSERT_LE(List({shorter}, {0}, window).size(), most) << shorter << ", window " << window;
      }
    }
  }
  EXPECT_EQ(MaxDecodeSplits(0), 0);
  EXPECT_EQ(MaxDecodeSplits(100), 1);
  EXPECT_EQ(MaxDecodeSplits(1000), kShortRow / kMinSplit);
  EXPECT_EQ(MaxDecodeSplits(6500), kTargetSplits);
}

TEST_F(DecodeSplitsTest, GrowWithTheKeys) {
  for (const auto& [length, keys] : {std::pair{2 * kMinSplit, 2 * kMinSplit},
                                     {2 * kMinSplit + 1, kMinSplit},
                                     {kShortRow, kMinSplit},
                                     {kShortRow + 1, 2 * kMinSplit},
                                     {2 * kMinSplit * kTargetSplits, 2 * kMinSplit},
                                     {2 * kMinSplit * kTargetSplits + 1, kMaxSplit}}) {
    EXPECT_EQ(List({length}, {0}, 0).front().count, keys) << length;
  }
}

TEST_F(DecodeSplitsTest, CoverEachVisibleKeyOnce) {
  Check({1}, 0);
  Check({0, 1, 127, 128, 129, 255, 256, 257, 0, 1024, 1025, 3072, 3073, 13000, 0}, 0);
  Check({300, 100, 4000, 16, 17}, 100);
  std::vector<int32_t> many(kMaxDecodeRows);
  for (int32_t& length : many) length = static_cast<int32_t>(RandomInt(0, 700));
  Check(many, 0);
}

}  // namespace
}  // namespace mlc_native::kernels::cuda
