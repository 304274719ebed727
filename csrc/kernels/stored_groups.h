// How a group of one column of a panel is stored: bytes in the order of its chunks, and a scale.
// Each format of packed_format.h has a struct with a Stored, Encode (from floats), FromCodes (of
// quantized ones) and Decode. Pure; included by packed_weights.cc only.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "kernels/kernels.h"
#include "kernels/packed_format.h"
#include "kernels/quantize.h"
#include "support/float8.h"
#include "support/half.h"

namespace mlc_native::kernels {

// Element types as storage and conversions, so that the loops below need no switches.
struct Float32Codec {
  static constexpr WeightFormat kFormat = WeightFormat::kFloat32;
  using Storage = float;
  static float Decode(float x) { return x; }
  static float Encode(float x) { return x; }
};
struct BFloat16Codec {
  static constexpr WeightFormat kFormat = WeightFormat::kBFloat16;
  using Storage = uint16_t;
  static float Decode(uint16_t x) { return BFloat16ToFloat(x); }
  static uint16_t Encode(float x) { return FloatToBFloat16(x); }
};
struct Float16Codec {
  static constexpr WeightFormat kFormat = WeightFormat::kFloat16;
  using Storage = uint16_t;
  static float Decode(uint16_t x) { return Float16ToFloat(x); }
  static uint16_t Encode(float x) { return FloatToFloat16(x); }
};

// Length of a block of k: the lines of a panel stay in L1 while its rows are written in turn.
inline constexpr int64_t kPackBlock = 256;

// Formats without scales.
template <typename Codec>
struct FloatGroup {
  static constexpr PanelLayout kLayout = LayoutOf(Codec::kFormat);
  struct Stored {
    typename Codec::Storage codes[kLayout.group];
    uint16_t scale;
  };

  // Stores `count` elements as groups. Requires: `out` is zero.
  template <typename From>
  static void Encode(const typename From::Storage* x, int64_t count, Stored* out) {
    for (int64_t k = 0; k < count; k += kLayout.group) {
      Stored& stored = out[k / kLayout.group];
      for (int64_t i = 0; i < std::min(kLayout.group, count - k); ++i) {
        if constexpr (std::is_same_v<From, Codec>) {
          stored.codes[i] = x[k + i];  // the bits are copied
        } else {
          stored.codes[i] = Codec::Encode(From::Decode(x[k + i]));
        }
      }
    }
  }
  static void Decode(const Stored& stored, float* values) {
    for (int64_t i = 0; i < kLayout.group; ++i) values[i] = Codec::Decode(stored.codes[i]);
  }
};

// A group of signed codes; those behind `count` mean zero.
template <int64_t kGroup>
QuantizedGroup<kGroup> GroupOf(const int8_t* codes, int64_t count, int offset, uint16_t scale) {
  QuantizedGroup<kGroup> group;
  group.scale = scale;
  group.codes.fill(static_cast<uint8_t>(offset));
  for (int64_t i = 0; i < count; ++i) group.codes[i] = static_cast<uint8_t>(codes[i] + offset);
  return group;
}

// Stores `count` elements, at most kPackBlock, as groups that quantize(groups of values, out)
// makes.
template <typename Group, typename From, typename Quantize>
void EncodeGroups(const typename From::Storage* x, int64_t count, typename Group::Stored* out,
                  Quantize quantize) {
  constexpr int64_t kGroup = Group::kLayout.group;
  std::array<float, kGroup> values[kPackBlock / kGroup] = {};
  for (int64_t k = 0; k < count; ++k) values[k / kGroup][k % kGroup] = From::Decode(x[k]);
  const auto groups = static_cast<size_t>(Group::kLayout.Groups(count));
  QuantizedGroup<kGroup> quantized[kPackBlock / kGroup];
  quantize(std::span<const std::array<float, kGroup>>(values, groups), quantized);
  for (size_t g = 0; g < groups; ++g) out[g] = Group::Store(quantized[g]);
}

// Codes with a scale.
template <typename Group>
void DecodeScaled(const typename Group::Stored& stored, float* values) {
  int codes[Group::kLayout.group];
  Group::DecodeCodes(stored.codes, codes);
  const float scale = Float16ToFloat(stored.scale);
  for (int64_t i = 0; i < Group::kLayout.group; ++i) {
    values[i] = scale * static_cast<float>(codes[i] - Group::kOffset);
  }
}

template <WeightFormat kFormat>
struct QuantGroup {
  static constexpr PanelLayout kLayout = LayoutOf(kFormat);
  static constexpr bool kQ4 = kLayout.code_bits == 4;
  static constexpr int kOffset = kQ4 ? 8 : 128;
  struct Stored {
    uint8_t codes[kLayout.CodeBytes(1)];
    uint16_t scale;
  };

  // The codes in byte `at` of a column: one for q8, the low and the high one for q4.
  static constexpr int64_t Low(int64_t at) {
    return kQ4 ? at / kLayout.chunk_bytes * 2 * kLayout.chunk_bytes + at % kLayout.chunk_bytes : at;
  }
  static constexpr int64_t High(int64_t at) { return Low(at) + kLayout.chunk_bytes; }

  template <typename From>
  static void Encode(const typename From::Storage* x, int64_t count, Stored* out) {
    EncodeGroups<QuantGroup, From>(x, count, out, [](auto values, auto* quantized) {
      if constexpr (kQ4) {
        QuantizeQ4(values, quantized);
      } else {
        for (size_t g = 0; g < values.size(); ++g) quantized[g] = QuantizeQ8(values[g]);
      }
    });
  }
  static Stored FromCodes(const int8_t* codes, int64_t count, const uint16_t* scale) {
    return Store(GroupOf<kLayout.group>(codes, count, kOffset, *scale));
  }
  static Stored Store(const QuantizedGroup<kLayout.group>& group) {
    Stored stored;
    stored.scale = group.scale;
    if constexpr (kQ4) {
      for (size_t at = 0; at < sizeof(stored.codes); ++at) {
        stored.codes[at] = static_cast<uint8_t>(group.codes[Low(at)] | group.codes[High(at)] << 4);
      }
    } else {
      std::memcpy(stored.codes, group.codes.data(), sizeof(stored.codes));
    }
    return stored;
  }
  static void DecodeCodes(const uint8_t (&stored)[kLayout.CodeBytes(1)], int* codes) {
    for (size_t at = 0; at < sizeof(stored); ++at) {
      codes[Low(at)] = kQ4 ? stored[at] & 15 : stored[at];
      if (kQ4) codes[High(at)] = stored[at] >> 4;
    }
  }
  static void Decode(const Stored& stored, float* values) {
    DecodeScaled<QuantGroup>(stored, values);
  }
};

template <WeightFormat kFormat>
struct Q6Group {
  static constexpr PanelLayout kLayout = LayoutOf(kFormat);
  static constexpr int kOffset = 32;
  static constexpr int64_t kQuad = kLayout.chunk_bytes;
  static constexpr int64_t kQuads = 3;  // of a step, whose codes are in the low bits of the bytes
  static constexpr int64_t kStep = (kQuads + 1) * kQuad;  // k
  struct Stored {
    uint8_t codes[kLayout.CodeBytes(1)];
    uint16_t scale;
  };

  // Of byte `at` of a column: its own code, the code of which it has two bits, and which ones.
  static constexpr int64_t Own(int64_t at) {
    return at / (kQuads * kQuad) * kStep + at % (kQuads * kQuad);
  }
  static constexpr int64_t Shared(int64_t at) {
    return at / (kQuads * kQuad) * kStep + kQuads * kQuad + at % kQuad;
  }
  static constexpr int64_t Bits(int64_t at) { return at / kQuad % kQuads * 2; }

  template <typename From>
  static void Encode(const typename From::Storage* x, int64_t count, Stored* out) {
    EncodeGroups<Q6Group, From>(
        x, count, out, [](auto values, auto* quantized) { QuantizeQ6(values, quantized); });
  }
  static Stored FromCodes(const int8_t* codes, int64_t count, const uint16_t* scale) {
    return Store(GroupOf<kLayout.group>(codes, count, kOffset, *scale));
  }
  static Stored Store(const QuantizedGroup<kLayout.group>& group) {
    Stored stored;
    stored.scale = group.scale;
    for (size_t at = 0; at < sizeof(stored.codes); ++at) {
      const int two = group.codes[Shared(at)] >> Bits(at) & 3;
      stored.codes[at] = static_cast<uint8_t>(group.codes[Own(at)] | two << 6);
    }
    return stored;
  }
  static void DecodeCodes(const uint8_t (&stored)[kLayout.CodeBytes(1)], int* codes) {
    std::fill_n(codes, kLayout.group, 0);
    for (size_t at = 0; at < sizeof(stored); ++at) {
      codes[Own(at)] = stored[at] & 63;
      codes[Shared(at)] |= stored[at] >> 6 << Bits(at);
    }
  }
  static void Decode(const Stored& stored, float* values) { DecodeScaled<Q6Group>(stored, values); }
};

template <WeightFormat kFormat>
struct Q2Group {
  static constexpr PanelLayout kLayout = LayoutOf(kFormat);
  static constexpr int kOffset = 2;
  static constexpr int64_t kQuad = kLayout.chunk_bytes;
  static constexpr int64_t kStep = 4 * kQuad;  // k
  struct Stored {
    uint8_t codes[kLayout.CodeBytes(1)];
    uint16_t scale;
  };

  // The byte of a column that has the code of k, and which of its bits are the first ones.
  static constexpr int64_t ByteOf(int64_t k) { return k / kStep * kQuad + k % kQuad; }
  static constexpr int64_t BitsOf(int64_t k) { return k % kStep / kQuad * 2; }

  // The largest magnitude is the scale.
  template <typename From>
  static void Encode(const typename From::Storage* x, int64_t count, Stored* out) {
    EncodeGroups<Q2Group, From>(x, count, out, [](auto values, auto* quantized) {
      for (size_t g = 0; g < values.size(); ++g) quantized[g] = QuantizeTernary(values[g]);
    });
  }
  static Stored FromCodes(const int8_t* codes, int64_t count, const uint16_t* scale) {
    return Store(GroupOf<kLayout.group>(codes, count, kOffset, *scale));
  }
  static Stored Store(const QuantizedGroup<kLayout.group>& group) {
    Stored stored = {};
    stored.scale = group.scale;
    for (int64_t k = 0; k < kLayout.group; ++k) {
      uint8_t& byte = stored.codes[ByteOf(k)];
      byte = static_cast<uint8_t>(byte | group.codes[k] << BitsOf(k));
    }
    return stored;
  }
  static void DecodeCodes(const uint8_t (&stored)[kLayout.CodeBytes(1)], int* codes) {
    for (int64_t k = 0; k < kLayout.group; ++k) codes[k] = stored[ByteOf(k)] >> BitsOf(k) & 3;
  }
  static void Decode(const Stored& stored, float* values) { DecodeScaled<Q2Group>(stored, values); }
};

// Codes that are placed as those of Places, with a shift.
template <WeightFormat kFormat, typename Places>
struct AffineGroup {
  static constexpr PanelLayout kLayout = LayoutOf(kFormat);
  struct Stored {
    uint8_t codes[kLayout.CodeBytes(1)];
    uint16_t scale[2];  // and the shift
  };

  template <typename From>
  static void Encode(const typename From::Storage* x, int64_t count, Stored* out) {
    for (int64_t k = 0; k < count; k += kLayout.group) {
      std::array<float, kLayout.group> values = {};
      for (int64_t i = 0; i < std::min(kLayout.group, count - k); ++i) {
        values[i] = From::Decode(x[k + i]);
      }
      const AffineQuantizedGroup<kLayout.group> group =
          QuantizeAffine<kLayout.group>(values, 2 * Places::kOffset);
      *out++ = Store(group, group.shift);
    }
  }
  static Stored FromCodes(const int8_t* codes, int64_t count, const uint16_t* scale) {
    return Store(GroupOf<kLayout.group>(codes, count, Places::kOffset, scale[0]), scale[1]);
  }
  static Stored Store(const QuantizedGroup<kLayout.group>& group, uint16_t shift) {
    const typename Places::Stored places = Places::Store(group);
    Stored stored;
    std::memcpy(stored.codes, places.codes, sizeof(stored.codes));
    stored.scale[0] = group.scale;
    stored.scale[1] = shift;
    return stored;
  }
  static void Decode(const Stored& stored, float* values) {
    int codes[kLayout.group];
    Places::DecodeCodes(stored.codes, codes);
    const float scale = Float16ToFloat(stored.scale[0]), shift = Float16ToFloat(stored.scale[1]);
    for (int64_t i = 0; i < kLayout.group; ++i) {
      values[i] = scale * (static_cast<float>(codes[i] - Places::kOffset) + shift);
    }
  }
};

// The codes are placed as those of q4.
struct Mxfp4Group {
  using Places = QuantGroup<WeightFormat::kQ4>;
  using Stored = Places::Stored;
  static constexpr PanelLayout kLayout = LayoutOf(WeightFormat::kMxfp4);

  template <typename From>
  static void Encode(const typename From::Storage* x, int64_t count, Stored* out) {
    for (int64_t k = 0; k < count; k += kLayout.group) {
      Mxfp4Values values = {};
      for (int64_t i = 0; i < std::min(kLayout.group, count - k); ++i) {
        values[i] = From::Decode(x[k + i]);
      }
      *out++ = Store(QuantizeMxfp4(values));
    }
  }
  static Stored FromCodes(const int8_t* codes, int64_t count, const uint16_t* scale) {
    return Store(GroupOf<kLayout.group>(codes, count, 0, *scale));
  }
  static Stored Store(const QuantizedGroup<kLayout.group>& group) { return Places::Store(group); }
  static void Decode(const Stored& stored, float* values) {
    const float scale = BFloat16ToFloat(stored.scale);
    for (size_t at = 0; at < sizeof(stored.codes); ++at) {
      const int code = stored.codes[at];
      values[Places::Low(at)] = scale * static_cast<float>(kMxfp4Doubled[code & 15]);
      values[Places::High(at)] = scale * static_cast<float>(kMxfp4Doubled[code >> 4]);
    }
  }
};

// Codes that are indices of values, and placed as those of q4, with a float16 scale.
template <WeightFormat kFormat>
struct TableGroup {
  static constexpr const int8_t* kValues = TableOf(kFormat);
  static constexpr PanelLayout kLayout = LayoutOf(kFormat);
  using Places = QuantGroup<kLayout.group == 32 ? WeightFormat::kQ4 : WeightFormat::kQ4Group16>;
  using Stored = typename Places::Stored;

  template <typename From>
  static void Encode(const typename From::Storage* x, int64_t count, Stored* out) {
    EncodeGroups<TableGroup, From>(x, count, out, [](auto values, auto* quantized) {
      for (size_t g = 0; g < values.size(); ++g) {
        quantized[g] = QuantizeToTable<kLayout.group>(values[g], kValues);
      }
    });
  }
  static Stored FromCodes(const int8_t* codes, int64_t count, const uint16_t* scale) {
    QuantizedGroup<kLayout.group> group{.scale = *scale, .codes = {}};
    for (int64_t i = 0; i < count; ++i) group.codes[i] = IndexIn(kValues, codes[i]);
    return Store(group);
  }
  static Stored Store(const QuantizedGroup<kLayout.group>& group) { return Places::Store(group); }
  static void Decode(const Stored& stored, float* values) {
    int codes[kLayout.group];
    Places::DecodeCodes(stored.codes, codes);
    const float scale = Float16ToFloat(stored.scale);
    for (int64_t i = 0; i < kLayout.group; ++i) {
      values[i] = scale * static_cast<float>(kValues[codes[i]]);
    }
  }
};

// The largest magnitude becomes the largest element.
struct Float8Group {
  static constexpr PanelLayout kLayout = LayoutOf(WeightFormat::kFloat8);
  struct Stored {
    uint8_t codes[kLayout.group];
    float scale;
  };

  template <typename From>
  static void Encode(const typename From::Storage* x, int64_t count, Stored* out) {
    for (int64_t k = 0; k < count; k += kLayout.group, ++out) {
      const int64_t size = std::min(kLayout.group, count - k);
      float largest = 0;
      for (int64_t i = 0; i < size; ++i) {
        largest = std::max(largest, std::fabs(From::Decode(x[k + i])));
      }
      out->scale = largest / kMaxFloat8;
      for (int64_t i = 0; largest > 0 && i < size; ++i) {
        out->codes[i] = FloatToFloat8(From::Decode(x[k + i]) / out->scale);
      }
    }
  }
  static Stored FromCodes(const int8_t* codes, int64_t count, const uint16_t* scale) {
    Stored stored = {};
    std::memcpy(stored.codes, codes, static_cast<size_t>(count));
    std::memcpy(&stored.scale, scale, sizeof stored.scale);
    return stored;
  }
  static void Decode(const Stored& stored, float* values) {
    for (int64_t i = 0; i < kLayout.group; ++i) {
      values[i] = Float8ToFloat(stored.codes[i]) * stored.scale;
    }
  }
};

}  // namespace mlc_native::kernels
