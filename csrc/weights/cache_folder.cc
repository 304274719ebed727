#include "weights/cache_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "support/error.h"

namespace mlc_native {
namespace {

constexpr size_t kWriteBytes = size_t{64} << 20;  // per write

[[noreturn]] void Fail(const std::string& path, const std::string& what) {
  throw CacheError(path, path + ": " + what);
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

// The numbers of processes would do for one machine, but containers that share a folder have the
// same ones.
std::string RandomEnding() {
  std::random_device device;
  char ending[18];
  std::snprintf(ending, sizeof ending, ".%08x%08x", device(), device());
  return ending;
}

// A file under a name of its own, which the destructor removes unless it was published.
class TemporaryFile final : public CacheFolder::NewFile {
 public:
  TemporaryFile(int folder, const std::string& name, std::string path)
      : folder_(folder), path_(std::move(path)) {
    constexpr mode_t kReadableByAll = 0644;
    do {
      name_ = name + RandomEnding();
      fd_ = openat(folder_, name_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                   kReadableByAll);
    } while (fd_ < 0 && errno == EEXIST);
    if (fd_ < 0) FailWrite();
    flock(fd_, LOCK_EX | LOCK_NB);  // until it is closed: its process lives
  }
  ~TemporaryFile() override {
    if (fd_ >= 0) close(fd_);
    if (!name_.empty()) unlinkat(folder_, name_.c_str(), 0);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void SetSize(size_t size) {
    if (ftruncate(fd_, static_cast<off_t>(size)) != 0) FailWrite();
  }
  void Put(size_t offset, std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = pwrite(fd_, bytes.data(), std::min(bytes.size(), kWriteBytes),
                                     static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) FailWrite();
      offset += static_cast<size_t>(written);
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
  }
  void Read(size_t offset, std::span<std::byte> out) const override {
    while (!out.empty()) {
      const ssize_t got = pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) Fail(path_, "cannot be read again: " + LastError());
      offset += static_cast<size_t>(got);
      out = out.subspan(static_cast<size_t>(got));
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

// The lock of a new file is missing for a moment, so that young ones are left alone.
void CacheFolder::RemoveAbandoned(std::string_view ending) const {
  constexpr int64_t kYoungSeconds = 60;
  const std::string in_name = std::string(ending) + ".";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path_, error)) {
    const std::string name = entry.path().filename().string();
    struct stat info;
    if (name.find(in_name) == std::string::npos ||
        fstatat(descriptor_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode) || time(nullptr) - info.st_mtim.tv_sec < kYoungSeconds) {
      continue;
    }
    const int fd = openat(descriptor_, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) continue;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) unlinkat(descriptor_, name.c_str(), 0);
    close(fd);
  }
}

void CacheFolder::Write(const std::string& name, size_t size,
                        const std::function<void(NewFile&)>& fill) const {
  TemporaryFile file(descriptor_, name, PathOf(name));
  file.SetSize(size);
  fill(file);
  file.Publish(name);
}

// The time of the last change stays: it tells whether a file is still the same (FileStamp).
void CacheFolder::Touch(const std::string& name) const {
  const timespec times[] = {{.tv_sec = 0, .tv_nsec = UTIME_NOW},
                            {.tv_sec = 0, .tv_nsec = UTIME_OMIT}};
  utimensat(descriptor_, name.c_str(), times, AT_SYMLINK_NOFOLLOW);
}

void CacheFolder::Remove(const std::string& name, const FileStamp& stamp) const {
  if (Has(name) && Open(name).stamp() == stamp) unlinkat(descriptor_, name.c_str(), 0);
}

void CacheFolder::MakeRoom(std::string_view ending, const std::string& kept,
                           uint64_t max_bytes) const {
  struct Found {
    timespec used;
    std::string name;
    uint64_t bytes;
  };
  std::vector<Found> files;
  uint64_t total = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path_, error)) {
    std::string name = entry.path().filename().string();
    struct stat info;
    if (!name.ends_with(ending) || name == kept ||
        fstatat(descriptor_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode)) {
      continue;
    }
    total += static_cast<uint64_t>(info.st_size);
    files.push_back({info.st_atim, std::move(name), static_cast<uint64_t>(info.st_size)});
  }
  std::ranges::sort(files, {}, [](const Found& file) {
    return std::tuple(file.used.tv_sec, file.used.tv_nsec, file.name);
  });
  for (const Found& file : files) {
    if (total <= max_bytes) return;
    if (unlinkat(descriptor_, file.name.c_str(), 0) == 0) total -= file.bytes;
  }
}

}  // namespace mlc_native
