#include "models/plugin.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "fake_model/path.h"
#include "support/error.h"

namespace mlc_native {
namespace {

// A model folder with this config.json, gone with the object.
class ModelFolder {
 public:
  explicit ModelFolder(const std::string& config) {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::temp_directory_path() /
            ("plugin_test_" + std::string(test->name()) + std::to_string(getpid()));
    std::filesystem::create_directories(path_);
    std::ofstream(path_ / "config.json") << config;
  }
  ~ModelFolder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::string LoadMessage(const ModelSource& source) {
  try {
    LoadModel(source);
  } catch (const LoadError& error) {
    return error.what();
  }
  return "loaded";
}

TEST(Plugin, CreatesTheModelOfTheFolder) {
  const ModelFolder folder(R"({"fake": {"vocab_size": 33}})");
  const auto model = LoadModel({.path = folder.path(), .model_lib = MLC_NATIVE_FAKE_MODEL_PATH});
  EXPECT_EQ(model->metadata().vocab_size, 33);
}

TEST(Plugin, ItsErrorsPassThroughWithTheirType) {
  const ModelFolder folder(R"({"fake": {"vocabulary": 33}})");
  const std::string message =
      LoadMessage({.path = folder.path(), .model_lib = MLC_NATIVE_FAKE_MODEL_PATH});
  EXPECT_NE(message.find("vocabulary"), std::string::npos) << message;
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
