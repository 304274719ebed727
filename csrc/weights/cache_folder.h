// CacheFolder is a folder of files that this program trusts: it and its files belong to the user
// who runs it, or to root, and not everyone may write to them. Files appear in it complete, under
// their name, or not at all, so any number of processes may read and write it. RAII; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "mlc_native/errors.h"
#include "support/regular_file.h"

namespace mlc_native {

// The message begins with a path.
class CacheError : public LoadError {
 public:
  using LoadError::LoadError;
};

class CacheFolder {
 public:
  // Every function that fails throws a CacheError, or what RegularFile throws.

  // Makes the folder, for its owner alone, if there is none.
  explicit CacheFolder(std::string path);
  ~CacheFolder();
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;

  std::string PathOf(const std::string& name) const { return path_ + "/" + name; }
  bool Has(const std::string& name) const;
  RegularFile Open(const std::string& name) const;

  // A file that is being written. Bytes that are not put are zeros.
  class NewFile {
   public:
    virtual ~NewFile() = default;
    virtual void Put(size_t offset, std::span<const std::byte> bytes) = 0;
    // Fills `out` with the bytes from `offset` on. Any thread.
    virtual void Read(size_t offset, std::span<std::byte> out) const = 0;
  };
  // Writes a file, which `fill` puts part by part.
  void Write(const std::string& name, size_t size, const std::function<void(NewFile&)>& fill) const;

  // Deletes what processes that ended while they wrote files of this ending have left behind.
  void RemoveAbandoned(std::string_view ending) const;
  // Notes that a file is used now, for MakeRoom; without the right to, it has no effect.
  void Touch(const std::string& name) const;
  // Deletes a file if it is still the one of this stamp. Processes that have mapped it keep it.
  void Remove(const std::string& name, const FileStamp& stamp) const;
  // Deletes the files of this ending that were used longest ago, except `kept`, until the others
  // have at most `max_bytes`. Processes that have mapped a file keep it.
  void MakeRoom(std::string_view ending, const std::string& kept, uint64_t max_bytes) const;

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace mlc_native
