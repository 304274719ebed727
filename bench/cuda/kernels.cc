// cuda_kernels FILE: times each CUDA kernel at the shapes of real models on GPU 0 and writes a JSON
// list of {name, seconds, bytes, operations} to FILE. tools/gpu_check.sh runs it and compares with
// the bandwidth ("copy") and the peak measured in the same run.
//
// A kernel is timed as a graph of calls, so that the launch time of the host does not count. Each
// call of a graph uses different buffers, so that the cache hits no more often than in a model. The
// seconds are the median over replays, per call.
#include "kernels/cuda/kernels.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "kernels/cuda/experts.h"
#include "support/half.h"

namespace mlc_native::kernels::cuda {
namespace {

constexpr int64_t kRotate = 256 << 20;  // bytes of inputs to cycle through, more than any cache
constexpr int kReplays = 15;

void Check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
  }
}

// Device memory filled with random bfloat16 in [-1, 1], which are finite in every type used here.
class Buffer {
 public:
  explicit Buffer(int64_t bytes) : bytes_(std::max<int64_t>(bytes, 16)) {
    Check(cudaMalloc(&data_, bytes_), "cudaMalloc");
    const std::vector<uint16_t>& noise = Noise();
    const auto piece = static_cast<int64_t>(noise.size() * sizeof(uint16_t));
    for (int64_t at = 0; at < bytes_; at += piece) {
      Check(cudaMemcpy(static_cast<char*>(data_) + at, noise.data(), std::min(piece, bytes_ - at),
                       cudaMemcpyHostToDevice),
            "cudaMemcpy");
    }
  }
  template <typename T>
  explicit Buffer(const std::vector<T>& items)
      : Buffer(static_cast<int64_t>(items.size() * sizeof(T))) {
    Check(cudaMemcpy(data_, items.data(), items.size() * sizeof(T), cudaMemcpyHostToDevice),
          "cudaMemcpy");
  }
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  template <typename T = void>
  T* data(int64_t byte_offset = 0) const {
    return reinterpret_cast<T*>(static_cast<char*>(data_) + byte_offset);
  }

 private:
  static const std::vector<uint16_t>& Noise() {
    static const std::vector<uint16_t> noise = [] {
      std::mt19937 random(1);
      std::uniform_real_distribution<float> uniform(-1, 1);
      std::vector<uint16_t> values(8 << 20);
      for (uint16_t& value : values) value = FloatToBFloat16(uniform(random));
      return values;
    }();
    return noise;
  }

  int64_t bytes_;
  void* data_ = nullptr;
};

struct Cost {
  double bytes = 0;
  double operations = 0;
};

class Bench {
 public:
  Bench() { Check(cudaStreamCreate(&stream_), "cudaStreamCreate"); }
  ~Bench() { cudaStreamDestroy(stream_); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // call(i, stream) makes the i-th of `calls` calls.
  void Run(const std::string& name, const Cost& cost, int calls,
           const std::function<void(int, Stream)>& call) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    call(0, stream_);  // modules are loaded outside of the capture
    Check(cudaStreamSynchronize(stream_), name.c_str());
    Check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < calls; ++i) call(i, stream_);
    Check(cudaStreamEndCapture(stream_, &graph), "capture");
    Check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    const double seconds = TimeReplays(executable) / calls;
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    results_.push_back({{"name", name},
                        {"seconds", seconds},
                        {"bytes", cost.bytes},
                        {"operations", cost.operations}});
    std::printf("%-44s %10.1f us %8.0f GB/s %8.1f TFLOP/s\n", name.c_str(), seconds * 1e6,
                cost.bytes / seconds * 1e-9, cost.operations / seconds * 1e-12);
    std::fflush(stdout);
  }

  const nlohmann::json& results() const { return results_; }

 private:
  double TimeReplays(cudaGraphExec_t executable) const {
    cudaEvent_t begin, end;
    Check(cudaEventCreate(&begin), "cudaEventCreate");
    Check(cudaEventCreate(&end), "cudaEventCreate");
    std::vector<float> milliseconds;
    for (int i = 0; i < kReplays + 3; ++i) {
      Check(cudaEventRecord(begin, stream_), "cudaEventRecord");
      Check(cudaGraphLaunch(executable, stream_), "cudaGraphLaunch");
      Check(cudaEventRecord(end, stream_), "cudaEventRecord");
      Check(cudaEventSynchronize(end), "cudaEventSynchronize");
      float elapsed = 0;
      Check(cudaEventElapsedTime(&elapsed, begin, end), "cudaEventElapsedTime");
      if (i >= 3) milliseconds.push_back(elapsed);
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    std::nth_element(milliseconds.begin(), milliseconds.begin() + kReplays / 2, milliseconds.end());
    return milliseconds[kReplays / 2] * 1e-3;
  }

  cudaStream_t stream_ = nullptr;
  const DependentLaunches dependent_{0};  // as in a model
  nlohmann::json results_ = nlohmann::json::array();
};

// A large copy, whose bandwidth all other figures are compared with.
void Copy(Bench& bench) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  Buffer from(kBytes), to(kBytes);
  bench.Run("copy", {.bytes = 2.0 * kBytes}, 4, [&](int, Stream stream) {
    Check(cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, stream),
          "copy");
  });
}

// ---- Products ----

struct Product {
  const char* name;
  int64_t n, k;
};
constexpr Product kProducts[] = {
    {"qwen3-0.6b qkv", 4096, 1024},        {"qwen3-0.6b down", 1024, 3072},
    {"llama-3.2-1b gate_up", 16384, 2048}, {"llama-3.1-8b qkv", 6144, 4096},
    {"llama-3.1-8b gate_up", 28672, 4096}, {"llama-3.1-8b down", 4096, 14336},
    {"llama-3.1-8b head", 128256, 4096},
};

void Products(Bench& bench) {
  constexpr struct {
    const char* name;
    WeightFormat format;
  } kFormats[] = {
      {"bf16", WeightFormat::kBFloat16}, {"q8", WeightFormat::kQ8}, {"q4", WeightFormat::kQ4}};
  for (const auto& [format_name, format] : kFormats) {
    for (const Product& p : kProducts) {
      const int64_t bytes = format == WeightFormat::kBFloat16
                                ? p.n * p.k * 2
                                : static_cast<int64_t>(GemvWeightBytes(format, p.n, p.k));
      const auto copies = static_cast<int>(kRotate / bytes + 2);
      Buffer weights(copies * bytes), x(32 * p.k * 2), y(32 * p.n * 2);
      for (int64_t m : {1, 8, 32}) {
        bench.Run("gemv " + std::string(format_name) + " " + p.name + " m=" + std::to_string(m),
                  {.bytes = static_cast<double>(bytes), .operations = 2.0 * m * p.n * p.k}, copies,
                  [&](int i, Stream stream) {
                    Gemv({.format = format,
                          .weight = weights.data(i * bytes),
                          .n = p.n,
                          .k = p.k,
                          .x = x.data(),
                          .ldx = p.k,
                          .m = m,
                          .y = y.data(),
                          .ldy = p.n},
                         stream);
                  });
      }
    }
  }
}

// The gate_up products of one layer of a mixture of experts: every row chooses `chosen` of them.
void Experts(Bench& bench, int64_t m) {
  constexpr int64_t kExperts = 128, kChosen = 8, kN = 1536, kK = 2048;  // qwen3-30b-a3b
  const int64_t bytes = kN * kK * 2;
  const int64_t active = std::min(kExperts, m * kChosen);
  const Buffer weights(kExperts * bytes), x(m * kK * 2), y(m * kChosen * kN * 2);
  std::vector<ExpertGroup> groups;
  std::vector<int32_t> rows;
  for (int64_t i = 0; i < active; ++i) {
    const auto begin = static_cast<int32_t>(rows.size());
    for (int64_t row = i; row < m * kChosen; row += active) {
      rows.push_back(static_cast<int32_t>(row % m));
    }
    const auto expert = static_cast<int32_t>(i * kExperts / active);
    groups.push_back({expert, begin, static_cast<int32_t>(rows.size())});
  }
  const Buffer device_groups(groups), device_rows(rows);
  bench.Run("grouped_gemv bf16 qwen3-30b-a3b gate_up m=" + std::to_string(m),
            {.bytes = static_cast<double>(active * bytes),
             .operations = 2.0 * static_cast<double>(m * kChosen * kN * kK)},
            4, [&](int, Stream stream) {
              GroupedGemv({.first = {.weight = weights.data(),
                                     .n = kN,
                                     .k = kK,
                                     .x = x.data(),
                                     .ldx = kK,
                                     .m = m,
                                     .y = y.data(),
                                     .ldy = kN},
                           .weight_stride = bytes,
                           .groups = device_groups.data<ExpertGroup>(),
                           .num_groups = active,
                           .rows = device_rows.data<int32_t>()},
                          stream);
            });
}

void Dequantizations(Bench& bench) {
  const Product& p = kProducts[std::size(kProducts) - 3];  // the largest of 8B
  for (const auto& [name, format] :
       {std::pair{"q8", WeightFormat::kQ8}, std::pair{"q4", WeightFormat::kQ4}}) {
    const auto packed = static_cast<int64_t>(GemvWeightBytes(format, p.n, p.k));
    const Buffer weight(packed), out(p.n * p.k * 2);
    bench.Run(std::string("dequantize ") + name + " " + p.name,
              {.bytes = static_cast<double>(packed + p.n * p.k * 2)}, 4, [&](int, Stream stream) {
                Dequantize({.format = format,
                            .weight = weight.data(),
                            .n = p.n,
                            .k = p.k,
                            .num_rows = p.n,
                            .out = out.data()},
                           stream);
              });
  }
}

// ---- Attention ----

struct Heads {
  const char* name;
  int64_t q, kv, dim;
};
constexpr Heads kQwen06{"qwen3-0.6b", 16, 8, 128};
constexpr Heads kLlama1{"llama-3.2-1b", 32, 8, 64};
constexpr Heads kLlama8{"llama-3.1-8b", 32, 8, 128};

// A pool with `rows` sequences of `length` tokens, pages in random order.
class Cache {
 public:
  Cache(const Heads& heads, int64_t rows, int64_t length)
      : pages_((length + kKvPageSize - 1) / kKvPageSize),
        pool_bytes_(rows * pages_ * kKvPageSize * heads.kv * heads.dim * 2),
        pools_(2 * pool_bytes_),
        tables_(Shuffled(rows * pages_)) {
    kv.kv_heads = heads.kv;
    kv.head_dim = heads.dim;
    kv.num_pages = rows * pages_;
    kv.k = pools_.data();
    kv.v = pools_.data(pool_bytes_);
  }
  double bytes() const { return 2.0 * static_cast<double>(pool_bytes_); }
  AttentionArgs Args(const Heads& heads, const Buffer& q, const Buffer& out) const {
    return {.q = q.data(),
            .ldq = heads.q * heads.dim,
            .out = out.data(),
            .ldo = heads.q * heads.dim,
            .q_heads = heads.q,
            .scale = 0.1f,
            .block_tables = tables_.data<int32_t>(),
            .ld_block_tables = pages_};
  }
  KvPages kv;

 private:
  static std::vector<int32_t> Shuffled(int64_t n) {
    std::vector<int32_t> pages(n);
    for (int64_t i = 0; i < n; ++i) pages[i] = static_cast<int32_t>(i);
    std::shuffle(pages.begin(), pages.end(), std::mt19937(2));
    return pages;
  }

  const int64_t pages_;
  const int64_t pool_bytes_;
  const Buffer pools_;
  const Buffer tables_;
};

void Decode(Bench& bench, const Heads& heads, int64_t rows, int64_t length) {
  const Cache cache(heads, rows, length);
  const int64_t row_bytes = heads.q * heads.dim * 2;
  const Buffer q(rows * row_bytes), out(rows * row_bytes);
  const Buffer lengths(std::vector<int32_t>(rows, static_cast<int32_t>(length)));
  const Buffer workspace(
      static_cast<int64_t>(DecodeWorkspaceBytes(rows, length, heads.q, heads.dim)));
  Check(cudaMemset(workspace.data(), 0, ZeroedDecodeBytes(heads.q)), "cudaMemset");
  const Buffer splits(static_cast<int64_t>(DecodeSplitsBytes(rows, length)));
  const DecodeRows decode_rows{.lengths = lengths.data<int32_t>(),
                               .m = rows,
                               .max_rows = rows,
                               .max_length = length,
                               .workspace = workspace.data(),
                               .splits = splits.data()};
  ListSplits(decode_rows, 0, nullptr);
  Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const std::string name = std::string("decode_attention ") + heads.name +
                           " rows=" + std::to_string(rows) + " length=" + std::to_string(length);
  const double operations = 4.0 * rows * length * heads.q * heads.dim;
  bench.Run(name, {cache.bytes(), operations}, 10, [&](int, Stream stream) {
    DecodeAttention(cache.kv, cache.Args(heads, q, out), decode_rows, stream);
  });
}

void Prefill(Bench& bench, const Heads& heads, int64_t length) {
  const Cache cache(heads, 1, length);
  const int64_t row_bytes = heads.q * heads.dim * 2;
  const Buffer q(length * row_bytes), out(length * row_bytes);
  const int64_t rows = PrefillTileRows(heads.q, heads.kv, heads.dim);
  std::vector<PrefillTile> tiles;
  for (int64_t at = 0; at < length; at += rows) {
    tiles.push_back({.row_begin = static_cast<int32_t>(at),
                     .num_rows = static_cast<int32_t>(std::min(rows, length - at)),
                     .first_position = static_cast<int32_t>(at),
                     .table = 0});
  }
  std::reverse(tiles.begin(), tiles.end());
  const Buffer device_tiles(tiles);
  const std::string name =
      std::string("prefill_attention ") + heads.name + " length=" + std::to_string(length);
  const double operations = 2.0 * length * length * heads.q * heads.dim;
  bench.Run(name, {cache.bytes(), operations}, 4, [&](int, Stream stream) {
    PrefillAttention(cache.kv, cache.Args(heads, q, out), device_tiles.data<PrefillTile>(),
                     static_cast<int64_t>(tiles.size()), stream);
  });
}

// ---- The rest ----

void Norms(Bench& bench, int64_t rows) {
  constexpr int64_t kDim = 4096;
  const Buffer x(rows * kDim * 2), y(rows * kDim * 2), weight(kDim * 2);
  const Buffer residual(std::vector<float>(rows * kDim, 0.5f));
  bench.Run("add_norm 4096 rows=" + std::to_string(rows), {.bytes = 12.0 * rows * kDim}, 10,
            [&](int, Stream stream) {
              AddNorm({.residual = residual.data<float>(),
                       .x = x.data(),
                       .pre_weight = weight.data(),
                       .y = y.data(),
                       .m = rows,
                       .dim = kDim},
                      stream);
            });
}

void Activations(Bench& bench, int64_t rows) {
  constexpr int64_t kFfn = 14336;
  const Buffer x(rows * 2 * kFfn * 2), out(rows * kFfn * 2);
  bench.Run("activate 14336 rows=" + std::to_string(rows), {.bytes = 6.0 * rows * kFfn}, 10,
            [&](int, Stream stream) {
              Activate({.x = x.data(), .out = out.data(), .m = rows, .ffn = kFfn}, stream);
            });
}

void Sampling(Bench& bench, const std::string& name, const SamplingRow& settings, int64_t rows) {
  constexpr int64_t kVocab = 151936;
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(rows * kVocab);
  for (float& logit : logits) logit = normal(random);
  const Buffer device_logits(logits), tokens(rows * 4), logprobs(rows * 4),
      top_ids(rows * kMaxTopLogprobs * 4), top_logprobs(rows * kMaxTopLogprobs * 4);
  const Buffer device_rows(std::vector<SamplingRow>(rows, settings));
  const Buffer positions(std::vector<int32_t>(rows, 7));
  const Buffer workspace(static_cast<int64_t>(SampleWorkspaceBytes(rows, kVocab)));
  bench.Run("sample " + name + " rows=" + std::to_string(rows), {.bytes = 8.0 * rows * kVocab}, 10,
            [&](int, Stream stream) {
              SampleTokens({.logits = device_logits.data<float>(),
                            .ld = kVocab,
                            .m = rows,
                            .vocab = kVocab,
                            .rows = device_rows.data<SamplingRow>(),
                            .positions = positions.data<int32_t>(),
                            .tokens = tokens.data<int32_t>(),
                            .logprobs = logprobs.data<float>(),
                            .top_ids = top_ids.data<int32_t>(),
                            .top_logprobs = top_logprobs.data<float>(),
                            .workspace = workspace.data()},
                           stream);
            });
}

void RunAll(Bench& bench) {
  Copy(bench);
  Products(bench);
  for (int64_t m : {1, 16, 2048}) Experts(bench, m);
  Dequantizations(bench);
  Decode(bench, kQwen06, 1, 512);
  Decode(bench, kLlama1, 1, 4096);
  Decode(bench, kLlama8, 1, 4096);
  Decode(bench, kQwen06, 256, 600);
  Decode(bench, kLlama8, 64, 4096);
  Prefill(bench, kQwen06, 1024);
  Prefill(bench, kLlama8, 8192);
  for (int64_t rows : {1, 64, 8192}) Norms(bench, rows);
  for (int64_t rows : {1, 64, 8192}) Activations(bench, rows);
  SamplingRow greedy, plain, top_p, top_k;
  greedy.greedy = true;
  top_p.top_p = 0.95f;
  top_k.top_k = 50;
  for (int64_t rows : {1, 64, 256}) {
    Sampling(bench, "greedy", greedy, rows);
    Sampling(bench, "plain", plain, rows);
    Sampling(bench, "top_p=0.95", top_p, rows);
    Sampling(bench, "top_k=50", top_k, rows);
  }
}

}  // namespace
}  // namespace mlc_native::kernels::cuda

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FILE\n", argv[0]);
    return 2;
  }
  mlc_native::kernels::cuda::Bench bench;
  int status = 0;
  try {
    mlc_native::kernels::cuda::RunAll(bench);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    status = 1;  // earlier results are still written
  }
  std::ofstream(argv[1]) << bench.results().dump(1) << '\n';
  return status;
}
