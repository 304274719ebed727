#include "weights/shared_weight.h"

#include <optional>
#include <span>
#include <utility>

namespace mlc_native {

class SharedWeight::ViewOfWeight : public WeightSource {
 public:
  explicit ViewOfWeight(std::shared_ptr<SharedWeight> weight)
      : WeightSource(weight->source_->parts()),
        weight_(std::move(weight)),
        source_(*weight_->source_) {}

  DType dtype() const override { return source_.dtype(); }
  void Load() override { source_.Load(); }
  void Drop() override {
    if (++weight_->num_dropped_ < weight_->num_views_) return;
    weight_->num_dropped_ = 0;
    source_.Drop();
  }
  bool is_stored_as_floats() const override { return source_.is_stored_as_floats(); }
  void ReadRows(int64_t begin, int64_t end, std::span<std::byte> out) const override {
    source_.ReadRows(begin, end, out);
  }
  void Decode(int64_t begin, int64_t end, float* out) const override {
    source_.Decode(begin, end, out);
  }
  std::optional<CodeForm> code_form() const override { return source_.code_form(); }
  void ReadCodes(int64_t begin, int64_t end, int8_t* codes, uint16_t* scales) const override {
    source_.ReadCodes(begin, end, codes, scales);
  }
  int64_t stored_bytes() const override { return source_.stored_bytes(); }

 private:
  const std::shared_ptr<SharedWeight> weight_;
  WeightSource& source_;
};

std::unique_ptr<WeightSource> SharedWeight::View(std::shared_ptr<SharedWeight> weight) {
  ++weight->num_views_;
  return std::make_unique<ViewOfWeight>(std::move(weight));
}

}  // namespace mlc_native
