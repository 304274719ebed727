// CudaDecoder against a decoder in double, made of the kernels' references, on whole sequences.
#include "models/cuda/decoder.h"

#include <algorithm>
#include <deque>
#include <numeric>

#include "cuda/reference_decoder.h"
#include "cuda/test_util.h"

namespace mlc_native {
namespace {

using kernels::KvFormat;
using kernels::cuda::DeviceArray;
using kernels::cuda::DeviceBytes;
using kernels::cuda::Encode;
using kernels::cuda::Floats;
using kernels::cuda::KvPages;
using kernels::cuda::PrefillTile;
using kernels::cuda::ToDouble;

constexpr int64_t kMaxPositions = 64;
constexpr int64_t kTablePages = kMaxPositions / kKvPageSize;

ModelConfig SmallConfig(const char* architecture) {
  ModelConfig config;
  config.arch = FindArchitecture(architecture);
  config.norm_weight_offset = config.arch->norm_weight_offset;
  config.vocab_size = 61;
  config.hidden_size = 48;
  config.ffn_size = 80;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.max_positions = kMaxPositions;
  config.norm_eps = config.residual_norm_eps = 1e-5f;
  config.qkv_bias = config.arch->qkv_bias.absent;
  config.qk_norm = config.arch->qk_norm;
  config.parallel_blocks = config.arch->parallel_blocks.absent;
  if (config.arch->default_activation == "relu2") {
    config.activation = kernels::Activation::kReluSquared;
  }
  config.attention_scale = 0.25f;
  if (config.arch->multipliers.sqrt_hidden_size) config.embedding_scale = std::sqrt(48.0f);
  if (!config.arch->multipliers.residual.empty()) {
    config.embedding_scale = 12;
    config.residual_norm_eps = 4e-5f;
  }
  if (config.arch->reads_attention_soft_cap) {
    config.attention_soft_cap = 2;
    config.final_soft_cap = 3;
    config.activation = kernels::Activation::kGeluTanh;
  }
  RopeConfig rope;
  rope.rotary_dim = static_cast<int64_t>(static_cast<double>(config.head_dim) *
                                         config.arch->defaults.partial_rotary_factor);
  rope.theta = 100;
  config.ropes = {rope};
  config.layers.resize(2);
  if (config.arch->local_rope) {
    rope.theta = 1000;
    config.ropes.push_back(rope);
    config.layers[1].rope = 1;
  }
  if (config.arch->window_rule != WindowRule::kNever) config.layers[1].window = 12;
  if (config.arch->rope_rule == RopeRule::kFieldSays) config.layers[1].rope = LayerConfig::kNoRope;
  return config;
}

// Weights in the decoder's type, on the device and as doubles.
class TestModel {
 public:
  TestModel(const ModelConfig& config, DType dtype) : config(config) {
    weights.dtype = dtype;
    for (size_t i = 0; i < config.layers.size(); ++i) AddLayer();
    reference_.embeddings =
        Values64(config.vocab_size * config.hidden_size, 1, &weights.embeddings);
    reference_.final_norm.weight = Values64(config.hidden_size, 0.5, &weights.final_norm.weight);
    reference_.head.matrix = AddMatrix(config.vocab_size, config.hidden_size, &weights.head.matrix);
    for (const RopeConfig& rope : config.ropes) {
      const RopeTable table = MakeRopeTable(rope, kMaxPositions);
      const float* cos = ropes_.emplace_back(table.cos).data();
      weights.ropes.push_back({.cos = cos, .sin = ropes_.emplace_back(table.sin).data()});
    }
  }

  // Logits [tokens, vocab].
  Values Forward(const std::vector<int32_t>& tokens) const {
    return ReferenceLogits(config, reference_, tokens);
  }

  const ModelConfig config;
  CudaDecoderWeights weights;

 private:
  Values Values64(int64_t n, double amplitude, const void** device) {
    std::uniform_real_distribution<float> uniform(static_cast<float>(-amplitude),
                                                  static_cast<float>(amplitude));
    Floats x(n);
    for (float& value : x) value = uniform(random_);
    const auto bytes = Encode(weights.dtype, x);
    *device = bytes_.emplace_back(bytes).data();
    return ToDouble(kernels::cuda::Decode(weights.dtype, bytes));
  }

  Values AddMatrix(int64_t n, int64_t k, CudaMatrix* device) {
    *device = {.format = kernels::FormatOf(weights.dtype), .n = n, .k = k};
    return Values64(n * k, 1.5 / std::sqrt(k), &device->data);
  }

  void AddLayer() {
    ReferenceWeights::Layer::Linears reference_linears;
    CudaDecoderWeights::Layer::Linears device_linears;
    for (const LinearRole role : kLinearRoles) {
      if (config.num_linears(LayerConfig{}, role) == 0) continue;
      CudaDecoderWeights::Linear device;
      ReferenceWeights::Linear linear;
      linear.matrix =
          AddMatrix(config.linear_rows({}, role), config.linear_columns({}, role), &device.matrix);
      if (config.has_bias(role))
        linear.bias = Values64(config.linear_rows({}, role), 0.5, &device.bias);
      reference_linears.push_back({{.role = role}, linear});
      device_linears.push_back({{.role = role}, device});
    }
    ReferenceWeights::Layer::Norms reference_norms;
    CudaDecoderWeights::Layer::Norms device_norms{};
    for (const NormName& norm : config.arch->norms) {
      const auto i = static_cast<size_t>(norm.role);
      if (!config.has_norm({}, norm.role)) continue;
      reference_norms[i].weight =
          Values64(config.norm_shape({}, norm.role)[0], 0.5, &device_norms[i].weight);
    }
    reference_.layers.push_back({reference_linears, reference_norms});
    weights.layers.push_back({device_linears, device_norms});
  }

  std::mt19937 random_{5};
  std::deque<DeviceBytes> bytes_;
  std::deque<DeviceArray<float>> ropes_;
  ReferenceWeights reference_;
};

// Tokens of sequence `sequence` to compute next.
struct Slice {
  size_t sequence;
  int64_t num_tokens;
  bool is_decode = false;
};

// Feeds sequences of fixed tokens to a CudaDecoder, like the engine would.
class Driver {
 public:
  Driver(const TestModel& model, KvFormat kv_format,
         const std::vector<std::vector<int32_t>>& tokens)
      : model_(model), tokens_(tokens), lengths_(tokens.size()) {
    const ModelConfig& config = model.config;
    const auto num_pages = static_cast<int64_t>(tokens.size()) * kTablePages;
    const size_t pool =
        num_pages * config.num_kv_heads * kernels::cuda::KvHeadBytes(kv_format, config.head_dim);
    std::vector<KvPages> kv;
    for (size_t i = 0; i < config.layers.size(); ++i) {
      kv.push_back({.format = kv_format,
                    .kv_heads = config.num_kv_heads,
                    .head_dim = config.head_dim,
                    .num_pages = num_pages,
                    .k = pools_.emplace_back(pool).data(),
                    .v = pools_.emplace_back(pool).data()});
    }
    const CudaDecoder::Limits limits{.max_rows = 80, .max_logits = 8, .max_length = kMaxPositions};
    const DType dtype = model.weights.dtype;
    const size_t bytes = CudaDecoder::WorkspaceBytes(config, dtype, limits);
    std::vector<uint8_t> start(bytes, 0xff);
    std::fill_n(start.begin(), kernels::cuda::ZeroedDecodeBytes(config.num_heads), uint8_t{0});
    workspace_ = std::make_unique<DeviceBytes>(start);
    decoder_ = std::make_unique<CudaDecoder>(config, model.weights, kv, limits, workspace_->data(),
                                             CudaDecoder::ManyRows(), nullptr);
    std::vector<int32_t> tables(num_pages);
    std::iota(tables.rbegin(), tables.rend(), 0);
    tables_ = std::make_unique<DeviceArray<int32_t>>(tables);
    host_tables_ = tables;
  }

  // Logits of the last row of each slice. Decode rows take their token from what was "sampled".
  Floats Step(const std::vector<Slice>& slices) {
    std::vector<int32_t> ids, sampled, positions, lengths, tables, logits_rows;
    std::vector<int64_t> slots;
    std::vector<PrefillTile> tiles;
    int64_t num_decode_rows = 0;
    for (const Slice& slice : slices) {
      const auto row = static_cast<int32_t>(ids.size());
      const int64_t first = lengths_[slice.sequence];
      for (int64_t p = first; p < first + slice.num_tokens; ++p) {
        const int32_t token = tokens_[slice.sequence][p];
        if (slice.is_decode) {
          sampled.push_back(token);
          ids.push_back(-static_cast<int32_t>(sampled.size()));
        } else {
          ids.push_back(token);
        }
        positions.push_back(static_cast<int32_t>(p));
        lengths.push_back(static_cast<int32_t>(p) + 1);
        tables.push_back(static_cast<int32_t>(slice.sequence));
        const int64_t page = host_tables_[slice.sequence * kTablePages + p / kKvPageSize];
        slots.push_back(page * kKvPageSize + p % kKvPageSize);
      }
      if (slice.is_decode) {
        ++num_decode_rows;
      } else {
        AddTiles(slice, row, &tiles);
      }
      lengths_[slice.sequence] += slice.num_tokens;
      logits_rows.push_back(static_cast<int32_t>(ids.size()) - 1);
    }
    DeviceArray<int32_t> device_ids(ids), device_sampled(sampled), device_positions(positions),
        device_lengths(lengths), device_tables(tables), device_logits_rows(logits_rows);
    DeviceArray<int64_t> device_slots(slots);
    DeviceArray<PrefillTile> device_tiles(tiles);
    const float* logits = decoder_->Forward({.num_rows = std::ssize(ids),
                                             .num_decode_rows = num_decode_rows,
                                             .token_ids = device_ids.data(),
                                             .sampled = device_sampled.data(),
                                             .positions = device_positions.data(),
                                             .slots = device_slots.data(),
                                             .lengths = device_lengths.data(),
                                             .tables = device_tables.data(),
                                             .block_tables = tables_->data(),
                                             .ld_block_tables = kTablePages,
                                             .tiles = device_tiles.data(),
                                             .num_tiles = std::ssize(tiles),
                                             .logits_rows = device_logits_rows.data(),
                                             .num_logits = std::ssize(logits_rows)});
    const int64_t ld = decoder_->ld_logits();
    Floats padded(logits_rows.size() * ld);
    kernels::cuda::CopyToHost(padded.data(), logits, padded.size() * sizeof(float), nullptr);
    Floats got;
    for (auto row = padded.begin(); row != padded.end(); row += ld) {
      got.insert(got.end(), row, row + model_.config.vocab_size);
    }
    return got;
  }

  // Relative error of a step's logits.
  void Check(const std::vector<Slice>& slices, double tolerance) {
    const Floats got = Step(slices);
    const int64_t vocab = model_.config.vocab_size;
    for (size_t i = 0; i < slices.size(); ++i) {
      const size_t sequence = slices[i].sequence;
      const auto end = tokens_[sequence].begin() + lengths_[sequence];
      const Values want = model_.Forward({tokens_[sequence].begin(), end});
      double error = 0;
      double norm = 0;
      for (int64_t j = 0; j < vocab; ++j) {
        const double value = want[want.size() - vocab + j];
        error += std::pow(got[i * vocab + j] - value, 2);
        norm += std::pow(value, 2);
      }
      ASSERT_LT(std::sqrt(error / norm), tolerance) << "slice " << i;
    }
  }

 private:
  void AddTiles(const Slice& slice, int32_t row, std::vector<PrefillTile>* tiles) const {
    const int64_t most = kernels::cuda::PrefillTileRows(
        model_.config.num_heads, model_.config.num_kv_heads, model_.config.head_dim);
    for (int64_t at = 0; at < slice.num_tokens; at += most) {
      tiles->push_back({.row_begin = static_cast<int32_t>(row + at),
                        .num_rows = static_cast<int32_t>(std::min(most, slice.num_tokens - at)),
                        .first_position = static_cast<int32_t>(lengths_[slice.sequence] + at),
                        .table = static_cast<int32_t>(slice.sequence)});
    }
  }

  const TestModel& model_;
  const std::vector<std::vector<int32_t>> tokens_;
  std::vector<int64_t> lengths_;  // computed so far
  std::deque<DeviceBytes> pools_;
  std::unique_ptr<DeviceBytes> workspace_;
  std::unique_ptr<DeviceArray<int32_t>> tables_;
  std::vector<int32_t> host_tables_;
  std::unique_ptr<CudaDecoder> decoder_;
};

class CudaDecoderTest : public kernels::cuda::CudaKernelTest {
 protected:
  std::vector<std::vector<int32_t>> RandomTokens(size_t num_sequences) {
    std::vector<std::vector<int32_t>> sequences(num_sequences);
    for (auto& tokens : sequences) {
      for (int64_t i = 0; i < kMaxPositions; ++i) {
        tokens.push_back(static_cast<int32_t>(RandomInt(0, 60)));
      }
    }
    return sequences;
  }

  // Prefill in chunks, decode, and both in one batch.
  void Check(const char* architecture, DType dtype, KvFormat kv_format, double tolerance) {
    SCOPED_TRACE(architecture);
    const TestModel model(SmallConfig(architecture), dtype);
    Driver driver(model, kv_format, RandomTokens(2));
    driver.Check({{0, 19}}, tolerance);
    driver.Check({{0, 15}}, tolerance);
    driver.Check({{0, 1, true}}, tolerance);
    driver.Check({{0, 1, true}, {1, 5}}, tolerance);
    driver.Check({{0, 1, true}, {1, 1, true}}, tolerance);
  }
};

TEST_F(CudaDecoderTest, EveryKindOfFamilyInFloat32) {
  for (const char* architecture :
       {"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Gemma2ForCausalLM",
        "Olmo2ForCausalLM", "Olmo3ForCausalLM", "GraniteForCausalLM", "SmolLM3ForCausalLM",
        "Glm4ForCausalLM", "ArceeForCausalLM"}) {
    Check(architecture, DType::kFloat32, KvFormat::kFloat32, 2e-5);
  }
}

// Rows whose splits are not known to fit (here: of prompts in float32) take several calls.
TEST_F(CudaDecoderTest, MoreRowsThanACallOfAttentionTakes) {
  const TestModel model(SmallConfig("Qwen3ForCausalLM"), DType::kFloat32);
  Driver driver(model, KvFormat::kFloat32, RandomTokens(2));
  driver.Check({{0, 50}, {1, 30}}, 2e-5);
}

// Of Llama 3.1 8B as a server has it: calls are as many as the lengths of the rows need.
TEST_F(CudaDecoderTest, AttentionTakesAllRowsOfAPoolAtOnce) {
  ModelConfig config = SmallConfig("LlamaForCausalLM");
  config.num_heads = 32;
  config.num_kv_heads = 8;
  config.head_dim = 128;
  const auto rows_at_once = [&](int64_t rows, int64_t length) {
    const CudaDecoder::Limits limits{.max_rows = 2048, .max_logits = 256, .max_length = 131072};
    const CudaBatch batch{.num_rows = rows,
                          .num_decode_rows = rows,
                          .num_splits = rows * kernels::cuda::MaxDecodeSplits(length)};
    return CudaDecoder::DecodeRowsAtOnce(config, limits, batch);
  };
  EXPECT_GE(rows_at_once(64, 12288), 64);
  EXPECT_GE(rows_at_once(256, 4096), 256);
  EXPECT_GE(rows_at_once(1024, 1024), 1024);
  EXPECT_GE(rows_at_once(8, 131072), 8);
  EXPECT_LT(rows_at_once(256, 131072), 256);
  EXPECT_GT(rows_at_once(256, 131072), 1);
}

TEST_F(CudaDecoderTest, SixteenBits) {
  Check("Qwen3ForCausalLM", DType::kBFloat16, KvFormat::kBFloat16, 3e-2);
  Check("Gemma2ForCausalLM", DType::kFloat16, KvFormat::kFloat16, 5e-3);
}

TEST_F(CudaDecoderTest, EightBitKeysAndValues) {
  Check("LlamaForCausalLM", DType::kFloat16, KvFormat::kFloat8, 8e-2);
}

}  // namespace
}  // namespace mlc_native
