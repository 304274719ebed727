#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "arch/arch_spec.h"
#include "mlc_native/model.h"
#include "support/check.h"
#include "support/error.h"
#include "testing/allocations.h"
#include "testing/tiny_checkpoint.h"

namespace mlc_native {
namespace {

using testing::TempFolder;
using testing::TinyConfig;

std::unique_ptr<Model> LoadTiny(const std::string& architecture, int64_t num_threads = 1) {
  TempFolder folder;
  WriteTinyCheckpoint(folder, TinyConfig(architecture));
  return LoadModel({.path = folder.path(), .num_threads = num_threads});
}

// One sequence of 20 tokens in pages 2 and 0, all rows wanted.
struct OneSequence {
  std::vector<int32_t> tokens;
  std::vector<int32_t> pages{2, 0};
  std::vector<int32_t> rows;
  std::vector<SequenceSlice> slices;

  OneSequence() {
    for (int32_t i = 0; i < 20; ++i) tokens.push_back(i * 7 % 50);
    for (int32_t i = 0; i < 20; ++i) rows.push_back(i);
    slices.push_back({.first_row = 0, .num_tokens = 20, .position = 0, .block_table = pages});
  }
  ForwardBatch batch() const { return {tokens, slices, rows}; }
};

std::vector<float> Copy(const LogitsView& view) {
  return {view.data, view.data + view.num_rows * view.vocab_size};
}

TEST(Transformer, ForwardAllocatesNothing) {
  for (const ArchSpec& arch : SupportedArchitectures()) {
    if (!arch.config_section.empty()) continue;
    const auto model = LoadTiny(std::string(arch.architecture));
    model->Allocate(4, 32, 32);
    const OneSequence sequence;
    const ForwardBatch batch = sequence.batch();
    const int64_t before = testing::NumAllocations();
    model->Forward(batch);
    EXPECT_EQ(testing::NumAllocations(), before) << arch.architecture;
  }
}

TEST(Transformer, RepeatingAForwardGivesTheSameBits) {
  const auto model = LoadTiny("Gemma2ForCausalLM", 2);
  model->Allocate(4, 32, 32);
  const OneSequence sequence;
  const std::vector<float> first = Copy(model->Forward(sequence.batch()));
  EXPECT_EQ(first.size(), 20u * 50u);
  EXPECT_EQ(Copy(model->Forward(sequence.batch())), first);
}

TEST(Transformer, AllocatingAgainStartsAnew) {
  const auto model = LoadTiny("LlamaForCausalLM");
  model->Allocate(4, 32, 32);
  const OneSequence sequence;
  const std::vector<float> first = Copy(model->Forward(sequence.batch()));
  model->Allocate(3, 20, 20);
  EXPECT_EQ(Copy(model->Forward(sequence.batch())), first);
}

TEST(Transformer, BatchesThatBreakTheContractAreInternalErrors) {
  const auto model = LoadTiny("LlamaForCausalLM");
  const auto fails = [&](auto edit) {
    OneSequence sequence;
    edit(sequence);
    EXPECT_THROW(model->Forward(sequence.batch()), InternalError);
  };
  fails([](OneSequence&) {});  // not allocated
  model->Allocate(4, 20, 20);
  fails([](OneSequence& s) { s.slices[0].first_row = 1; });
  fails([](OneSequence& s) { s.slices[0].num_tokens = 19; });
  fails([](OneSequence& s) { s.slices[0].position = 13; });  // 33 tokens in two pages
  fails([](OneSequence& s) { s.slices[0].position = -1; });
  fails([](OneSequence& s) { s.rows = {3, 3}; });
  fails([](OneSequence& s) { s.rows = {20}; });
  fails([](OneSequence& s) { s.tokens[4] = 50; });
  fails([](OneSequence& s) { s.pages[1] = 4; });
  fails([](OneSequence& s) { s.tokens.push_back(1); });
  EXPECT_NO_THROW(model->Forward(OneSequence().batch()));
}

TEST(Transformer, MorePagesThanMemoryIsAConfigError) {
  const auto model = LoadTiny("LlamaForCausalLM");
  EXPECT_THROW(model->Allocate(int64_t{1} << 40, 32, 32), InvalidConfig);
}

TEST(LoadModel, ProgressIsMonotoneAndEndsAtTheSizeOfTheWeights) {
  TempFolder folder;
  WriteTinyCheckpoint(folder, TinyConfig("Qwen2ForCausalLM"));
  std::vector<int64_t> done;
  int64_t total = 0;
  ModelSource source{.path = folder.path()};
  source.progress = [&](int64_t now, int64_t all) {
    done.push_back(now);
    total = all;
  };
  const auto model = LoadModel(source);
  ASSERT_GT(done.size(), 10u);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), total);
  EXPECT_LT(total,
            static_cast<int64_t>(std::filesystem::file_size(folder.file("model.safetensors"))));
}

TEST(LoadModel, WhatProgressThrowsEndsTheLoad) {
  TempFolder folder;
  WriteTinyCheckpoint(folder, TinyConfig("Qwen2ForCausalLM"));
  ModelSource source{.path = folder.path()};
  source.progress = [](int64_t, int64_t) { throw std::runtime_error("stop"); };
  EXPECT_THROW(LoadModel(source), std::runtime_error);
}

}  // namespace
}  // namespace mlc_native
