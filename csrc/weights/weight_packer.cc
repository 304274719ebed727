#include "weights/weight_packer.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "kernels/packed_format.h"
#include "support/check.h"
#include "support/half.h"

namespace mlc_native {
namespace {

constexpr int64_t kBlockBytes = 8 << 20;     // bytes of the checkpoint per block
constexpr int64_t kReadElements = 32 << 10;  // read at a time, so that they stay in the L2 cache

// Returns rows of a source, which are in `scratch`, in the form that the kernels read.
kernels::PackSource ReadRows(const WeightSource& source, int64_t begin, int64_t end,
                             int64_t columns, std::vector<std::byte>& scratch) {
  const bool stored = source.is_stored_as_floats();
  const DType dtype = stored ? source.dtype() : DType::kFloat32;
  scratch.resize(static_cast<size_t>((end - begin) * columns) * DTypeSize(dtype));
  if (stored) {
    source.ReadRows(begin, end, scratch);
  } else {
    source.Decode(begin, end, reinterpret_cast<float*>(scratch.data()));
  }
  return {.dtype = dtype, .data = scratch.data(), .ld = columns, .rows = end - begin};
}

// Puts a shift of zero behind each scale.
void AddShifts(const std::vector<uint16_t>& scales, std::vector<uint16_t>* pairs) {
  pairs->assign(2 * scales.size(), 0);
  for (size_t i = 0; i < scales.size(); ++i) (*pairs)[2 * i] = scales[i];
}

// To `type` with the precision of `dtype`, times `scale`.
void ConvertVector(DType dtype, DType type, float scale, std::byte* out, int64_t first,
                   const kernels::PackSource& from) {
  for (int64_t i = 0; i < from.rows * from.ld; ++i) {
    float rounded = 0;
    StoreElement(dtype, &rounded, 0, LoadElement(from.dtype, from.data, i));
    StoreElement(type, out, first + i, scale * LoadElement(dtype, &rounded, 0));
  }
}

}  // namespace

WeightPacker::WeightPacker(const WeightPlan& plan, const WeightForm& form, ThreadPool& pool,
                           const LoadProgress& progress)
    : plan_(plan),
      form_(form),
      pool_(pool),
      progress_(progress),
      slots_(plan.map.parameters.size()) {
  std::vector<int64_t> filled(slots_.size());  // rows
  for (size_t i = 0; i < plan_.map.slots.size(); ++i) {
    const WeightSlot& slot = plan_.map.slots[i];
    slots_[slot.parameter].push_back(i);
    filled[slot.parameter] += slot.rows();
    total_ += plan_.sources[i]->stored_bytes();
  }
  for (size_t i = 0; i < filled.size(); ++i) {
    MLC_CHECK(filled[i] == plan_.map.parameters[i].rows)
        << "parameter " << i << ": " << filled[i] << " of " << plan_.map.parameters[i].rows;
  }
}

std::vector<size_t> WeightPacker::FileOrder() const {
  std::vector<size_t> order;
  for (size_t parameter = 0; parameter < slots_.size(); ++parameter) {
    if (!slots_[parameter].empty()) order.push_back(parameter);  // others have no rows
  }
  std::ranges::sort(order, {}, [&](size_t parameter) {
    const auto& parts = plan_.sources[slots_[parameter].front()]->parts();
    if (parts.empty())
      return std::tuple<const TensorFile*, uint64_t, size_t>(nullptr, 0, parameter);
    const Checkpoint::Entry& part = *parts.front();
    return std::tuple<const TensorFile*, uint64_t, size_t>(part.file, part.tensor->begin,
                                                           parameter);
  });
  return order;
}

void WeightPacker::Fill(const ParameterRows& rows, std::byte* data,
                        const kernels::ErrorFeedback* feedback) {
  const Parameter& parameter = plan_.map.parameters[rows.parameter];
  MLC_CHECK(rows.begin % form_.panel_width() == 0 && rows.begin < rows.end) << "row " << rows.begin;
  for (size_t i : slots_[rows.parameter]) {
    const WeightSlot& slot = plan_.map.slots[i];
    const Task task{.slot = slot,
                    .source = *plan_.sources[i],
                    .form = parameter.form,
                    .scale = parameter.scale,
                    .precision = plan_.vector_precision(rows.parameter),
                    .matrix = {.format = plan_.formats[rows.parameter],
                               .n = rows.end - rows.begin,
                               .k = parameter.columns,
                               .data = data},
                    .row_offset = slot.row_offset - rows.begin,
                    .feedback = feedback};
    FillSlot(task, std::max<int64_t>(-task.row_offset, 0),
             std::min(slot.rows(), rows.end - slot.row_offset));
  }
}

// Threads divide the panels of a block, so that no two threads write to the same panel.
void WeightPacker::FillSlot(const Task& task, int64_t first_row, int64_t last_row) {
  const int64_t width = form_.panel_width();
  const int64_t rows = task.slot.rows();
  const auto bytes_before = [&](int64_t row) { return task.source.stored_bytes() * row / rows; };
  const int64_t row_bytes = std::max<int64_t>(bytes_before(1), 1);
  const int64_t step = std::max<int64_t>(kBlockBytes / row_bytes / width, 1) * width;
  task.source.Load();
  for (int64_t begin = first_row; begin < last_row; begin += step) {
    const int64_t end = std::min(last_row, begin + step);
    const int64_t first = (task.row_offset + begin) / width;
    const int64_t panels = (task.row_offset + end + width - 1) / width - first;
    pool_.ParallelFor(panels, [&](int64_t from, int64_t to, int) {
      FillRows(task, std::max((first + from) * width - task.row_offset, begin),
               std::min((first + to) * width - task.row_offset, end));
    });
    done_ += bytes_before(end) - bytes_before(begin);
    if (progress_) progress_(done_, total_);
  }
  if (last_row == rows) task.source.Drop();
}

void WeightPacker::FillRows(const Task& task, int64_t begin, int64_t end) const {
  if (KeepsCodes(task)) return PackCodes(task, begin, end);
  if (task.feedback != nullptr) return PackForInputs(task, begin, end);
  PackFloats(task, begin, end);
}

bool WeightPacker::KeepsCodes(const Task& task) {
  if (task.form != ParameterForm::kPacked) return false;
  const std::optional<CodeForm> form = task.source.code_form();
  return form && form->HeldBy(task.matrix.format);
}

void WeightPacker::PackCodes(const Task& task, int64_t begin, int64_t end) const {
  const CodeForm codes_form = *task.source.code_form();
  const int64_t columns = task.matrix.k;
  const int64_t step = form_.panel_width();
  std::vector<int8_t> codes(static_cast<size_t>(step * columns));
  std::vector<uint16_t> scales(
      static_cast<size_t>(step * codes_form.num_groups * codes_form.scale_words()));
  const bool adds_shifts =
      !codes_form.is_affine && kernels::LayoutOf(task.matrix.format).scales > 1;
  std::vector<uint16_t> with_shifts;
  for (int64_t row = begin; row < end; row += step) {
    const int64_t next = std::min(end, row + step);
    task.source.ReadCodes(row, next, codes.data(), scales.data());
    if (adds_shifts) AddShifts(scales, &with_shifts);
    form_.Pack(task.matrix, task.row_offset + row,
               kernels::PackCodes{.codes = codes.data(),
                                  .ld = columns,
                                  .scales = (adds_shifts ? with_shifts : scales).data(),
                                  .group = codes_form.group,
                                  .rows = next - row});
  }
}

void WeightPacker::PackFloats(const Task& task, int64_t begin, int64_t end) const {
  const int64_t width = form_.panel_width();
  const int64_t step = std::max<int64_t>(kReadElements / (task.matrix.k * width), 1) * width;
  std::vector<std::byte> scratch;
  for (int64_t row = begin; row < end; row += step) {
    Place(task, task.row_offset + row,
          ReadRows(task.source, row, std::min(end, row + step), task.matrix.k, scratch));
  }
}

void WeightPacker::PackForInputs(const Task& task, int64_t begin, int64_t end) const {
  const int64_t columns = task.matrix.k;
  const int64_t step = form_.panel_width();
  const kernels::PanelLayout layout = kernels::LayoutOf(task.matrix.format);
  std::vector<std::byte> scratch;
  std::vector<float> values(static_cast<size_t>(step * columns));
  std::vector<int8_t> codes(values.size());
  std::vector<uint16_t> scales(static_cast<size_t>(step * layout.Groups(columns)));
  for (int64_t row = begin; row < end; row += step) {
    const int64_t next = std::min(end, row + step);
    const kernels::PackSource rows = ReadRows(task.source, row, next, columns, scratch);
    const std::span<float> floats(values.data(), static_cast<size_t>((next - row) * columns));
    ConvertRows(DType::kFloat32, reinterpret_cast<std::byte*>(floats.data()), 0, rows, columns);
    task.feedback->Round(task.matrix.format, floats, codes.data(), scales.data());
    form_.Pack(task.matrix, task.row_offset + row,
               kernels::PackCodes{.codes = codes.data(),
                                  .ld = columns,
                                  .scales = scales.data(),
                                  .group = layout.group,
                                  .rows = next - row});
  }
}

void WeightPacker::Place(const Task& task, int64_t row, const kernels::PackSource& rows) const {
  const PackedMatrix& matrix = task.matrix;
  switch (task.form) {
    case ParameterForm::kPacked:
      return form_.Pack(matrix, row, rows);
    case ParameterForm::kTable:
      return ConvertRows(plan_.dtype, matrix.data, row * matrix.k, rows, matrix.k);
    case ParameterForm::kVector:
      return ConvertVector(task.precision, form_.VectorType(task.precision), task.scale,
                           matrix.data, row * matrix.k, rows);
  }
}

}  // namespace mlc_native
