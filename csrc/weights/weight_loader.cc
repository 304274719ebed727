#include "weights/weight_loader.h"

#include <memory>
#include <utility>

#include "weights/panel_form.h"
#include "weights/tensor_storage.h"
#include "weights/weight_cache.h"
#include "weights/weight_layout.h"
#include "weights/weight_packer.h"

namespace mlc_native {
namespace {

WeightMemory Pack(const WeightLayout& layout, const WeightLoadOptions& options) {
  auto storage = std::make_shared<TensorStorage>(layout.bytes(), "the model's weights");
  WeightPacker packer(layout.plan(), layout.form(), *options.cpu.pool, options.progress);
  for (size_t parameter : packer.FileOrder()) {
    packer.Fill({parameter, 0, layout.plan().map.parameters[parameter].rows},
                layout.Data(parameter, storage->data()));
  }
  return {.data = storage->data(), .size = layout.bytes(), .owner = storage};
}

// The process that packs also uses the file afterwards, whose memory other processes share.
template <typename PackFn>
WeightMemory ReadOrPack(const WeightCache& cache, const PackFn& pack,
                        const LoadProgress& progress) {
  if (std::optional<WeightMemory> kept = cache.Read()) {
    const auto bytes = static_cast<int64_t>(kept->size);
    if (progress) progress(bytes, bytes);
    return *kept;
  }
  WeightMemory packed = pack();
  if (!cache.Write(packed)) return packed;
  return cache.Read().value_or(packed);
}

CpuDecoderWeights View(const WeightLayout& layout, const PanelForm& form, WeightMemory memory) {
  const WeightMap& map = layout.plan().map;
  const auto data = [&](size_t p) { return layout.Data(p, memory.data); };
  const auto vector = [&](size_t p) { return reinterpret_cast<const float*>(data(p)); };
  const auto matrix = [&](size_t p) {
    const Parameter& parameter = map.parameters[p];
    return form.Linear({layout.plan().formats[p], parameter.rows, parameter.columns, data(p)});
  };
  CpuDecoderWeights weights{map.View(layout.plan().dtype, matrix, vector), {}, {}, {}, {}, {}};
  weights.packed_embeddings = weights.head.matrix;
  if (map.embeddings != kAbsent) {
    const Parameter& table = map.parameters[map.embeddings];
    weights.embeddings = {.dtype = weights.dtype,
                          .data = data(map.embeddings),
                          .n = table.rows,
                          .k = table.columns,
                          .ld = table.columns};
  }
  weights.memory = std::move(memory);
  weights.description = layout.plan().description;
  return weights;
}

}  // namespace

CpuDecoderWeights LoadWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                              const WeightLoadOptions& options) {
  const WeightPlan plan = PlanWeights(config, checkpoint, options.weights);
  const PanelForm form(*options.cpu.isa);
  const WeightLayout layout(plan, form);
  const auto pack = [&] { return Pack(layout, options); };
  if (options.cache_dir.empty()) return View(layout, form, pack());
  const WeightCache cache(options.cache_dir,
                          WeightCacheKey(checkpoint, config.quantization, layout), layout.bytes(),
                          *options.cpu.pool);
  return View(layout, form, ReadOrPack(cache, pack, options.progress));
}

}  // namespace mlc_native
