#include "support/siphash.h"

#include <gtest/gtest.h>

#include <vector>

namespace mlc_native {
namespace {

using Hash = std::array<uint64_t, 2>;

// The authors' vectors: bytes 0, 1, 2, ... with the key 0 to 15.
Hash OfFirstBytes(size_t length) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < length; ++i) bytes.push_back(static_cast<std::byte>(i));
  return SipHash128(bytes, {0x0706050403020100, 0x0f0e0d0c0b0a0908});
}

TEST(SipHash, GivesTheAuthorsVectors) {
  EXPECT_EQ(OfFirstBytes(0), (Hash{0xe6a825ba047f81a3, 0x930255c71472f66d}));
  EXPECT_EQ(OfFirstBytes(1), (Hash{0x44af996bd8c187da, 0x45fc229b11597634}));
}

TEST(SipHash, DependsOnEveryByteAndOnTheLength) {
  std::vector<std::byte> bytes(24);
  const Hash key{1, 2};
  const Hash hash = SipHash128(bytes, key);
  for (std::byte& byte : bytes) {
    byte = std::byte{1};
    EXPECT_NE(SipHash128(bytes, key), hash);
    byte = std::byte{0};
  }
  bytes.push_back(std::byte{0});
  EXPECT_NE(SipHash128(bytes, key), hash);
  bytes.pop_back();
  EXPECT_NE(SipHash128(bytes, {1, 3}), hash);
  EXPECT_EQ(SipHash128(bytes, key), hash);
}

}  // namespace
}  // namespace mlc_native
