// The entry points of the CUDA plug-in, which makes a CudaModel from a ModelSource.
#include <algorithm>
#include <string>
#include <utility>

#include "arch/mamba_fields.h"
#include "checkpoint/checkpoint.h"
#include "config/device.h"
#include "kernels/cuda/key_choice.h"
#include "kernels/cuda/latent.h"
#include "kernels/cuda/selective_scan.h"
#include "kernels/cuda/states.h"
#include "models/cuda/cuda_model.h"
#include "models/cuda/sharded_model.h"
#include "models/draft_loader.h"
#include "models/loader.h"
#include "support/check.h"
#include "support/error.h"
#include "weights/weight_plan.h"
#include "weights/weight_shard.h"

namespace mlc_native {
namespace {

using kernels::KvFormat;
using kernels::WeightFormat;

// "auto" means the first device.
int DeviceIndex(const std::string& device) {
  const int count = kernels::cuda::DeviceCount();
  const int index = device == "cpu" ? -1 : CudaIndex(device).value_or(0);
  if (index >= 0 && index < count) return index;
  const std::string allowed = count == 0
                                  ? "a GPU that the driver offers, and there is none"
                                  : "\"cuda:0\" to \"cuda:" + std::to_string(count - 1) + '"';
  throw InvalidConfig("device", OutOfRangeMessage("device", '"' + device + '"', allowed));
}

KvFormat ChooseKvFormat(KvCacheDType requested, DType dtype, const ModelConfig& config) {
  const auto is = [&](KvCacheDType name, DType type) { return requested == name && dtype == type; };
  if (requested == KvCacheDType::kFloat8) {
    if (!config.distances.exists()) return KvFormat::kFloat8;
    throw InvalidConfig("kv_cache_dtype",
                        "\"kv_cache_dtype\" = \"float8\" is not supported on CUDA for a model "
                        "with attention biases by distance; leave it at \"auto\"");
  }
  if (requested == KvCacheDType::kAuto || is(KvCacheDType::kFloat32, DType::kFloat32) ||
      is(KvCacheDType::kBFloat16, DType::kBFloat16) ||
      is(KvCacheDType::kFloat16, DType::kFloat16)) {
    return kernels::KvFormatOf(dtype);
  }
  throw InvalidConfig("kv_cache_dtype",
                      "\"kv_cache_dtype\" must be \"auto\", \"float8\" or the "
                      "dtype of the weights (\"" +
                          std::string(DTypeName(dtype)) + "\") on CUDA");
}

void CheckSize(const char* field, int64_t value, int64_t multiple, int64_t most) {
  if (value % multiple == 0 && value <= most) return;
  throw LoadError(field, OutOfRangeMessage(field, value,
                                           "a multiple of " + std::to_string(multiple) +
                                               ", at most " + std::to_string(most) + ", on CUDA"));
}

// Refuses experts that a grouped product cannot compute: their matrices have one format.
void CheckExperts(const WeightPlan& plan) {
  for (const LayerParameters& layer : plan.map.layers) {
    for (const LinearParameters& linear : layer.linears) {
      const auto first = std::ranges::find_if(
          layer.linears, [&](const auto& other) { return other.key.role == linear.key.role; });
      if (plan.formats[linear.matrix] == plan.formats[first->matrix]) continue;
      throw LoadError("device",
                      "the experts of a layer are stored in several formats, which is not "
                      "supported on CUDA; run the model with \"device\" = \"cpu\" or "
                      "another \"quantization\"");
    }
  }
}

// Refuses what attention to wide heads lacks.
void CheckWideHeads(const ModelConfig& config) {
  const bool has_sinks =
      std::ranges::count(config.arch->vectors, VectorRole::kSinks, &VectorName::role) > 0;
  for (const LayerConfig& layer : config.layers) {
    const int64_t head_dim = config.head_dim_of(layer);
    if (head_dim <= kernels::cuda::kMaxHeadDim) continue;
    const std::string_view missing = layer.window.size > 0           ? "windows"
                                     : config.attention_soft_cap > 0 ? "soft caps"
                                     : has_sinks                     ? "sinks"
                                     : config.distances.exists()     ? "biases by distance"
                                     : config.sight != RowSight::kBefore
                                         ? "rows that see others behind them"
                                         : "";
    if (missing.empty()) continue;
    throw LoadError("head_dim", std::string(missing) + " of attention with heads of " +
                                    std::to_string(head_dim) +
                                    " elements are not supported on CUDA; run the model with "
                                    "\"device\" = \"cpu\"");
  }
}

// Checks the requirements of the kernels.
void CheckSizes(const ModelConfig& config) {
  if (config.compression) {
    throw LoadError("architectures", std::string(config.architecture()) +
                                         " is not supported on CUDA: it needs compressed "
                                         "attention; run the model with \"device\" = \"cpu\"");
  }
  if (config.distances.rows.exists()) {
    throw LoadError("architectures", std::string(config.architecture()) +
                                         " is not supported on CUDA: it needs attention with "
                                         "vectors of distances; run the model with \"device\" = "
                                         "\"cpu\"");
  }
  constexpr int64_t kVector = 8;
  constexpr int64_t kAnySize = int64_t{1} << 30;
  if (config.delta) {
    const DeltaConfig& delta = *config.delta;
    const bool of_channels = delta.decays_channels();
    CheckSize(of_channels ? "linear_head_dim" : "linear_key_head_dim", delta.key_dim, kVector,
              kernels::cuda::kMaxDeltaDim);
    CheckSize("linear_value_head_dim", delta.value_dim, kVector, kernels::cuda::kMaxDeltaDim);
    CheckSize("linear_conv_kernel_dim", delta.conv_width, 1, kernels::cuda::kMaxConvWidth);
  }
  if (config.convolution) {
    CheckSize("conv_L_cache", config.convolution->width, 1, kernels::cuda::kMaxConvWidth);
  }
  if (config.mamba) {
    const MambaConfig& mamba = *config.mamba;
    const MambaFields& names = *config.arch->mamba;
    constexpr int64_t kFew = kVector / 2;
    CheckSize(names.state_dim, mamba.state_dim, kFew, kernels::cuda::kMaxDeltaDim);
    CheckSize(names.head_dim, mamba.head_dim, kFew, kAnySize);
    CheckSize(names.conv_width, mamba.conv_width, 1, kernels::cuda::kMaxConvWidth);
    const std::string of_group =
        std::string(names.num_heads) + " * " + names.head_dim + " / " + names.num_groups;
    CheckSize(of_group.c_str(), mamba.values_size() / mamba.num_groups, kVector,
              kernels::cuda::kMaxNormDim);
  }
  if (config.scan) {
    const ScanConfig& scan = *config.scan;
    const ScanFields& names = *config.arch->scan;
    CheckSize(names.size == nullptr ? names.expand : names.size, scan.channels, kVector, kAnySize);
    CheckSize(names.state_dim, scan.state_dim, kVector / 2, kernels::cuda::kMaxScanStates);
    CheckSize(names.rank, scan.rank, kVector, kAnySize);
    CheckSize(names.conv_width, scan.conv_width, 1, kernels::cuda::kMaxConvWidth);
  }
  CheckSize("hidden_size", config.hidden_size, kVector, kernels::cuda::kMaxNormDim);
  for (const LayerConfig& layer : config.layers) {
    if (!layer.has_dense_ffn()) continue;
    CheckSize(std::string(config.arch->ffn_size_field).c_str(), config.ffn_size_of(layer), kVector,
              config.has_norms_within() ? kernels::cuda::kMaxNormDim : kAnySize);
  }
  CheckSize("laurel_rank", config.laurel_rank, kVector, kAnySize);
  if (config.layer_inputs) {
    CheckSize("hidden_size_per_layer_input", config.layer_inputs->size, kVector,
              kernels::cuda::kMaxNormDim);
  }
  if (config.latent) {
    const LatentConfig& latent = *config.latent;
    CheckSize("q_lora_rank", latent.q_rank, kVector, kernels::cuda::kMaxNormDim);
    CheckSize("kv_lora_rank", latent.kv_rank, kVector, kernels::cuda::kMaxLatentDim);
    CheckSize("qk_nope_head_dim", latent.plain_dim, kVector, kAnySize);
    CheckSize("qk_rope_head_dim", latent.rope_dim, kVector, kernels::cuda::kMaxLatentRopeDim);
    CheckSize("v_head_dim", latent.value_dim, kVector, kAnySize);
    if (config.key_choice) {
      CheckSize("index_head_dim", config.key_choice->head_dim, kVector,
                kernels::cuda::kMaxIndexDim);
      CheckSize("index_n_heads", config.key_choice->num_heads, 1, kernels::cuda::kMaxIndexHeads);
    }
  } else {
    for (const LayerConfig& layer : config.layers) {
      CheckSize(layer.own_head_dim == 0 ? "head_dim" : "global_head_dim", config.head_dim_of(layer),
                kVector, kernels::cuda::kMaxWideHeadDim);
    }
    CheckWideHeads(config);
  }
  if (config.attention_gates == AttentionGates::kOfHeads) {  // rows of queries follow them
    for (const LayerConfig& layer : config.layers) {
      if (!layer.attends()) continue;
      CheckSize(layer.own_heads == 0 ? "num_attention_heads"
                                     : std::string(config.arch->layer_heads_field).c_str(),
                config.heads_of(layer), kVector, kAnySize);
    }
  }
  if (config.experts) {
    const ExpertRule& rule = config.arch->experts;
    CheckSize(std::string(rule.latent_size).c_str(), config.experts->latent_size, kVector,
              kAnySize);
    CheckSize(std::string(rule.ffn_size).c_str(), config.experts->ffn_size, kVector, kAnySize);
    CheckSize(std::string(rule.shared_size).c_str(), config.experts->shared_ffn_size, kVector,
              kAnySize);
  }
  if (config.qk_norm == QkNorm::kWholeProjection || config.has_norms_within()) {
    CheckSize("num_attention_heads * head_dim", config.q_size(), kVector,
              kernels::cuda::kMaxNormDim);
  }
}

// float32 products have no quantized weights, so quantized weights of a checkpoint become floats.
WeightPlan MakePlan(const ModelConfig& config, const Checkpoint& checkpoint,
                    const ModelSource& source) {
  WeightOptions options{
      .dtype = RequestedDType(source),
      .quantization = source.quantization,
      .of_budget = {WeightFormat::kQ4, WeightFormat::kQ8},
      .table_of_floats = !config.draft_head,
      .codes = {.held = {WeightFormat::kQ8, WeightFormat::kQ4, WeightFormat::kMxfp4,
                         WeightFormat::kFp4Group16, WeightFormat::kFloat8},
                .rounded = std::nullopt},
      .codes_in_float16 =
          FormatsOfCodes{.held = {WeightFormat::kQ8Group32, WeightFormat::kQ8,
                                  WeightFormat::kQ4Affine, WeightFormat::kQ4, WeightFormat::kMxfp4},
                         .rounded = WeightFormat::kQ8Group32},
      .strict = source.strict_weights};
  if (options.quantization == WeightQuantization::kQ6) {
    throw InvalidConfig("quantization",
                        "\"quantization\" must be \"q8\", \"q4\" or a number of bits (\"q4.8\") on "
                        "CUDA, got \"q6\"");
  }
  WeightPlan plan = PlanWeights(config, checkpoint, options);
  if (plan.dtype != DType::kFloat32) return plan;
  if (options.quantization.quantizes()) {
    throw InvalidConfig("dtype",
                        "\"dtype\" must be \"bfloat16\" or \"float16\" with quantized "
                        "weights on CUDA, got float32");
  }
  options.quantization = WeightQuantization::kOff;
  return PlanWeights(config, checkpoint, options);
}

CudaModel::Weights LoadWeights(const WeightPlan& plan, const ModelSource& source, int device) {
  const std::unique_ptr<ThreadPool> pool = MakeThreadPool(source);
  try {
    return std::make_shared<DeviceWeights>(plan, *pool, source.progress);
  } catch (const kernels::cuda::OutOfDeviceMemory& error) {
    const int64_t free = kernels::cuda::GetDeviceInfo(device).free_bytes;
    throw InvalidConfig("device", "\"device\": the weights do not fit into the memory of " +
                                      source.device + ", of which " + std::to_string(free) +
                                      " bytes are free: " + error.what());
  }
}

// Checks the requirements of the kernels at the entry of a draft head.
void CheckEntry(const ModelConfig& config) {
  const DraftHeadConfig& head = *config.draft_head;
  if (config.layers.empty()) {
    throw InvalidConfig("speculative_mode", std::string("\"speculative_mode\": ") +
                                                std::string(head.layout->name) +
                                                " is not supported on CUDA; run the model with "
                                                "\"device\" = \"cpu\"");
  }
  constexpr int64_t kVector = 8;
  CheckSize("target_hidden_size", head.target_hidden_size, kVector, kernels::cuda::kMaxNormDim);
  if (!head.norm_before_fuse) return;
  CheckSize("target_hidden_size * states", config.draft_input_size(), kVector,
            kernels::cuda::kMaxNormDim);
}

// A head has the type of its target, whose embeddings it may read, and of several devices the
// first.
std::unique_ptr<Model> LoadCudaDraftHead(const ModelSource& source, int device) {
  const auto* sharded = dynamic_cast<const ShardedModel*>(source.target);
  const auto* target =
      sharded != nullptr ? &sharded->first_rank() : dynamic_cast<const CudaModel*>(source.target);
  MLC_CHECK(target != nullptr) << "the target of " << source.path << " is no model of this library";
  const Checkpoint checkpoint(source.path);
  ModelConfig config =
      ReadDraftHead(checkpoint, source, sharded != nullptr ? sharded->config() : target->config());
  CheckEntry(config);
  CheckSizes(config);
  ModelSource of_head = source;
  of_head.dtype = DTypeName(target->weights()->view().dtype);
  const WeightPlan plan = MakePlan(config, checkpoint, of_head);
  const KvFormat kv_format = ChooseKvFormat(source.kv_cache_dtype, plan.dtype, config);
  kernels::cuda::UseDevice(device);
  CudaModel::Lent lent{.embeddings = target->weights(), .head = target->weights()};
  if (sharded != nullptr) {
    lent.head = plan.map.head == kAbsent ? sharded->WholeHead() : nullptr;
  }
  return std::make_unique<CudaModel>(std::move(config), LoadWeights(plan, source, device),
                                     kv_format, device, std::move(lent), source.deterministic,
                                     source.log);
}

// ---- Several devices ----

// `first` and those behind it.
std::vector<int> DevicesFrom(int first, int64_t count) {
  const int64_t there = kernels::cuda::DeviceCount() - first;
  if (count < 1 || count > there) {
    throw InvalidConfig(
        "tensor_parallel_shards",
        OutOfRangeMessage("tensor_parallel_shards", count,
                          "in [1, " + std::to_string(there) + "], the number of GPUs from \"cuda:" +
                              std::to_string(first) + "\" on"));
  }
  std::vector<int> devices;
  for (int64_t i = 0; i < count; ++i) devices.push_back(first + static_cast<int>(i));
  return devices;
}

std::unique_ptr<Model> LoadSharded(const ModelSource& source, int first_device) {
  const std::vector<int> devices = DevicesFrom(first_device, source.tensor_parallel_shards);
  const ModelConfig config = ReadModelConfig(source.path, source.longest_sequence);
  const ModelConfig part = ShardOf(config, source.tensor_parallel_shards);
  CheckSizes(part);
  const auto load = [&](const Peer& peer, int device) {
    ModelSource of_rank = source;
    of_rank.device = "cuda:" + std::to_string(device);
    of_rank.num_threads = std::max<int64_t>(source.num_threads / source.tensor_parallel_shards, 1);
    if (!peer.is_first()) of_rank.progress = {};  // all of them read about the same bytes
    const Checkpoint checkpoint(source.path);
    WeightPlan plan = MakePlan(config, checkpoint, of_rank);
    CheckExperts(plan);
    const KvFormat kv_format = ChooseKvFormat(source.kv_cache_dtype, plan.dtype, config);
    TakeShard(config, {.rank = peer.rank, .size = source.tensor_parallel_shards}, &plan);
    return std::make_unique<CudaModel>(part, LoadWeights(plan, of_rank, device), kv_format, device,
                                       CudaModel::Lent(), source.deterministic, source.log, peer);
  };
  const auto load_head = [=] {
    ModelSource of_head = source;
    of_head.progress = {};
    const Checkpoint checkpoint(source.path);
    WeightPlan plan = MakePlan(config, checkpoint, of_head);
    KeepHead(config, &plan);
    kernels::cuda::UseDevice(first_device);
    return LoadWeights(plan, of_head, first_device);
  };
  try {
    return std::make_unique<ShardedModel>(config, devices, load, load_head);
  } catch (const kernels::cuda::OutOfDeviceMemory& error) {
    throw InvalidConfig("device", std::string("\"device\": one of the GPUs has no memory left for "
                                              "what all of them need together: ") +
                                      error.what());
  }
}

}  // namespace

std::unique_ptr<Model> LoadCudaModel(const ModelSource& source) {
  const int device = DeviceIndex(source.device);
  if (source.target != nullptr) return LoadCudaDraftHead(source, device);
  if (source.tensor_parallel_shards != 1) return LoadSharded(source, device);
  ModelConfig config = ReadModelConfig(source.path, source.longest_sequence);
  CheckSizes(config);
  const Checkpoint checkpoint(source.path);
  const WeightPlan plan = MakePlan(config, checkpoint, source);
  CheckExperts(plan);
  const KvFormat kv_format = ChooseKvFormat(source.kv_cache_dtype, plan.dtype, config);
  auto adapter_targets = std::make_shared<const AdapterTargets>(config, plan.map);
  kernels::cuda::UseDevice(device);
  return std::make_unique<CudaModel>(std::move(config), LoadWeights(plan, source, device),
                                     kv_format, device, CudaModel::Lent(), source.deterministic,
                                     source.log, Peer(), std::move(adapter_targets));
}

}  // namespace mlc_native

extern "C" int mlc_native_plugin_abi() { return mlc_native::kModelPluginAbi; }

extern "C" mlc_native::Model* mlc_native_create_model(const mlc_native::ModelSource* source) {
  return mlc_native::LoadCudaModel(*source).release();
}
