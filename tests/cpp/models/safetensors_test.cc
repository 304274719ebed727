// Files that are wrong in a known way are tested from Python (test_safetensors_errors.py); here,
// files that are wrong anywhere.
#include "checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "support/error.h"
#include "testing/tiny_checkpoint.h"

namespace mlc_native {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

std::string ReadAll(const std::string& path) {
  std::stringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

std::vector<std::byte> DataOf(const TensorFile& file, const TensorInfo& tensor) {
  std::vector<std::byte> data(tensor.bytes);
  TensorReader(file, tensor).Read(0, data);
  return data;
}

uint64_t SumOfBytes(const TensorFile& file) {
  uint64_t sum = 0;
  for (const TensorInfo& tensor : file.tensors) {
    for (std::byte b : DataOf(file, tensor)) sum += std::to_integer<uint64_t>(b);
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
  EXPECT_EQ(DataOf(file, a).at(1), std::byte{'1'});
  EXPECT_EQ(file.tensors[1].name, "empty");
  EXPECT_EQ(file.tensors[1].dtype, std::nullopt);
  EXPECT_EQ(file.tensors[1].bytes, 0u);
  const TensorInfo& b = file.tensors[2];
  EXPECT_EQ(b.shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(DataOf(file, b).at(0), std::byte{'2'});
  EXPECT_EQ(b.bytes, 8u);
}

// The message of the LoadError that an action throws.
template <typename Action>
std::string LoadErrorOf(Action action) {
  try {
    action();
  } catch (const LoadError& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(Safetensors, AFileThatIsCutShortOrReplacedIsAnError) {
  TempFolder folder;
  WriteTinyCheckpoint(folder, testing::TinyConfig("LlamaForCausalLM"));
  const std::string path = folder.file("model.safetensors");
  const TensorFile file = ReadSafetensors(path);
  const TensorInfo& last = file.tensors.back();
  std::vector<std::byte> data(last.bytes);

  const TensorReader open(file, last);
  std::filesystem::resize_file(path, last.end() - 1);
  EXPECT_THAT(LoadErrorOf([&] { open.Read(0, data); }), HasSubstr("was cut short"));
  EXPECT_THAT(LoadErrorOf([&] { open.Finish(); }), HasSubstr("was changed while it was loaded"));
  EXPECT_THAT(LoadErrorOf([&] { TensorReader(file, last); }), HasSubstr(path + ": was changed"));
  std::filesystem::remove(path);
  EXPECT_THAT(LoadErrorOf([&] { TensorReader(file, last); }), HasSubstr("cannot be opened"));
}

// A header of `num_tensors` empty tensors with names that descend, each with a shape of `dims`.
std::string HeaderOf(size_t num_tensors, const std::string& dims) {
  std::string header = "{";
  for (size_t i = num_tensors; i > 0; --i) {
    header += (header.size() > 1 ? ",\"" : "\"") + std::to_string(i) +
              R"(":{"dtype":"F32","shape":[)" + dims + R"(],"data_offsets":[0,0]})";
  }
  header += "}";
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> 8 * i);
  return length + header;
}

TEST(Safetensors, TheNumberOfTensorsAndOfTheirDimensionsIsLimited) {
  TempFolder folder;
  folder.Write("most", HeaderOf(kMaxTensors, "0"));
  EXPECT_EQ(ReadSafetensors(folder.file("most")).tensors.size(), kMaxTensors);
  folder.Write("more", HeaderOf(kMaxTensors + 1, "0"));
  EXPECT_THAT(LoadErrorOf([&] { ReadSafetensors(folder.file("more")); }),
              HasSubstr("has 200001 tensors, allowed are 200000"));
  std::string dims = "0";
  for (int i = 0; i < 4'000'000; ++i) dims += ",0";
  folder.Write("dims", HeaderOf(1, dims));
  EXPECT_THAT(LoadErrorOf([&] { ReadSafetensors(folder.file("dims")); }),
              HasSubstr("header has more than 3200000 values"));
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
