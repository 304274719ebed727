// Writes checkpoints of tiny random decoders, tensor by tensor as the weight map wants them.
#pragma once

#include <filesystem>
#include <string>

namespace mlc_native::testing {

// A folder below the temporary directory, gone with the object.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  void Write(const std::string& name, const std::string& content) const;

 private:
  std::filesystem::path path_;
};

// Two layers of hidden size 32; `fields` are added to config.json, as in R"("head_dim": 8)".
std::string TinyConfig(const std::string& architecture, const std::string& fields = "");

// config.json and float32 weights: matrices in [-0.2, 0.2], vectors around 1, always the same.
void WriteTinyCheckpoint(const TempFolder& folder, const std::string& config);

}  // namespace mlc_native::testing
