#include "models/cuda/device_weights.h"

#include <algorithm>
#include <array>
#include <memory>

#include "models/cuda/device_form.h"
#include "weights/weight_layout.h"
#include "weights/weight_packer.h"

namespace mlc_native {
namespace {

using namespace kernels::cuda;  // NOLINT: the vocabulary of this file

constexpr size_t kStageBytes = size_t{32} << 20;

// Packs parameters into two pieces of host memory in turn and copies them to their places.
class Uploader {
 public:
  Uploader(const WeightLayout& layout, WeightPacker& packer) : layout_(layout), packer_(packer) {}

  void Upload(size_t parameter, std::byte* to) {
    const Parameter& p = layout_.plan().map.parameters[parameter];
    const std::array<size_t, 2> row_bytes = RowBytes(parameter);
    const size_t all = row_bytes[0] + row_bytes[1];
    const int64_t width = layout_.form().panel_width();
    const int64_t step =
        std::max<int64_t>(static_cast<int64_t>(kStageBytes / all) / width, 1) * width;
    for (int64_t begin = 0; begin < p.rows; begin += step) {
      const int64_t end = std::min(begin + step, p.rows);
      std::byte* stage = NextStage(static_cast<size_t>(end - begin) * all);
      packer_.Fill({parameter, begin, end}, stage);
      std::byte* array = to;
      for (size_t bytes : row_bytes) {
        const size_t size = static_cast<size_t>(end - begin) * bytes;
        if (size > 0) {
          CopyToDevice(array + static_cast<size_t>(begin) * bytes, stage, size, stream_.get());
        }
        stage += size;
        array += static_cast<size_t>(p.rows) * bytes;
      }
      stages_[next_].copied.Record(stream_.get());
    }
  }

  void Finish() const { stream_.Synchronize(); }

 private:
  struct Stage {
    PinnedMemory memory;
    Event copied;
  };

  std::array<size_t, 2> RowBytes(size_t parameter) const {
    const Parameter& p = layout_.plan().map.parameters[parameter];
    if (p.form == ParameterForm::kPacked) {
      return DeviceForm::RowBytes(layout_.plan().formats[parameter], p.columns);
    }
    return {layout_.BytesOfRows(parameter, 1), 0};
  }

  std::byte* NextStage(size_t bytes) {
    next_ = 1 - next_;
    Stage& stage = stages_[next_];
    stage.copied.Synchronize();
    if (stage.memory.size() < bytes) {
      stage.memory = PinnedMemory(std::max(bytes, std::min(kStageBytes, layout_.bytes())));
    }
    return stage.memory.data();
  }

  const WeightLayout& layout_;
  WeightPacker& packer_;
  std::array<Stage, 2> stages_;
  size_t next_ = 0;
  OwnedStream stream_;
};

CudaDecoderWeights View(const WeightLayout& layout, std::byte* memory) {
  const WeightPlan& plan = layout.plan();
  const auto vector = [&](size_t p) -> const void* { return layout.Data(p, memory); };
  const auto matrix = [&](size_t p) {
    const Parameter& parameter = plan.map.parameters[p];
    return CudaMatrix{
        .format = plan.formats[p], .data = vector(p), .n = parameter.rows, .k = parameter.columns};
  };
  CudaDecoderWeights view{plan.map.View(plan.dtype, matrix, vector), {}, {}, {}, {}, {}, {}};
  const bool is_draft_head = plan.map.entry.fuse.matrix != kAbsent;
  const bool tied = plan.map.embeddings == kAbsent && !is_draft_head;
  const size_t table = tied ? plan.map.head : plan.map.embeddings;
  if (table != kAbsent) view.embeddings = vector(table);
  const size_t layer_table = plan.map.layer_inputs.embeddings;
  if (layer_table != kAbsent) view.layer_embeddings = vector(layer_table);
  if (plan.map.positions != kAbsent) view.positions = vector(plan.map.positions);
  if (plan.map.text_types != kAbsent) view.text_types = vector(plan.map.text_types);
  return view;
}

}  // namespace

DeviceWeights::DeviceWeights(const WeightPlan& plan, ThreadPool& pool, const LoadProgress& progress)
    : description_(plan.description) {
  const DeviceForm form;
  const WeightLayout layout(plan, form);
  memory_ = DeviceMemory(layout.bytes());
  WeightPacker packer(plan, form, pool, progress);
  Uploader uploader(layout, packer);
  for (size_t parameter : packer.FileOrder()) {
    uploader.Upload(parameter, layout.Data(parameter, memory_.data()));
  }
  uploader.Finish();
  view_ = View(layout, memory_.data());
}

}  // namespace mlc_native
