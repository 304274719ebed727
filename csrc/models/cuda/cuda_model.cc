#include "models/cuda/cuda_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "models/cuda/cublas_lt.h"
#include "models/cuda/device_states.h"
#include "models/resolved_formats.h"
#include "support/check.h"
#include "support/error.h"

namespace mlc_native {
namespace {

using namespace kernels::cuda;  // NOLINT: the vocabulary of this file

constexpr int64_t kMaxBatch = 256;

// What positions, distances and ids stand for, in device memory: cos and sin of each rope, scales
// of queries, biases of all heads, and the tokens of a draft head's target.
class Tables {
 public:
  // distances: CudaDecoderWeights::distances.
  Tables(const ModelConfig& config, int64_t num_positions, const void* distances, Stream stream) {
    for (const RopeConfig& rope : config.ropes) {
      const RopeTable table = MakeRopeTable(rope, num_positions);
      const float* cos = Upload(table.cos, stream);
      const float* sin = Upload(table.sin, stream);
      const bool has_components = !rope.components.empty();
      ropes_.push_back({cos, sin, has_components ? Upload(rope.components, stream) : nullptr});
    }
    const std::vector<float> scales = config.QueryScales(num_positions);
    if (!scales.empty()) query_scales_ = Upload(scales, stream);
    if (!config.distances.slopes.empty()) {
      bias_.slopes = Upload(config.distances.slopes, stream);
    }
    if (distances != nullptr) {
      const DistanceConfig& all = config.distances;
      std::vector<float> table(static_cast<size_t>(all.buckets.count * all.num_heads));
      CopyToHost(table.data(), distances, table.size() * sizeof(float), stream);
      bias_.reach = all.buckets.Reach();
      bias_.table = Upload(
          kernels::PadDistances(all.buckets.Entries(table), all.num_heads, bias_.reach), stream);
    }
    if (!config.draft_head || config.draft_head->info.target_ids.empty()) return;
    target_ids_ = Upload(config.draft_head->info.target_ids, stream);
  }

  // first_head: of the device.
  CudaDecoderWeights AddTo(CudaDecoderWeights weights, int64_t first_head) const {
    weights.ropes = ropes_;
    weights.query_scales = query_scales_;
    weights.distance_bias = bias_.From(first_head);
    weights.target_ids = target_ids_;
    return weights;
  }

 private:
  template <typename T>
  const T* Upload(const std::vector<T>& values, Stream stream) {
    const size_t bytes = values.size() * sizeof(T);
    const DeviceMemory& memory = memory_.emplace_back(bytes);
    CopyToDevice(memory.data(), values.data(), bytes, stream);  // waits, since it is not pinned
    return reinterpret_cast<const T*>(memory.data());
  }

  std::vector<DeviceMemory> memory_;
  std::vector<CudaRope> ropes_;
  const float* query_scales_ = nullptr;
  kernels::DistanceBias bias_;
  const int32_t* target_ids_ = nullptr;
};

// What is missing without a target stays so.
CudaDecoderWeights With(const CudaModel::Lent& lent, CudaDecoderWeights weights) {
  if (lent.embeddings != nullptr && weights.embeddings == nullptr) {
    weights.embeddings = lent.embeddings->view().embeddings;
  }
  if (lent.head != nullptr && weights.head.matrix.data == nullptr) {
    weights.head = lent.head->view().head;
  }
  return weights;
}

CudaDecoder::Limits DecoderLimits(const StepInputs::Limits& limits, const Peer& peer) {
  return {.max_rows = limits.batch.max_num_rows,
          .max_logits = limits.batch.max_num_logits,
          .max_length = limits.batch.num_positions,
          .num_peers = peer ? peer.peers->size() : 1};
}

}  // namespace

// Everything whose size depends on the arguments of Allocate.
struct CudaModel::Memory {
  Memory(CudaModel& model, const StepInputs::Limits& limits, Stream stream)
      : kv(model.config_, model.kv_format_, model.view_.dtype, limits.num_pages),
        recurrent(model.config_, limits.num_slots),
        tables(model.config_, limits.batch.num_positions, model.view_.distances, stream),
        workspace(CudaDecoder::WorkspaceBytes(model.config_, model.view_.dtype,
                                              DecoderLimits(limits, model.peer_))),
        decoder(model.config_, tables.AddTo(model.view_, FirstHead(model)), kv.layers(),
                DecoderLimits(limits, model.peer_), workspace.data(),
                model.deterministic_ ? CudaDecoder::ManyRows() : UseCublas(model), stream,
                model.peer_),
        steps(model.device_, decoder, limits, stream, model.log_) {
    decoder.SetRecurrentStates(recurrent.view());
    decoder.SetIndices(kv.indices());
    SetToZero(workspace.data(), ZeroedDecodeBytes(model.config_.most_heads()), stream);
  }

  static int64_t FirstHead(const CudaModel& model) {
    return model.peer_ ? model.peer_.rank * model.config_.num_heads : 0;
  }

  CudaDecoder::ManyRows UseCublas(const CudaModel& model) {
    cublas.emplace(model.device_.index(), model.log_);
    return [this](const GemvArgs& args, Stream s) { return cublas->Multiply(args, s); };
  }

  DeviceKv kv;
  DeviceRecurrent recurrent;
  Tables tables;
  std::optional<CublasLt> cublas;  // nullopt: all products are in Gemv's order
  DeviceMemory workspace;
  CudaDecoder decoder;
  CudaSteps steps;
};

CudaModel::CudaModel(ModelConfig config, Weights weights, kernels::KvFormat kv_format, int device,
                     Lent lent, bool deterministic, Log log, Peer peer,
                     std::shared_ptr<const AdapterTargets> adapter_targets)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      lent_(std::move(lent)),
      view_(With(lent_, weights_->view())),
      kv_format_(kv_format),
      deterministic_(deterministic),
      adapter_targets_(std::move(adapter_targets)),
      log_(std::move(log)),
      peer_(peer),
      device_(device) {
  DescribeMetadata();
}

CudaModel::~CudaModel() {
  try {
    device_.Run([&] { stream_.Synchronize(); });
  } catch (const std::exception&) {
    // The device is lost, so nothing runs on it any more.
  }
}

void CudaModel::DescribeMetadata() {
  metadata_.vocab_size = config_.vocab_size;
  metadata_.dtype = view_.dtype;
  metadata_.kv_cache_dtype = KvCacheDTypeOf(kv_format_);
  metadata_.context_window_size = config_.max_positions;
  metadata_.max_batch_size = kMaxBatch;
  metadata_.weight_bytes = weights_->bytes();
  metadata_.kv_bytes_per_token = DeviceKv::BytesPerToken(config_, kv_format_);
  metadata_.recurrent_bytes_per_slot = DeviceRecurrent::BytesPerSlot(config_);
  metadata_.num_layers = std::ssize(config_.layers);
  metadata_.hidden_size = config_.hidden_size;
  metadata_.input_size = config_.draft_head ? 0 : config_.input_size();
  metadata_.max_whole_rows = config_.max_whole_rows();
  metadata_.row_positions = !config_.draft_head && config_.has_row_positions();
  metadata_.whole_prompts = config_.sight == RowSight::kAll;
  metadata_.generates = config_.has_head && !metadata_.whole_prompts;
  if (config_.draft_head) metadata_.draft_head = config_.draft_head->info;
  metadata_.description = weights_->description();
  metadata_.description.kv_format = kernels::KvFormatName(kv_format_);
  metadata_.description.compute = GetDeviceInfo(device_.index()).name;
  const auto bytes = [&](int64_t rows, int64_t logits) {
    return WorkspaceBytes(MakeLimits(0, rows, logits));
  };
  // Sizes at which all memory is linear: differences, and the remainder.
  constexpr int64_t kRows = 4096;
  constexpr int64_t kLogits = 256;
  const int64_t all = bytes(kRows, kLogits);
  metadata_.workspace_bytes_per_token = (bytes(2 * kRows, kLogits) - all + kRows - 1) / kRows;
  metadata_.workspace_bytes_per_sequence =
      (bytes(kRows, 2 * kLogits) - all + kLogits - 1) / kLogits;
  const int64_t fixed = all - kRows * metadata_.workspace_bytes_per_token -
                        kLogits * metadata_.workspace_bytes_per_sequence;
  const int64_t free = GetDeviceInfo(device_.index()).free_bytes;
  metadata_.free_memory_bytes = free - std::max<int64_t>(fixed, 0) - TableBytes();
}

StepInputs::Limits CudaModel::MakeLimits(int64_t num_pages, int64_t max_num_rows,
                                         int64_t max_num_logits) const {
  const int64_t in_pages = num_pages > 0 ? num_pages * kKvPageSize : config_.max_positions;
  return {.batch = {.max_num_rows = max_num_rows,
                    .max_num_logits = max_num_logits,
                    .num_positions = std::min(config_.max_positions, in_pages),
                    .num_streams = std::ssize(config_.layers) + 2,
                    .hidden_size = config_.hidden_size,
                    .draft_input_size = config_.draft_input_size()},
          .num_pages = num_pages,
          .num_slots = num_slots_,
          .has_slots = config_.has_states(),
          .has_row_places = metadata_.row_positions,
          .num_text_types = config_.num_text_types,
          .sight = config_.sight,
          .vocab_size = config_.vocab_size,
          .num_ids = config_.draft_head ? config_.draft_head->num_embeddings : config_.vocab_size,
          .tile_rows = std::max<int64_t>(1, CudaDecoder::TileRows(config_)),
          .adapters = adapter_targets_.get()};
}

int64_t CudaModel::WorkspaceBytes(const StepInputs::Limits& limits) const {
  return static_cast<int64_t>(
      CudaDecoder::WorkspaceBytes(config_, view_.dtype, DecoderLimits(limits, peer_)) +
      (deterministic_ ? 0 : CublasLt::kMemoryBytes) + StepInputs::Bytes(limits) +
      CudaSteps::SamplingBytes(config_.vocab_size, limits.batch.max_num_logits));
}

int64_t CudaModel::TableBytes() const {
  int64_t elements =
      config_.query_scaling.strength != 0 ? config_.max_positions : 0;  // also cos and sin
  for (const RopeConfig& rope : config_.ropes) {
    elements += config_.max_positions * rope.rotary_dim + std::ssize(rope.components);
  }
  if (config_.draft_head) elements += std::ssize(config_.draft_head->info.target_ids);
  return elements * static_cast<int64_t>(sizeof(float));
}

InvalidConfig CudaModel::NoMemory(const std::string& what, int64_t bytes,
                                  const OutOfDeviceMemory& error) const {
  return {"gpu_memory_utilization", "\"gpu_memory_utilization\": " + what + " need " +
                                        std::to_string(bytes) + " bytes of GPU memory, " +
                                        std::to_string(GetDeviceInfo(device_.index()).free_bytes) +
                                        " are free (" + error.what() + "); set a smaller one"};
}

void CudaModel::Allocate(int64_t num_pages, int64_t max_num_rows, int64_t max_num_logits) {
  MLC_CHECK(num_pages > 0 && max_num_rows > 0 && max_num_logits > 0)
      << num_pages << " pages, " << max_num_rows << " rows, " << max_num_logits << " logits rows";
  const StepInputs::Limits limits = MakeLimits(num_pages, max_num_rows, max_num_logits);
  device_.Run([&] {
    stream_.Synchronize();
    memory_.reset();
    try {
      memory_ = std::make_unique<Memory>(*this, limits, stream_.get());
    } catch (const OutOfDeviceMemory& error) {
      const int64_t needed = num_pages * kKvPageSize * metadata_.kv_bytes_per_token +
                             num_slots_ * metadata_.recurrent_bytes_per_slot + TableBytes() +
                             WorkspaceBytes(limits);
      throw NoMemory("KV cache and workspaces", needed, error);
    }
    stream_.Synchronize();
  });
}

LogitsView CudaModel::Forward(const ForwardBatch& batch) {
  steps().Forward(batch);
  const auto rows = static_cast<int64_t>(batch.logits_rows.size());
  logits_.resize(static_cast<size_t>(rows * config_.vocab_size));
  device_.Run([&] {
    const size_t row_bytes = static_cast<size_t>(config_.vocab_size) * sizeof(float);
    for (int64_t i = 0; i < rows; ++i) {
      CopyToHost(logits_.data() + i * config_.vocab_size,
                 memory_->steps.logits() + i * memory_->decoder.ld_logits(), row_bytes,
                 stream_.get());
    }
    stream_.Synchronize();
    memory_->steps.HasRun();
  });
  return {.data = logits_.data(), .num_rows = rows, .vocab_size = config_.vocab_size};
}

std::unique_ptr<StateMemory> CudaModel::MakeStateMemory(int64_t num_rows, int64_t width) {
  return device_.Run([&]() -> std::unique_ptr<StateMemory> {
    const auto bytes = static_cast<size_t>(num_rows * width) * sizeof(float);
    try {
      return std::make_unique<DeviceStates>(device_, stream_.get(), DeviceMemory(bytes), num_rows,
                                            width);
    } catch (const OutOfDeviceMemory& error) {
      throw NoMemory("hidden states", static_cast<int64_t>(bytes), error);
    }
  });
}

std::unique_ptr<TokenMemory> CudaModel::MakeTokenMemory(int32_t num_places) {
  if (config_.has_states()) return nullptr;  // where a step begins decides which state it reads
  return device_.Run([&]() -> std::unique_ptr<TokenMemory> {
    const size_t bytes = static_cast<size_t>(num_places) * sizeof(int32_t);
    try {
      return std::make_unique<DeviceTokens>(device_, stream_.get(), DeviceMemory(bytes),
                                            num_places);
    } catch (const OutOfDeviceMemory& error) {
      throw NoMemory("tokens that steps leave for a drafter", static_cast<int64_t>(bytes), error);
    }
  });
}

std::shared_ptr<const AdapterLoader> CudaModel::adapter_loader() const {
  if (adapter_targets_ == nullptr) return nullptr;
  return std::make_shared<CudaAdapterLoader>(adapter_targets_, std::ssize(config_.layers),
                                             view_.dtype, device_.index());
}

void CudaModel::ReceiveTokens(TokenMemory& memory) {
  device_.Run([&] {
    peer_.peers->SendTokens(peer_.rank, memory.data(), memory.num_places(), stream_.get());
  });
}

void CudaModel::CopyPages(std::span<const PageCopy> copies) {
  MLC_CHECK(memory_ != nullptr) << "not allocated";
  device_.Run([&] { memory_->kv.CopyPages(copies, stream_.get()); });
}

CudaSteps& CudaModel::steps() {
  MLC_CHECK(memory_ != nullptr) << "not allocated";
  return memory_->steps;
}

}  // namespace mlc_native
