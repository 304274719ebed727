#include "support/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "support/error.h"

namespace mlc_native {
namespace {

constexpr size_t kMaxRead = size_t{1} << 30;  // Linux reads no more than 2 GiB at once

const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISLNK(mode)) return "a symbolic link";
  return "a device";
}

}  // namespace

RegularFile::RegularFile(std::string path, std::string field)
    : path_(std::move(path)), field_(field.empty() ? path_ : std::move(field)) {
  Open(AT_FDCWD, path_.c_str(), 0);
}

RegularFile::RegularFile(int folder, const std::string& name, std::string path)
    : path_(std::move(path)), field_(path_) {
  Open(folder, name.c_str(), O_NOFOLLOW);
}

RegularFile::RegularFile(RegularFile&& other) noexcept
    : path_(std::move(other.path_)),
      field_(std::move(other.field_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      stamp_(other.stamp_) {}

RegularFile::~RegularFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

// A device may act on being opened, so what is none is found before that; what takes its place
// in the meantime does not block, and is found afterwards.
void RegularFile::Open(int folder, const char* name, int flags) {
  struct stat info;
  const int no_follow = (flags & O_NOFOLLOW) != 0 ? AT_SYMLINK_NOFOLLOW : 0;
  const auto require_regular = [&] {
    if (!S_ISREG(info.st_mode)) {
      Fail(std::string("is ") + KindOf(info.st_mode) + ", must be a regular file");
    }
  };
  const auto fail_open = [&] { Fail(std::string("cannot be opened: ") + std::strerror(errno)); };
  if (fstatat(folder, name, &info, no_follow) != 0) fail_open();
  require_regular();
  descriptor_ = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);
  if (descriptor_ < 0) fail_open();
  try {
    if (fstat(descriptor_, &info) != 0) fail_open();
    require_regular();
    stamp_ = CurrentStamp();
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

FileStamp RegularFile::CurrentStamp() const {
  struct stat info;
  if (fstat(descriptor_, &info) != 0) Fail(std::string("cannot be read: ") + std::strerror(errno));
  return {.device = info.st_dev,
          .inode = info.st_ino,
          .size = static_cast<uint64_t>(info.st_size),
          .modified_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

void RegularFile::Read(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t bytes =
        pread(descriptor_, out.data(), std::min(out.size(), kMaxRead), static_cast<off_t>(offset));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) Fail(std::string("cannot be read: ") + std::strerror(errno));
    if (bytes == 0) {
      Fail("ends at byte " + std::to_string(offset) + ", it had " + std::to_string(stamp_.size) +
           " bytes when it was opened (it was cut short while it was read)");
    }
    offset += static_cast<uint64_t>(bytes);
    out = out.subspan(static_cast<size_t>(bytes));
  }
}

std::string RegularFile::ReadAll(uint64_t max_bytes) const {
  if (stamp_.size > max_bytes) {
    Fail("has " + std::to_string(stamp_.size) + " bytes, allowed are " + std::to_string(max_bytes));
  }
  std::string text(stamp_.size, '\0');
  Read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void RegularFile::RequireStamp(const FileStamp& expected) const {
  if (CurrentStamp() != expected) Fail("was changed while it was loaded; load it again");
}

void RegularFile::Fail(const std::string& what) const {
  throw LoadError(field_, path_ + ": " + what);
}

}  // namespace mlc_native
