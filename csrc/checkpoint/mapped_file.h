// A read-only memory map of a whole file. RAII; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace mlc_native {

class MappedFile {
 public:
  // Throws LoadError: not there, not a regular file, not readable.
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  int64_t modified_ns() const { return modified_ns_; }  // since 1970

  // For a file that is read over and over: asks for huge pages, where the file system has them.
  void UseHugePages() const;

  // Lets the system take back the memory of these bytes, which keep their value (they are read from
  // the file again when touched).
  void Drop(std::span<const std::byte> bytes) const;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int64_t modified_ns_ = 0;
};

}  // namespace mlc_native
