#include "weights/weight_loader.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "weights/calibration_line.h"
#include "weights/panel_form.h"
#include "weights/tensor_storage.h"
#include "weights/weight_layout.h"
#include "weights/weight_packer.h"

namespace mlc_native {
namespace {

constexpr size_t kPartBytes = size_t{64} << 20;  // of packed weights that are not written yet

// Memory for the weights in which each NUMA node has the parts of matrices that its threads will
// read. `fill(to, begin, end)` is the first to write bytes [begin, end) of the memory at `to`.
template <typename Fill>
std::shared_ptr<TensorStorage> StorageOnNodes(const WeightLayout& layout, ThreadPool& pool,
                                              const Fill& fill) {
  constexpr int64_t kPage = 4096;
  auto storage = std::make_shared<TensorStorage>(layout.bytes(), "the model's weights");
  if (pool.num_nodes() == 1) return storage;
  for (size_t i = 0; i < layout.plan().map.parameters.size(); ++i) {
    const auto bytes =
        static_cast<int64_t>(layout.BytesOfRows(i, layout.plan().map.parameters[i].rows));
    const auto offset = static_cast<int64_t>(layout.Offset(i));
    pool.ParallelFor((bytes + kPage - 1) / kPage, [&](int64_t begin, int64_t end, int) {
      fill(storage->data(), offset + begin * kPage, offset + std::min(end * kPage, bytes));
    });
  }
  return storage;
}

// A mapped file lies where its pages were read first, so nodes get a copy.
WeightMemory CopyToNodes(const WeightLayout& layout, WeightMemory memory, ThreadPool& pool) {
  if (pool.num_nodes() == 1) return memory;
  const auto storage = StorageOnNodes(layout, pool, [&](std::byte* to, int64_t begin, int64_t end) {
    std::copy(memory.data + begin, memory.data + end, to + begin);
  });
  return {.data = storage->data(), .size = layout.bytes(), .owner = storage};
}

// Of the file: what is copied is checked as a whole.
std::vector<ByteRange> CheckedNow(const WeightLayout& layout, const WeightLoadOptions& options) {
  if (options.cpu.pool->num_nodes() > 1) return {{0, layout.bytes()}};
  return layout.BytesOfEveryForward();
}

WeightMemory Pack(const WeightLayout& layout, const WeightLoadOptions& options) {
  const auto storage =
      StorageOnNodes(layout, *options.cpu.pool, [](std::byte* to, int64_t begin, int64_t end) {
        std::fill(to + begin, to + end, std::byte{0});
      });
  WeightPacker packer(layout.plan(), layout.form(), *options.cpu.pool, options.progress);
  for (size_t parameter : packer.FileOrder()) {
    packer.Fill({parameter, 0, layout.plan().map.parameters[parameter].rows},
                layout.Data(parameter, storage->data()));
  }
  return {.data = storage->data(), .size = layout.bytes(), .owner = storage};
}

// Packs parts of parameters and puts each where the layout has it, so that they are never in memory
// as a whole.
class PartsPacker {
 public:
  PartsPacker(const WeightLayout& layout, const WeightLoadOptions& options)
      : layout_(layout),
        packer_(layout.plan(), layout.form(), *options.cpu.pool, options.progress) {}

  void PutAll(const WeightCache::PutFn& put) {
    for (size_t parameter : packer_.FileOrder()) {
      const int64_t rows = layout_.plan().map.parameters[parameter].rows;
      const int64_t step = RowsPerPart(parameter);
      for (int64_t begin = 0; begin < rows; begin += step) {
        PutRows({parameter, begin, std::min(begin + step, rows)}, put);
      }
    }
  }

 private:
  int64_t RowsPerPart(size_t parameter) const {
    const int64_t width = layout_.form().panel_width();
    const size_t panel_bytes = layout_.BytesOfRows(parameter, width);
    return std::max<int64_t>(static_cast<int64_t>(kPartBytes / panel_bytes), 1) * width;
  }

  void PutRows(const ParameterRows& rows, const WeightCache::PutFn& put) {
    const size_t bytes = layout_.BytesOfRows(rows.parameter, rows.end - rows.begin);
    if (part_.size() < bytes) part_ = TensorStorage(bytes, "a part of the model's weights");
    packer_.Fill(rows, part_.data());
    put(layout_.Offset(rows.parameter) + layout_.BytesOfRows(rows.parameter, rows.begin),
        {part_.data(), bytes});
  }

  const WeightLayout& layout_;
  WeightPacker packer_;
  TensorStorage part_;
};

void Write(const WeightCache& cache, const WeightLayout& layout, const WeightLoadOptions& options) {
  cache.Write([&](const WeightCache::PutFn& put) { PartsPacker(layout, options).PutAll(put); });
}

// The process that packs also uses the file, whose memory other processes share. Without a file it
// packs to memory; a failure of the cache never fails a load.
WeightMemory ReadOrPack(const WeightCache& cache, const WeightLayout& layout,
                        const WeightLoadOptions& options) {
  const std::vector<ByteRange> now = CheckedNow(layout, options);
  ThreadPool& pool = *options.cpu.pool;
  if (auto kept = cache.Read(now, options.progress)) return CopyToNodes(layout, *kept, pool);
  try {
    Write(cache, layout, options);
    if (auto kept = cache.Read(now, {})) return CopyToNodes(layout, *kept, pool);
  } catch (const CacheError& error) {
    ReportCache(options.cache.log, error.what());
  }
  return Pack(layout, options);
}

// The calibrated weights of this key, if the folder has them.
std::optional<CpuDecoderWeights> ReadCalibrated(const std::string& key, const WeightLayout& layout,
                                                const WeightLoadOptions& options) {
  const std::optional<std::string> line = FindCalibration(options.cache, key);
  if (!line) return std::nullopt;
  const WeightCache cache(options.cache, key, *line, layout.bytes(), *options.cpu.pool);
  std::optional<WeightMemory> memory = cache.Read(CheckedNow(layout, options), options.progress);
  if (!memory) return std::nullopt;
  CpuDecoderWeights weights = ViewWeights(
      layout, *options.cpu.isa, CopyToNodes(layout, std::move(*memory), *options.cpu.pool));
  weights.description.weight_format += ", " + DescribeCalibration(*line);
  return weights;
}

// From the cache, after what is not there yet was packed into it.
CpuDecoderWeights ReadCached(const ModelConfig& config, const Checkpoint& checkpoint,
                             const WeightLayout& layout, const WeightLoadOptions& options) {
  const std::string key = WeightCacheKey(checkpoint, config.quantization, layout);
  std::optional<CpuDecoderWeights> weights = ReadCalibrated(key, layout, options);
  if (!weights) {
    const WeightCache cache(options.cache, key, "", layout.bytes(), *options.cpu.pool);
    weights = ViewWeights(layout, *options.cpu.isa, ReadOrPack(cache, layout, options));
  }
  if (weights->memory.checks != nullptr) weights->memory.checks->CheckTheRest();
  return std::move(*weights);
}

}  // namespace

CpuDecoderWeights ViewWeights(const WeightLayout& layout, const kernels::CpuKernels& isa,
                              WeightMemory memory) {
  const PanelForm form(isa);
  const WeightMap& map = layout.plan().map;
  const auto data = [&](size_t p) { return layout.Data(p, memory.data); };
  const auto vector = [&](size_t p) { return reinterpret_cast<const float*>(data(p)); };
  const auto matrix = [&](size_t p) {
    const Parameter& parameter = map.parameters[p];
    return form.Linear({layout.plan().formats[p], parameter.rows, parameter.columns, data(p)});
  };
  CpuDecoderWeights weights{
      map.View(layout.plan().dtype, matrix, vector), {}, {}, {}, {}, {}, {}, {}, {}, {}};
  weights.packed_embeddings = weights.head.matrix;
  const auto table = [&](size_t p) {
    if (p == kAbsent) return kernels::RowTable{};
    const Parameter& parameter = map.parameters[p];
    return kernels::RowTable{.dtype = weights.dtype,
                             .data = data(p),
                             .n = parameter.rows,
                             .k = parameter.columns,
                             .ld = parameter.columns};
  };
  weights.embeddings = table(map.embeddings);
  weights.layer_embeddings = table(map.layer_inputs.embeddings);
  weights.positions = table(map.positions);
  weights.text_types = table(map.text_types);
  weights.memory = std::move(memory);
  weights.description = layout.plan().description;
  return weights;
}

CpuDecoderWeights LoadWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                              const WeightLoadOptions& options) {
  const WeightPlan plan = PlanWeights(config, checkpoint, options.weights);
  const PanelForm form(*options.cpu.isa);
  const WeightLayout layout(plan, form);
  CpuDecoderWeights weights = options.cache.folder.empty()
                                  ? ViewWeights(layout, *options.cpu.isa, Pack(layout, options))
                                  : ReadCached(config, checkpoint, layout, options);
  weights.adapter_targets = std::make_shared<const AdapterTargets>(config, plan.map);
  return weights;
}

PackedFile PackWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                       const WeightLoadOptions& options) {
  const WeightPlan plan = PlanWeights(config, checkpoint, options.weights);
  const PanelForm form(*options.cpu.isa);
  const WeightLayout layout(plan, form);
  const std::string key = WeightCacheKey(checkpoint, config.quantization, layout);
  const WeightCache cache(options.cache, key, "", layout.bytes(), *options.cpu.pool);
  if (FindCalibration(options.cache, key)) {
    ReportCache(options.cache.log, options.cache.folder +
                                       " has calibrated weights of this model, which are used "
                                       "instead of those that are packed now");
  }
  const bool is_there = cache.IsThere(options.progress);
  if (!is_there) Write(cache, layout, options);
  return {cache.path(), layout.bytes(), is_there, plan.description};
}

}  // namespace mlc_native
