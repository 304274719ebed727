// WeightCache keeps packed weights on disk. The first start writes them and later starts map them;
// processes that serve the same model share the memory.
//
// A file holds a key and the memory of a WeightLayout. Its name is the hash of the key, which lists
// everything that determines the content: the files of the checkpoint, how they are read, and the
// layout. A file whose beginning or length does not match its key counts as missing. Files are
// written under a temporary name and then renamed, so any number of processes may read and write a
// folder. A failure never fails a load; it is reported on stderr. Immutable; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/quantization.h"
#include "weights/cpu_weights.h"
#include "weights/weight_layout.h"

namespace mlc_native {

// The properties that identify a packed copy.
std::string WeightCacheKey(const Checkpoint& checkpoint,
                           const std::optional<Quantization>& quantization,
                           const WeightLayout& layout);

class WeightCache {
 public:
  // Creates the folder when it is needed. `bytes` is the size of the layout.
  WeightCache(const std::string& folder, const std::string& key, size_t bytes);

  const std::string& path() const { return path_; }
  // Returns read-only memory, or nullopt if there is no valid file.
  std::optional<WeightMemory> Map() const;
  // Returns false if it could not be written.
  bool Write(const WeightMemory& memory) const;

 private:
  std::string folder_;
  std::string path_;
  std::string header_;  // the beginning of the file
  size_t bytes_;
};

}  // namespace mlc_native
