#include "support/siphash.h"

#include <bit>
#include <cstring>

namespace mlc_native {
namespace {

static_assert(std::endian::native == std::endian::little);

class SipState {
 public:
  explicit SipState(const std::array<uint64_t, 2>& key)
      : v0_(0x736f6d6570736575 ^ key[0]),
        v1_(0x646f72616e646f6d ^ key[1] ^ 0xee),
        v2_(0x6c7967656e657261 ^ key[0]),
        v3_(0x7465646279746573 ^ key[1]) {}

  void Add(uint64_t word) {
    v3_ ^= word;
    Round();
    Round();
    v0_ ^= word;
  }

  std::array<uint64_t, 2> Finish() {
    v2_ ^= 0xee;
    const uint64_t first = Digest();
    v1_ ^= 0xdd;
    return {first, Digest()};
  }

 private:
  void Round() {
    v0_ += v1_;
    v2_ += v3_;
    v1_ = std::rotl(v1_, 13) ^ v0_;
    v3_ = std::rotl(v3_, 16) ^ v2_;
    v0_ = std::rotl(v0_, 32);
    v2_ += v1_;
    v0_ += v3_;
    v1_ = std::rotl(v1_, 17) ^ v2_;
    v3_ = std::rotl(v3_, 21) ^ v0_;
    v2_ = std::rotl(v2_, 32);
  }
  uint64_t Digest() {
    for (int i = 0; i < 4; ++i) Round();
    return v0_ ^ v1_ ^ v2_ ^ v3_;
  }

  uint64_t v0_, v1_, v2_, v3_;
};

}  // namespace

std::array<uint64_t, 2> SipHash128(std::span<const std::byte> bytes,
                                   const std::array<uint64_t, 2>& key) {
  SipState state(key);
  size_t at = 0;
  for (; at + sizeof(uint64_t) <= bytes.size(); at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof(word));
    state.Add(word);
  }
  uint64_t last = uint64_t{bytes.size()} << 56;
  for (size_t i = at; i < bytes.size(); ++i) {
    last |= std::to_integer<uint64_t>(bytes[i]) << (8 * (i - at));
  }
  state.Add(last);
  return state.Finish();
}

}  // namespace mlc_native
