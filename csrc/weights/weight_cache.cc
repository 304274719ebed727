#include "weights/weight_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <sstream>
#include <utility>

#include "checkpoint/mapped_file.h"
#include "kernels/packed_format.h"
#include "support/error.h"

namespace mlc_native {
namespace {

constexpr char kMagic[] = "mlc_native packed weights\n";
// The alignment of the data in the file, for huge pages.
constexpr size_t kDataAlignment = size_t{2} << 20;
constexpr size_t kWriteBytes = size_t{64} << 20;  // bytes per write

// FNV-1a. It only names the file: the key itself is compared.
std::string Hash(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char byte : text) hash = (hash ^ byte) * 0x100000001b3u;
  char name[17];
  std::snprintf(name, sizeof name, "%016" PRIx64, hash);
  return name;
}

void Warn(const std::string& path, const std::string& what) {
  std::fprintf(stderr, "[mlc_native] weight_cache_dir: %s: %s\n", path.c_str(), what.c_str());
}

// A temporary file, which the destructor removes unless it was renamed.
class TemporaryFile {
 public:
  // Opens a file in the folder of `path`. ok() reports failures.
  explicit TemporaryFile(const std::string& path) : name_(path + ".XXXXXX") {
    fd_ = mkstemp(name_.data());
    if (fd_ < 0) name_.clear();
  }
  ~TemporaryFile() {
    if (fd_ >= 0) close(fd_);
    if (!name_.empty()) unlink(name_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  bool ok() const { return fd_ >= 0; }
  bool WriteAt(size_t offset, const char* data, size_t size) {
    while (size > 0) {
      const ssize_t written =
          pwrite(fd_, data, std::min(size, kWriteBytes), static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      offset += static_cast<size_t>(written);
      data += written;
      size -= static_cast<size_t>(written);
    }
    return true;
  }
  // Written to disk before the rename: after a power cut the file is either complete or missing.
  bool Publish(const std::string& path) {
    constexpr mode_t kReadableByAll = 0644;
    if (fchmod(fd_, kReadableByAll) != 0 || fdatasync(fd_) != 0) return false;
    if (rename(name_.c_str(), path.c_str()) != 0) return false;
    name_.clear();
    return true;
  }

 private:
  std::string name_;
  int fd_ = -1;
};

void DescribeFiles(const Checkpoint& checkpoint, std::ostream& out) {
  for (const TensorFile& file : checkpoint.files()) {
    std::ostringstream tensors;
    for (const TensorInfo& tensor : file.tensors) {
      tensors << tensor.name << ' ' << tensor.dtype_name << ' ' << ShapeString(tensor.shape) << ' '
              << tensor.data.data() - file.file.bytes().data() << '\n';
    }
    out << "file " << std::filesystem::path(file.path()).filename().string() << " size "
        << file.file.bytes().size() << " modified " << file.file.modified_ns() << " tensors "
        << Hash(tensors.str()) << '\n';
  }
}

void DescribeQuantization(const Quantization& q, std::ostream& out) {
  out << "stored as " << static_cast<int>(q.format) << " bits " << q.bits << " group "
      << q.group_size << " per_tensor " << q.per_tensor << " symmetric " << q.symmetric
      << " zeros_minus_one " << q.zeros_minus_one << '\n';
}

void DescribeLayout(const WeightLayout& layout, std::ostream& out) {
  out << "packing " << kernels::kPackedVersion << " panel_width " << layout.form().panel_width()
      << " dtype " << DTypeName(layout.plan().dtype) << " bytes " << layout.bytes() << '\n';
  const WeightMap& map = layout.plan().map;
  for (size_t i = 0; i < map.parameters.size(); ++i) {
    const Parameter& p = map.parameters[i];
    const kernels::PanelLayout panel = kernels::LayoutOf(layout.plan().formats[i]);
    out << "parameter " << static_cast<int>(p.form) << ' ' << p.rows << ' ' << p.columns
        << " format " << static_cast<int>(layout.plan().formats[i]) << " group " << panel.group
        << " scale " << p.scale << '\n';
  }
  for (const WeightSlot& slot : map.slots) {
    out << "slot " << slot.name << ' ' << slot.parameter << ' ' << slot.row_offset << '\n';
  }
}

}  // namespace

std::string WeightCacheKey(const Checkpoint& checkpoint,
                           const std::optional<Quantization>& quantization,
                           const WeightLayout& layout) {
  std::ostringstream out;
  DescribeFiles(checkpoint, out);
  if (quantization) DescribeQuantization(*quantization, out);
  DescribeLayout(layout, out);
  return out.str();
}

WeightCache::WeightCache(const std::string& folder, const std::string& key, size_t bytes)
    : folder_(folder),
      path_(folder + "/" + Hash(key) + ".weights"),
      header_(kMagic + key),
      bytes_(bytes) {
  header_.resize((header_.size() / kDataAlignment + 1) * kDataAlignment);
}

std::optional<WeightMemory> WeightCache::Map() const {
  std::error_code ignored;
  if (!std::filesystem::exists(path_, ignored)) return std::nullopt;
  std::shared_ptr<const MappedFile> file;
  try {
    file = std::make_shared<const MappedFile>(path_);
  } catch (const LoadError& error) {
    Warn(path_, error.what());
    return std::nullopt;
  }
  const std::span<const std::byte> bytes = file->bytes();
  if (bytes.size() != header_.size() + bytes_ ||
      std::memcmp(bytes.data(), header_.data(), header_.size()) != 0) {
    Warn(path_, "is damaged or another file; it is made anew");
    return std::nullopt;
  }
  file->UseHugePages();
  // PackedLinear has no const form, but kernels never write to weights.
  return WeightMemory{.data = const_cast<std::byte*>(bytes.data() + header_.size()),
                      .size = bytes_,
                      .mapped = true,
                      .owner = file};
}

bool WeightCache::Write(const WeightMemory& memory) const {
  std::error_code ignored;  // the next line detects a failure
  std::filesystem::create_directories(folder_, ignored);
  TemporaryFile file(path_);
  const bool written =
      file.ok() && file.WriteAt(0, header_.data(), header_.size()) &&
      file.WriteAt(header_.size(), reinterpret_cast<const char*>(memory.data), memory.size) &&
      file.Publish(path_);
  if (!written) Warn(path_, std::string("cannot be written: ") + std::strerror(errno));
  return written;
}

}  // namespace mlc_native
