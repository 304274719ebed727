// Checkpoint is the set of tensors of a model: those of model.safetensors, of the shards that
// model.safetensors.index.json lists, of an MLC folder, or of a GGUF file. Immutable after
// construction; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/tensor_file.h"
#include "mlc_native/detail/export.h"

namespace mlc_native {

class MLC_NATIVE_PRIVATE_API Checkpoint {
 public:
  // kHeaders: no data of tensors is read, so what follows from it is taken as it usually is.
  enum class Access : uint8_t { kData, kHeaders };

  // Throws LoadError for a folder without weights, damaged files, and an index that contradicts its
  // shards or names files outside of the folder.
  explicit Checkpoint(const std::string& folder, Access access = Access::kData);

  bool reads_data() const { return access_ == Access::kData; }

  struct Entry {
    const TensorInfo* tensor;
    const TensorFile* file;

    TensorReader Open() const { return TensorReader(*file, *tensor); }
  };
  const std::vector<TensorFile>& files() const { return files_; }
  // The tensors in the order of the files. They live as long as the checkpoint.
  const std::vector<Entry>& entries() const { return entries_; }
  // The names of safetensors files in the folder that look like weights and that the index does not
  // name.
  const std::vector<std::string>& extra_shards() const { return extra_shards_; }
  // Returns null if there is no such tensor.
  const Entry* Find(const std::string& name) const;

 private:
  void ReadIndex(const std::string& folder, const std::string& index_path);
  void AddFile(const std::string& path);
  void AddTensors(const TensorFile& file);

  Access access_;
  std::vector<TensorFile> files_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> by_name_;
  std::vector<std::string> extra_shards_;
};

}  // namespace mlc_native
