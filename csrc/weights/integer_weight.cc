#include "weights/integer_weight.h"

#include <algorithm>
#include <string>
#include <utility>

#include "support/check.h"
#include "support/error.h"

namespace mlc_native {
namespace {

constexpr char kWide[] = "I64", kNarrow[] = "I32";

[[noreturn]] void FailIntegers(const Checkpoint::Entry& entry, const std::string& what) {
  const std::string& name = entry.tensor->name;
  throw LoadError(name, entry.file->path + ": tensor \"" + name + "\": " + what);
}

class IntegerWeight : public WeightSource {
 public:
  IntegerWeight(const Checkpoint::Entry& entry, std::span<const int64_t> shape, int64_t count)
      : WeightSource({&entry}),
        entry_(entry),
        columns_(shape.size() > 1 ? shape[1] : 1),
        size_(shape[0] * columns_),
        count_(count) {}

  DType dtype() const override { return DType::kFloat32; }
  void Load() override {
    if (!values_.empty()) return;
    const TensorReader reader = entry_.Open();
    values_ = entry_.tensor->dtype_name == kWide ? Read<int64_t>(reader) : Read<int32_t>(reader);
    reader.Finish();
  }
  void Drop() override { values_ = {}; }
  void Decode(int64_t begin, int64_t end, float* out) const override {
    MLC_CHECK(!values_.empty()) << entry_.tensor->name << " is not loaded";
    std::copy(values_.begin() + begin * columns_, values_.begin() + end * columns_, out);
  }

 private:
  template <typename Integer>
  std::vector<float> Read(const TensorReader& reader) const {
    std::vector<Integer> integers(static_cast<size_t>(size_));
    reader.Read(0, std::as_writable_bytes(std::span(integers)));
    const auto is_wrong = [&](Integer value) { return value < 0 || value >= count_; };
    const auto wrong = std::ranges::find_if(integers, is_wrong);
    if (wrong != integers.end()) {
      FailIntegers(entry_, "has " + std::to_string(*wrong) + ", must be in [0, " +
                               std::to_string(count_ - 1) + "]");
    }
    return {integers.begin(), integers.end()};
  }

  const Checkpoint::Entry& entry_;
  const int64_t columns_;
  const int64_t size_;
  const int64_t count_;
  std::vector<float> values_;
};

}  // namespace

std::unique_ptr<WeightSource> OpenIntegers(const Checkpoint::Entry& entry,
                                           std::span<const int64_t> shape, int64_t count) {
  const TensorInfo& tensor = *entry.tensor;
  const bool has_type = tensor.dtype_name == kWide || tensor.dtype_name == kNarrow;
  if (!has_type || !std::ranges::equal(tensor.shape, shape)) {
    FailIntegers(entry, "is " + tensor.dtype_name + ' ' + ShapeString(tensor.shape) +
                            ", must be I64 or I32 " + ShapeString(shape));
  }
  return std::make_unique<IntegerWeight>(entry, shape, count);
}

}  // namespace mlc_native
