#include "support/hash64.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string_view>
#include <vector>

namespace mlc_native {
namespace {

uint64_t HashOf(std::string_view text, uint64_t seed = 0) {
  return Hash64(std::as_bytes(std::span(text)), seed);
}

// Values of the xxhash package (xxhash.xxh64).
TEST(Hash64, IsXxh64) {
  EXPECT_EQ(HashOf(""), 0xEF46DB3751D8E999u);
  EXPECT_EQ(HashOf("a"), 0xD24EC4F1A98C6E5Bu);
  EXPECT_EQ(HashOf("abc"), 0x44BC2CF5AD770999u);
  EXPECT_EQ(HashOf("Nobody inspects the spammish repetition"), 0xFBCEA83C8A378BF1u);
}

TEST(Hash64, EveryBitAndEveryLengthCounts) {
  std::vector<uint8_t> bytes(100);
  std::iota(bytes.begin(), bytes.end(), 0);
  std::vector<uint64_t> seen;
  for (size_t size = 0; size <= bytes.size(); ++size) {
    seen.push_back(Hash64(std::as_bytes(std::span(bytes).first(size))));
  }
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= 1u << bit % 8;
    seen.push_back(Hash64(std::as_bytes(std::span(bytes))));
    bytes[bit / 8] ^= 1u << bit % 8;
  }
  std::ranges::sort(seen);
  EXPECT_EQ(std::ranges::adjacent_find(seen), seen.end());
}

}  // namespace
}  // namespace mlc_native
