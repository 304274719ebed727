// Some rows and columns of another weight. Loaded and dropped with it; it reads no more rows of it
// than it has, but all their columns.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "weights/weight_map.h"
#include "weights/weight_source.h"

namespace mlc_native {

struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
};
int64_t Total(std::span<const IndexRange> ranges);
// The rows of the tensor that a part of `num_rows` rows takes.
std::vector<IndexRange> RangesOf(const RowsOfTensor& part, int64_t num_rows);

class PartOfWeight : public WeightSource {
 public:
  // `whole` has num_rows rows of num_columns. The ranges are ascending, disjoint and not empty;
  // without one of columns, all of these are taken. Requires: the ranges of columns begin and end
  // at borders of groups (IsBorder), if ReadCodes is called.
  PartOfWeight(std::unique_ptr<WeightSource> whole, int64_t num_rows, int64_t num_columns,
               std::vector<IndexRange> rows, std::vector<IndexRange> columns);

  // Whether the codes of a weight of this form can be divided at this column.
  static bool IsBorder(const CodeForm& form, int64_t column) {
    return form.num_groups == 1 || column % form.group == 0;
  }

  DType dtype() const override { return whole_->dtype(); }
  void Load() override { whole_->Load(); }
  void Drop() override { whole_->Drop(); }
  bool is_stored_as_floats() const override { return whole_->is_stored_as_floats(); }
  void ReadRows(int64_t begin, int64_t end, std::span<std::byte> out) const override;
  void Decode(int64_t begin, int64_t end, float* out) const override;
  std::optional<CodeForm> code_form() const override;
  void ReadCodes(int64_t begin, int64_t end, int8_t* codes, uint16_t* scales) const override;
  int64_t stored_bytes() const override;

 private:
  // Calls run(first, last, at) for rows [first, last) of the whole that are rows from `at` on here.
  template <typename Run>
  void ForRuns(int64_t begin, int64_t end, const Run& run) const;
  std::vector<IndexRange> GroupsOf(const CodeForm& form) const;
  int64_t num_kept_columns() const { return columns_.empty() ? num_columns_ : Total(columns_); }

  const std::unique_ptr<WeightSource> whole_;
  const int64_t num_rows_;
  const int64_t num_columns_;
  const std::vector<IndexRange> rows_;
  const std::vector<IndexRange> columns_;
};

}  // namespace mlc_native
