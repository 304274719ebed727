#include "checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "support/error.h"

namespace mlc_native {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

[[noreturn]] void Fail(const std::string& path, const std::string& what) {
  throw LoadError(path, path + ": " + what);
}

}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const Descriptor file{open(path_.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) Fail(path_, std::string("cannot be opened: ") + std::strerror(errno));
  struct stat info;
  if (fstat(file.fd, &info) != 0) Fail(path_, std::string("stat: ") + std::strerror(errno));
  if (!S_ISREG(info.st_mode)) Fail(path_, "is not a regular file");
  size_ = static_cast<size_t>(info.st_size);
  modified_ns_ = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  if (size_ == 0) return;
  void* data = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) Fail(path_, std::string("cannot be mapped: ") + std::strerror(errno));
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      modified_ns_(other.modified_ns_) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::UseHugePages() const {
#if defined(MADV_HUGEPAGE)
  if (size_ > 0) madvise(const_cast<std::byte*>(data_), size_, MADV_HUGEPAGE);
#endif
}

void MappedFile::Drop(std::span<const std::byte> bytes) const {
  // Whole pages, rounded outwards: a page shared with a neighbour is read again.
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(bytes.data()) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(bytes.data() + bytes.size());
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace mlc_native
