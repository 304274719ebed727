#include "weights/weight_cache.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <locale>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "kernels/packed_format.h"
#include "support/error.h"
#include "support/hash64.h"
#include "weights/calibration_line.h"
#include "weights/leased_map.h"
#include "weights/tensor_storage.h"

namespace mlc_native {
namespace {

constexpr char kMagic[] = "mlc_native packed weights 2\n";
constexpr char kEnding[] = ".weights";
constexpr char kCalibratedEnding[] = ".calibrated.weights";
constexpr size_t kBlock = BlockChecks::kBlock;  // also aligns the data
constexpr size_t kBlocksPerReport = 64;
constexpr size_t kMaxSamples = 1024;  // tensors of which a part tells models apart
constexpr uint64_t kSampleBytes = 256;
constexpr char kPackedAnew[] = "; the weights are packed anew";
constexpr char kWithoutCalibration[] =
    "; the weights are used without calibration until they are packed with it again";

// FNV-1a. It only names the file: the key itself is compared.
std::string NameOf(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char byte : text) hash = (hash ^ byte) * 0x100000001b3u;
  char name[17];
  std::snprintf(name, sizeof name, "%016" PRIx64, hash);
  return name;
}

size_t NumBlocks(size_t bytes) { return (bytes + kBlock - 1) / kBlock; }

// The checksum of what precedes the data: the text, and the checksums of all blocks.
uint64_t SumOfBeginning(const std::string& text, std::span<const uint64_t> sums) {
  const auto blocks = sums.first(sums.size() - 1);
  return Hash64(std::as_bytes(blocks), Hash64(std::as_bytes(std::span(text))));
}

// Null for a folder that cannot be used; WeightCache::Read says why.
std::unique_ptr<const CacheFolder> OpenUsable(const std::string& path) {
  try {
    return std::make_unique<const CacheFolder>(path);
  } catch (const LoadError&) {
    return nullptr;
  }
}

void DescribeFiles(const Checkpoint& checkpoint, std::ostream& out) {
  for (const TensorFile& file : checkpoint.files()) {
    std::ostringstream tensors;
    tensors.imbue(std::locale::classic());
    for (const TensorInfo& tensor : file.tensors) {
      tensors << tensor.name << ' ' << tensor.dtype_name << ' ' << ShapeString(tensor.shape) << ' '
              << tensor.begin << '\n';
    }
    out << "file " << std::filesystem::path(file.path).filename().string() << " size "
        << file.stamp.size << " modified " << file.stamp.modified_ns << " tensors "
        << NameOf(tensors.str()) << '\n';
  }
}

// Of models with the same tensors, such as one and what was trained from it, the files may have the
// same time, too: images of containers and archives may give one to all files. So a part of each of
// many tensors counts.
uint64_t SumOfSamples(const Checkpoint& checkpoint) {
  const std::vector<Checkpoint::Entry>& entries = checkpoint.entries();
  const size_t count = std::min(entries.size(), kMaxSamples);
  uint64_t sum = 0;
  std::vector<std::byte> part;
  for (size_t i = 0; i < count; ++i) {
    const Checkpoint::Entry& entry = entries[i * entries.size() / count];
    part.resize(std::min(entry.tensor->bytes, kSampleBytes));
    entry.Open().Read((entry.tensor->bytes - part.size()) / 2, part);
    sum = Hash64(part, sum);
  }
  return sum;
}

void DescribeQuantization(const Quantization& q, std::ostream& out) {
  out << "stored as " << static_cast<int>(q.format) << " bits " << q.bits << " group "
      << q.group_size << " per_tensor " << q.per_tensor << " symmetric " << q.symmetric
      << " zeros_minus_one " << q.zeros_minus_one << " block " << q.block_rows << ' '
      << q.block_columns << '\n';
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
    out << "slot " << slot.name << ' ' << slot.parameter << ' ' << slot.row_offset;
    if (slot.joined.count > 0) out << " joined " << slot.joined.index;
    if (slot.part.num_rows > 0) out << " from row " << slot.part.first;
    if (slot.part.run > 0) out << " runs " << slot.part.run << ' ' << slot.part.step;
    if (slot.scale != 1) out << " times " << slot.scale;
    for (const WeightSlot::Beside& part : slot.beside) out << " beside " << part.name;
    if (slot.row_norm_eps > 0) out << " normalized " << slot.row_norm_eps;
    out << '\n';
  }
}

}  // namespace

void ReportCache(const Log& log, const std::string& what) {
  log.Write(LogLevel::kWarning, "weight_cache_dir: " + what);
}

std::string WeightCacheKey(const Checkpoint& checkpoint,
                           const std::optional<Quantization>& quantization,
                           const WeightLayout& layout) {
  std::ostringstream out;
  out.imbue(std::locale::classic());  // the same file whichever the host has
  DescribeFiles(checkpoint, out);
  out << "samples " << SumOfSamples(checkpoint) << '\n';
  if (quantization) DescribeQuantization(*quantization, out);
  DescribeLayout(layout, out);
  return out.str();
}

std::optional<std::string> FindCalibration(const WeightCacheOptions& options,
                                           const std::string& key) {
  const std::unique_ptr<const CacheFolder> folder = OpenUsable(options.folder);
  const std::string name = NameOf(key) + kCalibratedEnding;
  try {
    if (folder == nullptr || !folder->Has(name)) return std::nullopt;
    const RegularFile file = folder->Open(name);
    const std::string before = kMagic + key;
    std::string text(std::min<uint64_t>(before.size() + kMaxCalibrationLine, file.size()), '\0');
    file.Read(0, std::as_writable_bytes(std::span(text)));
    if (text.starts_with(before)) {
      std::string line = text.substr(before.size(), text.find('\0') - before.size());
      if (IsCalibrationLine(line)) return line;
    }
    ReportCache(options.log, file.path() + ": is damaged or another file" + kWithoutCalibration);
  } catch (const LoadError& error) {
    ReportCache(options.log, error.what());
  }
  return std::nullopt;
}

WeightCache::WeightCache(WeightCacheOptions options, const std::string& key,
                         const std::string& calibration, size_t bytes, ThreadPool& pool)
    : options_(std::move(options)),
      is_calibrated_(!calibration.empty()),
      name_(NameOf(key) + (is_calibrated_ ? kCalibratedEnding : kEnding)),
      beginning_(kMagic + key + calibration + '\0'),
      bytes_(bytes),
      pool_(pool) {
  const size_t sums = (NumBlocks(bytes_) + 1) * sizeof(uint64_t);
  data_begin_ = (beginning_.size() + sums + kBlock - 1) / kBlock * kBlock;
}

std::optional<WeightMemory> WeightCache::Read(std::span<const ByteRange> now,
                                              const LoadProgress& progress) const {
  try {
    const CacheFolder folder(options_.folder);
    if (!folder.Has(name_)) return std::nullopt;
    const RegularFile file = folder.Open(name_);
    const std::vector<uint64_t> sums = ReadSums(file);
    folder.Touch(name_);
    std::optional<WeightMemory> memory = Map(folder, sums, now, progress);
    return memory ? memory : Copy(file, sums, progress);
  } catch (const LoadError& error) {
    ReportCache(options_.log, error.what());
    return std::nullopt;
  }
}

bool WeightCache::IsThere(const LoadProgress& progress) const {
  const CacheFolder folder(options_.folder);  // fails instead of a report
  const ByteRange all[] = {{0, bytes_}};
  return Read(all, progress).has_value();
}

void WeightCache::FailDamaged(const std::string& path, const std::string& what) const {
  throw LoadError(path, path + ": " + what + (is_calibrated_ ? kWithoutCalibration : kPackedAnew));
}

void WeightCache::FailBlock(const std::string& path, size_t block) const {
  FailDamaged(path, "is damaged in the 2 MiB at block " + std::to_string(block));
}

std::vector<uint64_t> WeightCache::ReadSums(const RegularFile& file) const {
  std::string text(beginning_.size(), '\0');
  std::vector<uint64_t> sums(NumBlocks(bytes_) + 1);
  const bool right_size = file.size() == data_begin_ + bytes_;
  if (right_size) {
    file.Read(0, std::as_writable_bytes(std::span(text)));
    file.Read(text.size(), std::as_writable_bytes(std::span(sums)));
  }
  if (!right_size || text != beginning_ || sums.back() != SumOfBeginning(text, sums)) {
    FailDamaged(file.path(), "is damaged or another file");
  }
  return sums;
}

std::optional<WeightMemory> WeightCache::Map(const CacheFolder& folder,
                                             const std::vector<uint64_t>& sums,
                                             std::span<const ByteRange> now,
                                             const LoadProgress& progress) const {
  RegularFile file = folder.Open(name_);
  const std::string path = file.path();
  const FileStamp stamp = file.stamp();
  const auto report = [path, log = options_.log] {
    ReportCache(
        log, path + ": another process opens it for writing, so its content was copied to memory");
  };
  const auto on_damage = [options = options_, name = name_, stamp](const std::string& what) {
    ReportCache(options.log, what);
    try {
      CacheFolder(options.folder).Remove(name, stamp);
    } catch (const LoadError& error) {
      ReportCache(options.log, error.what());
    }
  };
  const std::shared_ptr<LeasedMap> map = LeasedMap::Make(std::move(file), report);
  if (map == nullptr || map->bytes().size() != data_begin_ + bytes_) return std::nullopt;
  RegularFile again = folder.Open(name_);
  if (again.stamp() != stamp) return std::nullopt;
  const auto checks =
      std::make_shared<BlockChecks>(map, std::move(again), data_begin_, sums, on_damage);
  ForBlocks(BlocksOf(now), progress, [&](size_t block) {
    if (!checks->IsGood(block)) FailBlock(path, block);
  });
  // PackedLinear has no const form, but kernels never write to weights.
  return WeightMemory{.data = const_cast<std::byte*>(checks->data().data()),
                      .size = bytes_,
                      .mapped = true,
                      .lost = &map->lost(),
                      .checks = checks->is_done() ? nullptr : checks.get(),
                      .owner = checks};
}

WeightMemory WeightCache::Copy(const RegularFile& file, std::span<const uint64_t> sums,
                               const LoadProgress& progress) const {
  auto storage = std::make_shared<TensorStorage>(bytes_, "the model's weights");
  const std::span<std::byte> data(storage->data(), bytes_);
  const ByteRange all[] = {{0, bytes_}};
  ForBlocks(BlocksOf(all), progress, [&](size_t block) {
    const std::span<std::byte> bytes = data.subspan(block * kBlock, BytesOfBlock(block));
    file.Read(data_begin_ + block * kBlock, bytes);
    if (Hash64(bytes) != sums[block]) FailBlock(file.path(), block);
  });
  return {.data = storage->data(), .size = bytes_, .owner = storage};
}

void WeightCache::Write(const std::function<void(const PutFn&)>& fill) const {
  const CacheFolder folder(options_.folder);
  folder.RemoveAbandoned(kEnding);
  MakeRoom(folder);
  folder.Write(name_, data_begin_ + bytes_, [&](CacheFolder::NewFile& file) {
    fill([&](size_t offset, std::span<const std::byte> bytes) {
      file.Put(data_begin_ + offset, bytes);
    });
    std::vector<uint64_t> sums(NumBlocks(bytes_) + 1);
    const ByteRange all[] = {{0, bytes_}};
    ForBlocks(BlocksOf(all), {}, [&](size_t block) {
      std::vector<std::byte> bytes(BytesOfBlock(block));
      file.Read(data_begin_ + block * kBlock, bytes);
      sums[block] = Hash64(bytes);
    });
    sums.back() = SumOfBeginning(beginning_, sums);
    file.Put(0, std::as_bytes(std::span(beginning_)));
    file.Put(beginning_.size(), std::as_bytes(std::span(sums)));
  });
}

void WeightCache::MakeRoom(const CacheFolder& folder) const {
  if (!options_.max_bytes) return;
  const uint64_t bytes = data_begin_ + bytes_;
  if (bytes > *options_.max_bytes) {
    throw CacheError(
        "weight_cache_bytes",
        path() + ": is not written, because its " + std::to_string(bytes) +
            " bytes are more than \"weight_cache_bytes\" = " + std::to_string(*options_.max_bytes));
  }
  folder.MakeRoom(kEnding, name_, *options_.max_bytes - bytes);
}

size_t WeightCache::BytesOfBlock(size_t block) const {
  return std::min(kBlock, bytes_ - block * kBlock);
}

// Ascending.
std::vector<size_t> WeightCache::BlocksOf(std::span<const ByteRange> ranges) const {
  std::vector<size_t> blocks;
  for (const ByteRange& range : ranges) {
    const size_t first = std::max(range.begin / kBlock, blocks.empty() ? 0 : blocks.back() + 1);
    for (size_t i = first; i * kBlock < range.end; ++i) blocks.push_back(i);
  }
  return blocks;
}

// On all threads; rethrows what the calls throw.
template <typename Fn>
void WeightCache::ForBlocks(const std::vector<size_t>& blocks, const LoadProgress& progress,
                            const Fn& fn) const {
  size_t total = 0;
  for (size_t block : blocks) total += BytesOfBlock(block);
  size_t done = 0;
  for (size_t first = 0; first < blocks.size(); first += kBlocksPerReport) {
    const size_t last = std::min(blocks.size(), first + kBlocksPerReport);
    pool_.ParallelFor(static_cast<int64_t>(last - first), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) fn(blocks[first + static_cast<size_t>(i)]);
    });
    for (size_t i = first; i < last; ++i) done += BytesOfBlock(blocks[i]);
    if (progress) progress(static_cast<int64_t>(done), static_cast<int64_t>(total));
  }
}

}  // namespace mlc_native
