// Gemv's formats: how a lane reads its part of a weight row for the tensor cores.
//
// A step is kGemvStep = 128 k, four blocks of 32. In block b, lane t of the four that share a row
// holds k = 32 b + 8 t ... + 7. The order of k within a product's k = 16 does not matter as long as
// weights and inputs agree, so every lane loads 16 adjacent bytes.
//
//            bytes per lane and step  order in memory (of a row; the four lanes of a step in turn)
//   16 bits  4 x 16                   unchanged
//   q8, fp8  2 x 16                   lane t: blocks 0, 1, and then the same for blocks 2, 3
//   q4       16                       lane t: blocks 0 ... 3, a 32-bit word each. Element 2 j of
//   the
//                                     block's eight is in bits 4 j, element 2 j + 1 in 4 j + 16.
//   fp4      16                       as q4; mxfp4 and nvfp4
//
// Scales [n, steps * groups of a step] follow the codes, in float16 (fp4: bfloat16; fp8: float32,
// because a checkpoint's scales have no more than 24 bits and any exponent; q4 affine: float16, and
// the shift in float16 behind it).
//
// The types of GGUF, q8 with groups of 32 and q4 affine, are there for float16, the type that files
// with them have, and not for bfloat16, where a shifted code would lose bits. FP8 and NVFP4 are
// there for bfloat16, which their checkpoints have.
#pragma once

#include "kernels/cuda/gemv_layout.h"
#include "kernels/cuda/numbers.cuh"

namespace mlc_native::kernels::cuda {

// Four registers of two elements: a lane's eight of a block.
struct Pairs {
  uint32_t pair[4];
};

__device__ inline Pairs PairsOf(const uint4& v) { return {{v.x, v.y, v.z, v.w}}; }

// Rows of T itself. `weight` is where the row begins.
template <typename T>
struct PlainFormat {
  using Element = T;
  static constexpr int kGroupBlocks = 0;   // no scales
  static constexpr int kVectorBlocks = 1;  // that a lane's 16 bytes hold
  static constexpr int kScaleBytes = 0;    // of a row and step
  static constexpr int kStepsAhead = 1;

  static constexpr bool kPadsSteps = false;
  static constexpr bool kBlockReadsScales = false;
  static constexpr bool kWalks = true;    // whether blocks of Gemv gain by walking over tiles
  static constexpr bool kIsRare = false;  // in dense products, which then have fewer kernels

  struct Step {
    uint4 raw[kBlocks];
  };

  // A lane's part of a row, for loads of its steps. Behind the last row or the last k there is the
  // last one: what it adds is not stored, or multiplied by an x of zero.
  class Row {
   public:
    __device__ Row(const GemvArgs& args, int row, int lane)
        : weight_(static_cast<const T*>(args.weight) +
                  static_cast<int64_t>(min(row, static_cast<int>(args.n) - 1)) * args.k),
          lane_k_(lane * kVector),
          last_k_(static_cast<int>(args.k) - kVector) {}

    __device__ Step Load(int step) const {
      Step loaded;
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        const int at = step * static_cast<int>(kGemvStep) + b * kBlock + lane_k_;
        loaded.raw[b] = LoadStreamed(weight_ + min(at, last_k_));
      }
      return loaded;
    }

   private:
    const T* weight_;
    int lane_k_;
    int last_k_;
  };
  // Where raw[i] of a lane's step lies; null behind the last k.
  __device__ static const void* VectorAt(const GemvArgs& args, int row, int step, int i, int lane) {
    const int at = step * static_cast<int>(kGemvStep) + i * kBlock + lane * kVector;
    return at < args.k ? static_cast<const T*>(args.weight) + row * args.k + at : nullptr;
  }
  __device__ static int64_t RowBytes(const GemvArgs& args) { return args.k * sizeof(T); }
  __device__ static Pairs Block(const Step& step, int b) { return PairsOf(step.raw[b]); }
};

// Shared by the quantized formats: `kVectors` loads of 16 bytes to a lane's step.
template <typename T, int kVectors, int kBlocksPerGroup, typename StoredScale = uint16_t>
struct QuantizedFormat {
  using Element = T;
  using ScaleBits = StoredScale;
  static constexpr int kGroupBlocks = kBlocksPerGroup;
  static constexpr int kGroups = kBlocks / kBlocksPerGroup;  // of a step
  static constexpr int kVectorBlocks = kBlocks / kVectors;
  static constexpr int kScaleBytes = kGroups * static_cast<int>(sizeof(ScaleBits));
  static constexpr int kStepsAhead = kBlocks / kVectors;  // as many bytes as of PlainFormat
  static constexpr bool kPadsSteps = true;          // the codes behind the last k are those of zero
  static constexpr bool kBlockReadsScales = false;  // Block needs the scales, or what is with them
  static constexpr bool kWalks = true;
  static constexpr bool kIsRare = false;

  // Words as they lie in memory: scales of 16 bits would be moved as soon as they are loaded, which
  // waits for them.
  static constexpr int kScaleWords = kScaleBytes / 4;
  struct alignas(kScaleBytes) Scales {
    uint32_t words[kScaleWords];
  };
  struct Step {
    uint4 raw[kVectors];
    Scales scales;
  };

  // As in PlainFormat; codes are padded to whole steps.
  class Row {
   public:
    __device__ Row(const GemvArgs& args, int row, int lane) {
      const int64_t n = args.n;
      const int64_t first = min(static_cast<int64_t>(row), n - 1) * Steps(args);
      const auto* codes = static_cast<const uint4*>(args.weight);
      codes_ = codes + first * (kVectors * kRowLanes) + lane;
      scales_ =
          reinterpret_cast<const Scales*>(codes + n * Steps(args) * (kVectors * kRowLanes)) + first;
    }

    __device__ Step Load(int step) const {
      Step loaded;
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        loaded.raw[i] = LoadStreamed(codes_ + (step * kVectors + i) * kRowLanes);
      }
      loaded.scales = scales_[step];
      return loaded;
    }

   private:
    const uint4* codes_;
    const Scales* scales_;
  };
  __device__ static const void* VectorAt(const GemvArgs& args, int row, int step, int i, int lane) {
    const int64_t at = row * Steps(args) + step;
    return static_cast<const uint4*>(args.weight) + (at * kVectors + i) * kRowLanes + lane;
  }
  // From a row's codes to the next one's.
  __device__ static int64_t RowBytes(const GemvArgs& args) {
    return Steps(args) * kVectors * kRowLanes * static_cast<int64_t>(sizeof(uint4));
  }
  __device__ static const void* ScalesAt(const GemvArgs& args, int row, int step) {
    const auto* scales =
        static_cast<const uint4*>(args.weight) + args.n * Steps(args) * kVectors * kRowLanes;
    return reinterpret_cast<const Scales*>(scales) + row * Steps(args) + step;
  }
  __device__ static int64_t Steps(const GemvArgs& args) {
    return (args.k + kGemvStep - 1) / kGemvStep;
  }
  __device__ static ScaleBits BitsOfScale(const Step& step, int group) {
    if constexpr (std::is_same_v<ScaleBits, float>) {
      return __uint_as_float(step.scales.words[group]);
    } else if constexpr (std::is_same_v<ScaleBits, uint32_t>) {
      return step.scales.words[group];
    } else {
      return static_cast<uint16_t>(step.scales.words[group / 2] >> (16 * (group % 2)));
    }
  }
  __device__ static float ScaleOf(uint16_t bits) { return Float16BitsToFloat(bits); }
  __device__ static float Scale(const Step& step, int group) {
    return ScaleOf(BitsOfScale(step, group));
  }
};

// *sum += scale * part, rounded once: in Gemv and Gemm alike.
__device__ inline void AddScaled(float* sum, float scale, float part) {
  *sum = fmaf(scale, part, *sum);
}

__device__ inline uint32_t Word(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// Block `half` of the two that 16 bytes hold, where an element is a byte.
template <typename Format>
__device__ inline Pairs BlockOfBytes(const uint4& raw, int half) {
  Pairs out;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t word = Word(raw, half * 2 + i);
    out.pair[2 * i] = Format::Pair(word, 0);
    out.pair[2 * i + 1] = Format::Pair(word, 2);
  }
  return out;
}

// 8 bits, offset 128, groups of 64.
template <typename T>
struct Q8Format : QuantizedFormat<T, 2, 2> {
  using Step = typename QuantizedFormat<T, 2, 2>::Step;

  __device__ static Pairs Block(const Step& step, int b) {
    return BlockOfBytes<Q8Format>(step.raw[b / 2], b % 2);
  }

  // Codes `byte` and the next, exactly, by putting them into the mantissas of a large number.
  __device__ static uint32_t Pair(uint32_t word, int byte) {
    if constexpr (std::is_same_v<T, Float16>) {
      const uint32_t large = __byte_perm(word, 0x64646464u, 0x4140u + 0x0101u * byte);
      return FmaFloat16x2(large, 0x3c003c00u, 0xe480e480u);  // 1024 + code - 1152
    } else {
      constexpr float kOffset = 8388608.0f + 128.0f;  // 2^23 + 128
      const float low = __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7650u + byte));
      const float high = __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7651u + byte));
      return Pack<T>(low - kOffset, high - kOffset);
    }
  }
};

// 8 bits, offset 128, groups of 32.
template <typename T>
struct Q8Group32Format : QuantizedFormat<T, 2, 1> {
  using Step = typename QuantizedFormat<T, 2, 1>::Step;
  static constexpr bool kIsRare = true;

  __device__ static Pairs Block(const Step& step, int b) {
    return BlockOfBytes<Q8Format<T>>(step.raw[b / 2], b % 2);
  }
};

// FP8 (E4M3), groups of 64. Every number of it is one of T, so a lane converts without rounding.
// Requires: no code is a NaN, which the loader refuses.
template <typename T>
struct Float8Format : QuantizedFormat<T, 2, 2, float> {
  static_assert(std::is_same_v<T, BFloat16>);
  using Step = typename QuantizedFormat<T, 2, 2, float>::Step;

  __device__ static Pairs Block(const Step& step, int b) {
    return BlockOfBytes<Float8Format>(step.raw[b / 2], b % 2);
  }
  __device__ static float ScaleOf(float scale) { return scale; }
  __device__ static float Scale(const Step& step, int group) {
    return Float8Format::BitsOfScale(step, group);
  }

  // Codes `byte`, which is even, and the next. A code's exponent and mantissa are moved to where
  // those of T are. What T reads there is smaller, by the difference of the two exponents' offsets,
  // than the number (subnormal numbers, too), and a multiplication by this power of two is exact.
  __device__ static uint32_t Pair(uint32_t word, int byte) {
    const uint32_t high = __byte_perm(word, 0, 0x0404u + 0x1010u * byte + 0x1000u);
    const uint32_t sign = high & 0x80008000u;
    constexpr uint32_t kMinusZero = 0x80008000u;  // which leaves the sign of a zero
    return FmaBFloat16x2(sign | (high >> 4 & 0x07f007f0u), 0x7b807b80u, kMinusZero);  // 2^120
  }
};

// 4 bits, offset 8, groups of 32.
template <typename T>
struct Q4Format : QuantizedFormat<T, 1, 1> {
  using Step = typename QuantizedFormat<T, 1, 1>::Step;

  __device__ static Pairs Block(const Step& step, int b) {
    const uint32_t word = Word(step.raw[0], b);
    Pairs out;
#pragma unroll
    for (int j = 0; j < 4; ++j) out.pair[j] = Pair(word >> (4 * j));
    return out;
  }

  // Of the lowest four bits of both halves.
  __device__ static uint32_t Pair(uint32_t codes) {
    constexpr uint32_t kCodes = 0x000f000fu;
    if constexpr (std::is_same_v<T, Float16>) {
      const uint32_t large = AndOr(codes, kCodes, 0x64006400u);
      return FmaFloat16x2(large, 0x3c003c00u, 0xe408e408u);  // 1024 + code - 1032
    } else {
      const uint32_t large = AndOr(codes, kCodes, 0x43004300u);
      return FmaBFloat16x2(large, 0x3f803f80u, 0xc308c308u);  // 128 + code - 136
    }
  }
};

// 4 bits, offset 8, groups of 32 with a shift: a weight is scale * (code - 8 + shift), where the
// sum is rounded to T.
template <typename T>
struct Q4AffineFormat : QuantizedFormat<T, 1, 1, uint32_t> {
  static_assert(std::is_same_v<T, Float16>);
  using Step = typename QuantizedFormat<T, 1, 1, uint32_t>::Step;
  static constexpr int kStepsAhead = 2;      // scales are as many bytes as codes
  static constexpr bool kPadsSteps = false;  // no code is zero in every group
  static constexpr bool kBlockReadsScales = true;
  static constexpr bool kIsRare = true;

  __device__ static Pairs Block(const Step& step, int b) {
    return BlockWith(step, b, Q4AffineFormat::BitsOfScale(step, b));
  }
  // With these bits instead of the step's.
  __device__ static Pairs BlockWith(const Step& step, int b, uint32_t scale_bits) {
    const uint32_t word = Word(step.raw[0], b);
    const uint32_t shift = __byte_perm(scale_bits, 0, 0x3232u);  // twice
    Pairs out;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      out.pair[j] = FmaFloat16x2(Q4Format<T>::Pair(word >> (4 * j)), 0x3c003c00u, shift);
    }
    return out;
  }
  __device__ static float ScaleOf(uint32_t bits) {
    return Float16BitsToFloat(static_cast<uint16_t>(bits));
  }
  __device__ static float Scale(const Step& step, int group) {
    return ScaleOf(Q4AffineFormat::BitsOfScale(step, group));
  }
};

// MXFP4: a code is an index into kMxfp4Doubled (packed_format.h), groups of 32.
template <typename T>
struct Mxfp4Format : QuantizedFormat<T, 1, 1> {
  using Step = typename QuantizedFormat<T, 1, 1>::Step;
  static constexpr bool kWalks = false;
  static constexpr bool kIsRare = true;  // mixtures of experts have it

  __device__ static Pairs Block(const Step& step, int b) {
    const uint32_t word = Word(step.raw[0], b);
    Pairs out;
#pragma unroll
    for (int j = 0; j < 4; ++j) out.pair[j] = Pair(word, j);
    return out;
  }
  __device__ static float ScaleOf(uint16_t bits) { return ToFloat(BFloat16{bits}); }
  __device__ static float Scale(const Step& step, int group) {
    return ScaleOf(Mxfp4Format::BitsOfScale(step, group));
  }

  // As of Float8Format: a code's sign, exponent and mantissa (1, 2 and 1 bit) are moved to where
  // those of T are, and a multiplication by a power of two is exact. Of pair j.
  __device__ static uint32_t Pair(uint32_t word, int j) {
    constexpr uint32_t kMinusZero = 0x80008000u;
    const auto moved = [&](int bits) {  // of a code's first bit, to the left
      const int by = bits - 4 * j;
      return by >= 0 ? word << by : word >> -by;
    };
    const uint32_t sign = moved(12) & 0x80008000u;
    if constexpr (std::is_same_v<T, Float16>) {
      return FmaFloat16x2(AndOr(moved(9), 0x0e000e00u, sign), 0x78007800u, kMinusZero);  // 2^15
    } else {
      return FmaBFloat16x2(AndOr(moved(6), 0x01c001c0u, sign), 0x7f007f00u, kMinusZero);  // 2^127
    }
  }
};

// NVFP4: a code is an index into kMxfp4Doubled, groups of 16. Two lanes of the four that share a
// row have the one group of a block, two the other, so codes are multiplied by their scales in
// front of the product, and rounded to T. A word has the scales of a block.
template <typename T>
struct Nvfp4Format : QuantizedFormat<T, 1, 1, uint32_t> {
  static_assert(std::is_same_v<T, BFloat16>);
  using Step = typename QuantizedFormat<T, 1, 1, uint32_t>::Step;
  static constexpr int kStepsAhead = 2;  // scales are as many bytes as codes
  static constexpr bool kBlockReadsScales = true;
  static constexpr bool kIsRare = true;

  __device__ static Pairs Block(const Step& step, int b) {
    return BlockWith(step, b, Nvfp4Format::BitsOfScale(step, b));
  }
  // With these bits instead of the step's.
  __device__ static Pairs BlockWith(const Step& step, int b, uint32_t scale_bits) {
    constexpr uint32_t kMinusZero = 0x80008000u;
    const uint32_t word = Word(step.raw[0], b);
    const bool is_second = threadIdx.x % kRowLanes >= kRowLanes / 2;
    const uint32_t scale = __byte_perm(scale_bits, 0, is_second ? 0x3232u : 0x1010u);  // twice
    Pairs out;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      out.pair[j] = FmaBFloat16x2(Mxfp4Format<T>::Pair(word, j), scale, kMinusZero);
    }
    return out;
  }
  __device__ static float ScaleOf(uint32_t) { return 1; }
  __device__ static float Scale(const Step&, int) { return 1; }
};

// Calls f(TypeTag of the format with activations of type T) (host).
template <typename T, typename F>
void WithGemvFormat(WeightFormat format, DType dtype, const F& f) {
  switch (format) {
    case WeightFormat::kQ8:
      return f(TypeTag<Q8Format<T>>());
    case WeightFormat::kQ4:
      return f(TypeTag<Q4Format<T>>());
    case WeightFormat::kMxfp4:
      return f(TypeTag<Mxfp4Format<T>>());
    case WeightFormat::kFloat8:
      if constexpr (std::is_same_v<T, BFloat16>) return f(TypeTag<Float8Format<T>>());
      break;
    case WeightFormat::kQ8Group32:
      if constexpr (std::is_same_v<T, Float16>) return f(TypeTag<Q8Group32Format<T>>());
      break;
    case WeightFormat::kFp4Group16:
      if constexpr (std::is_same_v<T, BFloat16>) return f(TypeTag<Nvfp4Format<T>>());
      break;
    case WeightFormat::kQ4Affine:
      if constexpr (std::is_same_v<T, Float16>) return f(TypeTag<Q4AffineFormat<T>>());
      break;
    default:
      MLC_CHECK(format == FormatOf(dtype)) << "format " << static_cast<int>(format);
      return f(TypeTag<PlainFormat<T>>());
  }
  MLC_CHECK(false) << "format " << static_cast<int>(format) << " with activations of another type";
}

}  // namespace mlc_native::kernels::cuda
