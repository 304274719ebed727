// CpuAdapter is an adapter in the layout of the CPU's kernels, and AdapterRows the rows of a batch
// that have adapters.
//
// What an adapter adds to a row depends on that row alone, bit by bit, as all that a Transformer
// computes. A CpuAdapter is immutable; any thread. AdapterRows belongs to a Transformer; engine's
// thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/experts.h"
#include "mlc_native/model.h"
#include "weights/adapter_weights.h"
#include "weights/tensor_storage.h"

namespace mlc_native {

class CpuAdapter : public ModelAdapter {
 public:
  struct Linear {
    kernels::PackedLinear down;  // [rank, columns]
    // As AdapterLinear::ups: what it adds to y[row..] comes from columns of the inner product.
    struct Up {
      kernels::PackedLinear matrix;
      int64_t row = 0;
      int64_t column = 0;
    };
    std::vector<Up> ups;

    // Whether the ups of both differ in nothing except their values.
    bool HasShapeOf(const Linear& other) const;
  };

  // `targets`: of the model that it is for.
  CpuAdapter(const AdapterWeights& weights, std::shared_ptr<const AdapterTargets> targets,
             int64_t num_layers, DType dtype, const kernels::CpuKernels& isa);

  int64_t rank() const override { return rank_; }
  int64_t num_bytes() const override { return static_cast<int64_t>(memory_.size()); }
  const AdapterTargets* targets() const { return targets_.get(); }
  // Null: the adapter does not change this linear.
  const Linear* Find(size_t layer, LinearRole role) const {
    const int32_t index = index_[layer * kNumLinearRoles + static_cast<size_t>(role)];
    return index < 0 ? nullptr : &linears_[static_cast<size_t>(index)];
  }

 private:
  const std::shared_ptr<const AdapterTargets> targets_;
  const int64_t rank_;
  TensorStorage memory_;
  std::vector<Linear> linears_;
  std::vector<int32_t> index_;  // [layers, roles] of linears_; -1: none
};

class CpuAdapterLoader : public AdapterLoader {
 public:
  CpuAdapterLoader(std::shared_ptr<const AdapterTargets> targets, int64_t num_layers, DType dtype,
                   const kernels::CpuKernels& isa)
      : targets_(std::move(targets)), num_layers_(num_layers), dtype_(dtype), isa_(isa) {}

  std::shared_ptr<const ModelAdapter> Load(const std::string& folder) const override;

 private:
  const std::shared_ptr<const AdapterTargets> targets_;
  const int64_t num_layers_;
  const DType dtype_;
  const kernels::CpuKernels& isa_;  // static lifetime
};

class AdapterRows {
 public:
  // Rows that are computed at once, so that what lies between the two products stays in a cache.
  static constexpr int64_t kMostRows = 128;

  // Of one adapter, the most that are a group: the threads divide groups, because a rank has few
  // panels.
  static constexpr int64_t kRowsOfGroup = 32;

  // Makes room for batches of so many rows, and for linears of at most so many rows and columns.
  // The memory is not touched before a row has an adapter.
  void Allocate(int64_t max_num_rows, int64_t max_rows, int64_t max_columns);
  // Those of a batch, whose adapters are of the model with these targets. Allocates nothing.
  void Place(std::span<const SequenceSlice> sequences, const AdapterTargets* targets);
  // Only these rows of the batch go on, ascending.
  void Keep(std::span<const int32_t> rows);
  bool empty() const { return of_adapters_.empty(); }

  // Of a linear whose rows have been computed: its input x and its result y, which it adds to.
  struct Args {
    size_t layer = 0;
    LinearRole role = LinearRole::kQkv;
    const float* x = nullptr;
    int64_t ldx = 0;
    float* y = nullptr;
    int64_t ldy = 0;
  };
  void Add(const kernels::Cpu& cpu, const Args& args);

 private:
  // Rows [begin, end) of rows_.
  struct OfAdapter {
    const CpuAdapter* adapter = nullptr;
    int64_t begin = 0;
    int64_t end = 0;
  };
  void Sort(size_t num_rows);
  // Computes what has been gathered in groups_ and taken_.
  void AddTaken(const kernels::Cpu& cpu, const Args& args);

  std::vector<const CpuAdapter*> by_row_;  // of the batch; null: none
  std::vector<int32_t> rows_;              // those with adapters, by adapter
  std::vector<OfAdapter> of_adapters_;
  std::vector<int32_t> taken_;                      // rows that are computed at once
  std::vector<kernels::LinearGroup> groups_;        // of taken_
  std::vector<const CpuAdapter::Linear*> linears_;  // of groups_
  TensorStorage memory_;
  float* middle_ = nullptr;  // [kMostRows, kMaxLinearRank]
  float* sums_ = nullptr;    // [kMostRows, max_rows]
  void* workspace_ = nullptr;
};

}  // namespace mlc_native
