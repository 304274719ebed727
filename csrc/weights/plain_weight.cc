#include "weights/plain_weight.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "support/check.h"
#include "support/half.h"
#include "weights/tensor_storage.h"

namespace mlc_native {
namespace {

int64_t ColumnsOf(std::span<const int64_t> shape) { return shape.size() > 1 ? shape[1] : 1; }

class PlainWeight : public WeightSource {
 public:
  PlainWeight(const Checkpoint::Entry& entry, std::span<const int64_t> shape, int64_t index)
      : WeightSource({&entry}),
        entry_(entry),
        columns_(ColumnsOf(shape)),
        bytes_(static_cast<uint64_t>(shape[0] * columns_) * DTypeSize(*entry.tensor->dtype)),
        begin_(bytes_ * static_cast<uint64_t>(index)) {}

  DType dtype() const override { return *entry_.tensor->dtype; }
  void Load() override {
    if (!reader_) reader_.emplace(entry_.Open());
  }
  void Drop() override {
    if (reader_) reader_->Finish();
    reader_.reset();
  }
  bool is_stored_as_floats() const override { return true; }
  void ReadRows(int64_t begin, int64_t /*end*/, std::span<std::byte> out) const override {
    MLC_CHECK(reader_.has_value()) << entry_.tensor->name << " is not loaded";
    reader_->Read(begin_ + static_cast<uint64_t>(begin * columns_) * DTypeSize(dtype()), out);
  }
  int64_t stored_bytes() const override { return static_cast<int64_t>(bytes_); }
  void Decode(int64_t begin, int64_t end, float* out) const override {
    const int64_t count = (end - begin) * columns_;
    std::vector<std::byte> rows(static_cast<size_t>(count) * DTypeSize(dtype()));
    ReadRows(begin, end, rows);
    for (int64_t i = 0; i < count; ++i) out[i] = LoadElement(dtype(), rows.data(), i);
  }

 private:
  const Checkpoint::Entry& entry_;
  const int64_t columns_;
  const uint64_t bytes_;
  const uint64_t begin_;  // within the tensor
  std::optional<TensorReader> reader_;
};

// Stored as [columns, rows]. The whole matrix is in memory from Load to Drop: as it is stored, or,
// of integers, as floats.
class TransposedWeight : public WeightSource {
 public:
  TransposedWeight(std::unique_ptr<WeightSource> stored, int64_t rows, int64_t columns)
      : WeightSource(stored->parts()),
        stored_(std::move(stored)),
        held_(stored_->is_stored_as_floats() ? stored_->dtype() : DType::kFloat32),
        rows_(rows),
        columns_(columns) {}

  DType dtype() const override { return stored_->dtype(); }
  int64_t stored_bytes() const override { return stored_->stored_bytes(); }
  void Load() override {
    if (bytes_) return;
    stored_->Load();
    bytes_.emplace(static_cast<size_t>(rows_ * columns_) * DTypeSize(held_), "a transposed matrix");
    if (stored_->is_stored_as_floats()) {
      stored_->ReadRows(0, columns_, {bytes_->data(), bytes_->size()});
    } else {
      stored_->Decode(0, columns_, reinterpret_cast<float*>(bytes_->data()));
    }
  }
  void Drop() override {
    stored_->Drop();
    bytes_.reset();
  }
  void Decode(int64_t begin, int64_t end, float* out) const override {
    MLC_CHECK(bytes_.has_value()) << "the weight is not loaded";
    for (int64_t column = 0; column < columns_; ++column) {
      for (int64_t row = begin; row < end; ++row) {
        out[(row - begin) * columns_ + column] =
            LoadElement(held_, bytes_->data(), column * rows_ + row);
      }
    }
  }

 private:
  const std::unique_ptr<WeightSource> stored_;
  const DType held_;
  const int64_t rows_;
  const int64_t columns_;
  std::optional<TensorStorage> bytes_;
};

class AlternatingRows : public WeightSource {
 public:
  AlternatingRows(std::unique_ptr<WeightSource> stored, int64_t rows, int64_t columns)
      : WeightSource(stored->parts()),
        stored_(std::move(stored)),
        half_(rows / 2),
        columns_(columns) {
    MLC_CHECK(rows % 2 == 0) << rows;
  }

  DType dtype() const override { return stored_->dtype(); }
  int64_t stored_bytes() const override { return stored_->stored_bytes(); }
  void Load() override { stored_->Load(); }
  void Drop() override { stored_->Drop(); }
  std::optional<CodeForm> code_form() const override { return stored_->code_form(); }

  void Decode(int64_t begin, int64_t end, float* out) const override {
    ForRuns(begin, end, [&](const Run& run) {
      std::vector<float> rows(static_cast<size_t>(2 * run.count * columns_));
      stored_->Decode(2 * run.first, 2 * (run.first + run.count), rows.data());
      out = CopyEverySecond(rows.data(), run, columns_, out);
    });
  }
  void ReadCodes(int64_t begin, int64_t end, int8_t* codes, uint16_t* scales) const override {
    const CodeForm form = *code_form();
    const int64_t groups = form.num_groups * form.scale_words();
    ForRuns(begin, end, [&](const Run& run) {
      std::vector<int8_t> stored_codes(static_cast<size_t>(2 * run.count * columns_));
      std::vector<uint16_t> stored_scales(static_cast<size_t>(2 * run.count * groups));
      stored_->ReadCodes(2 * run.first, 2 * (run.first + run.count), stored_codes.data(),
                         stored_scales.data());
      codes = CopyEverySecond(stored_codes.data(), run, columns_, codes);
      scales = CopyEverySecond(stored_scales.data(), run, groups, scales);
    });
  }

 private:
  // The rows [first, first + count) of the first half (0) or the second (1).
  struct Run {
    int64_t half = 0;
    int64_t first = 0;
    int64_t count = 0;
  };

  template <typename Function>
  void ForRuns(int64_t begin, int64_t end, const Function& function) const {
    while (begin < end) {
      const int64_t half = begin / half_;
      const int64_t first = begin % half_;
      const int64_t count = std::min(end - begin, half_ - first);
      function(Run{half, first, count});
      begin += count;
    }
  }
  // Returns the end of what it has written.
  template <typename T>
  static T* CopyEverySecond(const T* pairs, const Run& run, int64_t width, T* out) {
    for (int64_t i = 0; i < run.count; ++i) {
      out = std::copy_n(pairs + (2 * i + run.half) * width, width, out);
    }
    return out;
  }

  const std::unique_ptr<WeightSource> stored_;
  const int64_t half_;
  const int64_t columns_;
};

}  // namespace

std::unique_ptr<WeightSource> OpenPlain(const Checkpoint::Entry& entry,
                                        std::span<const int64_t> shape, int64_t index) {
  return std::make_unique<PlainWeight>(entry, shape, index);
}

std::unique_ptr<WeightSource> Transposed(std::unique_ptr<WeightSource> stored,
                                         std::span<const int64_t> shape) {
  return std::make_unique<TransposedWeight>(std::move(stored), shape[0], shape[1]);
}

std::unique_ptr<WeightSource> InOrder(std::unique_ptr<WeightSource> stored,
                                      std::span<const int64_t> shape) {
  return std::make_unique<AlternatingRows>(std::move(stored), shape[0], ColumnsOf(shape));
}

}  // namespace mlc_native
