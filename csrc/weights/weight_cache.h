// Packed weights on disk: the first start writes them, the next ones map them, and processes that
// serve the same model share the memory.
//
// A file holds a key and the memory of a WeightLayout; its name is the key's hash. The key lists
// all that decides the content: the files of the checkpoint, how they are read, the layout. A file
// whose beginning or length is not exactly what the key asks for counts as missing. Files appear
// whole (written beside, then renamed), so that any number of processes may read and write a
// folder. Nothing that goes wrong here fails a load: it is said on stderr. Immutable; any thread.
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

// What a packed copy is a copy of.
std::string WeightCacheKey(const Checkpoint& checkpoint,
                           const std::optional<Quantization>& quantization,
                           const WeightLayout& layout);

class WeightCache {
 public:
  // The folder is made when it is needed. bytes: of the layout.
  WeightCache(const std::string& folder, const std::string& key, size_t bytes);

  const std::string& path() const { return path_; }
  // nullopt: there is no such file, or not a good one. Read-only memory.
  std::optional<WeightMemory> Map() const;
  // False when it could not be written.
  bool Write(const WeightMemory& memory) const;

 private:
  std::string folder_;
  std::string path_;
  std::string header_;  // what the file begins with
  size_t bytes_;
};

}  // namespace mlc_native
