// CudaDecoder::Forward: the operations of run_layers.h as launches of the CUDA kernels, without
// attention and experts.
#include <algorithm>
#include <utility>
#include <vector>

#include "models/cuda/decoder_ops.h"
#include "models/run_layers.h"
#include "support/check.h"
#include "weights/weight_shard.h"

namespace mlc_native {
namespace {

using namespace kernels::cuda;  // NOLINT: the vocabulary of this file

// Up to which size of the residual products normalize it, and above which one where the first of
// them is quantized: blocks that read few weights wait for the norm (measured on an H100, with
// cuda_kernels --only "norm ").
constexpr int64_t kNormInProduct = 4096;
constexpr int64_t kNormInQuantizedProduct = 2048;
static_assert(kNormInProduct <= kMaxNormGemvK);

// Which kernel computes a product. They have the same bits.
enum class ProductKernel { kGemv, kBatchGemv, kGemm, kWarpgroupGemm };

// Which is the fastest, as measured on an H100 where there is BatchGemv: few multiprocessors have
// work with Gemm where there are few outputs, and long sums of few outputs need to be shared.
// Gemv's 16 rows are as fast for quantized weights of small models, which the cost of a launch
// decides.
ProductKernel KernelFor(const GemvArgs& args) {
  constexpr int64_t kFewRows = 8;
  constexpr int64_t kManyRows = 64;
  if (args.m <= kFewRows) return ProductKernel::kGemv;
  if (args.m > kManyRows && HasWarpgroupGemm(args)) {
    constexpr int64_t kFewOutputs = 2048;
    constexpr int64_t kLongSum = 4096;
    const bool is_shared = args.n <= kFewOutputs && args.k > kLongSum && HasBatchGemv(args);
    return is_shared ? ProductKernel::kBatchGemv : ProductKernel::kWarpgroupGemm;
  }
  if (HasBatchGemv(args)) {
    constexpr int64_t kRowsOfQuantized = 16;
    constexpr int64_t kLargeWeight = 16 << 20;
    constexpr int64_t kFewOutputs = 5120;
    if (args.m > kManyRows && args.n > kFewOutputs) return ProductKernel::kGemm;
    const bool is_plain = args.format == kernels::FormatOf(args.dtype);
    if (args.m <= kRowsOfQuantized && !is_plain && args.n * args.k < kLargeWeight) {
      return ProductKernel::kGemv;
    }
    return ProductKernel::kBatchGemv;
  }
  // As bench/cuda/model.py predicts it: Gemm reads x less often, and needs many rows of the weight
  // for all multiprocessors to have work.
  constexpr int64_t kFewOutputs = 4096;
  constexpr int64_t kManyOutputs = 16384;
  const int64_t gemv_rows = args.n < kFewOutputs    ? kMaxGemvRows
                            : args.n < kManyOutputs ? kMaxGemvRows / 2
                                                    : kFewRows;
  return args.m <= gemv_rows ? ProductKernel::kGemv : ProductKernel::kGemm;
}

void LaunchProduct(const GemvArgs& args, Stream stream) {
  switch (KernelFor(args)) {
    case ProductKernel::kGemv:
      return Gemv(args, stream);
    case ProductKernel::kBatchGemv:
      return BatchGemv(args, stream);
    case ProductKernel::kGemm:
      return Gemm(args, stream);
    case ProductKernel::kWarpgroupGemm:
      return WarpgroupGemm(args, stream);
  }
}

}  // namespace

float* CudaDecoder::Forward(const CudaBatch& batch) {
  MLC_CHECK(batch.num_rows > 0 && batch.num_rows <= limits_.max_rows) << batch.num_rows;
  MLC_CHECK(batch.num_logits <= limits_.max_logits) << batch.num_logits;
  Ops ops(*this, batch);
  RunLayers(weights_, ops);
  return buffers_.logits;
}

void CudaDecoder::Ops::Embed() {
  if (config_.draft_head) return JoinTokensAndStates();
  GatherEmbeddings();
  if (config_.layer_inputs) MakeLayerInputs();
  if (config_.residual_streams) SpreadStreams();
}

void CudaDecoder::Ops::GatherEmbeddings() const {
  kernels::cuda::Embed({.dtype = weights_.dtype,
                        .table = weights_.embeddings,
                        .k = config_.hidden_size,
                        .ids = batch_.token_ids,
                        .sampled = batch_.sampled,
                        .sampled_ids = weights_.target_ids,
                        .position_table = weights_.positions,
                        .positions = batch_.positions,
                        .m = num_rows_,
                        .scale = config_.EmbeddingScale(weights_.dtype),
                        .out = residual_},
                       stream_);
  for (const InputRows& rows : batch_.input_rows) PlaceInputRows(rows);
  for (const TextRun& run : batch_.text_runs) AddTextType(run);
}

void CudaDecoder::Ops::AddTextType(const TextRun& run) const {
  const int64_t hidden = config_.hidden_size;
  const auto* const types = static_cast<const std::byte*>(weights_.text_types);
  const auto bytes = hidden * static_cast<int64_t>(DTypeSize(weights_.dtype));
  MoveRows({.from_dtype = weights_.dtype,
            .from = types + run.type * bytes,
            .ld_from = 0,
            .to = residual_ + run.first_row * hidden,
            .ld_to = hidden,
            .adds = true,
            .m = run.num_rows,
            .k = hidden},
           stream_);
}

void CudaDecoder::Ops::LaunchAddNorm(const Added& added, const Norm& pre_norm, void* input) const {
  AddNorm({.dtype = weights_.dtype,
           .residual = residual_,
           .x = added.output,
           .post_weight = added.norm.weight,
           .post_bias = added.norm.bias,
           .scale = added.scale,
           .pre_weight = pre_norm.weight,
           .pre_bias = pre_norm.bias,
           .y = input,
           .keeps = pre_norm.gives_residual,
           .weight_offset = config_.norm_weight_offset,
           .eps = config_.residual_norm_eps,
           .post_eps = config_.norm_eps,
           .subtract_mean = config_.norm_kind == NormKind::kLayer,
           .m = num_rows_,
           .dim = config_.hidden_size},
          stream_);
}

void CudaDecoder::Ops::AddAndNormalize(const Norm& post_norm, const Norm& pre_norm) {
  const void* output = FinishBlock(post_norm);
  const bool is_final = &pre_norm == &weights_.final_norm;  // which not only a linear reads
  if (output == nullptr && pre_norm.weight != nullptr && pre_norm.bias == nullptr &&
      !pre_norm.gives_residual && !is_final) {
    deferred_norm_ = pre_norm;
    return;
  }
  LaunchAddNorm({output, post_norm}, pre_norm, input_);
}

void CudaDecoder::Ops::AddOutput(const Norm& norm) {
  MLC_CHECK(added_.output == nullptr);
  added_ = {FinishBlock(norm), norm};
}

void CudaDecoder::Ops::ScaleResidual(size_t layer) {
  MLC_CHECK(added_.output != nullptr);
  added_.scale = weights_.layers[layer].vector(VectorRole::kLayerScale);
}

// Where qkv, gate and up are all that reads the input, and out and down all that is added.
bool CudaDecoder::Ops::HasNormsInProducts() const {
  if (num_rows_ > 1 || HasAdapters() || config_.hidden_size > kNormInProduct ||
      weights_.dtype == DType::kFloat32 || config_.norm_kind != NormKind::kRms ||
      config_.parallel_blocks || config_.experts || config_.latent || config_.has_states() ||
      config_.attends_to_joined() || decoder_.peer_ || config_.layer_inputs ||
      weights_.layers.front().vector(VectorRole::kLayerScale) != nullptr) {
    return false;
  }
  const auto& layer = weights_.layers.front();
  const CudaMatrix& first =
      layer.linear(Attends(layer) ? LinearRole::kQkv : LinearRole::kGateUp).matrix;
  return config_.hidden_size > kNormInQuantizedProduct ||
         first.format == kernels::FormatOf(weights_.dtype);
}

const void* CudaDecoder::Ops::FinishBlock(const Norm& post_norm) {
  if (!deferred_) return buffers_.output;  // of experts and of inputs of layers
  LayerProduct linear = TakeDeferred();
  if (HasNormsInProducts() && post_norm.weight == nullptr) {
    linear.args.y = residual_;
    linear.args.float_output = linear.args.accumulate = true;
    LaunchProduct(linear.args, stream_);
    return nullptr;
  }
  LaunchLinear(linear);
  SumOverPeers(buffers_.output);
  return buffers_.output;
}

// ---- Linears ----

void CudaDecoder::Ops::Project(size_t layer, LinearRole role) {
  const Linear& linear = weights_.layers[layer].linear(role);
  const auto launch = [&](const GemvArgs& args) { LaunchLinear(LayerProduct{layer, role, args}); };
  const auto defer = [&](const GemvArgs& args) { Defer({layer, role, args}); };
  switch (role) {
    case LinearRole::kQkv:
      if (config_.attends_to_joined()) {
        return launch(LinearArgs(linear, buffers_.joined, buffers_.qkv));
      }
      if (!config_.latent) return launch(LinearOfInput(linear, buffers_.qkv));
      return launch(LatentsOfInput(linear));
    case LinearRole::kOut:
      NormalizeWithin(layer, NormRole::kAttentionOut, attention_);
      return defer(
          LinearArgs(linear, config_.latent ? MakeValues(layer) : attention_, buffers_.output));
    case LinearRole::kDeltaInputs:
      return launch(StateInputs(linear));
    case LinearRole::kDeltaGates:
      return LaunchFloatLinear(layer, role, buffers_.delta_gates);
    case LinearRole::kDeltaDecays:
    case LinearRole::kDeltaOutGates:
      return launch(OfDeltaRank(linear, role));
    case LinearRole::kScanInputs:
    case LinearRole::kScanSteps:
      if (role == LinearRole::kScanSteps) NormalizeScan(layer);
      return launch(OfScan(linear, role));
    case LinearRole::kDeltaOut:
      return defer(LinearArgs(linear, state_output_, buffers_.output));
    case LinearRole::kGateUp:
      return defer(LinearOfInput(linear, buffers_.ffn));
    case LinearRole::kDown:
      NormalizeWithin(layer, NormRole::kFfnDown, buffers_.activated);
      return defer(LinearArgs(linear, buffers_.activated, buffers_.output));
    case LinearRole::kRouter:
      return LaunchFloatLinear(layer, role, buffers_.router);
    case LinearRole::kSharedGateUp:
      return defer(LinearArgs(linear, input_, buffers_.ffn));
    case LinearRole::kSharedDown:
      return launch(LinearArgs(linear, buffers_.activated, buffers_.shared));
    case LinearRole::kExpertGateUp:
      return DeferExperts(layer);
    case LinearRole::kExpertDown:
      return GroupedGemv(
          ExpertArgs(layer, role, buffers_.expert_activated, nullptr, buffers_.expert_output),
          stream_);
    case LinearRole::kQueryUp:
    case LinearRole::kHeadKeyUp:
    case LinearRole::kHeadValueUp:
    case LinearRole::kIndexQueries:
    case LinearRole::kIndexKeys:
    case LinearRole::kIndexWeights:
      break;  // launched by WriteLatents, MakeValues and ChooseKeys
    case LinearRole::kTokenRows:
    case LinearRole::kGroupOut:
      break;  // of models that are refused on CUDA
    case LinearRole::kExpertsIn:
      return launch(LinearArgs(linear, input_, buffers_.expert_latents));
    case LinearRole::kExpertsOut:
      return launch(LinearArgs(linear, buffers_.expert_latents, buffers_.output));
    case LinearRole::kLaurelDown:
      return launch(LinearArgs(linear, input_, buffers_.laurel_rank));
    case LinearRole::kLaurelUp:
      return launch(LinearArgs(linear, buffers_.laurel_rank, buffers_.laurel));
    case LinearRole::kLayerInputGate:
      return LaunchLayerInputGate(layer);
    case LinearRole::kLayerInputUp:
      return launch(LinearArgs(linear, buffers_.ffn, buffers_.output));
  }
  MLC_CHECK(false) << static_cast<int>(role);
}

void CudaDecoder::Ops::Activate(size_t layer) {
  ActivateDeferred({.activation = config_.activation, .gated = !config_.arch->plain_ffn},
                   weights_.layers[layer].vector(VectorRole::kActivation),
                   config_.ffn_size_of(config_.layers[layer]), buffers_.activated,
                   config_.layers[layer].gate_cut);
}

// In the linear, unless a Gemm or ManyRows computes it, or adapters add to what it gives; it has no
// activation with weights of its own.
void CudaDecoder::Ops::ActivateDeferred(const ActivationRule& rule, const void* xielu, int64_t ffn,
                                        void* out, const std::optional<float>& cut) {
  const LayerProduct product = TakeDeferred();
  GemvArgs linear = product.args;
  const bool is_in_order =
      !decoder_.many_rows_ || linear.m - std::min(fixed_rows_, linear.m) <= kMaxGemvRows;
  const ProductKernel kernel = KernelFor(linear);
  const bool may_activate = kernel == ProductKernel::kGemv || kernel == ProductKernel::kBatchGemv;
  const bool has_activation = linear.dtype != DType::kFloat32 && xielu == nullptr && !cut;
  if (is_in_order && may_activate && has_activation && !HasAdapters()) {
    linear.activates = true;
    linear.activation = rule;
    linear.y = out;
    linear.ldy = ffn;
    return LaunchProduct(linear, stream_);
  }
  LaunchLinear(product);
  if (cut) CutGates(linear, ffn, *cut);
  kernels::cuda::Activate({.dtype = weights_.dtype,
                           .rule = rule,
                           .xielu = xielu,
                           .x = linear.y,
                           .out = out,
                           .m = linear.m,
                           .ffn = ffn},
                          stream_);
}

void CudaDecoder::Ops::SumOverPeers(void* values) const {
  SumOverPeers(values, config_.hidden_size);
}

void CudaDecoder::Ops::SumOverPeers(void* values, int64_t width) const {
  const Peer& peer = decoder_.peer_;
  if (!peer) return;
  peer.peers->Sum(peer.rank, values, num_rows_ * width, weights_.dtype, buffers_.peer_parts,
                  stream_);
}

void CudaDecoder::Ops::Head() {
  const Peer& peer = decoder_.peer_;
  GemvArgs args = LinearArgs(weights_.head, input_, buffers_.logits);
  args.ldy = decoder_.ld_logits();
  args.float_output = true;
  if (peer) {
    HeadOfPeers(args);
  } else {
    LaunchLinear(args);
  }
  if (!peer.is_first()) return;
  if (config_.final_soft_cap > 0) {
    SoftCap(buffers_.logits, num_rows_ * args.ldy, config_.final_soft_cap, stream_);
  }
}

// Each device computes its columns of the logits, and the first one puts them side by side.
void CudaDecoder::Ops::HeadOfPeers(GemvArgs args) const {
  const Peer& peer = decoder_.peer_;
  const auto columns = [&](int64_t rank) {
    return HeadRows(config_.vocab_size, {.rank = rank, .size = peer.peers->size()});
  };
  const IndexRange own = columns(peer.rank);
  if (args.n > own.size()) {  // the table of embeddings, in rows
    args.weight = Advance(args.weight, own.begin * args.k, args.dtype);
    args.bias = args.bias == nullptr ? nullptr : Advance(args.bias, own.begin, args.dtype);
    args.n = own.size();
  }
  if (!peer.is_first()) args.ldy = RoundUp8(own.size());
  if (own.size() > 0) LaunchLinear(args);
  std::vector<int64_t> counts;
  for (int64_t rank = 0; rank < peer.peers->size(); ++rank) {
    counts.push_back(num_rows_ * RoundUp8(columns(rank).size()));
  }
  const float* part = buffers_.peer_logits;
  peer.peers->Gather(peer.rank, peer.is_first() ? buffers_.peer_logits : buffers_.logits, counts,
                     stream_);
  for (int64_t rank = 1; peer.is_first() && rank < peer.peers->size(); ++rank) {
    const IndexRange of_rank = columns(rank);
    const int64_t width = RoundUp8(of_rank.size());
    if (width == 0) continue;
    MoveRows({.from = part,
              .ld_from = width,
              .to = buffers_.logits + of_rank.begin,
              .ld_to = args.ldy,
              .m = num_rows_,
              .k = width},
             stream_);
    part += num_rows_ * width;
  }
}

GemvArgs CudaDecoder::Ops::LinearArgs(const Linear& linear, const void* x, void* y) const {
  const CudaMatrix& matrix = linear.matrix;
  return {.format = matrix.format,
          .dtype = weights_.dtype,
          .weight = matrix.data,
          .n = matrix.n,
          .k = matrix.k,
          .x = x,
          .ldx = matrix.k,
          .m = num_rows_,
          .bias = linear.bias,
          .y = y,
          .ldy = matrix.n};
}

GemvArgs CudaDecoder::Ops::LinearOfInput(const Linear& linear, void* y) {
  GemvArgs args = LinearArgs(linear, input_, y);
  if (!deferred_norm_) return args;
  args.x = residual_;
  args.normalizes = true;
  args.norm = {.weight = std::exchange(deferred_norm_, std::nullopt)->weight,
               .weight_offset = config_.norm_weight_offset,
               .eps = config_.residual_norm_eps};
  return args;
}

GemvArgs CudaDecoder::Ops::StateInputs(const Linear& linear) {
  GemvArgs args = LinearOfInput(linear, buffers_.delta_inputs);
  args.ldy = StateInputsRow(config_);
  return args;
}

GemvArgs CudaDecoder::Ops::LatentsOfInput(const Linear& linear) {
  GemvArgs args = LinearOfInput(linear, buffers_.latents);
  args.ldy = LatentRow(config_);
  return args;
}

void CudaDecoder::Ops::Defer(const LayerProduct& product) {
  MLC_CHECK(!deferred_);
  deferred_ = product;
}

CudaDecoder::Ops::LayerProduct CudaDecoder::Ops::TakeDeferred() {
  MLC_CHECK(deferred_);
  return *std::exchange(deferred_, std::nullopt);
}

void CudaDecoder::Ops::LaunchLinear(const LayerProduct& product) const {
  LaunchLinear(product.args);
  AddAdapters(product);
}

void CudaDecoder::Ops::LaunchLinear(const GemvArgs& args) const {
  const ManyRows& many_rows = decoder_.many_rows_;
  GemvArgs first = args;
  first.m = std::min(fixed_rows_, args.m);
  GemvArgs rest = args;
  rest.m = args.m - first.m;
  rest.x = Advance(args.x, first.m * args.ldx, args.dtype);
  rest.y = Advance(args.y, first.m * args.ldy, args.float_output ? DType::kFloat32 : args.dtype);
  const auto is_aligned = [](const void* data) {
    return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(kManyRowsAlign) == 0;
  };
  if (rest.m > kMaxGemvRows && many_rows && is_aligned(rest.x) && is_aligned(rest.y) &&
      many_rows(rest, stream_)) {
    return LaunchProduct(first, stream_);
  }
  LaunchProduct(args, stream_);
}

}  // namespace mlc_native
