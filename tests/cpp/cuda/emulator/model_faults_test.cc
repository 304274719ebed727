// What a CudaModel does when its device fails, with the hooks of the emulated machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "cuda/emulator/emulator.h"
#include "cuda/model_driver.h"
#include "mlc_native/engine.h"
#include "support/error.h"

namespace mlc_native {
namespace {

using kernels::cuda::DeviceError;

class CudaModelFaults : public ::testing::Test {
 protected:
  void TearDown() override {
    mlc_native_emulated_lose_device(0, -1);
    mlc_native_emulated_allow_graphs(1);
    mlc_native_emulated_set_memory(int64_t{256} << 20);
  }

  // Some decode steps of one sequence.
  static std::vector<std::vector<float>> Decode(Model& model) {
    TestSequence sequence(0);
    std::vector<std::vector<float>> all;
    all.push_back(Logits(model, TestBatch().Add(sequence, SomeTokens(9, 1))));
    for (int32_t token = 0; token < 5; ++token) {
      all.push_back(Logits(model, TestBatch().Add(sequence, {token})));
    }
    return all;
  }

  TinyModel tiny_;
};

TEST_F(CudaModelFaults, MemoryIsReturned) {
  const int64_t before = mlc_native_emulated_used_memory(0);
  {
    const auto model = tiny_.OnDevice();
    const int64_t used = mlc_native_emulated_used_memory(0);
    EXPECT_GT(used, before);
    model->Allocate(kTestPages, kTestRows, kTestLogits);  // replaces the earlier memory
    EXPECT_EQ(mlc_native_emulated_used_memory(0), used);
    Decode(*model);
  }
  EXPECT_EQ(mlc_native_emulated_used_memory(0), before);
}

TEST_F(CudaModelFaults, AStepAllocatesNothingOnTheDevice) {
  const auto model = tiny_.OnDevice();
  Decode(*model);
  const int64_t before = mlc_native_emulated_counter(MLC_NATIVE_EMULATED_ALLOCATIONS);
  Decode(*model);
  EXPECT_EQ(mlc_native_emulated_counter(MLC_NATIVE_EMULATED_ALLOCATIONS), before);
}

TEST_F(CudaModelFaults, TooLittleMemoryIsAConfigError) {
  const auto model = LoadCudaModel(tiny_.Source());
  mlc_native_emulated_set_memory(mlc_native_emulated_used_memory(0) + 100000);
  const int64_t before = mlc_native_emulated_used_memory(0);
  try {
    model->Allocate(kTestPages, kTestRows, kTestLogits);
    FAIL() << "it fits";
  } catch (const InvalidConfig& error) {
    EXPECT_EQ(error.field(), "gpu_memory_utilization");
    EXPECT_NE(std::string(error.what()).find("100000 are free"), std::string::npos) << error.what();
  }
  EXPECT_EQ(mlc_native_emulated_used_memory(0), before);
  mlc_native_emulated_set_memory(int64_t{256} << 20);
  EXPECT_NO_THROW(model->Allocate(kTestPages, kTestRows, kTestLogits));

  mlc_native_emulated_set_memory(mlc_native_emulated_used_memory(0) + 100);
  try {
    LoadCudaModel(tiny_.Source());
    FAIL() << "the weights fit";
  } catch (const InvalidConfig& error) {
    EXPECT_EQ(error.field(), "device");
  }
}

TEST_F(CudaModelFaults, ALostDeviceStaysLostForTheModel) {
  auto model = tiny_.OnDevice();
  Decode(*model);
  for (const int64_t launches : {0, 1, 7, 20}) {
    mlc_native_emulated_lose_device(0, launches);
    EXPECT_THROW(Decode(*model), DeviceError);
    mlc_native_emulated_lose_device(0, -1);
    EXPECT_THROW(Decode(*model), DeviceError);
    std::vector<DrawnToken> tokens;
    EXPECT_THROW(model->step_queue()->Collect(&tokens), DeviceError);
    EXPECT_THROW(model->CopyPages(std::vector<PageCopy>{{0, 1}}), DeviceError);
    EXPECT_THROW(model->Allocate(kTestPages, kTestRows, kTestLogits), DeviceError);
    model = tiny_.OnDevice();  // another one may use it again
    EXPECT_NO_THROW(Decode(*model));
  }
  mlc_native_emulated_lose_device(0, 0);
  EXPECT_NO_THROW(model.reset());
}

TEST_F(CudaModelFaults, GraphsChangeNoBitAndMayFail) {
  const auto with = tiny_.OnDevice();
  const auto launched = [] { return mlc_native_emulated_counter(MLC_NATIVE_EMULATED_GRAPHS); };
  const auto want = Decode(*with);
  int64_t before = launched();
  EXPECT_EQ(Decode(*with), want);
  EXPECT_EQ(launched(), before + 5);
  mlc_native_emulated_allow_graphs(0);
  const auto without = tiny_.OnDevice();
  before = launched();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Decode(*without), want);
  EXPECT_EQ(Decode(*without), want);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(launched(), before);
  EXPECT_NE(said.find("without CUDA graphs"), std::string::npos) << said;
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
}

TEST_F(CudaModelFaults, TwoDevicesAreKeptApart) {
  const auto one = tiny_.OnDevice();
  const int64_t before = mlc_native_emulated_used_memory(1);
  const auto two = tiny_.Load(tiny_.Source("float32", "cuda:1"));
  EXPECT_GT(mlc_native_emulated_used_memory(1), before);
  const auto want = Decode(*one);
  EXPECT_EQ(Decode(*two), want);
  mlc_native_emulated_lose_device(0, 0);
  EXPECT_THROW(Decode(*one), DeviceError);
  EXPECT_EQ(Decode(*two), want);
}

// One request after the other, each of which ends.
std::vector<std::string> Errors(Engine& engine, std::vector<RequestStreamOutput>* outputs, int n) {
  std::vector<std::string> errors;
  for (int i = 0; i < n; ++i) {
    outputs->clear();
    GenerationConfig config;
    config.temperature = 0;
    config.max_tokens = 5;
    engine.AddRequest(engine.CreateRequest("a", {TokenData{SomeTokens(7, i)}}, config));
    while (!engine.Empty()) engine.Step();
    EXPECT_TRUE(outputs->back().is_final());
    std::string error;
    for (const RequestStreamOutput& output : *outputs) error += output.error_message;
    errors.push_back(error);
    engine.AuditPages();
  }
  return errors;
}

TEST_F(CudaModelFaults, TheEngineAnswersWithErrorsOnceTheDeviceIsLost) {
  std::vector<RequestStreamOutput> outputs;
  EngineOptions options;
  options.request_stream_callback = [&](std::vector<RequestStreamOutput> delivered) {
    std::ranges::move(delivered, std::back_inserter(outputs));
  };
  std::unique_ptr<Model> model = LoadCudaModel(tiny_.Source());
  const EngineConfig config = ResolveEngineConfig({}, model->metadata(), 0);
  const auto engine = Engine::FromModel(std::move(model), config, {}, nullptr, options);
  EXPECT_EQ(Errors(*engine, &outputs, 1), std::vector<std::string>{""});
  mlc_native_emulated_lose_device(0, 30);
  for (const std::string& error : Errors(*engine, &outputs, 3)) {
    EXPECT_NE(error.find("CUDA"), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace mlc_native
