// Tests the choice of devices, with the driver of tests/cpp/fake_cuda instead of NVIDIA's.
#include "config/device.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "fake_model/path.h"
#include "mlc_native/model.h"
#include "support/companion.h"
#include "support/error.h"

namespace mlc_native {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DeviceTest : public ::testing::Test {
 protected:
  static constexpr char kLibrary[] = "/any/library.so";

  // Once it is loaded, it is what the name libcuda.so.1 means in this process.
  static void SetUpTestSuite() {
    const auto build = std::filesystem::path(kFakeModelPath).parent_path();
    ASSERT_NE(dlopen((build / "fake_cuda/libcuda.so.1").c_str(), RTLD_NOW), nullptr) << dlerror();
  }
  void SetUp() override {
    if (dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxCreate_v2") != nullptr) {
      GTEST_SKIP() << "NVIDIA's driver was loaded first";
    }
    Gpus("");
    Library("");
  }
  void TearDown() override {
    for (const char* name : {"FAKE_CUDA_GPUS", "FAKE_CUDA_ERROR", "MLC_NATIVE_CUDA_LIB"}) {
      unsetenv(name);
    }
  }

  static void Gpus(const char* capabilities) { setenv("FAKE_CUDA_GPUS", capabilities, 1); }
  static void Library(const char* path) { setenv("MLC_NATIVE_CUDA_LIB", path, 1); }
  static std::string Error(const std::string& device, const std::string& library = kLibrary) {
    try {
      return "resolved to " + ResolveDevice(device, "", library);
    } catch (const InvalidConfig& error) {
      EXPECT_EQ(error.field(), "device");
      return error.what();
    }
  }
};

TEST_F(DeviceTest, EveryGpuThatIsNewEnoughIsListedWhereALibraryIs) {
  Gpus("90,75,80");
  Library(kLibrary);
  EXPECT_THAT(AvailableDevices(), ElementsAre("cpu", "cuda:0", "cuda:2"));
}

TEST_F(DeviceTest, Names) {
  Gpus("90,80");
  Library(kLibrary);
  EXPECT_EQ(ResolveDevice("auto", ""), "cuda:0");
  EXPECT_EQ(ResolveDevice("cuda", ""), "cuda:0");
  EXPECT_EQ(ResolveDevice("cuda:1", ""), "cuda:1");
  EXPECT_EQ(ResolveDevice("cpu", ""), "cpu");
  EXPECT_EQ(ResolveDevice("cpu:0", ""), "cpu");
  EXPECT_EQ(ResolveDevice("cpu:0", kLibrary), "cpu");
  EXPECT_FALSE(FindGpu("cpu:0").has_value());
  const auto gpu = FindGpu("cuda:1");
  ASSERT_TRUE(gpu.has_value());
  EXPECT_EQ(gpu->name, "Fake GPU 1");
  EXPECT_EQ(gpu->compute_capability, 80);
}

TEST_F(DeviceTest, AutoTakesTheFirstThatIsNewEnoughElseTheCpu) {
  EXPECT_EQ(ResolveDevice("auto", "", kLibrary), "cpu");
  Gpus("70,90");
  EXPECT_EQ(ResolveDevice("auto", "", kLibrary), "cuda:1");
  EXPECT_EQ(ResolveDevice("auto", "", ""), "cpu");
  EXPECT_EQ(FindGpu("auto")->index, 1);
}

TEST_F(DeviceTest, ErrorsSayWhatIsMissing) {
  EXPECT_THAT(Error("cuda"), HasSubstr("cuda:0 is not available: the NVIDIA driver finds no GPU"));
  setenv("FAKE_CUDA_ERROR", "3", 1);
  EXPECT_THAT(Error("cuda"), HasSubstr("cuInit: system not yet initialized"));
  setenv("FAKE_CUDA_ERROR", "100", 1);
  EXPECT_THAT(Error("cuda"), HasSubstr("finds no GPU"));
  setenv("FAKE_CUDA_ERROR", "0", 1);
  Gpus("90,75");
  EXPECT_THAT(Error("cuda:2"), HasSubstr("there are 2 GPUs, cuda:0 to cuda:1"));
  EXPECT_THAT(Error("cuda:1"), HasSubstr("compute capability 7.5, at least 8.0"));
  EXPECT_THAT(Error("cuda:0", ""), HasSubstr("has no libmlc_native_cuda.so"));
  EXPECT_THAT(Error("cuda:0", ""), HasSubstr("nvcc"));
  for (const char* nonsense :
       {"", "gpu", "cpu:", "cpu:1", "cuda:", "cuda:-1", "cuda:1x", "cuda:99999999999", "CPU"}) {
    EXPECT_THAT(Error(nonsense), HasSubstr("\"auto\", \"cpu\", \"cuda\" or \"cuda:i\", got"));
  }
}

// The driver is not even asked: a library may have devices of its own.
TEST_F(DeviceTest, AModelLibDecidesWhichDevicesThereAre) {
  setenv("FAKE_CUDA_ERROR", "999", 1);
  EXPECT_EQ(ResolveDevice("cuda", kLibrary), "cuda:0");
  EXPECT_EQ(ResolveDevice("cuda:7", kLibrary), "cuda:7");
  EXPECT_EQ(ResolveDevice("auto", kLibrary), "auto");
  EXPECT_THROW(ResolveDevice("tpu", kLibrary), InvalidConfig);
}

TEST_F(DeviceTest, AModelOnAGpuComesFromTheCudaLibrary) {
  if (CudaLibraryPath().empty()) {
    EXPECT_THROW(LoadModel({.path = "/", .device = "cuda:0"}), InvalidConfig);
  }
  Library("/no/such/library.so");
  try {
    LoadModel({.path = "/", .device = "cuda:0"});
    ADD_FAILURE() << "loaded";
  } catch (const LoadError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/no/such/library.so"));
  }
  Library(kFakeModelPath);
  EXPECT_THROW(LoadModel({.path = "/no/such/folder", .device = "cuda:0"}), LoadError);
}

TEST(Companion, IsInTheFolderOfTheProgramThatTheLibraryIsPartOf) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  EXPECT_EQ(std::filesystem::canonical(CompanionPath(program.filename().c_str())), program);
}

}  // namespace
}  // namespace mlc_native
