// A read-only memory map of a whole file. RAII; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mlc_native/detail/export.h"

namespace mlc_native {

class MLC_NATIVE_PRIVATE_API MappedFile {
 public:
  // Throws LoadError if the file is missing, not regular or not readable.
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  int64_t modified_ns() const { return modified_ns_; }  // since 1970

  // Asks for huge pages if the file system has them, for a file that is read repeatedly.
  void UseHugePages() const;

  // Releases the memory of these bytes. They keep their value and are read from the file again on
  // the next access.
  void Drop(std::span<const std::byte> bytes) const;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int64_t modified_ns_ = 0;
};

}  // namespace mlc_native
