#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
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

std::unique_ptr<Model> LoadTiny(const std::string& architecture, int64_t num_threads = 1,
                                const std::string& fields = "") {
  TempFolder folder;
  WriteTinyCheckpoint(folder, TinyConfig(architecture, fields));
  return LoadModel({.path = folder.path(), .num_threads = num_threads});
}

// One sequence of 20 tokens in pages 2 and 0, all rows wanted.
struct OneSequence {
  std::vector<int32_t> tokens;
  std::vector<int32_t> pages{2, 0};
  std::vector<int32_t> rows;
  std::vector<RecurrentWrite> writes{{.num_tokens = 20, .slot = 1}};
  std::vector<SequenceSlice> slices;

  OneSequence() {
    for (int32_t i = 0; i < 20; ++i) tokens.push_back(i * 7 % 50);
    for (int32_t i = 0; i < 20; ++i) rows.push_back(i);
    slices.push_back({.first_row = 0,
                      .num_tokens = 20,
                      .position = 0,
                      .block_table = pages,
                      .recurrent_writes = writes});
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
    if (model->metadata().recurrent_bytes_per_slot > 0) model->AllocateRecurrent(2);
    model->Allocate(4, 32, 32);
    const OneSequence sequence;
    const ForwardBatch batch = sequence.batch();
    const int64_t before = testing::NumAllocations();
    model->Forward(batch);
    EXPECT_EQ(testing::NumAllocations(), before) << arch.architecture;
  }
}

// Of the second model, the last two layers have rows of their own.
TEST(Transformer, ForwardOfLayersThatDifferAllocatesNothing) {
  const std::string sizes = R"("head_dim": 8, "global_head_dim": 16, "sliding_window": 5,
      "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 50, "num_hidden_layers": 4,
      "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
                      "full_attention"], )";
  for (const char* other : {R"("enable_moe_block": true, "num_experts": 6, "top_k_experts": 2,
           "moe_intermediate_size": 24)",
                            R"("num_kv_shared_layers": 2, "use_double_wide_mlp": true)"}) {
    const auto model = LoadTiny("Gemma4ForCausalLM", 1, sizes + other);
    model->Allocate(4, 32, 32);
    OneSequence sequence;
    for (const size_t num_wanted : {20, 3, 0}) {
      sequence.rows.resize(num_wanted);
      const ForwardBatch batch = sequence.batch();
      const int64_t before = testing::NumAllocations();
      model->Forward(batch);
      EXPECT_EQ(testing::NumAllocations(), before) << other << num_wanted;
    }
  }
}

TEST(Transformer, ForwardWithStreamsAllocatesNothing) {
  const auto model = LoadTiny("Gemma3nForCausalLM", 2,
                              R"("head_dim": 8, "sliding_window": 5, "num_hidden_layers": 4,
      "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 40, "laurel_rank": 4,
      "activation_sparsity_pattern": [0.9, 0, 0.2, 0.5], "num_kv_shared_layers": 2,
      "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
                      "full_attention"])");
  model->Allocate(4, 32, 32);
  OneSequence sequence;
  for (const size_t num_wanted : {20, 3, 0}) {
    sequence.rows.resize(num_wanted);
    const ForwardBatch batch = sequence.batch();
    const int64_t before = testing::NumAllocations();
    model->Forward(batch);
    EXPECT_EQ(testing::NumAllocations(), before) << num_wanted;
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

// Asks for streams of some rows, the last one first.
struct AskedStates {
  std::vector<int32_t> rows;
  std::vector<int32_t> streams;
  std::vector<int32_t> places;
  std::unique_ptr<StateMemory> memory;

  AskedStates(Model& model, std::vector<int32_t> asked_rows, std::vector<int32_t> asked_streams)
      : rows(std::move(asked_rows)),
        streams(std::move(asked_streams)),
        memory(model.MakeStateMemory(std::ssize(rows), std::ssize(streams) * 32)) {
    for (size_t i = rows.size(); i > 0; --i) places.push_back(static_cast<int32_t>(i) - 1);
  }
  HiddenStates request() const { return {rows, streams, memory.get(), places}; }
  // Of row rows[i] and stream streams[j].
  const float* state(size_t i, size_t j) const {
    return memory->data() + places[i] * memory->width() + static_cast<int64_t>(j) * 32;
  }
  std::vector<float> all() const {
    std::vector<float> states(rows.size() * streams.size() * 32);
    memory->Read(0, states);
    return states;
  }
};

TEST(Transformer, AskingForHiddenStatesChangesNoBitAndAllocatesNothing) {
  const auto model = LoadTiny("Gemma2ForCausalLM", 2);
  EXPECT_EQ(model->metadata().num_layers, 2);
  EXPECT_EQ(model->metadata().hidden_size, 32);
  model->Allocate(4, 32, 32);
  OneSequence sequence;
  sequence.rows = {4, 19};
  const std::vector<float> logits = Copy(model->Forward(sequence.batch()));
  AskedStates all(*model, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19},
                  {0, 1, 2, 3});
  AskedStates some(*model, {3, 4, 17}, {3, 1, 3});
  ForwardBatch batch = sequence.batch();
  for (AskedStates* asked : {&all, &some}) {
    batch.hidden = asked->request();
    const int64_t before = testing::NumAllocations();
    const LogitsView view = model->Forward(batch);
    EXPECT_EQ(testing::NumAllocations(), before);
    EXPECT_EQ(Copy(view), logits);
  }
  for (size_t i = 0; i < some.rows.size(); ++i) {
    for (size_t j = 0; j < some.streams.size(); ++j) {
      const auto* in_some = some.state(i, j);
      const auto* in_all =
          all.state(static_cast<size_t>(some.rows[i]), static_cast<size_t>(some.streams[j]));
      EXPECT_TRUE(std::equal(in_some, in_some + 32, in_all)) << i << ' ' << j;
    }
  }
  sequence.rows = {};
  batch.logits_rows = sequence.rows;
  const std::vector<float> expected = some.all();
  some.memory->Write(0, std::vector<float>(expected.size()));
  batch.hidden = some.request();
  EXPECT_EQ(model->Forward(batch).num_rows, 0);
  EXPECT_EQ(some.all(), expected);
}

TEST(Transformer, HiddenStatesThatItLacksAreInternalErrors) {
  const auto model = LoadTiny("LlamaForCausalLM");
  model->Allocate(4, 20, 20);
  const OneSequence sequence;
  ForwardBatch batch = sequence.batch();
  const auto fails = [&](const HiddenStates& asked) {
    batch.hidden = asked;
    EXPECT_THROW(model->Forward(batch), InternalError);
  };
  const auto fails_with = [&](std::vector<int32_t> rows, std::vector<int32_t> streams) {
    fails(AskedStates(*model, std::move(rows), std::move(streams)).request());
  };
  fails_with({0}, {4});
  fails_with({0}, {-1});
  fails_with({20}, {0});
  fails_with({1, 1}, {0});
  AskedStates asked(*model, {0, 1}, {0});
  const auto fails_without = [&](auto edit) {
    HiddenStates request = asked.request();
    edit(request);
    fails(request);
  };
  fails_without([](HiddenStates& request) { request.memory = nullptr; });
  fails_without([](HiddenStates& request) { request.places = request.places.first(1); });
  asked.places[0] = 2;
  fails(asked.request());
  asked.places[0] = -1;
  fails(asked.request());
  const auto wide = model->MakeStateMemory(20, 64);
  asked.places[0] = 1;
  fails_without([&](HiddenStates& request) { request.memory = wide.get(); });
  batch.hidden = {};
  const auto states = model->MakeStateMemory(20, 32);
  batch.draft.target = states.get();  // it is no draft head
  batch.draft.places = sequence.rows;
  EXPECT_THROW(model->Forward(batch), InternalError);
  batch.draft = {};
  batch.draft.own_rows = sequence.rows;
  EXPECT_THROW(model->Forward(batch), InternalError);
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
