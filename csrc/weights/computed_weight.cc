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

class NormalizedRows : public WeightSource {
 public:
  NormalizedRows(std::unique_ptr<WeightSource> stored, int64_t columns, float eps)
      : WeightSource(stored->parts()), stored_(std::move(stored)), columns_(columns), eps_(eps) {}

  DType dtype() const override { return stored_->dtype(); }
  int64_t stored_bytes() const override { return stored_->stored_bytes(); }
  void Load() override { stored_->Load(); }
  void Drop() override { stored_->Drop(); }
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
  const std::unique_ptr<WeightSource> stored_;
  const int64_t columns_;
  const float eps_;
};

class MultipliedWeight : public WeightSource {
 public:
  MultipliedWeight(std::unique_ptr<WeightSource> stored, int64_t columns, float factor)
      : WeightSource(stored->parts()),
        stored_(std::move(stored)),
        columns_(columns),
        factor_(factor) {}

  DType dtype() const override { return stored_->dtype(); }
  int64_t stored_bytes() const override { return stored_->stored_bytes(); }
  void Load() override { stored_->Load(); }
  void Drop() override { stored_->Drop(); }
  void Decode(int64_t begin, int64_t end, float* out) const override {
    stored_->Decode(begin, end, out);
    for (int64_t i = 0; i < (end - begin) * columns_; ++i) out[i] *= factor_;
  }

 private:
  const std::unique_ptr<WeightSource> stored_;
  const int64_t columns_;
  const float factor_;
};

}  // namespace

std::unique_ptr<WeightSource> Ones() { return std::make_unique<OnesWeight>(); }

std::unique_ptr<WeightSource> WithNormalizedRows(std::unique_ptr<WeightSource> stored,
                                                 int64_t columns, float eps) {
  return std::make_unique<NormalizedRows>(std::move(stored), columns, eps);
}

std::unique_ptr<WeightSource> Multiplied(std::unique_ptr<WeightSource> stored, int64_t columns,
                                         float factor) {
  return std::make_unique<MultipliedWeight>(std::move(stored), columns, factor);
}

}  // namespace mlc_native
