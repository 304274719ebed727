// A folder of a test's own: no other test, program or checkout has the same, so that all of them
// may run at once.
#pragma once

#include <filesystem>
#include <string>

namespace mlc_native::testing {

// Below the temporary directory, gone with the object.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  // Folders within `name` are made.
  void Write(const std::string& name, const std::string& content) const;

 private:
  std::filesystem::path path_;
};

}  // namespace mlc_native::testing
