// The tensors of a model folder: model.safetensors, the shards that model.safetensors.index.json
// lists, or those of an MLC folder. Immutable after construction; any thread.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/tensor_file.h"

namespace mlc_native {

class Checkpoint {
 public:
  // Throws LoadError: no weights, damaged files, an index that does not agree with its shards or
  // names files outside the folder.
  explicit Checkpoint(const std::string& folder);

  struct Entry {
    const TensorInfo* tensor;
    const TensorFile* file;
  };
  const std::vector<TensorFile>& files() const { return files_; }
  // In file order; the tensors live as long as the checkpoint.
  const std::vector<Entry>& entries() const { return entries_; }
  // nullptr when there is none.
  const Entry* Find(const std::string& name) const;

 private:
  void ReadIndex(const std::string& folder, const std::string& index_path);
  void AddFile(const std::string& path);

  std::vector<TensorFile> files_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> by_name_;
};

}  // namespace mlc_native
