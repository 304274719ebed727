#include "weights/stored_order.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "support/check.h"
#include "support/error.h"

namespace mlc_native {
namespace {

int64_t NumColumns(const TensorInfo& tensor) {
  return tensor.shape.size() > 1 ? tensor.shape.back() : 1;
}

// Where row `row` of heads is whose rows alternate between the halves of each head.
int64_t StoredRowOfHeads(const TensorInfo& tensor, int64_t row) {
  const int64_t rows = tensor.shape[0] / tensor.interleaved_heads;
  const int64_t in_head = row % rows;
  return row - in_head + 2 * (in_head % (rows / 2)) + in_head / (rows / 2);
}

// Where row or column `i` of `count` is.
int64_t StoredPlace(const TiledHeads& tiled, int64_t count, int64_t i) {
  if (tiled.key_heads == 0 || i < tiled.first) return i;
  const int64_t of_key = (count - tiled.first) / tiled.size / tiled.key_heads;  // value heads
  const int64_t head = (i - tiled.first) / tiled.size;
  const int64_t stored = head % of_key * tiled.key_heads + head / of_key;
  return tiled.first + stored * tiled.size + (i - tiled.first) % tiled.size;
}

class SortedRows : public WeightSource {
 public:
  SortedRows(std::unique_ptr<WeightSource> source, const TensorInfo& tensor)
      : WeightSource(source->parts()),
        source_(std::move(source)),
        tensor_(tensor),
        columns_(NumColumns(tensor)) {}

  DType dtype() const override { return source_->dtype(); }
  void Load() override { source_->Load(); }
  void Drop() override { source_->Drop(); }
  bool is_stored_as_floats() const override { return source_->is_stored_as_floats(); }
  void ReadRows(int64_t begin, int64_t end, std::span<std::byte> out) const override {
    const size_t bytes = static_cast<size_t>(columns_) * DTypeSize(dtype());
    ForRows(begin, end, [&](int64_t row, int64_t i) {
      source_->ReadRows(row, row + 1, out.subspan(static_cast<size_t>(i) * bytes, bytes));
    });
  }
  void Decode(int64_t begin, int64_t end, float* out) const override {
    ForRows(begin, end,
            [&](int64_t row, int64_t i) { source_->Decode(row, row + 1, out + i * columns_); });
  }
  std::optional<CodeForm> code_form() const override { return source_->code_form(); }
  void ReadCodes(int64_t begin, int64_t end, int8_t* codes, uint16_t* scales) const override {
    const CodeForm form = *code_form();
    const int64_t groups = form.num_groups * form.scale_words();
    ForRows(begin, end, [&](int64_t row, int64_t i) {
      source_->ReadCodes(row, row + 1, codes + i * columns_, scales + i * groups);
    });
  }

 private:
  // Calls f(stored row, index) for each row.
  template <typename F>
  void ForRows(int64_t begin, int64_t end, const F& f) const {
    for (int64_t row = begin; row < end; ++row) {
      f(tensor_.interleaved_heads > 0 ? StoredRowOfHeads(tensor_, row)
                                      : StoredPlace(tensor_.tiled_heads, tensor_.shape[0], row),
        row - begin);
    }
  }

  const std::unique_ptr<WeightSource> source_;
  const TensorInfo& tensor_;
  const int64_t columns_;
};

class SortedColumns : public WeightSource {
 public:
  SortedColumns(std::unique_ptr<WeightSource> source, const TensorInfo& tensor)
      : WeightSource(source->parts()),
        source_(std::move(source)),
        tiled_(tensor.tiled_heads),
        columns_(NumColumns(tensor)) {}

  DType dtype() const override { return source_->dtype(); }
  void Load() override { source_->Load(); }
  void Drop() override { source_->Drop(); }
  void Decode(int64_t begin, int64_t end, float* out) const override {
    std::vector<float> rows(static_cast<size_t>((end - begin) * columns_));
    source_->Decode(begin, end, rows.data());
    CopySorted(rows, columns_, 1, out);
  }
  // That of floats where the codes of a head share scales with others.
  std::optional<CodeForm> code_form() const override {
    const std::optional<CodeForm> form = source_->code_form();
    return form && (form->num_groups == 1 || tiled_.size % form->group == 0) ? form : std::nullopt;
  }
  void ReadCodes(int64_t begin, int64_t end, int8_t* codes, uint16_t* scales) const override {
    const CodeForm form = *code_form();
    const int64_t words = form.scale_words();
    const int64_t num_scales = form.num_groups * words;
    std::vector<int8_t> stored_codes(static_cast<size_t>((end - begin) * columns_));
    std::vector<uint16_t> stored_scales(static_cast<size_t>((end - begin) * num_scales));
    source_->ReadCodes(begin, end, stored_codes.data(), stored_scales.data());
    CopySorted(stored_codes, columns_, 1, codes);
    if (form.num_groups == 1) {
      std::ranges::copy(stored_scales, scales);
    } else {
      CopySorted(stored_scales, num_scales, columns_ / num_scales, scales);
    }
  }

 private:
  // Rows of `width` items, each of which is of so many columns.
  template <typename T>
  void CopySorted(const std::vector<T>& stored, int64_t width, int64_t columns, T* out) const {
    TiledHeads tiled = tiled_;
    tiled.size /= columns;
    for (int64_t row = 0; row < std::ssize(stored); row += width) {
      for (int64_t i = 0; i < width; ++i) {
        out[row + i] = stored[static_cast<size_t>(row + StoredPlace(tiled, width, i))];
      }
    }
  }

  const std::unique_ptr<WeightSource> source_;
  const TiledHeads tiled_;
  const int64_t columns_;
};

// Values that are stored as their negative powers of e. They are in memory from Load to Drop.
class LogOfNegative : public WeightSource {
 public:
  LogOfNegative(std::unique_ptr<WeightSource> source, const TensorInfo& tensor)
      : WeightSource(source->parts()),
        source_(std::move(source)),
        tensor_(tensor),
        columns_(tensor.shape.size() > 1 ? tensor.shape[1] : 1) {}

  DType dtype() const override { return source_->dtype(); }
  void Load() override {
    source_->Load();
    const int64_t rows = tensor_.shape[0];
    values_.resize(static_cast<size_t>(rows * columns_));
    source_->Decode(0, rows, values_.data());
    for (float& value : values_) {
      if (!(value < 0)) {
        FailTensor(parts().front()->file->path, tensor_.name,
                   "has " + std::to_string(value) + ", which is not below 0");
      }
      value = static_cast<float>(std::log(-double{value}));  // rounded once
    }
  }
  void Drop() override {
    source_->Drop();
    values_.clear();
  }
  void Decode(int64_t begin, int64_t end, float* out) const override {
    MLC_CHECK(end * columns_ <= std::ssize(values_)) << tensor_.name << " is not loaded";
    std::copy(values_.begin() + begin * columns_, values_.begin() + end * columns_, out);
  }

 private:
  const std::unique_ptr<WeightSource> source_;
  const TensorInfo& tensor_;
  const int64_t columns_;
  std::vector<float> values_;
};

}  // namespace

std::unique_ptr<WeightSource> InStoredOrder(std::unique_ptr<WeightSource> stored,
                                            const TensorInfo& tensor) {
  const TiledHeads& tiled = tensor.tiled_heads;
  std::unique_ptr<WeightSource> source = std::move(stored);
  if (tensor.interleaved_heads > 0 || (tiled.key_heads > 0 && !tiled.in_columns)) {
    source = std::make_unique<SortedRows>(std::move(source), tensor);
  } else if (tiled.key_heads > 0) {
    source = std::make_unique<SortedColumns>(std::move(source), tensor);
  }
  if (!tensor.is_negative_power) return source;
  return std::make_unique<LogOfNegative>(std::move(source), tensor);
}

}  // namespace mlc_native
