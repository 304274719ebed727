// How many kernels a step takes.
#include <string>
#include <string_view>

#include "cuda/emulator/emulator.h"
#include "cuda/model_driver.h"
#include "testing/tiny_adapter.h"

namespace mlc_native {
namespace {

// Of a step with so many rows, and of a model with so many layers. The last row has an adapter or
// not.
int64_t LaunchesOfAStep(const std::string& architecture, const std::string& fields, int layers,
                        int rows, bool with_adapter) {
  constexpr std::string_view kTwoLayers = R"("num_hidden_layers": 2)";
  std::string config = testing::TinyConfig(architecture, fields);
  config.replace(config.find(kTwoLayers), kTwoLayers.size(),
                 R"("num_hidden_layers": )" + std::to_string(layers));
  const testing::TempFolder folder;
  WriteTinyCheckpoint(folder, config);
  const auto model =
      LoadCudaModel({.path = folder.path(), .device = "cuda:0", .dtype = "bfloat16"});
  model->Allocate(kTestPages, kTestRows, kTestLogits);
  std::vector<TestSequence> sequences;
  for (int i = 0; i < rows; ++i) sequences.emplace_back(i);
  TestBatch batch;
  for (TestSequence& sequence : sequences) batch.Add(sequence, {3});
  std::shared_ptr<const ModelAdapter> adapter;
  if (with_adapter) {
    const testing::TempFolder of_adapter;
    testing::TinyAdapter(config, 3, 5).Write(of_adapter);
    adapter = model->adapter_loader()->Load(of_adapter.path());
    batch.With(adapter.get());
  }
  const int64_t before = mlc_native_emulated_counter(MLC_NATIVE_EMULATED_LAUNCHES);
  Logits(*model, batch);
  return mlc_native_emulated_counter(MLC_NATIVE_EMULATED_LAUNCHES) - before;
}

int64_t LaunchesOfALayer(const std::string& architecture, const std::string& fields, int rows,
                         bool with_adapter = false) {
  const int64_t of_two = LaunchesOfAStep(architecture, fields, 2, rows, with_adapter);
  const int64_t of_four = LaunchesOfAStep(architecture, fields, 4, rows, with_adapter);
  EXPECT_EQ((of_four - of_two) % 2, 0);
  return (of_four - of_two) / 2;
}

// So splits are listed once a step for each window, whatever layers there are.
TEST(CudaLaunches, OfALayer) {
  // Norm, product, rope, attention, product; norm, product with the activation, product.
  EXPECT_EQ(LaunchesOfALayer("LlamaForCausalLM", "", 2), 8);
  EXPECT_EQ(LaunchesOfALayer("Gemma2ForCausalLM", R"("sliding_window": 9)", 2), 8);
}

// Products of one row add to the residual and normalize it, where its norm is all that they read
// and what is added comes from a product as it is.
TEST(CudaLaunches, OfALayerForOneRow) {
  EXPECT_EQ(LaunchesOfALayer("LlamaForCausalLM", "", 1), 6);
  EXPECT_EQ(LaunchesOfALayer("GemmaForCausalLM", "", 1), 6);
  EXPECT_EQ(LaunchesOfALayer("Qwen3ForCausalLM", "", 1), 6);
  // Norms behind the blocks, too.
  EXPECT_EQ(LaunchesOfALayer("Gemma2ForCausalLM", R"("sliding_window": 9)", 1), 8);
  // LayerNorm; blocks that read the same norm; experts.
  for (const auto& [architecture, fields] : {std::pair{"Starcoder2ForCausalLM", ""},
                                             {"CohereForCausalLM", ""},
                                             {"Qwen3MoeForCausalLM", kQwenExperts}}) {
    EXPECT_EQ(LaunchesOfALayer(architecture, fields, 1), LaunchesOfALayer(architecture, fields, 2))
        << architecture;
  }
}

// As many for one row as for several, with an activation of its own, and two for each linear.
TEST(CudaLaunches, OfALayerWithAdapters) {
  EXPECT_EQ(LaunchesOfALayer("LlamaForCausalLM", "", 1, true), 9 + 2 * 4);
  EXPECT_EQ(LaunchesOfALayer("LlamaForCausalLM", "", 2, true), 9 + 2 * 4);
}

}  // namespace
}  // namespace mlc_native
