// Fills the memory of a WeightLayout from a checkpoint: every parameter exactly once.
//
// Tensors go straight from the file map into their place, a block at a time, and the map's pages
// are given back behind, so that the peak is the weights plus one panel per thread. Runs on the
// loading thread and its pool.
#pragma once

#include <memory>
#include <vector>

#include "models/model.h"
#include "models/weight_layout.h"
#include "models/weight_source.h"
#include "support/thread_pool.h"

namespace mlc_native {

using WeightSources = std::vector<std::unique_ptr<WeightSource>>;  // of the slots of the map

class WeightPacker {
 public:
  // All outlive the packer; progress may be empty.
  WeightPacker(const WeightLayout& layout, const WeightSources& sources, ThreadPool& pool,
               const LoadProgress& progress)
      : layout_(layout), sources_(sources), pool_(pool), progress_(progress) {}

  void Fill(std::byte* memory);

 private:
  struct Task {  // a slot, its source and where it goes
    const WeightSlot& slot;
    const WeightSource& source;
    const Parameter& parameter;
    std::byte* memory;
  };

  void FillSlot(const Task& task);
  void FillRows(const Task& task, int64_t begin, int64_t end) const;
  bool KeepsCodes(const Task& task) const;
  void PackCodes(const Task& task, int64_t begin, int64_t end) const;
  void PackFloats(const Task& task, int64_t begin, int64_t end) const;
  void Place(const Task& task, int64_t row, const kernels::PackSource& rows) const;

  const WeightLayout& layout_;
  const WeightSources& sources_;
  ThreadPool& pool_;
  const LoadProgress& progress_;
  int64_t done_ = 0;  // bytes of the checkpoint
  int64_t total_ = 0;
};

}  // namespace mlc_native
