#include "models/plugin.h"

#include <gtest/gtest.h>

#include <string>

#include "fake_model/path.h"
#include "support/error.h"
#include "testing/temp_folder.h"

namespace mlc_native {
namespace {

std::string LoadMessage(const ModelSource& source) {
  try {
    LoadModel(source);
  } catch (const LoadError& error) {
    return error.what();
  }
  return "loaded";
}

TEST(Plugin, CreatesTheModelOfTheFolder) {
  const testing::TempFolder folder;
  folder.Write("config.json", R"({"fake": {"vocab_size": 33}})");
  const auto model = LoadModel({.path = folder.path(), .model_lib = kFakeModelPath});
  EXPECT_EQ(model->metadata().vocab_size, 33);
}

TEST(Plugin, ItsErrorsPassThroughWithTheirType) {
  const testing::TempFolder folder;
  folder.Write("config.json", R"({"fake": {"vocabulary": 33}})");
  const std::string message = LoadMessage({.path = folder.path(), .model_lib = kFakeModelPath});
  EXPECT_NE(message.find("vocabulary"), std::string::npos) << message;
}

TEST(Plugin, AModelOnOneDeviceRefusesMore) {
  const testing::TempFolder folder;
  folder.Write("config.json", R"({"fake": {"vocab_size": 33}})");
  try {
    LoadModel({.path = folder.path(), .model_lib = kFakeModelPath, .tensor_parallel_shards = 2});
    FAIL() << "it has two devices";
  } catch (const InvalidConfig& error) {
    EXPECT_EQ(error.field(), "tensor_parallel_shards");
  }
}

TEST(Plugin, AMissingLibraryIsNamed) {
  const std::string message = LoadMessage({.path = "/", .model_lib = "/no/such/library.so"});
  EXPECT_NE(message.find("model_lib"), std::string::npos) << message;
  EXPECT_NE(message.find("/no/such/library.so"), std::string::npos) << message;
}

TEST(Plugin, ALibraryWithoutTheSymbolsIsNoPlugin) {
  const std::string message = LoadMessage({.path = "/", .model_lib = "libm.so.6"});
  EXPECT_NE(message.find("mlc_native_plugin_abi"), std::string::npos) << message;
}

}  // namespace
}  // namespace mlc_native
