// Files that are wrong in a known way are tested from Python (test_loader_errors.py); here, files
// that are wrong anywhere.
#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include "support/error.h"
#include "testing/tiny_checkpoint.h"

namespace mlc_native {
namespace {

using testing::TempFolder;

std::string ReadAll(const std::string& path) {
  std::stringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

uint64_t SumOfBytes(const TensorFile& file) {
  uint64_t sum = 0;
  for (const TensorInfo& tensor : file.tensors) {
    for (std::byte b : tensor.data) sum += std::to_integer<uint64_t>(b);
  }
  return sum;
}

TEST(Safetensors, ReadsNamesShapesTypesAndData) {
  TempFolder folder;
  const std::string header = R"({"b":{"dtype":"F32","shape":[1,2],"data_offsets":[2,10]},)"
                             R"("__metadata__":{"format":"pt"},)"
                             R"("a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},)"
                             R"("empty":{"dtype":"I64","shape":[0,7],"data_offsets":[2,2]}})";
  std::string length(8, '\0');
  length[0] = static_cast<char>(header.size());
  ASSERT_LT(header.size(), 256u);
  folder.Write("x", length + header + "0123456789");

  const TensorFile file = ReadSafetensors(folder.file("x"));
  ASSERT_EQ(file.tensors.size(), 3u);
  const TensorInfo& a = file.tensors[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, DType::kBFloat16);
  EXPECT_TRUE(a.shape.empty());
  EXPECT_EQ(a.data[1], std::byte{'1'});
  EXPECT_EQ(file.tensors[1].name, "empty");
  EXPECT_EQ(file.tensors[1].dtype, std::nullopt);
  EXPECT_TRUE(file.tensors[1].data.empty());
  const TensorInfo& b = file.tensors[2];
  EXPECT_EQ(b.shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(b.data[0], std::byte{'2'});
  EXPECT_EQ(b.data.size(), 8u);
}

TEST(Safetensors, DroppedPagesKeepTheirValue) {
  TempFolder folder;
  WriteTinyCheckpoint(folder, testing::TinyConfig("LlamaForCausalLM"));
  const TensorFile file = ReadSafetensors(folder.file("model.safetensors"));
  const uint64_t before = SumOfBytes(file);
  for (const TensorInfo& tensor : file.tensors) file.file.Drop(tensor.data);
  EXPECT_EQ(SumOfBytes(file), before);
}

// Whatever the damage: a LoadError, or a file all of whose tensors can be read.
TEST(Safetensors, RandomDamageNeverReadsOutside) {
  TempFolder folder;
  WriteTinyCheckpoint(folder, testing::TinyConfig("LlamaForCausalLM"));
  const std::string whole = ReadAll(folder.file("model.safetensors"));
  const size_t header_end = 8 + static_cast<unsigned char>(whole[0]) +
                            (static_cast<size_t>(static_cast<unsigned char>(whole[1])) << 8);
  std::minstd_rand random(7);
  const std::string alphabet = "{}[]\",:0123456789-eE. \xff\\";
  int refused = 0;
  constexpr int kRounds = 2000;
  for (int round = 0; round < kRounds; ++round) {
    std::string damaged = whole;
    const int edits = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < edits; ++i) {
      const size_t at = random() % header_end;
      const char c = alphabet[random() % alphabet.size()];
      if (random() % 4 == 0) {
        damaged.erase(at, 1 + random() % 8);
      } else if (random() % 3 == 0) {
        damaged.insert(at, 1, c);
      } else {
        damaged[at] = c;
      }
    }
    if (random() % 8 == 0) damaged.resize(random() % damaged.size());
    folder.Write("damaged", damaged);
    try {
      SumOfBytes(ReadSafetensors(folder.file("damaged")));
    } catch (const LoadError& error) {
      ++refused;
      EXPECT_NE(std::string(error.what()).find("damaged"), std::string::npos);
    }
  }
  EXPECT_GT(refused, kRounds / 2);
}

}  // namespace
}  // namespace mlc_native
