// WeightCache keeps packed weights on disk. The first start writes them and later starts map them;
// processes that serve the same model share the memory.
//
// A file holds a key, checksums and the memory of a WeightLayout. Its name is the hash of the key,
// which lists everything that determines the content: the files of the checkpoint, how they are
// read, and the layout. No block of 2 MiB is used before its checksum was compared: Read compares,
// on all threads, those that every forward reads, and BlockChecks the others, so that a model with
// experts starts at once and needs memory only for experts that are chosen. A file with any damage
// counts as missing as a whole, and the next Write replaces it: damage is rare, comes seldom alone,
// and packing again checks everything. From then on nothing changes the weights of this process
// (leased_map.h); where a file cannot be mapped so, it is copied to memory. Folder and file must be
// trustworthy (cache_folder.h). With a limit, files that were used longest ago make room for new
// ones.
//
// Calibrated weights (models/calibration.h) are a file beside the plain one of the same key, with a
// line about the calibration behind the key. There is at most one, and a start that finds it uses
// it. The next Write of plain weights does not replace it.
//
// The beginning of a file is the key's text and a zero byte, one checksum (Hash64) per block, and
// the checksum of all that. The data begins at a multiple of 2 MiB. Immutable; one call at a time,
// since the pool runs one loop at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/quantization.h"
#include "mlc_native/data.h"
#include "mlc_native/detail/log.h"
#include "support/thread_pool.h"
#include "weights/cache_folder.h"
#include "weights/cpu_weights.h"
#include "weights/weight_layout.h"

namespace mlc_native {

// Reports what is wrong with a cache.
void ReportCache(const Log& log, const std::string& what);

// The properties that identify a packed copy.
std::string WeightCacheKey(const Checkpoint& checkpoint,
                           const std::optional<Quantization>& quantization,
                           const WeightLayout& layout);

struct WeightCacheOptions {
  std::string folder;                 // made when it is needed
  std::optional<uint64_t> max_bytes;  // of all files of packed weights in it; nullopt: no limit
  Log log{};
};

// Returns the line of the calibrated file of this key, or nullopt if the folder has none that can
// be used; the log says what is wrong with one that is there.
std::optional<std::string> FindCalibration(const WeightCacheOptions& options,
                                           const std::string& key);

class WeightCache {
 public:
  // `bytes` is the size of the layout. `calibration` is the line of calibrated weights
  // (calibration_line.h), or empty. The pool must outlive it.
  WeightCache(WeightCacheOptions options, const std::string& key, const std::string& calibration,
              size_t bytes, ThreadPool& pool);

  std::string path() const { return options_.folder + "/" + name_; }

  // Returns read-only memory, or nullopt if there is no valid file; the log says what is wrong
  // with one that is there. A mapped file is checked in `now`, ranges of the layout, and has checks
  // for the rest, if there is one; a copy is checked as a whole. `progress` may be empty.
  std::optional<WeightMemory> Read(std::span<const ByteRange> now,
                                   const LoadProgress& progress) const;
  // Whether all of a valid file is there. Throws CacheError if the folder cannot be used.
  bool IsThere(const LoadProgress& progress) const;

  // Writes the file. `fill` puts the memory part by part: its offset in the layout, its bytes.
  // Throws CacheError if it cannot be written, and what `fill` throws.
  using PutFn = std::function<void(size_t offset, std::span<const std::byte> bytes)>;
  void Write(const std::function<void(const PutFn&)>& fill) const;

 private:
  [[noreturn]] void FailDamaged(const std::string& path, const std::string& what) const;
  [[noreturn]] void FailBlock(const std::string& path, size_t block) const;
  std::vector<uint64_t> ReadSums(const RegularFile& file) const;
  std::optional<WeightMemory> Map(const CacheFolder& folder, const std::vector<uint64_t>& sums,
                                  std::span<const ByteRange> now,
                                  const LoadProgress& progress) const;
  WeightMemory Copy(const RegularFile& file, std::span<const uint64_t> sums,
                    const LoadProgress& progress) const;
  void MakeRoom(const CacheFolder& folder) const;
  size_t BytesOfBlock(size_t block) const;
  std::vector<size_t> BlocksOf(std::span<const ByteRange> ranges) const;
  template <typename Fn>
  void ForBlocks(const std::vector<size_t>& blocks, const LoadProgress& progress,
                 const Fn& fn) const;

  WeightCacheOptions options_;
  bool is_calibrated_;
  std::string name_;
  std::string beginning_;  // of the file, without the checksums
  size_t bytes_;
  size_t data_begin_ = 0;
  ThreadPool& pool_;
};

}  // namespace mlc_native
