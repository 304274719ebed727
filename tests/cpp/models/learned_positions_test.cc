// Decoders that add a learned row to the embedding of each token, by its position.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "mlc_native/model.h"
#include "testing/tiny_checkpoint.h"

namespace mlc_native {
namespace {

constexpr int32_t kTokens = 20;
constexpr size_t kHidden = 32;  // of a tiny checkpoint

struct Table {
  const char* architecture;
  const char* name;
  size_t first;  // the row of position 0
};
constexpr Table kTables[] = {
    {"GPT2LMHeadModel", "transformer.wpe.weight", 0},
    {"GPTBigCodeForCausalLM", "transformer.wpe.weight", 0},
    {"GPTNeoForCausalLM", "transformer.wpe.weight", 0},
    {"OPTForCausalLM", "model.decoder.embed_positions.weight", 2},
};

// Adds 1 to a row of a tensor [.., kHidden] of float32.
void ChangeRow(const testing::TempFolder& folder, const std::string& name, size_t row) {
  std::ifstream in(folder.file("model.safetensors"), std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof(size));
  const auto header = nlohmann::json::parse(bytes.substr(sizeof(size), size));
  const size_t begin = sizeof(size) + size + header[name]["data_offsets"][0].get<size_t>();
  for (size_t i = 0; i < kHidden; ++i) {
    char* const at = bytes.data() + begin + (row * kHidden + i) * sizeof(float);
    float value = 0;
    std::memcpy(&value, at, sizeof(value));
    value += 1;
    std::memcpy(at, &value, sizeof(value));
  }
  folder.Write("model.safetensors", bytes);
}

// The logits of all rows of a prompt, computed in parts that end with these tokens.
std::vector<std::vector<float>> Rows(const testing::TempFolder& folder, std::vector<int32_t> ends) {
  const std::unique_ptr<Model> model = LoadModel({.path = folder.path(), .num_threads = 1});
  model->Allocate(4, 32, 32);
  const std::vector<int32_t> pages = {2, 0};
  std::vector<std::vector<float>> rows;
  ends.push_back(kTokens);
  for (int32_t begin = 0; const int32_t end : ends) {
    std::vector<int32_t> tokens, logits;
    for (int32_t i = begin; i < end; ++i) {
      tokens.push_back(i * 7 % 50);
      logits.push_back(i - begin);
    }
    const SequenceSlice slice{.num_tokens = end - begin, .position = begin, .block_table = pages};
    const LogitsView view =
        model->Forward({.token_ids = tokens, .sequences = {&slice, 1}, .logits_rows = logits});
    for (int64_t i = 0; i < view.num_rows; ++i) {
      const float* const row = view.data + i * view.vocab_size;
      rows.emplace_back(row, row + view.vocab_size);
    }
    begin = end;
  }
  return rows;
}

TEST(LearnedPositions, AreThoseOfTheTokensInEveryChunk) {
  for (const Table& table : kTables) {
    SCOPED_TRACE(table.architecture);
    testing::TempFolder folder;
    WriteTinyCheckpoint(folder, testing::TinyConfig(table.architecture));
    const auto before = Rows(folder, {});
    EXPECT_EQ(Rows(folder, {1}), before);
    EXPECT_EQ(Rows(folder, {7, 8, 17}), before);
    constexpr size_t kPosition = 13;
    ChangeRow(folder, table.name, table.first + kPosition);
    const auto after = Rows(folder, {7});
    for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(after[i] != before[i], i >= kPosition);
  }
}

TEST(LearnedPositions, RowsInFrontOfTheFirstPositionAreNotUsed) {
  testing::TempFolder folder;
  WriteTinyCheckpoint(folder, testing::TinyConfig("OPTForCausalLM"));
  const auto before = Rows(folder, {});
  ChangeRow(folder, "model.decoder.embed_positions.weight", 0);
  ChangeRow(folder, "model.decoder.embed_positions.weight", 1);
  EXPECT_EQ(Rows(folder, {}), before);
}

}  // namespace
}  // namespace mlc_native
