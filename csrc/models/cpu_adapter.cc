#include "models/cpu_adapter.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "support/check.h"

namespace mlc_native {
namespace {

using kernels::AlignUp;

size_t FloatBytes(int64_t rows, int64_t columns) {
  return AlignUp(static_cast<size_t>(rows * columns) * sizeof(float));
}

kernels::PackedLinear Pack(const kernels::CpuKernels& isa, kernels::WeightFormat format, int64_t n,
                           int64_t k, const std::vector<float>& values, std::byte* data) {
  const kernels::PackedLinear packed = kernels::MakePackedLinear(isa, format, n, k, data);
  kernels::PackLinear(
      packed, 0,
      kernels::PackSource{.dtype = DType::kFloat32, .data = values.data(), .ld = k, .rows = n});
  return packed;
}

}  // namespace

bool CpuAdapter::Linear::HasShapeOf(const Linear& other) const {
  const auto is_same = [](const Up& a, const Up& b) {
    return a.row == b.row && a.column == b.column && a.matrix.n == b.matrix.n &&
           a.matrix.k == b.matrix.k;
  };
  return down.n == other.down.n && std::ranges::equal(ups, other.ups, is_same);
}

CpuAdapter::CpuAdapter(const AdapterWeights& weights, std::shared_ptr<const AdapterTargets> targets,
                       int64_t num_layers, DType dtype, const kernels::CpuKernels& isa)
    : targets_(std::move(targets)),
      rank_(weights.max_rank),
      index_(static_cast<size_t>(num_layers) * kNumLinearRoles, int32_t{-1}) {
  const kernels::WeightFormat format = kernels::FormatOf(dtype);
  const auto bytes = [&](int64_t n, int64_t k) {
    return AlignUp(kernels::PackedLinearBytes(isa, format, n, k));
  };
  size_t size = 0;
  for (const AdapterLinear& linear : weights.linears) {
    size += bytes(linear.rank, linear.columns);
    for (const AdapterLinear::Up& up : linear.ups) size += bytes(up.rows, up.rank);
  }
  memory_ = TensorStorage(size, "adapters");
  std::byte* data = memory_.data();
  for (const AdapterLinear& linear : weights.linears) {
    index_[linear.layer * kNumLinearRoles + static_cast<size_t>(linear.role)] =
        static_cast<int32_t>(linears_.size());
    Linear& packed = linears_.emplace_back();
    packed.down = Pack(isa, format, linear.rank, linear.columns, linear.down, data);
    data += bytes(linear.rank, linear.columns);
    for (const AdapterLinear::Up& up : linear.ups) {
      packed.ups.push_back(
          {Pack(isa, format, up.rows, up.rank, up.values, data), up.row, up.column});
      data += bytes(up.rows, up.rank);
    }
  }
}

std::shared_ptr<const ModelAdapter> CpuAdapterLoader::Load(const std::string& folder) const {
  return std::make_shared<const CpuAdapter>(ReadAdapter(folder, *targets_), targets_, num_layers_,
                                            dtype_, isa_);
}

void AdapterRows::Allocate(int64_t max_num_rows, int64_t max_rows, int64_t max_columns) {
  const auto num_rows = static_cast<size_t>(max_num_rows);
  by_row_.resize(num_rows);
  rows_.reserve(num_rows);
  of_adapters_.reserve(num_rows);
  taken_.reserve(kMostRows);
  groups_.reserve(kMostRows);
  linears_.reserve(kMostRows);
  const size_t middle = FloatBytes(kMostRows, kMaxLinearRank);
  const size_t sums = FloatBytes(kMostRows, max_rows);
  const size_t workspace =
      kernels::LinearWorkspaceBytes(kMostRows, std::max(max_columns, kMaxLinearRank));
  memory_ = TensorStorage(middle + sums + workspace, "prefill_chunk_size");
  middle_ = reinterpret_cast<float*>(memory_.data());
  sums_ = reinterpret_cast<float*>(memory_.data() + middle);
  workspace_ = memory_.data() + middle + sums;
}

void AdapterRows::Place(std::span<const SequenceSlice> sequences, const AdapterTargets* targets) {
  of_adapters_.clear();
  taken_.clear();  // of a forward that failed
  groups_.clear();
  linears_.clear();
  const auto has_adapter = [](const SequenceSlice& slice) { return slice.adapter != nullptr; };
  if (std::ranges::none_of(sequences, has_adapter)) return;
  int64_t num_rows = 0;
  for (const SequenceSlice& slice : sequences) {
    const auto* const adapter = dynamic_cast<const CpuAdapter*>(slice.adapter);
    MLC_CHECK(slice.adapter == nullptr || (adapter != nullptr && adapter->targets() == targets))
        << "an adapter of another model";
    std::fill_n(by_row_.begin() + slice.first_row, slice.num_tokens, adapter);
    num_rows = slice.first_row + slice.num_tokens;
  }
  Sort(static_cast<size_t>(num_rows));
}

void AdapterRows::Keep(std::span<const int32_t> rows) {
  if (empty()) return;
  for (size_t i = 0; i < rows.size(); ++i) by_row_[i] = by_row_[static_cast<size_t>(rows[i])];
  Sort(rows.size());
}

// Adapters are in the order of their first rows.
void AdapterRows::Sort(size_t num_rows) {
  of_adapters_.clear();
  rows_.clear();
  for (size_t row = 0; row < num_rows; ++row) {
    const CpuAdapter* const adapter = by_row_[row];
    if (adapter == nullptr) continue;
    const auto found = std::ranges::find(of_adapters_, adapter, &OfAdapter::adapter);
    if (found == of_adapters_.end()) {
      of_adapters_.push_back({.adapter = adapter, .end = 1});
    } else {
      ++found->end;
    }
  }
  for (OfAdapter& of_adapter : of_adapters_) {
    of_adapter.begin = std::ssize(rows_);
    for (size_t row = 0; row < num_rows; ++row) {
      if (by_row_[row] == of_adapter.adapter) rows_.push_back(static_cast<int32_t>(row));
    }
    of_adapter.end = std::ssize(rows_);
  }
}

void AdapterRows::Add(const kernels::Cpu& cpu, const Args& args) {
  for (const OfAdapter& of_adapter : of_adapters_) {
    const CpuAdapter::Linear* const linear = of_adapter.adapter->Find(args.layer, args.role);
    if (linear == nullptr) continue;
    if (!linears_.empty() && !linears_.front()->HasShapeOf(*linear)) AddTaken(cpu, args);
    for (int64_t begin = of_adapter.begin; begin < of_adapter.end;) {
      const int64_t first = std::ssize(taken_);
      const int64_t most = std::min(kRowsOfGroup, kMostRows - first);
      const int64_t end = std::min(of_adapter.end, begin + most);
      taken_.insert(taken_.end(), rows_.begin() + begin, rows_.begin() + end);
      groups_.push_back({.begin = first, .end = std::ssize(taken_), .weight = &linear->down});
      linears_.push_back(linear);
      begin = end;
      if (std::ssize(taken_) == kMostRows) AddTaken(cpu, args);
    }
  }
  if (!groups_.empty()) AddTaken(cpu, args);
}

void AdapterRows::AddTaken(const kernels::Cpu& cpu, const Args& args) {
  const CpuAdapter::Linear& first = *linears_.front();
  const int64_t rank = first.down.n;
  kernels::GroupedLinear(cpu, {.groups = groups_,
                               .x = args.x,
                               .ldx = args.ldx,
                               .rows = taken_.data(),
                               .y = middle_,
                               .ldy = rank,
                               .workspace = workspace_});
  for (size_t i = 0; i < first.ups.size(); ++i) {
    const int64_t width = first.ups[i].matrix.n;
    for (size_t j = 0; j < groups_.size(); ++j) groups_[j].weight = &linears_[j]->ups[i].matrix;
    kernels::GroupedLinear(cpu, {.groups = groups_,
                                 .x = middle_ + first.ups[i].column,
                                 .ldx = rank,
                                 .y = sums_,
                                 .ldy = width,
                                 .workspace = workspace_});
    kernels::Add(cpu, {.x = sums_,
                       .ldx = width,
                       .rows = taken_.data(),
                       .sum = args.y + first.ups[i].row,
                       .ld_sum = args.ldy,
                       .m = std::ssize(taken_),
                       .n = width});
  }
  taken_.clear();
  groups_.clear();
  linears_.clear();
}

}  // namespace mlc_native
