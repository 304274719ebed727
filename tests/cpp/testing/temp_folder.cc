#include "testing/temp_folder.h"

#include <unistd.h>

#include <atomic>
#include <fstream>

namespace mlc_native::testing {
namespace {

std::string NextName() {
  static std::atomic<int> counter{0};
  return "mlc_native_test_" + std::to_string(getpid()) + "_" + std::to_string(counter++);
}

}  // namespace

TempFolder::TempFolder() : path_(std::filesystem::temp_directory_path() / NextName()) {
  std::filesystem::create_directories(path_);
}

TempFolder::~TempFolder() { std::filesystem::remove_all(path_); }

void TempFolder::Write(const std::string& name, const std::string& content) const {
  std::filesystem::create_directories((path_ / name).parent_path());
  std::ofstream(path_ / name, std::ios::binary) << content;
}

}  // namespace mlc_native::testing
