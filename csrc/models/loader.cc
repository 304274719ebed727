#include "models/loader.h"

#include <utility>

#include "checkpoint/checkpoint.h"
#include "models/transformer.h"
#include "support/error.h"
#include "support/machine_info.h"
#include "weights/weight_loader.h"

namespace mlc_native {

WeightLoadOptions LoadOptionsOf(const ModelSource& source, const kernels::Cpu& cpu) {
  std::optional<uint64_t> max_bytes;
  if (source.weight_cache_bytes) max_bytes = static_cast<uint64_t>(*source.weight_cache_bytes);
  return {.weights = {.dtype = RequestedDType(source),
                      .quantization = source.quantization,
                      .strict = source.strict_weights},
          .cache = {.folder = source.weight_cache_dir, .max_bytes = max_bytes, .log = source.log},
          .cpu = cpu,
          .progress = source.progress};
}

void CheckKvCacheDType(KvCacheDType requested) {
  if (requested != KvCacheDType::kFloat8) return;
  throw InvalidConfig(
      "kv_cache_dtype",
      OutOfRangeMessage("kv_cache_dtype", "\"float8\"",
                        "\"auto\", \"bfloat16\", \"float16\", \"float32\" or \"int8\" on the CPU"));
}

kernels::KvFormat KvFormatFor(KvCacheDType requested, DType weights) {
  switch (requested) {
    case KvCacheDType::kAuto:
      return kernels::KvFormatOf(weights);
    case KvCacheDType::kBFloat16:
      return kernels::KvFormat::kBFloat16;
    case KvCacheDType::kFloat16:
      return kernels::KvFormat::kFloat16;
    case KvCacheDType::kFloat32:
      return kernels::KvFormat::kFloat32;
    case KvCacheDType::kInt8:
      return kernels::KvFormat::kInt8;
    case KvCacheDType::kFloat8:
      break;  // refused before the weights were loaded
  }
  return kernels::KvFormatOf(weights);
}

std::optional<DType> RequestedDType(const ModelSource& source) {
  if (source.dtype == "auto") return std::nullopt;
  const std::optional<DType> dtype = ParseDType(source.dtype);
  if (!dtype) {
    throw InvalidConfig(
        "dtype", OutOfRangeMessage("dtype", source.dtype, "auto, float32, bfloat16 or float16"));
  }
  return dtype;
}

std::unique_ptr<ThreadPool> MakeThreadPool(const ModelSource& source) {
  constexpr int64_t kMaxThreads = 1024;
  if (source.num_threads < 1 || source.num_threads > kMaxThreads) {
    throw InvalidConfig("num_threads",
                        OutOfRangeMessage("num_threads", source.num_threads, "in [1, 1024]"));
  }
  const bool parks = source.cpu_idle_mode == CpuIdleMode::kPark;
  return std::make_unique<ThreadPool>(
      DivideThreads(static_cast<int>(source.num_threads), ComputeNodes()),
      parks ? std::chrono::microseconds(0) : ThreadPool::kSpinTime);
}

std::unique_ptr<Model> LoadBuiltinModel(const ModelSource& source) {
  CheckKvCacheDType(source.kv_cache_dtype);
  std::unique_ptr<ThreadPool> pool = MakeThreadPool(source);
  const kernels::CpuKernels& isa = kernels::SelectCpuKernels();
  const WeightLoadOptions options = LoadOptionsOf(source, {&isa, pool.get()});
  ModelConfig config = ReadModelConfig(source.path, source.longest_sequence);
  CpuDecoderWeights weights = LoadWeights(config, Checkpoint(source.path), options);
  const kernels::KvFormat kv_format = KvFormatFor(source.kv_cache_dtype, weights.dtype);
  return std::make_unique<Transformer>(std::move(config), std::move(weights), kv_format, isa,
                                       std::move(pool));
}

PackedFile PackBuiltinModel(const ModelSource& source) {
  const std::unique_ptr<ThreadPool> pool = MakeThreadPool(source);
  const WeightLoadOptions options =
      LoadOptionsOf(source, {&kernels::SelectCpuKernels(), pool.get()});
  const ModelConfig config = ReadModelConfig(source.path, source.longest_sequence);
  return PackWeights(config, Checkpoint(source.path), options);
}

}  // namespace mlc_native
