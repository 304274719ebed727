#include "weights/part_of_weight.h"

#include <algorithm>
#include <utility>

#include "support/check.h"

namespace mlc_native {
namespace {

// Copies these items of each row, in units of `unit`.
template <typename T>
void CopyColumns(const std::vector<T>& rows, int64_t num_rows, std::span<const IndexRange> columns,
                 int64_t unit, T* out) {
  const int64_t width = std::ssize(rows) / num_rows;
  for (int64_t row = 0; row < num_rows; ++row) {
    for (const IndexRange& range : columns) {
      out = std::copy_n(rows.data() + row * width + range.begin * unit, range.size() * unit, out);
    }
  }
}

void CheckRanges(std::span<const IndexRange> ranges, int64_t size, const char* what) {
  int64_t at = 0;
  for (const IndexRange& range : ranges) {
    MLC_CHECK(at <= range.begin && range.begin < range.end && range.end <= size)
        << what << " " << range.begin << " to " << range.end << " of " << size;
    at = range.end;
  }
}

}  // namespace

int64_t Total(std::span<const IndexRange> ranges) {
  int64_t total = 0;
  for (const IndexRange& range : ranges) total += range.size();
  return total;
}

std::vector<IndexRange> RangesOf(const RowsOfTensor& part, int64_t num_rows) {
  std::vector<IndexRange> ranges;
  const int64_t run = part.run == 0 ? num_rows : part.run;
  for (int64_t i = 0; i < num_rows / run; ++i) {
    const int64_t begin = part.first + i * part.step;
    ranges.push_back({begin, begin + run});
  }
  return ranges;
}

PartOfWeight::PartOfWeight(std::unique_ptr<WeightSource> whole, int64_t num_rows,
                           int64_t num_columns, std::vector<IndexRange> rows,
                           std::vector<IndexRange> columns)
    : WeightSource(whole->parts()),
      whole_(std::move(whole)),
      num_rows_(num_rows),
      num_columns_(num_columns),
      rows_(std::move(rows)),
      columns_(std::move(columns)) {
  CheckRanges(rows_, num_rows_, "rows");
  CheckRanges(columns_, num_columns_, "columns");
}

template <typename Run>
void PartOfWeight::ForRuns(int64_t begin, int64_t end, const Run& run) const {
  int64_t first = 0;  // of the range, here
  for (const IndexRange& range : rows_) {
    const int64_t from = std::max(begin, first);
    const int64_t to = std::min(end, first + range.size());
    if (from < to) run(range.begin + from - first, range.begin + to - first, from - begin);
    first += range.size();
  }
}

void PartOfWeight::ReadRows(int64_t begin, int64_t end, std::span<std::byte> out) const {
  const auto size = static_cast<int64_t>(DTypeSize(dtype()));
  const int64_t row_bytes = num_kept_columns() * size;
  std::vector<std::byte> rows;
  ForRuns(begin, end, [&](int64_t first, int64_t last, int64_t at) {
    const auto bytes = [](int64_t count) { return static_cast<size_t>(count); };
    const auto to = out.subspan(bytes(at * row_bytes), bytes((last - first) * row_bytes));
    if (columns_.empty()) return whole_->ReadRows(first, last, to);
    rows.resize(bytes((last - first) * num_columns_ * size));
    whole_->ReadRows(first, last, rows);
    CopyColumns(rows, last - first, columns_, size, to.data());
  });
}

void PartOfWeight::Decode(int64_t begin, int64_t end, float* out) const {
  const int64_t width = num_kept_columns();
  std::vector<float> rows;
  ForRuns(begin, end, [&](int64_t first, int64_t last, int64_t at) {
    if (columns_.empty()) return whole_->Decode(first, last, out + at * width);
    rows.resize(static_cast<size_t>((last - first) * num_columns_));
    whole_->Decode(first, last, rows.data());
    CopyColumns(rows, last - first, columns_, 1, out + at * width);
  });
}

std::optional<CodeForm> PartOfWeight::code_form() const {
  std::optional<CodeForm> form = whole_->code_form();
  if (form && !columns_.empty() && form->num_groups > 1) {
    form->num_groups = (Total(columns_) + form->group - 1) / form->group;
  }
  return form;
}

// The groups of the columns that are taken.
std::vector<IndexRange> PartOfWeight::GroupsOf(const CodeForm& form) const {
  if (form.num_groups == 1) return {{0, 1}};
  std::vector<IndexRange> groups;
  for (const IndexRange& range : columns_) {
    MLC_CHECK(IsBorder(form, range.begin)) << range.begin << " within " << form.group;
    groups.push_back({range.begin / form.group, (range.end + form.group - 1) / form.group});
  }
  return groups;
}

void PartOfWeight::ReadCodes(int64_t begin, int64_t end, int8_t* codes, uint16_t* scales) const {
  const CodeForm all = *whole_->code_form();
  const CodeForm here = *code_form();
  const int64_t width = num_kept_columns();
  const int64_t num_scales = here.num_groups * here.scale_words();
  std::vector<int8_t> whole_codes;
  std::vector<uint16_t> whole_scales;
  ForRuns(begin, end, [&](int64_t first, int64_t last, int64_t at) {
    int8_t* const to = codes + at * width;
    uint16_t* const scales_to = scales + at * num_scales;
    if (columns_.empty()) return whole_->ReadCodes(first, last, to, scales_to);
    const int64_t rows = last - first;
    whole_codes.resize(static_cast<size_t>(rows * num_columns_));
    whole_scales.resize(static_cast<size_t>(rows * all.num_groups * all.scale_words()));
    whole_->ReadCodes(first, last, whole_codes.data(), whole_scales.data());
    CopyColumns(whole_codes, rows, columns_, 1, to);
    CopyColumns(whole_scales, rows, GroupsOf(all), all.scale_words(), scales_to);
  });
}

// What it reads of the file, for the progress.
int64_t PartOfWeight::stored_bytes() const {
  return whole_->stored_bytes() * Total(rows_) / num_rows_;
}

}  // namespace mlc_native
