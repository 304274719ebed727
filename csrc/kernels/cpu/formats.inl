// The weight formats, as structs for linear.inl. A format adds one group of k (packed_format.h) of
// one panel to the sums of some rows:
//
//   kLayout, kGroupBytes   layout of the panels
//   Input                  one row's inputs of a group, in the form that Convert writes
//   kMaxRows               rows whose sums fit into the registers
//   Convert                converts a group of inputs (padded with zeros) to an Input
//   kSteps, Add            sums[r][v] += inputs of row r * columns of vector v, in kSteps steps;
//                          calls step(i) in each step, for prefetches
//   kSumsIntegers          whether a group's sum is one of integers
//   kTileBytes             a group as Add reads it: kGroupBytes unless the format
//   kWidens                has to Widen it first, once for all tiles of rows
//   Unit                   lives in a thread while it multiplies
//   kUnitSums              whether Unit holds the sums of a tile of any number of rows and has an
//                          Add of its own
//
// Included by cpu/linear.inl only.
#pragma once

#include "kernels/cpu/vec_math.inl"

namespace mlc_native::kernels {
namespace {

constexpr int kPanel = 2 * Vec::kLanes;

template <WeightFormat kFormat>
struct FormatBase {
  static constexpr PanelLayout kLayout = LayoutOf(kFormat);
  static constexpr int64_t kGroupBytes = kLayout.GroupBytes(kPanel);
  static constexpr int kGroup = kLayout.group;
  static constexpr bool kWidens = false;
  static constexpr bool kSumsIntegers = false;
  static constexpr bool kUnitSums = false;
  static constexpr int64_t kTileBytes = kGroupBytes;
  struct Unit {};
};

// float32 and float16: one k per step.
template <WeightFormat kFormat, typename T>
struct SingleFormat : FormatBase<kFormat> {
  using Base = FormatBase<kFormat>;
  static constexpr int kMaxRows = kTileRows;
  static constexpr int kSteps = Base::kGroup;
  struct Input {
    float x[kSteps];
  };

  static void Convert(const float* x, Input* out) {
    for (int i = 0; i < kSteps; ++i) out->x[i] = x[i];
  }
  template <int kRows, typename Step>
  static void Add(const char* group, const Input* x, Vec (&sums)[kRows][2], Step step) {
    const auto* w = reinterpret_cast<const typename T::Storage*>(group);
    for (int i = 0; i < kSteps; ++i, w += kPanel) {
      step(i);
      const Vec lo = T::LoadAs(w);
      const Vec hi = T::LoadAs(w + Vec::kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const Vec input = Vec::Set(x[r].x[i]);
        sums[r][0] = Fma(input, lo, sums[r][0]);
        sums[r][1] = Fma(input, hi, sums[r][1]);
      }
    }
  }
};

// bfloat16: two k per step.
struct PairFormat : FormatBase<WeightFormat::kBFloat16> {
  static constexpr int kMaxRows = kTileRows;
  static constexpr int kSteps = kGroup / 2;
  struct Input {
    BFloat16Dot::Input x[kSteps];
  };

  static void Convert(const float* x, Input* out) { BFloat16Dot::Convert(x, kSteps, out->x); }
  template <int kRows, typename Step>
  static void Add(const char* group, const Input* x, Vec (&sums)[kRows][2], Step step) {
    const auto* w = reinterpret_cast<const uint16_t*>(group);
    for (int i = 0; i < kSteps; ++i, w += 2 * kPanel) {
      step(i);
      BFloat16Dot::Add(w, x, i, sums);
    }
  }
};

// The same by Dot's matrix unit.
template <typename Dot>
struct PairUnitFormat : PairFormat {
  using Unit = typename Dot::Unit;
  static constexpr int kMaxRows = Unit::kRows;
  static constexpr int kSteps = 1;
  static constexpr bool kUnitSums = true;
  static_assert(kGroup == 2 * Unit::kPairs && sizeof(Input) == 4 * Unit::kPairs);
};

// FP8: two k per step, as bfloat16, which holds the elements exactly. The sum of a group is
// multiplied by the scales of its columns.
struct Float8Format : FormatBase<WeightFormat::kFloat8> {
  static constexpr int kMaxRows = kQuantTileRows;
  static constexpr int kSteps = kGroup / 2;
  struct Input {
    BFloat16Dot::Input x[kSteps];
  };

  static void Convert(const float* x, Input* out) { BFloat16Dot::Convert(x, kSteps, out->x); }
  template <int kRows, typename Step>
  static void Add(const char* group, const Input* x, Vec (&sums)[kRows][2], Step step) {
    AddGroup<2 * kPanel>(reinterpret_cast<const uint8_t*>(group), x, sums, step);
  }

 protected:
  // `w` has kStride elements for each step, and then the scales.
  template <int kStride, int kRows, typename Element, typename Step>
  static void AddGroup(const Element* w, const Input* x, Vec (&sums)[kRows][2], Step step) {
    Vec products[kRows][2];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) products[r][0] = products[r][1] = Vec::Zero();
    for (int i = 0; i < kSteps; ++i, w += kStride) {
      step(i);
      BFloat16Dot::Add(w, x, i, products);
    }
    const auto* scales = reinterpret_cast<const float*>(w);
    const Vec lo_scale = Vec::Load(scales);
    const Vec hi_scale = Vec::Load(scales + Vec::kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      sums[r][0] = Fma(products[r][0], lo_scale, sums[r][0]);
      sums[r][1] = Fma(products[r][1], hi_scale, sums[r][1]);
    }
  }
};

// The same bits for many rows: the elements are widened once for all of them.
struct WideFloat8Format : Float8Format {
  struct Group {
    BFloat16Dot::Weights steps[kSteps];
    float scales[kPanel];
  };
  static constexpr int kMaxRows = kTileRows;
  static constexpr bool kWidens = true;
  static constexpr int64_t kTileBytes = sizeof(Group);

  static void Widen(const char* group, char* out) {
    auto* wide = reinterpret_cast<Group*>(out);
    const auto* w = reinterpret_cast<const uint8_t*>(group);
    for (int i = 0; i < kSteps; ++i, w += 2 * kPanel) wide->steps[i] = BFloat16Dot::Weights(w);
    const auto* scales = reinterpret_cast<const float*>(w);
    for (int i = 0; i < kPanel; ++i) wide->scales[i] = scales[i];
  }
  template <int kRows, typename Step>
  static void Add(const char* group, const Input* x, Vec (&sums)[kRows][2], Step step) {
    AddGroup<1>(reinterpret_cast<const BFloat16Dot::Weights*>(group), x, sums, step);
  }
};

// The same by Dot's matrix unit.
template <typename Dot>
struct Float8UnitFormat : WideFloat8Format {
  using Unit = typename Dot::Unit;
  static constexpr int kMaxRows = Unit::kRowsOfTile;
  static constexpr int kPairs = kGroup / 2;
  static constexpr int kSteps = 1;

  // Reads kMaxRows rows, see UnitFormat.
  template <int kRows, typename Step>
  static void Add(const char* group, const Input* x, Vec (&sums)[kRows][2], Step step) {
    const auto* wide = reinterpret_cast<const Group*>(group);
    step(0);
    alignas(64) float products[kMaxRows][kPanel];
    Unit::template Start<1>(nullptr);
    for (int i = 0; i < kPairs; i += Unit::kPairs) {
      Unit::template Add<1>(x[0].x + i, sizeof(Input), wide->steps + i);
    }
    Unit::template Store<1>(products[0], sizeof(products[0]));
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      const Vec scale = Vec::Load(wide->scales + v * Vec::kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        sums[r][v] = Fma(Vec::Load(products[r] + v * Vec::kLanes), scale, sums[r][v]);
      }
    }
  }
};

// What Codes::Dot adds to: an IntVec unless Codes have a Sum of their own. StartSum begins the sum
// of a group, Total ends it; both get its initial value, and one of them applies it.
template <typename Codes>
struct SumOf {
  using Type = IntVec;
};
template <typename Codes>
  requires requires { typename Codes::Sum; }
struct SumOf<Codes> {
  using Type = typename Codes::Sum;
};
inline void StartSum(IntVec& sum, int32_t start) { sum = IntVec::Set(start); }
inline IntVec Total(IntVec sum, int32_t) { return sum; }

// Codes::Dot, or Codes::DotInPlace in a tile whose sums take most registers. Those of fewer rows
// may have partial sums.
template <typename Codes, int kRows, typename Sum>
inline Sum AddQuad(Sum sum, const typename Codes::Quad& w, IntVec x) {
  if constexpr (kRows > 2 && requires { Codes::DotInPlace(sum, w, x); }) {
    return Codes::DotInPlace(sum, w, x);
  } else {
    return Codes::Dot(sum, w, x);
  }
}

// The chunks of a column that Codes::Load reads.
template <typename Codes>
constexpr int kChunksOf = 1;
template <typename Codes>
  requires requires { Codes::kChunks; }
constexpr int kChunksOf<Codes> = Codes::kChunks;

// Rows of a tile of quantized weights.
template <typename Codes>
constexpr int kRowsOf = kQuantTileRows;
template <typename Codes>
  requires requires { typename Codes::Eight; }
constexpr int kRowsOf<Codes> = Codes::kTileRows;

// Sums a group in integers, and multiplies by the scale of the inputs and that of the weights,
// whose type is WeightScale.
template <WeightFormat kFormat, typename Codes, typename Scale, typename WeightScale = Float16>
struct QuantFormat : FormatBase<kFormat> {
  using Base = FormatBase<kFormat>;
  static constexpr int kMaxRows = kRowsOf<Codes>;
  static constexpr bool kSumsIntegers = true;
  static constexpr int kQuadBytes = Base::kLayout.chunk_bytes;
  static constexpr int kVectorBytes = kQuadBytes * Vec::kLanes;
  template <typename AsStored>
  static constexpr int kStepsOf = Base::kGroup / (4 * AsStored::kQuads);
  static constexpr int kSteps = kStepsOf<Codes>;
  static constexpr int kScales = Base::kLayout.scales;
  static constexpr bool kHasShifts = kScales == 2;
  using PlainInput = QuantInput<Base::kGroup>;
  using Input = std::conditional_t<kHasShifts, AffineInput<Base::kGroup>, PlainInput>;

  static void Convert(const float* x, Input* out) {
    QuantizeInputs<Scale>(x, Codes::kOffset, static_cast<PlainInput*>(out));
    if constexpr (kHasShifts) {
      int32_t sum = 0;
      for (const int8_t code : out->codes) sum += code;
      out->sum = static_cast<float>(sum) * Scale::OfCodes(out->factor);
    }
  }

  static Vec Scaled(IntVec dots, Vec factor) {
    return Scale::kInExponent ? BitsAsFloat(dots) - factor : ToFloat(dots) * factor;
  }

  // Four codes of a row, for every column.
  static IntVec Quad(const Input& x, int i) {
    int32_t bits;
    __builtin_memcpy(&bits, x.codes + kQuadBytes * i, kQuadBytes);
    return IntVec::Set(bits);
  }
  template <int kRows, typename Step>
  static void Add(const char* group, const Input* x, Vec (&sums)[kRows][2], Step step) {
    if constexpr (kRows > 1 && requires { typename Codes::Eight; }) {
      AddInPairs(group, x, sums, step);
    } else {
      AddRows<Codes>(group, x, sums, step);
    }
  }

 protected:
  // The sums += those of the inputs times scale * shift. The shifts are behind the scales.
  template <int kRows>
  [[gnu::always_inline]] static void AddShifts(const uint16_t* scales, const Input* x,
                                               Vec (&sums)[kRows][2]) {
    if constexpr (kHasShifts) {
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v, scales += Vec::kLanes) {
        const Vec shift = WeightScale::LoadAs(scales) * WeightScale::LoadAs(scales + kPanel);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) sums[r][v] = Fma(Vec::Set(x[r].sum), shift, sums[r][v]);
      }
    }
  }

  // `group` has the codes as AsStored::Load reads them, and then the scales.
  template <typename AsStored, int kRows, typename Step>
  static void AddRows(const char* group, const Input* x, Vec (&sums)[kRows][2], Step step) {
    typename SumOf<Codes>::Type dots[kRows][2];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      StartSum(dots[r][0], x[r].start);
      StartSum(dots[r][1], x[r].start);
    }
    const auto* codes = reinterpret_cast<const uint8_t*>(group);
#pragma GCC unroll 16
    for (int i = 0; i < kStepsOf<AsStored>; ++i, codes += 2 * kVectorBytes * kChunksOf<AsStored>) {
      step(i);
      typename Codes::Quad lo[AsStored::kQuads], hi[AsStored::kQuads];
      AsStored::Load(codes, lo);
      AsStored::Load(codes + kVectorBytes, hi);
#pragma GCC unroll 4
      for (int q = 0; q < AsStored::kQuads; ++q) {
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          const IntVec input = Quad(x[r], i * AsStored::kQuads + q);
          dots[r][0] = AddQuad<Codes, kRows>(dots[r][0], lo[q], input);
          dots[r][1] = AddQuad<Codes, kRows>(dots[r][1], hi[q], input);
        }
      }
    }
    const auto* scales = reinterpret_cast<const uint16_t*>(codes);
    const Vec lo_scale = WeightScale::LoadAs(scales);
    const Vec hi_scale = WeightScale::LoadAs(scales + Vec::kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vec factor = Vec::Set(x[r].factor);
      sums[r][0] = Fma(Scaled(Total(dots[r][0], x[r].start), factor), lo_scale, sums[r][0]);
      sums[r][1] = Fma(Scaled(Total(dots[r][1], x[r].start), factor), hi_scale, sums[r][1]);
    }
    AddShifts(scales, x, sums);
  }

 private:
  // The codes of eight k of a vector of columns. Requires: kChunksOf<Codes> == 1.
  static auto LoadEight(const uint8_t* p) {
    constexpr int kLoads = 2 / Codes::kQuads;
    typename Codes::Quad w[kLoads][Codes::kQuads];
    for (int i = 0; i < kLoads; ++i) Codes::Load(p + i * 2 * kVectorBytes, w[i]);
    return typename Codes::Eight(w[0][0], w[kLoads - 1][Codes::kQuads - 1]);
  }

  // Two rows at a time, one vector of columns after the other. The last of an odd number of rows is
  // its own second row.
  template <int kRows, typename Step>
  static void AddInPairs(const char* group, const Input* x, Vec (&sums)[kRows][2], Step step) {
    constexpr int kPairs = (kRows + 1) / 2;
    constexpr int kEightBytes = 2 * kVectorBytes * (2 / Codes::kQuads);
    const auto* codes = reinterpret_cast<const uint8_t*>(group);
    const auto* scales = reinterpret_cast<const uint16_t*>(codes + kSteps * 2 * kVectorBytes);
    for (int i = 0; i < kSteps; ++i) step(i);
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      typename Codes::Sums dots[kPairs];
#pragma GCC unroll 16
      for (int p = 0; p < kPairs; ++p) dots[p] = Codes::Sums::Zero();
      for (int i = 0; i < Base::kGroup / 8; ++i) {
        const auto w = LoadEight(codes + v * kVectorBytes + i * kEightBytes);
#pragma GCC unroll 16
        for (int p = 0; p < kPairs; ++p) {
          const int second = 2 * p + 1 < kRows ? 2 * p + 1 : 2 * p;
          Codes::AddPair(dots[p], w, x[2 * p].codes + 8 * i, x[second].codes + 8 * i);
        }
      }
      const Vec scale = WeightScale::LoadAs(scales + v * Vec::kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const IntVec total = dots[r / 2].Row(r % 2) + IntVec::Set(x[r].start);
        sums[r][v] = Fma(Scaled(total, Vec::Set(x[r].factor)), scale, sums[r][v]);
      }
    }
    AddShifts(scales, x, sums);
  }
};

// Codes that were widened to bytes.
template <typename Codes>
struct WideCodes : Codes {
  static constexpr int kChunks = 1;
  static constexpr int kQuads = 1;
  static void Load(const uint8_t* p, typename Codes::Quad (&w)[kQuads]) {
    __builtin_memcpy(w, p, sizeof(w));
  }
};

// The same bits for many rows: the codes are widened to bytes once for all of them.
template <WeightFormat kFormat, typename Codes, typename Scale, typename WeightScale = Float16>
struct WideFormat : QuantFormat<kFormat, Codes, Scale, WeightScale> {
  using Quant = QuantFormat<kFormat, Codes, Scale, WeightScale>;
  using Input = typename Quant::Input;
  using Wide = WideCodes<Codes>;
  struct Group {
    uint8_t codes[Quant::kGroup / 4][kPanel][4];
    uint16_t scales[Quant::kScales * kPanel];
  };
  static constexpr bool kWidens = true;
  static constexpr int kSteps = Quant::template kStepsOf<Wide>;
  static constexpr int64_t kTileBytes = sizeof(Group);

  static void Widen(const char* group, char* out) {
    auto* wide = reinterpret_cast<Group*>(out);
    const auto* codes = reinterpret_cast<const uint8_t*>(group);
    for (int i = 0; i < Quant::kSteps; ++i, codes += 2 * Quant::kVectorBytes * kChunksOf<Codes>) {
      for (int v = 0; v < 2; ++v) {
        typename Codes::Quad quads[Codes::kQuads];
        Codes::Load(codes + v * Quant::kVectorBytes, quads);
        for (int q = 0; q < Codes::kQuads; ++q) {
          auto* const column = wide->codes[i * Codes::kQuads + q][v * Vec::kLanes];
          __builtin_memcpy(column, &quads[q], sizeof(quads[q]));
        }
      }
    }
    __builtin_memcpy(wide->scales, codes, sizeof(wide->scales));
  }
  template <int kRows, typename Step>
  static void Add(const char* group, const Input* x, Vec (&sums)[kRows][2], Step step) {
    Quant::template AddRows<Wide>(group, x, sums, step);
  }
};

// The same bits for many rows, by Codes' matrix unit.
template <WeightFormat kFormat, typename Codes, typename Scale, typename WeightScale = Float16>
struct UnitFormat : WideFormat<kFormat, Codes, Scale, WeightScale> {
  using Wide = WideFormat<kFormat, Codes, Scale, WeightScale>;
  using Quant = typename Wide::Quant;
  using Group = typename Wide::Group;
  using Input = typename Quant::Input;
  using Unit = typename Codes::template Unit<Quant::kGroup>;
  using Sum = typename SumOf<Codes>::Type;
  static constexpr int kMaxRows = Unit::kRows;
  static constexpr int kSteps = Quant::kSteps;
  static constexpr bool kWidens = Codes::kQuads > 1;
  static_assert(kWidens || Wide::kTileBytes == Quant::kGroupBytes);

  // The unit reads kMaxRows rows, of which only kRows are used. The others are those behind this
  // tile's, or lie in the workspace, which has room for a tile behind the last row.
  template <int kRows, typename Step>
  static void Add(const char* group, const Input* x, Vec (&sums)[kRows][2], Step step) {
    const auto* wide = reinterpret_cast<const Group*>(group);
    for (int i = 0; i < kSteps; ++i) step(i);
    alignas(64) int32_t dots[kMaxRows][kPanel];
    Unit::Multiply(x[0].codes, sizeof(Input), wide->codes[0][0], dots[0]);
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      const Vec scale = WeightScale::LoadAs(wide->scales + v * Vec::kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const Sum total = Sum::Load(dots[r] + v * Vec::kLanes) + Sum::Set(x[r].start);
        sums[r][v] = Fma(Quant::Scaled(total, Vec::Set(x[r].factor)), scale, sums[r][v]);
      }
    }
    Quant::AddShifts(wide->scales, x, sums);
  }
};

// From how many rows on a matrix unit is used.
constexpr int64_t kUnitFromRows = 8;

// Calls f(format) with the struct that multiplies this many rows.
template <typename Dot, typename F>
inline void WithPairFormat(F f) {
  if constexpr (requires { typename Dot::Unit; }) {
    f(PairUnitFormat<Dot>{});
  } else {
    f(PairFormat{});
  }
}
template <typename Dot, typename F>
inline void WithFloat8Format(int64_t rows, F f) {
  constexpr int64_t kManyRows = 3 * WideFloat8Format::kMaxRows;
  if constexpr (requires { typename Dot::Unit; }) {
    f(Float8UnitFormat<Dot>{});
  } else {
    rows < kManyRows ? f(Float8Format{}) : f(WideFloat8Format{});
  }
}
template <WeightFormat kFormat, typename Codes, typename Scale, typename WeightScale = Float16,
          typename F>
inline void WithQuantFormat(int64_t rows, F f) {
  using Format = QuantFormat<kFormat, Codes, Scale, WeightScale>;
  if constexpr (requires { typename Codes::template Unit<32>; }) {
    if (rows >= kUnitFromRows) return f(UnitFormat<kFormat, Codes, Scale, WeightScale>{});
  } else if constexpr (requires { Codes::kWideFromTiles; }) {
    constexpr int64_t kManyRows = Codes::kWideFromTiles * Format::kMaxRows;
    if (rows >= kManyRows) return f(WideFormat<kFormat, Codes, Scale, WeightScale>{});
  }
  f(Format{});
}

// The same for a format whose codes are indices.
template <WeightFormat kFormat, typename WeightScale = Float16, typename F>
inline void WithTableFormat(int64_t rows, F f) {
  WithQuantFormat<kFormat, TableCodes<kTableOf<kFormat>>, ExponentScale, WeightScale>(rows, f);
}

template <typename F>
inline void WithFormat(WeightFormat format, int64_t rows, F f) {
  switch (format) {
    case WeightFormat::kFloat32:
      return f(SingleFormat<WeightFormat::kFloat32, Float32>{});
    case WeightFormat::kBFloat16:
      return WithPairFormat<BFloat16Dot>(f);
    case WeightFormat::kFloat16:
      return f(SingleFormat<WeightFormat::kFloat16, Float16>{});
    case WeightFormat::kQ8:
      return WithQuantFormat<WeightFormat::kQ8, Q8Codes, InputScale>(rows, f);
    case WeightFormat::kQ4:
      return WithQuantFormat<WeightFormat::kQ4, Q4Codes, ExponentScale>(rows, f);
    case WeightFormat::kMxfp4:
      return WithTableFormat<WeightFormat::kMxfp4, BFloat16>(rows, f);
    case WeightFormat::kQ8Group32:
      return WithQuantFormat<WeightFormat::kQ8Group32, Q8Codes, InputScale>(rows, f);
    case WeightFormat::kQ6:
      return WithQuantFormat<WeightFormat::kQ6, Q6Codes, InputScale>(rows, f);
    case WeightFormat::kQ4Group16:
      return WithQuantFormat<WeightFormat::kQ4Group16, Q4Codes, ExponentScale>(rows, f);
    case WeightFormat::kIq4:
      return WithTableFormat<WeightFormat::kIq4>(rows, f);
    case WeightFormat::kIq3:
      return WithTableFormat<WeightFormat::kIq3>(rows, f);
    case WeightFormat::kIq2Group16:
      return WithTableFormat<WeightFormat::kIq2Group16>(rows, f);
    case WeightFormat::kFp4Group16:
      return WithTableFormat<WeightFormat::kFp4Group16>(rows, f);
    case WeightFormat::kQ4AffineGroup16:
      return WithQuantFormat<WeightFormat::kQ4AffineGroup16, Q4Codes, ExponentScale>(rows, f);
    case WeightFormat::kQ2AffineGroup16:
      return WithQuantFormat<WeightFormat::kQ2AffineGroup16, Q2Codes, ExponentScale>(rows, f);
    case WeightFormat::kQ2:
      return WithQuantFormat<WeightFormat::kQ2, Q2Codes, InputScale>(rows, f);
    case WeightFormat::kQ4Affine:
      return WithQuantFormat<WeightFormat::kQ4Affine, Q4Codes, ExponentScale>(rows, f);
    case WeightFormat::kQ6Affine:
      return WithQuantFormat<WeightFormat::kQ6Affine, Q6Codes, InputScale>(rows, f);
    case WeightFormat::kQ6AffineGroup16:
      return WithQuantFormat<WeightFormat::kQ6AffineGroup16, Q6Codes, InputScale>(rows, f);
    case WeightFormat::kQ6Group16:
      return WithQuantFormat<WeightFormat::kQ6Group16, Q6Codes, InputScale>(rows, f);
    case WeightFormat::kFloat8:
      return WithFloat8Format<BFloat16Dot>(rows, f);
  }
}

}  // namespace
}  // namespace mlc_native::kernels
