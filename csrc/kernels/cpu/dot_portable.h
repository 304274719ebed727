// Dot products in plain C++. dot_avx2.h describes the interface.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "kernels/cpu/dot_input.h"
#include "kernels/cpu/vec_portable.h"
// Requires Vec of the file above.
#include "kernels/cpu/dot_bf16_as_float.inl"

namespace mlc_native::kernels {
namespace {

constexpr int kQuantTileRows = 1;
using BFloat16Dot = FloatDot;

struct IntVec {
  int32_t v[Vec::kLanes];

  static IntVec Set(int32_t x) {
    IntVec r;
    for (int32_t& lane : r.v) lane = x;
    return r;
  }
};
inline Vec ToFloat(IntVec a) {
  return Lanewise([&](int i) { return static_cast<float>(a.v[i]); });
}
inline Vec BitsAsFloat(IntVec a) {
  return Lanewise([&](int i) { return std::bit_cast<float>(a.v[i]); });
}

// Every lane of x holds the same four signed bytes; the four codes of a lane are in `codes`.
struct PlainQuad {
  uint8_t codes[Vec::kLanes][4];
};
inline IntVec AddQuads(IntVec sum, const PlainQuad& w, IntVec x) {
  const auto inputs = std::bit_cast<std::array<int8_t, 4>>(x.v[0]);
  for (int i = 0; i < Vec::kLanes; ++i) {
    for (int j = 0; j < 4; ++j) sum.v[i] += w.codes[i][j] * inputs[j];
  }
  return sum;
}

struct Q8Codes {
  static constexpr int kQuads = 1;
  static constexpr int kOffset = 128;
  using Quad = PlainQuad;
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) { std::memcpy(w, p, sizeof(w)); }
  static IntVec Dot(IntVec sum, const Quad& w, IntVec x) { return AddQuads(sum, w, x); }
};

struct Q4Codes {
  static constexpr int kQuads = 2;
  static constexpr int kOffset = 8;
  using Quad = PlainQuad;
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) {
    for (int i = 0; i < Vec::kLanes * 4; ++i) {
      w[0].codes[i / 4][i % 4] = p[i] & 15;
      w[1].codes[i / 4][i % 4] = p[i] >> 4;
    }
  }
  static IntVec Dot(IntVec sum, const Quad& w, IntVec x) { return AddQuads(sum, w, x); }
};

struct Q6Codes {
  static constexpr int kChunks = kQ6Chunks;
  static constexpr int kQuads = kChunks + 1;
  static constexpr int kOffset = 32;
  using Quad = PlainQuad;
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) {
    for (int i = 0; i < Vec::kLanes * 4; ++i) {
      int last = 0;
      for (int c = 0; c < kChunks; ++c) {
        const uint8_t byte = p[c * kNextChunk<Vec::kLanes> + i];
        w[c].codes[i / 4][i % 4] = byte & 63;
        last |= byte >> 6 << 2 * c;
      }
      w[kChunks].codes[i / 4][i % 4] = static_cast<uint8_t>(last);
    }
  }
  static IntVec Dot(IntVec sum, const Quad& w, IntVec x) { return AddQuads(sum, w, x); }
};

struct Q2Codes {
  static constexpr int kQuads = 4;
  static constexpr int kOffset = 2;
  using Quad = PlainQuad;
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) {
    for (int i = 0; i < Vec::kLanes * 4; ++i) {
      for (int q = 0; q < kQuads; ++q) w[q].codes[i / 4][i % 4] = p[i] >> 2 * q & 3;
    }
  }
  static IntVec Dot(IntVec sum, const Quad& w, IntVec x) { return AddQuads(sum, w, x); }
};

template <const ByteTable& kTable>
struct TableCodes : Q4Codes {
  static constexpr int kOffset = kTable.offset;
  static void Load(const uint8_t* p, Quad (&w)[kQuads]) {
    Q4Codes::Load(p, w);
    for (Quad& quad : w) {
      for (auto& column : quad.codes) {
        for (uint8_t& code : column) code = kTable.bytes[code];
      }
    }
  }
};

template <typename Scale, int kGroup>
inline void QuantizeInputs(const float* x, int offset, QuantInput<kGroup>* out) {
  uint32_t bits = 0;  // bits of absolute values, ordered like integers, NaN last
  for (int i = 0; i < kGroup; ++i) {
    bits = std::max(bits, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  }
  const Scale scale(std::bit_cast<float>(bits));
  out->factor = scale.Factor();
  out->start = scale.Start();
  for (int i = 0; i < kGroup; ++i) {
    // Adding and subtracting 1.5 * 2^23 rounds to nearest even.
    const float code = (x[i] * scale.inverse + 12582912.0f) - 12582912.0f;
    out->codes[i] = static_cast<int8_t>(scale.inverse != 0 ? code : 0);
    out->start -= offset * out->codes[i];
  }
}

}  // namespace
}  // namespace mlc_native::kernels
