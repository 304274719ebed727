// WeightPacker packs the parameters of a plan into memory, in the layout of a form.
//
// Each thread reads a few rows of a tensor at a time and packs them, so the peak is the packed
// memory plus a few rows per thread, and with quantized checkpoints the matrix that is packed. Runs
// on the loading thread and its pool.
#pragma once

#include <vector>

#include "kernels/error_feedback.h"
#include "mlc_native/data.h"
#include "mlc_native/detail/export.h"
#include "support/thread_pool.h"
#include "weights/weight_form.h"
#include "weights/weight_plan.h"

namespace mlc_native {

// Rows [begin, end) of a parameter; begin is a multiple of the form's panel_width.
struct ParameterRows {
  size_t parameter = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

class MLC_NATIVE_PRIVATE_API WeightPacker {
 public:
  // All references must outlive the packer. `progress` may be empty.
  WeightPacker(const WeightPlan& plan, const WeightForm& form, ThreadPool& pool,
               const LoadProgress& progress);

  // Returns the parameters in the order of the files, which disks read fastest.
  std::vector<size_t> FileOrder() const;

  // Fills `data` with these rows, in the layout of a parameter that has only them. With `feedback`
  // a matrix of floats is rounded for those inputs; null: for any. Requires: each row is packed
  // once.
  void Fill(const ParameterRows& rows, std::byte* data,
            const kernels::ErrorFeedback* feedback = nullptr);

 private:
  // A source and its destination: rows [begin, end) go to those of `matrix` from row_offset +
  // begin.
  struct Task {
    const WeightSlot& slot;
    WeightSource& source;
    ParameterForm form;
    float scale;          // of a vector
    DType precision;      // of a vector
    PackedMatrix matrix;  // also of tables and vectors; they have no format
    int64_t row_offset;
    const kernels::ErrorFeedback* feedback;
  };

  void FillSlot(const Task& task, int64_t first_row, int64_t last_row);
  void FillRows(const Task& task, int64_t begin, int64_t end) const;
  static bool KeepsCodes(const Task& task);
  void PackCodes(const Task& task, int64_t begin, int64_t end) const;
  void PackFloats(const Task& task, int64_t begin, int64_t end) const;
  void PackForInputs(const Task& task, int64_t begin, int64_t end) const;
  void Place(const Task& task, int64_t row, const kernels::PackSource& rows) const;

  const WeightPlan& plan_;
  const WeightForm& form_;
  ThreadPool& pool_;
  const LoadProgress& progress_;
  std::vector<std::vector<size_t>> slots_;  // slots of each parameter
  int64_t done_ = 0;                        // bytes of the checkpoint that are packed
  int64_t total_ = 0;
};

}  // namespace mlc_native
