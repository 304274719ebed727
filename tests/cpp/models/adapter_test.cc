// Adapters of the CPU's decoder: what they add for each family, which rows they leave alone, and
// the folders that are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mlc_native/errors.h"
#include "mlc_native/model.h"
#include "support/check.h"
#include "testing/allocations.h"
#include "testing/tiny_adapter.h"
#include "testing/tiny_checkpoint.h"

namespace mlc_native {
namespace {

using testing::TempFolder;
using testing::TinyAdapter;
using testing::TinyConfig;

std::unique_ptr<Model> AllocatedModel(const TempFolder& folder, int64_t num_threads = 1) {
  auto model = LoadModel({.path = folder.path(), .num_threads = num_threads});
  if (model->metadata().recurrent_bytes_per_slot > 0) model->AllocateRecurrent(8);
  model->Allocate(8, 64, 64);
  return model;
}

std::unique_ptr<Model> LoadTinyModel(const std::string& config,
                                     const testing::EditTensor& edit = {},
                                     int64_t num_threads = 1) {
  const TempFolder folder;
  WriteTinyCheckpoint(folder, config, edit);
  return AllocatedModel(folder, num_threads);
}

std::shared_ptr<const ModelAdapter> LoadAdapterOf(const Model& model, const TinyAdapter& adapter) {
  const TempFolder folder;
  adapter.Write(folder);
  return model.adapter_loader()->Load(folder.path());
}

// Prompts of several sequences, each in a page of its own, with the logits of the last two rows.
class Prompts {
 public:
  struct Prompt {
    int32_t num_tokens = 0;
    const ModelAdapter* adapter = nullptr;
  };
  explicit Prompts(const std::vector<Prompt>& prompts) {
    for (size_t i = 0; i < prompts.size(); ++i) {
      pages_.push_back({static_cast<int32_t>(i)});
      writes_.push_back({{.num_tokens = prompts[i].num_tokens, .slot = static_cast<int32_t>(i)}});
    }
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto first = static_cast<int32_t>(tokens_.size());
      for (int32_t j = 0; j < prompts[i].num_tokens; ++j) tokens_.push_back(j * 7 % 50);
      const auto end = static_cast<int32_t>(tokens_.size());
      rows_.push_back(end - 2);
      rows_.push_back(end - 1);
      slices_.push_back({.first_row = first,
                         .num_tokens = prompts[i].num_tokens,
                         .position = 0,
                         .block_table = pages_[i],
                         .recurrent_writes = writes_[i],
                         .adapter = prompts[i].adapter});
    }
  }
  ForwardBatch batch() const { return {tokens_, slices_, rows_}; }

 private:
  std::vector<int32_t> tokens_;
  std::vector<std::vector<int32_t>> pages_;
  std::vector<std::vector<RecurrentWrite>> writes_;
  std::vector<int32_t> rows_;
  std::vector<SequenceSlice> slices_;
};

std::vector<float> LogitsOf(Model& model, const std::vector<Prompts::Prompt>& prompts) {
  const Prompts batch(prompts);
  const LogitsView view = model.Forward(batch.batch());
  return {view.data, view.data + view.num_rows * view.vocab_size};
}

// Of prompt i among those that gave them.
std::vector<float> PartOfLogits(const std::vector<float>& logits, size_t i) {
  constexpr size_t kLogits = size_t{2} * 50;
  return {logits.begin() + i * kLogits, logits.begin() + (i + 1) * kLogits};
}

double MostDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max<double>(most, std::abs(a[i] - b[i]));
  return most;
}

// Families whose linears differ in how tensors fill them, and in what comes before and behind them.
// test_adapter_families.py has all.
constexpr const char* kFamilies[] = {
    "LlamaForCausalLM",     "Phi3ForCausalLM",        "GPT2LMHeadModel",
    "FalconForCausalLM",    "CohereForCausalLM",      "Gemma3nForCausalLM",
    "Gemma4ForCausalLM",    "DeepseekV2ForCausalLM",  "DeepseekV3ForCausalLM",
    "Qwen3NextForCausalLM", "Qwen3_5ForCausalLM",     "KimiLinearForCausalLM",
    "FalconH1ForCausalLM",  "NemotronHForCausalLM",   "Lfm2ForCausalLM",
    "Qwen2MoeForCausalLM",  "MiMoV2FlashForCausalLM", "LagunaForCausalLM",
    "BitNetForCausalLM",    "Cohere2MoeForCausalLM"};

template <typename Visit>
void ForEachFamily(const Visit& visit) {
  for (const char* architecture : kFamilies) {
    SCOPED_TRACE(architecture);
    const bool has_short_values = std::string_view(architecture) == "MiMoV2FlashForCausalLM";
    visit(TinyConfig(architecture, has_short_values ? R"("head_dim": 12, "v_head_dim": 8)" : ""));
  }
}

TEST(Adapter, IsWhatMergingItIntoTheWeightsGives) {
  ForEachFamily([](const std::string& config) {
    const auto model = LoadTinyModel(config);
    const TinyAdapter adapter(config, 3, 5);
    EXPECT_GE(adapter.num_modules(), 4u);
    const auto loaded = LoadAdapterOf(*model, adapter);
    EXPECT_EQ(loaded->rank(), 3);
    const auto alone = LogitsOf(*model, {{11}});
    const auto changed = LogitsOf(*model, {{11, loaded.get()}});
    const auto merged = LogitsOf(*LoadTinyModel(config, adapter.Merge()), {{11}});
    EXPECT_GT(MostDifference(changed, alone), 0.01);
    EXPECT_LT(MostDifference(changed, merged), 0.002) << "of " << MostDifference(changed, alone);
  });
}

// And a forward with them allocates nothing.
TEST(Adapter, RowsHaveTheirBitsBesideOthers) {
  ForEachFamily([](const std::string& config) {
    const auto model = LoadTinyModel(config, {}, 2);
    const auto a = LoadAdapterOf(*model, TinyAdapter(config, 3, 5));
    const auto b = LoadAdapterOf(*model, TinyAdapter(config, 3, 6));
    const auto other_rank = LoadAdapterOf(*model, TinyAdapter(config, 5, 7));
    const std::vector<Prompts::Prompt> prompts = {
        {11, a.get()}, {11}, {9, b.get()}, {5, a.get()}, {11, other_rank.get()}};
    const Prompts batch(prompts);
    const int64_t before = testing::NumAllocations();
    const LogitsView view = model->Forward(batch.batch());
    EXPECT_EQ(testing::NumAllocations(), before);
    const std::vector<float> together(view.data, view.data + view.num_rows * view.vocab_size);
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(PartOfLogits(together, i), LogitsOf(*model, {prompts[i]})) << i;
    }
    EXPECT_NE(PartOfLogits(together, 0), PartOfLogits(together, 1));
  });
}

// Long prompts are computed in several parts.
TEST(Adapter, ManyRowsHaveTheBitsOfFew) {
  const std::string config = TinyConfig("LlamaForCausalLM");
  const TempFolder folder;
  WriteTinyCheckpoint(folder, config);
  const auto model = LoadModel({.path = folder.path(), .num_threads = 2});
  model->Allocate(24, 384, 384);
  const auto adapter = LoadAdapterOf(*model, TinyAdapter(config, 3, 5));
  std::vector<int32_t> pages(16), tokens;
  for (int32_t i = 0; i < 16; ++i) pages[i] = i;
  for (int32_t i = 0; i < 250; ++i) tokens.push_back(i * 11 % 50);
  const auto logits = [&](int32_t first, int32_t num_tokens) {
    const SequenceSlice slice{.num_tokens = num_tokens,
                              .position = first,
                              .block_table = std::span(pages).first((first + num_tokens + 15) / 16),
                              .adapter = adapter.get()};
    const int32_t last = num_tokens - 1;
    const LogitsView view =
        model->Forward({std::span(tokens).subspan(first, num_tokens), {&slice, 1}, {&last, 1}});
    return std::vector<float>(view.data, view.data + view.vocab_size);
  };
  const std::vector<float> at_once = logits(0, 250);
  for (int32_t first = 0; first < 249; first += 23) logits(first, std::min(23, 249 - first));
  EXPECT_EQ(logits(249, 1), at_once);
}

TEST(Adapter, MayChangeOneLinearAlone) {
  const std::string config = TinyConfig("LlamaForCausalLM");
  const auto model = LoadTinyModel(config);
  for (const char* name : {"q_proj", "v_proj", "o_proj", "up_proj", "down_proj"}) {
    TinyAdapter adapter(config, 2, 9);
    adapter.KeepOnly(name);
    EXPECT_EQ(adapter.num_modules(), 2u);
    const auto loaded = LoadAdapterOf(*model, adapter);
    const auto merged = LogitsOf(*LoadTinyModel(config, adapter.Merge()), {{11}});
    EXPECT_LT(MostDifference(LogitsOf(*model, {{11, loaded.get()}}), merged), 0.001) << name;
    EXPECT_GT(MostDifference(LogitsOf(*model, {{11}}), merged), 0.01) << name;
  }
}

TEST(Adapter, OfAnotherModelIsAnInternalError) {
  const std::string config = TinyConfig("LlamaForCausalLM");
  const auto model = LoadTinyModel(config);
  const auto other = LoadTinyModel(config);
  const auto adapter = LoadAdapterOf(*other, TinyAdapter(config, 3, 5));
  EXPECT_THROW(LogitsOf(*model, {{11, adapter.get()}}), InternalError);
  EXPECT_EQ(LogitsOf(*model, {{11}}), LogitsOf(*other, {{11}}));
}

TEST(Adapter, OutlivesItsModel) {
  const std::string config = TinyConfig("LlamaForCausalLM");
  std::shared_ptr<const ModelAdapter> adapter;
  std::shared_ptr<const AdapterLoader> loader;
  {
    const auto model = LoadTinyModel(config);
    loader = model->adapter_loader();
    adapter = LoadAdapterOf(*model, TinyAdapter(config, 3, 5));
  }
  EXPECT_GT(adapter->num_bytes(), 0);
  const TempFolder folder;
  TinyAdapter(config, 2, 5).Write(folder);
  EXPECT_EQ(loader->Load(folder.path())->rank(), 2);
}

// ---- Folders that are refused ----

class RefusedAdapter : public ::testing::Test {
 protected:
  RefusedAdapter() : config_(TinyConfig("LlamaForCausalLM")), model_(LoadTinyModel(config_)) {
    TinyAdapter(config_, 2, 5).Write(folder_);
  }
  void SetConfig(const std::string& fields) const {
    folder_.Write("adapter_config.json",
                  R"({"peft_type": "LORA", "lora_alpha": 4, )" + fields + "}");
  }
  std::string Message() const { return MessageOfLoading(folder_); }
  std::string MessageOfLoading(const TempFolder& folder) const {
    try {
      model_->adapter_loader()->Load(folder.path());
    } catch (const LoadError& error) {
      return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return "";
  }

  const std::string config_;
  const std::unique_ptr<Model> model_;
  const TempFolder folder_;
};

TEST_F(RefusedAdapter, FieldsThatAreNotSupported) {
  for (const char* fields :
       {R"("bias": "all")", R"("use_dora": true)", R"("lora_bias": true)",
        R"("modules_to_save": ["lm_head"])", R"("layer_replication": [[0, 1]])",
        R"("target_parameters": ["a"])", R"("init_lora_weights": "pissa_niter_4")",
        R"("alpha_pattern": {"q.*": 3})", R"("use_rslora": 1)", R"("lora_alpha": "8")"}) {
    SetConfig(fields);
    const std::string name = std::string(fields).substr(0, std::string(fields).find(':'));
    EXPECT_NE(Message().find(name), std::string::npos) << Message();
  }
  SetConfig(R"("modules_to_save": [], "init_lora_weights": true, "bias": "none")");
  EXPECT_NE(model_->adapter_loader()->Load(folder_.path()), nullptr);
}

TEST_F(RefusedAdapter, ScalesOfModules) {
  TinyAdapter adapter(config_, 2, 5);
  adapter.KeepOnly("layers.0.self_attn.q_proj");
  adapter.Write(folder_);
  const auto logits = [&](const std::string& fields) {
    SetConfig(fields);
    return LogitsOf(*model_, {{11, model_->adapter_loader()->Load(folder_.path()).get()}});
  };
  const auto plain = logits(R"("lora_alpha": 4)");
  EXPECT_EQ(logits(R"("lora_alpha": 1, "alpha_pattern": {"q_proj": 4})"), plain);
  EXPECT_EQ(logits(R"("lora_alpha": 1, "alpha_pattern": {"layers.0.self_attn.q_proj": 4})"), plain);
  EXPECT_EQ(logits(R"("alpha_pattern": {"proj": 9, "^q_proj": 9, "k_proj": 9})"), plain);
  EXPECT_NE(logits(R"("use_rslora": true)"), plain);
  EXPECT_EQ(logits(R"("lora_alpha": 5.656854249492381, "use_rslora": true)"),
            logits(R"("lora_alpha": 8)"));
}

TEST_F(RefusedAdapter, Files) {
  folder_.Write("adapter_config.json", "[]");
  EXPECT_NE(Message().find("adapter_config.json"), std::string::npos);
  const TempFolder empty;
  EXPECT_THROW(model_->adapter_loader()->Load(empty.path()), LoadError);
  EXPECT_THROW(model_->adapter_loader()->Load("/no/such/folder"), LoadError);
  empty.Write("adapter_config.json", R"({"lora_alpha": 1})");
  empty.Write("adapter_model.bin", "x");
  EXPECT_NE(MessageOfLoading(empty).find("may run code"), std::string::npos);
}

TEST_F(RefusedAdapter, OfAnotherShape) {
  const std::string wide = TinyConfig("LlamaForCausalLM", R"("intermediate_size": 64)");
  TinyAdapter(wide, 2, 5).Write(folder_);
  EXPECT_NE(Message().find("mlp."), std::string::npos) << Message();
  EXPECT_NE(Message().find("the model needs"), std::string::npos) << Message();
  const std::string deep = TinyConfig("LlamaForCausalLM", R"("num_hidden_layers": 3)");
  TinyAdapter(deep, 2, 5).Write(folder_);
  EXPECT_NE(Message().find("layers.2."), std::string::npos) << Message();
}

}  // namespace
}  // namespace mlc_native
