#include "weights/computed_weight.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace mlc_native {
namespace {

class OnesWeight : public WeightSource {
 public:
  OnesWeight() : WeightSource({}) {}

  DType dtype() const override { return DType::kFloat32; }
  void Load() override {}
  void Drop() override {}
  void Decode(int64_t begin, int64_t end, float* out) const override {
    std::fill_n(out, end - begin, 1.0f);
  }
};

// A weight that is computed from a stored one.
class OfStored : public WeightSource {
 public:
  OfStored(std::unique_ptr<WeightSource> stored, int64_t columns)
      : WeightSource(stored->parts()), stored_(std::move(stored)), columns_(columns) {}

  DType dtype() const override { return stored_->dtype(); }
  int64_t stored_bytes() const override { return stored_->stored_bytes(); }
  void Load() override { stored_->Load(); }
  void Drop() override { stored_->Drop(); }

 protected:
  const std::unique_ptr<WeightSource> stored_;
  const int64_t columns_;
};

class NormalizedRows : public OfStored {
 public:
  NormalizedRows(std::unique_ptr<WeightSource> stored, int64_t columns, float eps)
      : OfStored(std::move(stored), columns), eps_(eps) {}

  void Decode(int64_t begin, int64_t end, float* out) const override {
    stored_->Decode(begin, end, out);
    for (int64_t row = begin; row < end; ++row, out += columns_) {
      double sum = 0;
      for (int64_t i = 0; i < columns_; ++i) sum += static_cast<double>(out[i]) * out[i];
      const double scale = 1.0 / std::sqrt(sum / static_cast<double>(columns_) + eps_);
      for (int64_t i = 0; i < columns_; ++i) out[i] = static_cast<float>(out[i] * scale);
    }
  }

 private:
  const float eps_;
};

class WeightsSideBySide : public WeightSource {
 public:
  explicit WeightsSideBySide(std::vector<SourceOfColumns> parts)
      : WeightSource(EntriesOf(parts)), parts_(std::move(parts)) {
    for (const SourceOfColumns& part : parts_) columns_ += part.columns;
  }

  DType dtype() const override { return parts_.front().source->dtype(); }
  void Load() override {
    for (const SourceOfColumns& part : parts_) part.source->Load();
  }
  void Drop() override {
    for (const SourceOfColumns& part : parts_) part.source->Drop();
  }
  void Decode(int64_t begin, int64_t end, float* out) const override {
    int64_t first = 0;
    for (const SourceOfColumns& part : parts_) {
      std::vector<float> rows(static_cast<size_t>((end - begin) * part.columns));
      part.source->Decode(begin, end, rows.data());
      for (int64_t row = 0; row < end - begin; ++row) {
        std::copy_n(rows.data() + row * part.columns, part.columns, out + row * columns_ + first);
      }
      first += part.columns;
    }
  }

 private:
  static std::vector<const Checkpoint::Entry*> EntriesOf(
      const std::vector<SourceOfColumns>& parts) {
    std::vector<const Checkpoint::Entry*> entries;
    for (const SourceOfColumns& part : parts) {
      entries.insert(entries.end(), part.source->parts().begin(), part.source->parts().end());
    }
    return entries;
  }

  const std::vector<SourceOfColumns> parts_;
  int64_t columns_ = 0;
};

class MultipliedWeight : public OfStored {
 public:
  MultipliedWeight(std::unique_ptr<WeightSource> stored, int64_t columns, float factor)
      : OfStored(std::move(stored), columns), factor_(factor) {}

  void Decode(int64_t begin, int64_t end, float* out) const override {
    stored_->Decode(begin, end, out);
    for (int64_t i = 0; i < (end - begin) * columns_; ++i) out[i] *= factor_;
  }

 private:
  const float factor_;
};

// Codes of zeros are 0, where 0 is a code of all that have no shifts and no table.
class PaddedRows : public OfStored {
 public:
  PaddedRows(std::unique_ptr<WeightSource> stored, int64_t columns, const PaddedHeads& heads)
      : OfStored(std::move(stored), columns), heads_(heads) {}

  void Decode(int64_t begin, int64_t end, float* out) const override {
    for (int64_t row = begin; row < end; ++row, out += columns_) {
      const int64_t at = heads_.StoredAt(row);
      if (at >= 0) {
        stored_->Decode(at, at + 1, out);
      } else {
        std::fill_n(out, columns_, 0.0f);
      }
    }
  }
  std::optional<CodeForm> code_form() const override {
    const std::optional<CodeForm> form = stored_->code_form();
    return form && !form->is_affine && !form->table ? form : std::nullopt;
  }
  void ReadCodes(int64_t begin, int64_t end, int8_t* codes, uint16_t* scales) const override {
    const CodeForm form = *code_form();
    const int64_t num_scales = form.num_groups * form.scale_words();
    for (int64_t row = begin; row < end; ++row, codes += columns_, scales += num_scales) {
      const int64_t at = heads_.StoredAt(row);
      if (at >= 0) {
        stored_->ReadCodes(at, at + 1, codes, scales);
        continue;
      }
      std::fill_n(codes, columns_, int8_t{0});
      std::fill_n(scales, num_scales, uint16_t{0});
    }
  }

 private:
  const PaddedHeads heads_;
};

class PaddedColumns : public OfStored {
 public:
  PaddedColumns(std::unique_ptr<WeightSource> stored, int64_t columns, const PaddedHeads& heads)
      : OfStored(std::move(stored), columns), heads_(heads) {}

  void Decode(int64_t begin, int64_t end, float* out) const override {
    const int64_t width = columns_ / heads_.padded * heads_.stored;
    std::vector<float> rows(static_cast<size_t>((end - begin) * width));
    stored_->Decode(begin, end, rows.data());
    for (const float* row = rows.data(); row != rows.data() + rows.size(); row += width) {
      for (int64_t i = 0; i < columns_; ++i) {
        const int64_t at = heads_.StoredAt(i);
        *out++ = at < 0 ? 0.0f : row[at];
      }
    }
  }

 private:
  const PaddedHeads heads_;
};

}  // namespace

std::unique_ptr<WeightSource> Padded(std::unique_ptr<WeightSource> stored, int64_t columns,
                                     const PaddedHeads& heads) {
  if (heads.in_columns) return std::make_unique<PaddedColumns>(std::move(stored), columns, heads);
  return std::make_unique<PaddedRows>(std::move(stored), columns, heads);
}

std::unique_ptr<WeightSource> Ones() { return std::make_unique<OnesWeight>(); }

std::unique_ptr<WeightSource> WithNormalizedRows(std::unique_ptr<WeightSource> stored,
                                                 int64_t columns, float eps) {
  return std::make_unique<NormalizedRows>(std::move(stored), columns, eps);
}

std::unique_ptr<WeightSource> SideBySide(std::vector<SourceOfColumns> parts) {
  return std::make_unique<WeightsSideBySide>(std::move(parts));
}

std::unique_ptr<WeightSource> Multiplied(std::unique_ptr<WeightSource> stored, int64_t columns,
                                         float factor) {
  return std::make_unique<MultipliedWeight>(std::move(stored), columns, factor);
}

}  // namespace mlc_native
