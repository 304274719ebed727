// CacheFolder is a folder of files that this program trusts: it and its files belong to the user
// who runs it, or to root, and not everyone may write to them. Files appear in it complete, under
// their name, or not at all, so any number of processes may read and write it. RAII; any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "support/regular_file.h"

namespace mlc_native {

class CacheFolder {
 public:
  // Every function that fails throws a LoadError whose message begins with the path.

  // Makes the folder, for its owner alone, if there is none.
  explicit CacheFolder(std::string path);
  ~CacheFolder();
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;

  std::string PathOf(const std::string& name) const { return path_ + "/" + name; }
  bool Has(const std::string& name) const;
  RegularFile Open(const std::string& name) const;

  // Writes a file. `fill` calls the function that it is given for each part: its offset, its bytes.
  using PutFn = std::function<void(size_t offset, std::span<const std::byte> bytes)>;
  void Write(const std::string& name, size_t size,
             const std::function<void(const PutFn&)>& fill) const;

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace mlc_native
