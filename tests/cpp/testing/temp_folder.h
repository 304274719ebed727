// A folder for one test. No other test, program or checkout uses the same one, so all of them may
// run at the same time.
#pragma once

#include <filesystem>
#include <string>

namespace mlc_native::testing {

// The folder is below the temporary directory; the destructor removes it.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  // Creates the folders within `name`.
  void Write(const std::string& name, const std::string& content) const;

 private:
  std::filesystem::path path_;
};

}  // namespace mlc_native::testing
