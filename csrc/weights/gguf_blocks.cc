#include "weights/gguf_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/packed_format.h"
#include "support/check.h"
#include "support/float8.h"
#include "support/half.h"
#include "weights/gguf_block_type.h"
#include "weights/gguf_grid_types.h"

namespace mlc_native {
namespace gguf {
namespace {

// 32 codes of 4 bits: the low ones of the bytes are the first half.
void UnpackNibbles(const uint8_t* packed, int8_t* codes) {
  for (int i = 0; i < kGroup / 2; ++i) {
    codes[i] = static_cast<int8_t>(packed[i] & 15);
    codes[i + kGroup / 2] = static_cast<int8_t>(packed[i] >> 4);
  }
}

// The fifth bits of 32 codes, which follow, are the bits of 4 bytes.
void UnpackFiveBits(const uint8_t* packed, int8_t* codes) {
  UnpackNibbles(packed + 4, codes);
  for (int i = 0; i < kGroup; ++i) {
    codes[i] = static_cast<int8_t>(codes[i] | (packed[i / 8] >> i % 8 & 1) << 4);
  }
}

// ---- Blocks of 32 with one scale: a float16, then the codes ----

void ReadQ8(const uint8_t* block, int8_t* codes) { std::memcpy(codes, block + 2, kGroup); }

void ReadQ4(const uint8_t* block, int8_t* codes) {
  UnpackNibbles(block + 2, codes);
  for (int i = 0; i < kGroup; ++i) codes[i] = static_cast<int8_t>(codes[i] - 8);
}

void ReadQ5(const uint8_t* block, int8_t* codes) {
  UnpackFiveBits(block + 2, codes);
  for (int i = 0; i < kGroup; ++i) codes[i] = static_cast<int8_t>(codes[i] - 16);
}

// IQ4_NL: indices of 16 values that are denser around 0.
void ReadIq4(const uint8_t* block, int8_t* codes) {
  UnpackNibbles(block + 2, codes);
  for (int i = 0; i < kGroup; ++i) codes[i] = kernels::kIq4Values[codes[i]];
}

// MXFP4: an exponent of 2 plus 127, and indices of kMxfp4Doubled. The scale is half of the power of
// two, in bfloat16 (kernels/packed_format.h).
uint16_t ReadMxfp4Scale(const uint8_t* block) {
  constexpr uint8_t kNaN = 255;
  if (block[0] == kNaN) return FloatToBFloat16(std::numeric_limits<float>::quiet_NaN());
  return FloatToBFloat16(std::ldexp(0.5f, block[0] - 127));
}
void ReadMxfp4(const uint8_t* block, int8_t* codes) { UnpackNibbles(block + 1, codes); }
void DecodeMxfp4(const uint8_t* block, float* out) {
  int8_t codes[kGroup];
  ReadMxfp4(block, codes);
  const float scale = BFloat16ToFloat(ReadMxfp4Scale(block));
  for (int i = 0; i < kGroup; ++i) {
    out[i] = scale * static_cast<float>(kernels::kMxfp4Doubled[codes[i]]);
  }
}

template <void (*kReadCodes)(const uint8_t*, int8_t*)>
void DecodeGroup(const uint8_t* block, float* out) {
  int8_t codes[kGroup];
  kReadCodes(block, codes);
  const float scale = LoadScale(block);
  for (int i = 0; i < kGroup; ++i) out[i] = scale * static_cast<float>(codes[i]);
}

// Q4_1 and Q5_1: scale, minimum, codes; value = scale * code + minimum.
template <void (*kUnpack)(const uint8_t*, int8_t*)>
void DecodeAffine(const uint8_t* block, float* out) {
  int8_t codes[kGroup];
  kUnpack(block + 4, codes);
  const float scale = LoadScale(block), minimum = LoadScale(block + 2);
  for (int i = 0; i < kGroup; ++i) {
    const float product = scale * static_cast<float>(codes[i]);
    out[i] = product + minimum;
  }
}

// ---- Blocks of 256 in parts of 32 with scales of their own ----

// Q4_K and Q5_K: the 6-bit scales and minima of the parts, in 12 bytes.
struct PartScales {
  uint8_t scale[kParts];
  uint8_t minimum[kParts];

  explicit PartScales(const uint8_t* packed) {
    for (int i = 0; i < kParts / 2; ++i) {
      const uint8_t high = packed[8 + i];
      scale[i] = packed[i] & 63;
      minimum[i] = packed[4 + i] & 63;
      scale[i + 4] = static_cast<uint8_t>((high & 15) | (packed[i] >> 6) << 4);
      minimum[i + 4] = static_cast<uint8_t>((high >> 4) | (packed[4 + i] >> 6) << 4);
    }
  }
};

// Where the codes of Q4_K and Q5_K are. Part 2 i has the low and part 2 i + 1 the high 4 bits of
// the same bytes. Of Q5_K, bit i of byte j of `fifth` is the fifth bit of element j of part i.
struct PartCodes {
  const uint8_t* four;
  const uint8_t* fifth;  // null: none

  int operator()(int part, int i) const {
    const uint8_t byte = four[part / 2 * kGroup + i];
    const int code = part % 2 == 0 ? byte & 15 : byte >> 4;
    return fifth == nullptr ? code : code | (fifth[i] >> part & 1) << 4;
  }
};
PartCodes CodesOfQ4K(const uint8_t* block) { return {.four = block + 16, .fifth = nullptr}; }
PartCodes CodesOfQ5K(const uint8_t* block) { return {.four = block + 48, .fifth = block + 16}; }

// value = scale * code - minimum.
template <PartCodes (*kCodesOf)(const uint8_t*)>
void DecodeParts(const uint8_t* block, float* out) {
  const PartCodes codes = kCodesOf(block);
  const float scale = LoadScale(block), minimum = LoadScale(block + 2);
  const PartScales parts(block + 4);
  for (int part = 0; part < kParts; ++part) {
    const float part_scale = scale * static_cast<float>(parts.scale[part]);
    const float part_minimum = minimum * static_cast<float>(parts.minimum[part]);
    for (int i = 0; i < kGroup; ++i) {
      const float product = part_scale * static_cast<float>(codes(part, i));
      *out++ = product - part_minimum;
    }
  }
}

// ---- The same with a scale and a shift of a group (kernels/formats.h) ----

// Turns `count` codes [0, 2 middle) of values scale * code + minimum into signed ones. A minimum
// that is far larger than the scale, which may be 0, is the value of all: the difference is below
// the precision of float16.
void StoreAffine(float scale, float minimum, int middle, int count, int8_t* codes,
                 uint16_t* scales) {
  constexpr float kLargestShift = 1 << 15;
  const uint16_t stored = FloatToFloat16(scale);
  const float step = Float16ToFloat(stored);
  if (std::fabs(minimum) >= kLargestShift * std::fabs(step)) {
    std::fill_n(codes, count, 0);
    scales[0] = FloatToFloat16(minimum);
    scales[1] = FloatToFloat16(1);
    return;
  }
  for (int i = 0; i < count; ++i) codes[i] = static_cast<int8_t>(codes[i] - middle);
  scales[0] = stored;
  scales[1] = FloatToFloat16(static_cast<float>(middle) + minimum / step);
}

template <PartCodes (*kCodesOf)(const uint8_t*), int kMiddle>
void ReadParts(const uint8_t* block, int8_t* codes, uint16_t* scales) {
  const PartCodes code_of = kCodesOf(block);
  const float scale = LoadScale(block), minimum = LoadScale(block + 2);
  const PartScales parts(block + 4);
  for (int part = 0; part < kParts; ++part, codes += kGroup, scales += 2) {
    for (int i = 0; i < kGroup; ++i) codes[i] = static_cast<int8_t>(code_of(part, i));
    StoreAffine(scale * static_cast<float>(parts.scale[part]),
                -minimum * static_cast<float>(parts.minimum[part]), kMiddle, kGroup, codes, scales);
  }
}
template <void (*kUnpack)(const uint8_t*, int8_t*), int kMiddle>
void ReadAffine(const uint8_t* block, int8_t* codes, uint16_t* scales) {
  kUnpack(block + 4, codes);
  StoreAffine(LoadScale(block), LoadScale(block + 2), kMiddle, kGroup, codes, scales);
}

// ---- Q2_K: codes of 2 bits, and a scale and a minimum of 4 bits for 16 elements each ----

struct PartOfQ2K {
  float scale, minimum;

  PartOfQ2K(const uint8_t* block, int part)
      : scale(LoadScale(block + 80) * static_cast<float>(block[part] & 15)),
        minimum(LoadScale(block + 82) * static_cast<float>(block[part] >> 4)) {}
};
void DecodeQ2K(const uint8_t* block, float* out) {
  for (int at = 0; at < kSuperBlock; ++at) {
    const PartOfQ2K part(block, at / kShortGroup);
    const float product = part.scale * static_cast<float>(TwoBits(block + 16, at));
    out[at] = product - part.minimum;
  }
}
void ReadQ2K(const uint8_t* block, int8_t* codes, uint16_t* scales) {
  constexpr int kMiddle = 2;
  for (int at = 0; at < kSuperBlock; ++at) codes[at] = static_cast<int8_t>(TwoBits(block + 16, at));
  for (int i = 0; i < kShortParts; ++i, codes += kShortGroup, scales += 2) {
    const PartOfQ2K part(block, i);
    StoreAffine(part.scale, -part.minimum, kMiddle, kShortGroup, codes, scales);
  }
}

// ---- Parts with one scale, in blocks of 256: Q3_K, IQ4_XS and Q6_K ----

// Q3_K: bits that are set where 4 is not subtracted, the low 2 bits of the codes, 16 scales of 6
// bits in 12 bytes, and the scale of the block.
int8_t CodeOfQ3K(const uint8_t* block, int at) {
  const int high = block[at % kGroup] >> at / kGroup & 1;
  return static_cast<int8_t>(TwoBits(block + 32, at) - (high == 1 ? 0 : 4));
}
float ScaleOfQ3K(const uint8_t* block, int part) {
  const uint8_t* packed = block + 96;
  const int low = packed[part % 8] >> part / 8 * 4 & 15;
  const int high = packed[8 + part % 4] >> part / 4 * 2 & 3;
  return LoadScale(block + 108) * static_cast<float>((low | high << 4) - 32);
}

// IQ4_XS: the scale of the block, the high 2 and the low 4 bits of the scales of 8 parts, and
// indices of 16 values.
int8_t CodeOfIq4Xs(const uint8_t* block, int at) {
  const uint8_t byte = block[8 + at / kGroup * kShortGroup + at % kShortGroup];
  return kernels::kIq4Values[at % kGroup < kShortGroup ? byte & 15 : byte >> 4];
}
float ScaleOfIq4Xs(const uint8_t* block, int part) {
  const int low = block[4 + part / 2] >> part % 2 * 4 & 15;
  const int high = LoadHalf(block + 2) >> 2 * part & 3;
  return LoadScale(block) * static_cast<float>((low | high << 4) - 32);
}

// Q6_K: the low 4 bits of the codes, their high 2 bits, 16 scales of 8 bits for 16 elements each,
// and the scale of the block. Of 128 elements, two quarters share the bytes of the low bits, and
// all four those of the high bits.
int8_t CodeOfQ6K(const uint8_t* block, int at) {
  const uint8_t* low = block;
  const uint8_t* high = block + 128;
  const int half = at / 128, quarter = at % 128 / 32, i = at % 32;
  const uint8_t byte = low[half * 64 + quarter % 2 * 32 + i];
  const int low_bits = quarter < 2 ? byte & 15 : byte >> 4;
  const int high_bits = high[half * 32 + i] >> 2 * quarter & 3;
  return static_cast<int8_t>((low_bits | high_bits << 4) - 32);
}
float ScaleOfQ6K(const uint8_t* block, int part) {
  return LoadScale(block + 208) * static_cast<float>(static_cast<int8_t>(block[192 + part]));
}

// A group with one scale.
template <void (*kReadCodes)(const uint8_t*, int8_t*),
          uint16_t (*kReadScale)(const uint8_t*) = LoadHalf>
void ReadGroup(const uint8_t* block, int8_t* codes, uint16_t* scale) {
  kReadCodes(block, codes);
  *scale = kReadScale(block);
}

// A type of 32 elements with one scale, and one whose groups of 32 have a scale and a minimum.
template <void (*kRead)(const uint8_t*, int8_t*)>
constexpr BlockType Scaled(std::string_view name, int64_t bytes, int bits) {
  return {name, kGroup, bytes, DType::kFloat16, DecodeGroup<kRead>, bits, kGroup, ReadGroup<kRead>};
}
constexpr BlockType Affine(std::string_view name, int64_t elements, int64_t bytes, int bits,
                           decltype(BlockType::decode) decode, decltype(BlockType::read) read,
                           int64_t group = kGroup) {
  return {.name = name,
          .elements = elements,
          .bytes = bytes,
          .precision = DType::kFloat16,
          .decode = decode,
          .bits = bits,
          .group = group,
          .read = read,
          .is_affine = true};
}
constexpr BlockType OfIq4(BlockType type) {
  type.table = kernels::WeightFormat::kIq4;
  return type;
}
constexpr BlockType kBlockTypes[] = {
    Scaled<ReadQ8>("Q8_0", 34, 8),
    Scaled<ReadQ4>("Q4_0", 18, 4),
    Scaled<ReadQ5>("Q5_0", 22, 5),
    OfIq4(Scaled<ReadIq4>("IQ4_NL", 18, 8)),
    OfIq4(InParts<kGroup, CodeOfIq4Xs, ScaleOfIq4Xs>("IQ4_XS", 136, 8)),
    Affine("Q4_1", kGroup, 20, 4, DecodeAffine<UnpackNibbles>, ReadAffine<UnpackNibbles, 8>),
    Affine("Q5_1", kGroup, 24, 5, DecodeAffine<UnpackFiveBits>, ReadAffine<UnpackFiveBits, 16>),
    {"MXFP4", kGroup, 17, DType::kBFloat16, DecodeMxfp4, 4, kGroup,
     ReadGroup<ReadMxfp4, ReadMxfp4Scale>, true},
    Affine("Q2_K", kSuperBlock, 84, 2, DecodeQ2K, ReadQ2K, kShortGroup),
    InParts<kShortGroup, CodeOfQ3K, ScaleOfQ3K>("Q3_K", 110, 3),
    Affine("Q4_K", kSuperBlock, 144, 4, DecodeParts<CodesOfQ4K>, ReadParts<CodesOfQ4K, 8>),
    Affine("Q5_K", kSuperBlock, 176, 5, DecodeParts<CodesOfQ5K>, ReadParts<CodesOfQ5K, 16>),
    InParts<kShortGroup, CodeOfQ6K, ScaleOfQ6K>("Q6_K", 210, 6),
};

}  // namespace
}  // namespace gguf

namespace {

using gguf::BlockType;

std::array<std::span<const BlockType>, 2> AllTypes() {
  return {gguf::kBlockTypes, gguf::GridTypes()};
}

const BlockType* FindBlockType(std::string_view name) {
  for (const std::span<const BlockType> types : AllTypes()) {
    const auto found = std::ranges::find(types, name, &BlockType::name);
    if (found != types.end()) return &*found;
  }
  return nullptr;
}

class BlockWeight : public WeightSource {
 public:
  BlockWeight(const Checkpoint::Entry& entry, const BlockType& type)
      : WeightSource({&entry}),
        entry_(entry),
        type_(type),
        blocks_(entry.tensor->shape.back() / type.elements) {}

  DType dtype() const override { return type_.precision; }
  void Load() override {
    if (!reader_) reader_.emplace(entry_.Open());
  }
  void Drop() override {
    if (reader_) reader_->Finish();
    reader_.reset();
  }
  void Decode(int64_t begin, int64_t end, float* out) const override {
    ForBlocks(begin, end, [&](const uint8_t* block) {
      type_.decode(block, out);
      if (scale() != 1) {
        for (int64_t i = 0; i < type_.elements; ++i) out[i] *= scale();
      }
      out += type_.elements;
    });
  }
  // nullopt where the scales lie outside of what float16 holds well.
  std::optional<CodeForm> code_form() const override {
    constexpr float kLeast = 0x1p-12f, kMost = 65504;
    const float largest = std::fabs(0.5f * kMaxFloat8 * scale());
    if (scale() != 1 && !(largest >= kLeast && largest <= kMost)) return std::nullopt;
    return CodeForm{.bits = type_.bits,
                    .group = type_.group,
                    .num_groups = blocks_ * type_.elements / type_.group,
                    .is_mxfp4 = type_.is_mxfp4,
                    .table = type_.table,
                    .is_affine = type_.is_affine};
  }
  void ReadCodes(int64_t begin, int64_t end, int8_t* codes, uint16_t* scales) const override {
    const int64_t words = type_.elements / type_.group * (type_.is_affine ? 2 : 1);
    ForBlocks(begin, end, [&](const uint8_t* block) {
      type_.read(block, codes, scales);
      if (scale() != 1) {
        for (int64_t i = 0; i < words; ++i) {
          scales[i] = FloatToFloat16(Float16ToFloat(scales[i]) * scale());
        }
      }
      codes += type_.elements;
      scales += words;
    });
  }

 private:
  float scale() const { return entry_.tensor->scale; }  // other than 1 with NVFP4 alone

  template <typename F>
  void ForBlocks(int64_t begin, int64_t end, const F& f) const {
    MLC_CHECK(reader_.has_value()) << entry_.tensor->name << " is not loaded";
    const auto row_bytes = static_cast<size_t>(blocks_ * type_.bytes);
    std::vector<uint8_t> rows(static_cast<size_t>(end - begin) * row_bytes);
    reader_->Read(static_cast<size_t>(begin) * row_bytes, std::as_writable_bytes(std::span(rows)));
    for (size_t at = 0; at < rows.size(); at += static_cast<size_t>(type_.bytes)) f(&rows[at]);
  }

  const Checkpoint::Entry& entry_;
  const BlockType& type_;
  int64_t blocks_;  // of a row
  std::optional<TensorReader> reader_;
};

}  // namespace

bool IsGgufBlockType(std::string_view dtype_name) { return FindBlockType(dtype_name) != nullptr; }

std::string GgufBlockTypeList() {
  std::string list;
  for (const std::span<const BlockType> types : AllTypes()) {
    for (const BlockType& type : types) {
      list += (list.empty() ? "" : ", ") + std::string(type.name);
    }
  }
  return list;
}

std::unique_ptr<WeightSource> OpenGgufBlocks(const Checkpoint::Entry& entry) {
  const BlockType* type = FindBlockType(entry.tensor->dtype_name);
  MLC_CHECK(type != nullptr) << entry.tensor->dtype_name;
  return std::make_unique<BlockWeight>(entry, *type);
}

}  // namespace mlc_native
