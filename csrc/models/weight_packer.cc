#include "models/weight_packer.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "support/check.h"
#include "support/half.h"

namespace mlc_native {
namespace {

constexpr int64_t kBlockBytes = 8 << 20;  // of a checkpoint, mapped at a time

// The rows of a source as the kernels take them: the file's own, or in `scratch`.
kernels::PackSource ReadRows(const WeightSource& source, int64_t begin, int64_t end,
                             int64_t columns, std::vector<std::byte>& scratch) {
  const std::byte* stored = source.StoredRows(begin);
  const DType dtype = stored != nullptr ? source.dtype() : DType::kFloat32;
  const size_t bytes = static_cast<size_t>((end - begin) * columns) * DTypeSize(dtype);
  const std::byte* data = stored;
  if (stored == nullptr) {
    scratch.resize(bytes);
    source.Decode(begin, end, reinterpret_cast<float*>(scratch.data()));
    data = scratch.data();
  } else if (reinterpret_cast<uintptr_t>(stored) % DTypeSize(dtype) != 0) {
    // A file may put its data anywhere; the kernels read whole elements.
    scratch.assign(stored, stored + bytes);
    data = scratch.data();
  }
  return {.dtype = dtype, .data = data, .ld = columns, .rows = end - begin};
}

// Elements of one type to those of another, rounded to nearest even.
void Convert(DType to, std::byte* out, int64_t first, const kernels::PackSource& from,
             int64_t columns) {
  const int64_t elements = from.rows * columns;
  if (from.dtype == to) {
    const auto size = static_cast<int64_t>(DTypeSize(to));
    std::memcpy(out + first * size, from.data, static_cast<size_t>(elements * size));
    return;
  }
  for (int64_t i = 0; i < elements; ++i) {
    StoreElement(to, out, first + i, LoadElement(from.dtype, from.data, i));
  }
}

// To float32, but with the precision of `dtype`.
void Widen(DType dtype, float* out, const kernels::PackSource& from) {
  for (int64_t i = 0; i < from.rows; ++i) {
    StoreElement(dtype, &out[i], 0, LoadElement(from.dtype, from.data, i));
    out[i] = LoadElement(dtype, &out[i], 0);
  }
}

}  // namespace

void WeightPacker::Fill(std::byte* memory) {
  const WeightMap& map = layout_.map();
  std::vector<int64_t> filled(map.parameters.size());  // rows
  for (const WeightSlot& slot : map.slots) filled[slot.parameter] += slot.shape[0];
  for (size_t i = 0; i < filled.size(); ++i) {
    MLC_CHECK(filled[i] == map.parameters[i].rows)
        << "parameter " << i << ": " << filled[i] << " of " << map.parameters[i].rows;
  }
  for (const auto& source : sources_) total_ += source->stored_bytes();
  std::vector<size_t> order(sources_.size());  // of the files, which is how disks like to be read
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(
      order, {}, [&](size_t slot) { return sources_[slot]->parts().front()->tensor->data.data(); });
  for (size_t i : order) {
    const WeightSlot& slot = map.slots[i];
    FillSlot({slot, *sources_[i], map.parameters[slot.parameter], memory});
  }
}

// Threads split the panels of a block, so that no two of them write to the same one.
void WeightPacker::FillSlot(const Task& task) {
  const auto& [slot, source, parameter, memory] = task;
  const int64_t rows = slot.shape[0];
  const int64_t width = layout_.panel_width();
  const int64_t row_bytes = std::max<int64_t>(source.stored_bytes() / rows, 1);
  const int64_t step = std::max<int64_t>(kBlockBytes / row_bytes / width, 1) * width;
  const int64_t done = done_;
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t end = std::min(rows, begin + step);
    const int64_t first = (slot.row_offset + begin) / width;
    const int64_t panels = (slot.row_offset + end + width - 1) / width - first;
    pool_.ParallelFor(panels, [&](int64_t from, int64_t to, int) {
      FillRows(task, std::max((first + from) * width - slot.row_offset, begin),
               std::min((first + to) * width - slot.row_offset, end));
    });
    source.Drop(begin, end);
    done_ = done + source.stored_bytes() * end / rows;
    if (progress_) progress_(done_, total_);
  }
}

void WeightPacker::FillRows(const Task& task, int64_t begin, int64_t end) const {
  if (KeepsCodes(task)) return PackCodes(task, begin, end);
  PackFloats(task, begin, end);
}

bool WeightPacker::KeepsCodes(const Task& task) const {
  if (task.parameter.form != ParameterForm::kPacked) return false;
  const std::optional<CodeForm> form = task.source.code_form();
  return form && form->HeldBy(layout_.format(task.slot.parameter));
}

void WeightPacker::PackCodes(const Task& task, int64_t begin, int64_t end) const {
  const CodeForm form = *task.source.code_form();
  const int64_t columns = task.parameter.columns;
  const int64_t step = layout_.panel_width();
  std::vector<int8_t> codes(static_cast<size_t>(step * columns));
  std::vector<uint16_t> scales(static_cast<size_t>(step * form.num_groups));
  const kernels::PackedLinear packed = layout_.Packed(task.slot.parameter, task.memory);
  for (int64_t row = begin; row < end; row += step) {
    const int64_t next = std::min(end, row + step);
    task.source.ReadCodes(row, next, codes.data(), scales.data());
    kernels::PackLinear(packed, task.slot.row_offset + row,
                        kernels::PackCodes{.codes = codes.data(),
                                           .ld = columns,
                                           .scales = scales.data(),
                                           .group = form.group,
                                           .rows = next - row});
  }
}

void WeightPacker::PackFloats(const Task& task, int64_t begin, int64_t end) const {
  const int64_t columns = task.parameter.columns;
  const int64_t step = layout_.panel_width();
  std::vector<std::byte> scratch;
  for (int64_t row = begin; row < end; row += step) {
    Place(task, task.slot.row_offset + row,
          ReadRows(task.source, row, std::min(end, row + step), columns, scratch));
  }
}

void WeightPacker::Place(const Task& task, int64_t row, const kernels::PackSource& rows) const {
  const size_t parameter = task.slot.parameter;
  std::byte* data = layout_.Data(parameter, task.memory);
  switch (task.parameter.form) {
    case ParameterForm::kPacked:
      return kernels::PackLinear(layout_.Packed(parameter, task.memory), row, rows);
    case ParameterForm::kTable:
      return Convert(layout_.dtype(), data, row * task.parameter.columns, rows,
                     task.parameter.columns);
    case ParameterForm::kVector:
      return Widen(layout_.dtype(), reinterpret_cast<float*>(data) + row, rows);
  }
}

}  // namespace mlc_native
