#include "models/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "support/error.h"
#include "support/thread_pool.h"
#include "testing/tiny_checkpoint.h"
#include "weights/weight_loader.h"

namespace mlc_native {
namespace {

// The error of loading a model whose weights `damage` changes when the first of them are packed.
template <typename Damage>
std::string ErrorOfWeightsThatChange(const testing::TempFolder& folder, Damage damage) {
  WriteTinyCheckpoint(folder, testing::TinyConfig("LlamaForCausalLM"));
  const std::string weights = folder.file("model.safetensors");
  bool damaged = false;
  ModelSource source;
  source.path = folder.path();
  source.num_threads = 1;
  source.progress = [&](int64_t, int64_t) {
    if (!damaged) damage(weights);
    damaged = true;
  };
  try {
    LoadBuiltinModel(source);
  } catch (const LoadError& error) {
    EXPECT_TRUE(damaged);
    return error.what();
  }
  ADD_FAILURE() << "loaded";
  return "";
}

// A map of the file would end the process with SIGBUS.
TEST(Loader, WeightsThatChangeWhileTheyLoadAreAnError) {
  const testing::TempFolder folder;
  const std::string changed = "model.safetensors: was changed while it was loaded";
  EXPECT_THAT(ErrorOfWeightsThatChange(
                  folder, [](const std::string& path) { std::filesystem::resize_file(path, 100); }),
              ::testing::HasSubstr(changed));
  EXPECT_THAT(ErrorOfWeightsThatChange(folder,
                                       [](const std::string& path) {
                                         std::filesystem::copy(path, path + ".new");
                                         std::filesystem::rename(path + ".new", path);
                                       }),
              ::testing::HasSubstr(changed));
}

// Where the memory of a node lies cannot be seen here; that each byte is there can.
TEST(Loader, NodesHaveTheSameWeightsPackedAndFromAFile) {
  const testing::TempFolder folder, cache;
  WriteTinyCheckpoint(folder, testing::TinyConfig("LlamaForCausalLM", R"("vocab_size": 2000)"));
  const ModelConfig config = ReadModelConfig(folder.path());
  const kernels::CpuKernels& isa = kernels::SelectCpuKernels();
  ThreadPool one_node(2);
  ThreadPool two_nodes({{1, {}}, {2, {}}}, ThreadPool::kSpinTime);
  const auto load = [&](ThreadPool& pool, const std::string& cache_folder) {
    return LoadWeights(config, Checkpoint(folder.path()),
                       {.weights = {},
                        .cache = {.folder = cache_folder, .max_bytes = {}},
                        .cpu = {&isa, &pool},
                        .progress = {}});
  };
  const auto bytes = [](const CpuDecoderWeights& weights) {
    return std::vector(weights.memory.data, weights.memory.data + weights.memory.size);
  };
  const CpuDecoderWeights want = load(one_node, "");
  EXPECT_EQ(bytes(load(two_nodes, "")), bytes(want));
  EXPECT_EQ(bytes(load(one_node, cache.path())), bytes(want)) << "which writes the file";
  const CpuDecoderWeights copied = load(two_nodes, cache.path());
  EXPECT_EQ(bytes(copied), bytes(want));
  EXPECT_FALSE(copied.memory.mapped) << "a map lies where the file does";
}

TEST(Loader, ThreadsWaitAsTheSourceAsks) {
  ModelSource source;
  source.num_threads = 2;
  EXPECT_EQ(MakeThreadPool(source)->spin_time(), ThreadPool::kSpinTime);
  source.cpu_idle_mode = CpuIdleMode::kPark;
  EXPECT_EQ(MakeThreadPool(source)->spin_time(), std::chrono::microseconds(0));
}

}  // namespace
}  // namespace mlc_native
