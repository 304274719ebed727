// Weights whose heads are longer than those of the tensor that they come from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "weights/computed_weight.h"

namespace mlc_native {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr int64_t kWidth = 8;

// Row r and column c have the float 10 r + c, or the code r + c with the scale 100 r.
class Counted : public WeightSource {
 public:
  Counted() : WeightSource({}) {}

  DType dtype() const override { return DType::kFloat16; }
  void Load() override {}
  void Drop() override {}
  void Decode(int64_t begin, int64_t end, float* out) const override {
    for (int64_t i = begin * kWidth; i < end * kWidth; ++i) {
      *out++ = static_cast<float>(10 * (i / kWidth) + i % kWidth);
    }
  }
  std::optional<CodeForm> code_form() const override {
    return CodeForm{.bits = 4, .group = kWidth, .num_groups = 1};
  }
  void ReadCodes(int64_t begin, int64_t end, int8_t* codes, uint16_t* scales) const override {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t c = 0; c < kWidth; ++c) *codes++ = static_cast<int8_t>(row + c);
      *scales++ = static_cast<uint16_t>(100 * row);
    }
  }
};

TEST(PaddedWeight, RowsOfZerosAreBehindThoseOfEachHead) {
  const PaddedHeads heads{.stored = 2, .padded = 3};
  const auto padded = Padded(std::make_unique<Counted>(), kWidth, heads);
  std::vector<float> rows(4 * kWidth, -1.0f);
  padded->Decode(1, 5, rows.data());
  EXPECT_EQ(rows[0], 10);
  EXPECT_THAT(std::vector(rows.begin() + kWidth, rows.begin() + 2 * kWidth), Each(0));
  EXPECT_EQ(rows[2 * kWidth], 20);
  EXPECT_EQ(rows[3 * kWidth], 30);
  std::vector<int8_t> codes(2 * kWidth, -1);
  std::vector<uint16_t> scales(static_cast<size_t>(2 * padded->code_form()->num_groups), 7);
  padded->ReadCodes(2, 4, codes.data(), scales.data());
  EXPECT_THAT(std::vector(codes.begin(), codes.begin() + kWidth), Each(0));
  EXPECT_THAT(std::vector(scales.begin(), scales.begin() + std::ssize(scales) / 2), Each(0));
  EXPECT_EQ(codes[kWidth], 2);  // row 2 of the tensor
  EXPECT_EQ(scales[scales.size() / 2], 200);
}

TEST(PaddedWeight, ColumnsOfZerosAreBehindThoseOfEachHead) {
  const PaddedHeads heads{.stored = 4, .padded = 5, .in_columns = true};
  const auto padded = Padded(std::make_unique<Counted>(), 10, heads);
  std::vector<float> rows(20, -1.0f);
  padded->Decode(1, 3, rows.data());
  EXPECT_THAT(rows, ElementsAre(10, 11, 12, 13, 0, 14, 15, 16, 17, 0, 20, 21, 22, 23, 0, 24, 25, 26,
                                27, 0));
}

}  // namespace
}  // namespace mlc_native
