#include "models/draft_loader.h"

#include <span>
#include <utility>
#include <vector>

#include "arch/draft_config.h"
#include "checkpoint/checkpoint.h"
#include "model_files/model_files.h"
#include "models/loader.h"
#include "models/medusa_heads.h"
#include "models/transformer.h"
#include "support/error.h"
#include "weights/weight_loader.h"
#include "weights/weight_set.h"

namespace mlc_native {
namespace {

constexpr char kOffsets[] = "d2t";

const Transformer& TargetOnCpu(const Model& target) {
  const auto* decoder = dynamic_cast<const Transformer*>(&target);
  if (decoder != nullptr && !decoder->config().draft_head) return *decoder;
  throw InvalidConfig("speculative_mode",
                      "\"speculative_mode\": a draft head needs a model that gives hidden states "
                      "on its own device");
}

// The target's token of each token of the head, which is stored as the difference of both.
std::vector<int32_t> ReadTargetIds(const Checkpoint& checkpoint, const ModelConfig& config) {
  const Checkpoint::Entry* entry = checkpoint.Find(kOffsets);
  const int64_t num_targets = config.draft_head->num_embeddings;
  if (entry == nullptr) {
    if (config.vocab_size == num_targets) return {};
    throw LoadError(kOffsets, "the checkpoint lacks tensor \"d2t\", which tells the tokens of " +
                                  std::to_string(config.vocab_size) + " from the model's " +
                                  std::to_string(num_targets));
  }
  const TensorInfo& tensor = *entry->tensor;
  if (tensor.dtype_name != "I64" || tensor.shape != std::vector<int64_t>{config.vocab_size}) {
    FailTensor(entry->file->path, kOffsets,
               "is " + tensor.dtype_name + ' ' + ShapeString(tensor.shape) + ", must be I64 [" +
                   std::to_string(config.vocab_size) + "]");
  }
  std::vector<int64_t> offsets(static_cast<size_t>(config.vocab_size));
  entry->Open().Read(0, std::as_writable_bytes(std::span(offsets)));
  std::vector<int32_t> ids;
  for (int64_t id = 0; id < config.vocab_size; ++id) {
    const int64_t offset = offsets[static_cast<size_t>(id)];
    if (offset < -id || offset >= num_targets - id) {
      FailTensor(entry->file->path, kOffsets,
                 "maps token " + std::to_string(id) + " by " + std::to_string(offset) +
                     " out of the model's " + std::to_string(num_targets));
    }
    ids.push_back(static_cast<int32_t>(id + offset));
  }
  return ids;
}

void ShareWeights(const CpuDecoderWeights& target, CpuDecoderWeights* weights) {
  if (weights->embeddings.data == nullptr) {
    weights->embeddings = target.embeddings;
    weights->packed_embeddings = target.packed_embeddings;
  }
  if (weights->head.matrix.data == nullptr) weights->head = target.head;
  weights->shared = target.memory;
}

// The mode of the draft head in a folder, if it has one that `counts`.
template <typename Counts>
std::optional<SpeculativeMode> FindHead(const std::string& folder, const Counts& counts) {
  if (!HasModelFile(folder + "/config.json")) return std::nullopt;
  const Checkpoint checkpoint(folder);
  const WeightSet weights(checkpoint, {});
  const HasTensor has_tensor = [&](const std::string& name) { return weights.Has(name); };
  const DraftLayout* const layout = FindDraftLayout(folder, has_tensor);
  if (layout == nullptr || !counts(*layout, has_tensor)) return std::nullopt;
  return layout->mode;
}

}  // namespace

ModelConfig ReadDraftHead(const Checkpoint& checkpoint, const ModelSource& source,
                          const ModelConfig& target) {
  const WeightSet names(checkpoint, target.quantization);
  const auto has_tensor = [&](const std::string& name) { return names.Has(name); };
  ModelConfig config =
      ReadDraftHeadConfig(source.path, target, has_tensor, source.longest_sequence);
  config.draft_head->info.target_ids = ReadTargetIds(checkpoint, config);
  return config;
}

std::unique_ptr<Model> LoadDraftHead(const ModelSource& source) {
  const Transformer& decoder = TargetOnCpu(*source.target);
  CheckKvCacheDType(source.kv_cache_dtype);
  const std::optional<DType> dtype = RequestedDType(source);
  std::unique_ptr<ThreadPool> pool = MakeThreadPool(source);
  const Checkpoint checkpoint(source.path);
  ModelConfig config = ReadDraftHead(checkpoint, source, decoder.config());
  const kernels::CpuKernels& isa = kernels::SelectCpuKernels();
  CpuDecoderWeights weights = LoadWeights(config, checkpoint,
                                          {.weights = {.dtype = dtype,
                                                       .quantization = source.quantization,
                                                       .strict = source.strict_weights},
                                           .cache = {},
                                           .cpu = {&isa, pool.get()},
                                           .progress = source.progress});
  ShareWeights(decoder.weights(), &weights);
  if (config.layers.empty()) {
    return std::make_unique<MedusaHeads>(config, std::move(weights), isa, std::move(pool));
  }
  const kernels::KvFormat kv_format = KvFormatFor(source.kv_cache_dtype, weights.dtype);
  return std::make_unique<Transformer>(std::move(config), std::move(weights), kv_format, isa,
                                       std::move(pool));
}

std::optional<SpeculativeMode> DraftHeadIn(const std::string& folder) {
  return FindHead(folder, [](const DraftLayout&, const HasTensor&) { return true; });
}

std::optional<SpeculativeMode> OwnDraftHeadIn(const std::string& folder) {
  return FindHead(folder, [&](const DraftLayout& layout, const HasTensor& has_tensor) {
    return CanRunOwnHead(layout, ReadModelConfig(folder), has_tensor);
  });
}

}  // namespace mlc_native
