// RegularFile is a file of a model folder or a cache, open for reading. It is a regular file: a
// FIFO, a socket, a device or a folder of that name is an error, so neither opening nor reading
// ever waits for another process. Bytes are copied (pread), so a file that another process cuts
// short is an error, where a map of it would end the process with SIGBUS. RAII; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mlc_native/detail/export.h"

namespace mlc_native {

// Tells whether a file is still the one that was opened earlier.
struct FileStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size = 0;
  int64_t modified_ns = 0;  // since 1970

  bool operator==(const FileStamp&) const = default;
};

class MLC_NATIVE_PRIVATE_API RegularFile {
 public:
  // Every function that fails throws a LoadError about `field`, by default the path, whose message
  // begins with the path.
  explicit RegularFile(std::string path, std::string field = "");
  // The file `name` in a folder that is open; a symbolic link is an error. `path` is for messages.
  RegularFile(int folder, const std::string& name, std::string path);
  ~RegularFile();
  RegularFile(RegularFile&& other) noexcept;
  RegularFile& operator=(RegularFile&&) = delete;

  const std::string& path() const { return path_; }
  const FileStamp& stamp() const { return stamp_; }
  uint64_t size() const { return stamp_.size; }
  int descriptor() const { return descriptor_; }

  // Fills `out` with the bytes from `offset` on. Fails if the file ends before.
  void Read(uint64_t offset, std::span<std::byte> out) const;
  // Returns the whole content. Fails for a file of more than `max_bytes`.
  std::string ReadAll(uint64_t max_bytes) const;
  // Fails unless the file has this stamp, now.
  void RequireStamp(const FileStamp& expected) const;

 private:
  void Open(int folder, const char* name, int flags);
  FileStamp CurrentStamp() const;
  [[noreturn]] void Fail(const std::string& what) const;

  std::string path_;
  std::string field_;
  int descriptor_ = -1;
  FileStamp stamp_;
};

}  // namespace mlc_native
