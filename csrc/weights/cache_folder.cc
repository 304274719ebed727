#include "weights/cache_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "support/error.h"

namespace mlc_native {
namespace {

constexpr size_t kWriteBytes = size_t{64} << 20;  // per write

[[noreturn]] void Fail(const std::string& path, const std::string& what) {
  throw LoadError(path, path + ": " + what);
}

std::string LastError() { return std::strerror(errno); }

void RequireTrusted(int descriptor, const std::string& path) {
  struct stat info;
  if (fstat(descriptor, &info) != 0) Fail(path, "cannot be read: " + LastError());
  if (info.st_uid != geteuid() && info.st_uid != 0) {
    Fail(path, "is not used, because it belongs to user " + std::to_string(info.st_uid) +
                   " and this program runs as user " + std::to_string(geteuid()));
  }
  if ((info.st_mode & S_IWOTH) != 0) {
    Fail(path, "is not used, because every user may write to it");
  }
}

// A file under a name of its own, which the destructor removes unless it was published.
class TemporaryFile {
 public:
  TemporaryFile(int folder, const std::string& name, std::string path)
      : folder_(folder), path_(std::move(path)) {
    static std::atomic<uint64_t> counter = 0;
    name_ = name + "." + std::to_string(getpid()) + "-" + std::to_string(counter++);
    unlinkat(folder_, name_.c_str(), 0);  // of an earlier process of this number
    constexpr mode_t kReadableByAll = 0644;
    fd_ = openat(folder_, name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                 kReadableByAll);
    if (fd_ < 0) FailWrite();
  }
  ~TemporaryFile() {
    if (fd_ >= 0) close(fd_);
    if (!name_.empty()) unlinkat(folder_, name_.c_str(), 0);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  // Bytes that are not put are zeros.
  void SetSize(size_t size) {
    if (ftruncate(fd_, static_cast<off_t>(size)) != 0) FailWrite();
  }
  void Put(size_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = pwrite(fd_, bytes.data(), std::min(bytes.size(), kWriteBytes),
                                     static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) FailWrite();
      offset += static_cast<size_t>(written);
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
  }
  // Written to disk before the rename: after a power cut the file is either complete or missing.
  void Publish(const std::string& name) {
    if (fdatasync(fd_) != 0) FailWrite();
    // Closed first, because a read lease is refused while the file is open for writing.
    if (close(std::exchange(fd_, -1)) != 0) FailWrite();
    if (renameat(folder_, name_.c_str(), folder_, name.c_str()) != 0) FailWrite();
    name_.clear();
  }

 private:
  [[noreturn]] void FailWrite() {
    const std::string why = LastError();
    if (fd_ < 0) name_.clear();
    Fail(path_, "cannot be written: " + why);
  }

  int folder_;
  std::string path_;
  std::string name_;
  int fd_ = -1;
};

}  // namespace

CacheFolder::CacheFolder(std::string path) : path_(std::move(path)) {
  constexpr mode_t kForOwnerAlone = 0700;
  std::error_code ignored;  // opening detects a failure
  std::filesystem::create_directories(std::filesystem::absolute(path_, ignored).parent_path(),
                                      ignored);
  mkdir(path_.c_str(), kForOwnerAlone);
  descriptor_ = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0) Fail(path_, "cannot be used as a folder: " + LastError());
  try {
    RequireTrusted(descriptor_, path_);
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

CacheFolder::~CacheFolder() { close(descriptor_); }

bool CacheFolder::Has(const std::string& name) const {
  struct stat info;
  return fstatat(descriptor_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
}

RegularFile CacheFolder::Open(const std::string& name) const {
  RegularFile file(descriptor_, name, PathOf(name));
  RequireTrusted(file.descriptor(), file.path());
  return file;
}

void CacheFolder::Write(const std::string& name, size_t size,
                        const std::function<void(const PutFn&)>& fill) const {
  TemporaryFile file(descriptor_, name, PathOf(name));
  file.SetSize(size);
  fill([&](size_t offset, std::span<const std::byte> bytes) { file.Put(offset, bytes); });
  file.Publish(name);
}

}  // namespace mlc_native
