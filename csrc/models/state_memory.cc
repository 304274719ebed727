// What models have unless they say otherwise: StateMemory in the memory of the host, and no steps
// that follow guesses.
#include <algorithm>
#include <utility>

#include "mlc_native/model.h"
#include "support/check.h"
#include "weights/tensor_storage.h"

namespace mlc_native {
namespace {

class HostStateMemory final : public StateMemory {
 public:
  HostStateMemory(TensorStorage storage, int64_t num_rows, int64_t width)
      : StateMemory(reinterpret_cast<float*>(storage.data()), num_rows, width),
        storage_(std::move(storage)) {}

  void Read(int64_t first_row, std::span<float> rows) const override {
    std::copy_n(data() + first_row * width(), rows.size(), rows.begin());
  }
  void Write(int64_t first_row, std::span<const float> rows) override {
    std::ranges::copy(rows, data() + first_row * width());
  }

 private:
  const TensorStorage storage_;
};

}  // namespace

std::unique_ptr<StateMemory> Model::MakeStateMemory(int64_t num_rows, int64_t width) {
  const auto bytes = static_cast<size_t>(num_rows * width) * sizeof(float);
  return std::make_unique<HostStateMemory>(TensorStorage(bytes, "prefill_chunk_size"), num_rows,
                                           width);
}

void Model::AllocateRecurrent(int64_t num_slots) {
  MLC_CHECK(num_slots == 0) << "the model has no recurrent layers";
}

std::unique_ptr<TokenMemory> Model::MakeTokenMemory(int32_t /*num_places*/) { return nullptr; }

void StepQueue::SampleInto(std::span<const TokenRow> /*rows*/,
                           std::span<const int32_t> /*places*/) {
  MLC_CHECK(false) << "the queue has no memory for tokens";
}

void StepQueue::RunBehind(StepQueue& /*other*/) {
  MLC_CHECK(false) << "the queue has no memory for tokens";
}

}  // namespace mlc_native
