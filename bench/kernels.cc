// Speed of the CPU kernels beside what the machine can do. Prints the read bandwidth and the FMA
// peak of the threads used first; every row then shows its share of the nearer limit ("peak" or
// "bandwidth", 1.0 = reached). Threads: MLC_NATIVE_BENCH_THREADS (default 2). ISA: MLC_NATIVE_ISA.
// With one thread everything is measured in CPU time, which other programs on the machine distort
// less.
#include "kernels/kernels.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/aligned_buffer.h"
#include "support/half.h"

namespace mlc_native::kernels {
namespace {

struct Machine {
  std::unique_ptr<ThreadPool> pool;
  const CpuKernels* isa = nullptr;
  double bytes_per_second = 0;
  double flops_per_second = 0;

  Cpu cpu() const { return {isa, pool.get()}; }
};

double Now(const ThreadPool& pool) {
  if (pool.num_threads() == 1) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

AlignedBuffer RandomWeights(DType dtype, int64_t count) {
  AlignedBuffer buffer(count * DTypeSize(dtype));
  std::minstd_rand random(1);
  for (int64_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(random() % 2001) * 1e-3f - 1.0f;
    StoreElement(dtype, buffer.data(), i, value);
  }
  return buffer;
}

std::vector<float> RandomFloats(int64_t count) {
  std::minstd_rand random(2);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() % 2001) * 1e-3f - 1.0f;
  return values;
}

// Best of some passes over 512 MiB, cache line by cache line with prefetch, as the kernels read
// weights.
double MeasureBandwidth(ThreadPool& pool) {
  constexpr int64_t kWords = int64_t{64} << 20;
  AlignedBuffer buffer(kWords * 8);
  auto* words = static_cast<uint64_t*>(buffer.data());
  std::fill(words, words + kWords, 1);
  double best = 0;
  for (int pass = 0; pass < 8; ++pass) {
    const double start = Now(pool);
    pool.ParallelFor(kWords / 8, [&](int64_t begin, int64_t end, int) {
      constexpr int kStreams = 4;  // one stream does not keep the memory busy
      const int64_t lines = (end - begin) / kStreams;
      uint64_t sum = 0;
      for (int64_t line = begin; line < begin + lines; ++line) {
        for (int stream = 0; stream < kStreams; ++stream) {
          const uint64_t* at = words + (line + stream * lines) * 8;
          __builtin_prefetch(at + 128);
          sum += *at;
        }
      }
      benchmark::DoNotOptimize(sum);
    });
    best = std::max(best, kWords * 8 / (Now(pool) - start));
  }
  return best;
}

// The linear kernel itself on operands that fit L1 and L2 is the fairest peak of the selected ISA:
// only multiply-adds and cache hits. 6 rows, 64 columns, k = 256.
double MeasurePeak(const Machine& machine) {
  double best = 0;
  const int threads = machine.pool->num_threads();
  const int64_t n = 64 * threads;
  const AlignedBuffer source = RandomWeights(DType::kFloat32, n * 256);
  const AlignedBuffer packed(PackedLinearBytes(*machine.isa, DType::kFloat32, n, 256));
  const PackedLinear w = MakePackedLinear(*machine.isa, DType::kFloat32, n, 256, packed.data());
  PackLinear(w, 0, {.dtype = DType::kFloat32, .data = source.data(), .ld = 256, .rows = n});
  const std::vector<float> x = RandomFloats(6 * 256);
  std::vector<float> y(6 * n);
  for (int pass = 0; pass < 50; ++pass) {
    const double start = Now(*machine.pool);
    for (int i = 0; i < 200; ++i) {
      Linear(machine.cpu(), w, {.x = x.data(), .ldx = 256, .m = 6, .y = y.data(), .ldy = n});
    }
    best = std::max(best, 200 * 2.0 * 6 * n * 256 / (Now(*machine.pool) - start));
  }
  return best;
}

const Machine& TheMachine() {
  static const Machine machine = [] {
    const char* threads = std::getenv("MLC_NATIVE_BENCH_THREADS");
    Machine m;
    m.pool = std::make_unique<ThreadPool>(threads != nullptr ? std::atoi(threads) : 2);
    m.isa = &SelectCpuKernels();
    m.bytes_per_second = MeasureBandwidth(*m.pool);
    m.flops_per_second = MeasurePeak(m);
    return m;
  }();
  return machine;
}

void Report(benchmark::State& state, double bytes, double flops) {
  const auto iterations = static_cast<double>(state.iterations());
  const auto rate = [&](double amount) {
    return benchmark::Counter(amount * iterations, benchmark::Counter::kIsRate);
  };
  state.counters["GB/s"] = rate(bytes / 1e9);
  state.counters["GFLOP/s"] = rate(flops / 1e9);
  state.counters["bandwidth"] = rate(bytes / TheMachine().bytes_per_second);
  state.counters["peak"] = rate(flops / TheMachine().flops_per_second);
}

// Enough different weights that none is in a cache when its turn comes.
struct Weights {
  AlignedBuffer buffer;
  std::vector<PackedLinear> layers;

  Weights(DType dtype, int64_t n, int64_t k) {
    const CpuKernels& isa = *TheMachine().isa;
    const AlignedBuffer source = RandomWeights(dtype, n * k);
    const size_t bytes = PackedLinearBytes(isa, dtype, n, k);
    const size_t count = std::max<size_t>(1, (size_t{256} << 20) / bytes);
    buffer = AlignedBuffer(bytes * count);
    for (size_t i = 0; i < count; ++i) {
      layers.push_back(
          MakePackedLinear(isa, dtype, n, k, static_cast<char*>(buffer.data()) + i * bytes));
      PackLinear(layers.back(), 0, {.dtype = dtype, .data = source.data(), .ld = k, .rows = n});
    }
  }
};

void BenchLinear(benchmark::State& state, DType dtype, int64_t n, int64_t k) {
  const int64_t m = state.range(0);
  const Weights weights(dtype, n, k);
  const std::vector<float> x = RandomFloats(m * k);
  std::vector<float> y(m * n);
  size_t layer = 0;
  for (auto _ : state) {
    Linear(TheMachine().cpu(), weights.layers[layer++ % weights.layers.size()],
           {.x = x.data(), .ldx = k, .m = m, .y = y.data(), .ldy = n});
  }
  Report(state, static_cast<double>(n * k * DTypeSize(dtype)), 2.0 * m * n * k);
}

// Qwen3-0.6B: 16 q heads, 8 kv heads of 128. `sequences` of `rows` new tokens each, after `context`
// old ones.
void BenchAttention(benchmark::State& state, int64_t sequences, int64_t rows, int64_t context) {
  constexpr int64_t kHeads = 16, kKvHeads = 8, kHeadDim = 128;
  const int64_t pages = (context + rows + kPageSize - 1) / kPageSize;
  const int64_t layers = std::max<int64_t>(1, 65536 / (pages * kPageSize * sequences));
  const int64_t elements = pages * sequences * layers * kKvHeads * kHeadDim * kPageSize;
  const AlignedBuffer k_pages = RandomWeights(DType::kBFloat16, elements);
  const AlignedBuffer v_pages = RandomWeights(DType::kBFloat16, elements);
  const KvLayer kv{.dtype = DType::kBFloat16,
                   .kv_heads = kKvHeads,
                   .head_dim = kHeadDim,
                   .num_pages = pages * sequences * layers,
                   .k_pages = k_pages.data(),
                   .v_pages = v_pages.data()};
  std::vector<int32_t> table(pages * sequences * layers);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
  std::shuffle(table.begin(), table.end(), std::minstd_rand(3));
  const std::vector<float> q = RandomFloats(sequences * rows * kHeads * kHeadDim);
  std::vector<float> out(q.size());
  const int threads = TheMachine().pool->num_threads();
  const AlignedBuffer workspace(AttentionWorkspaceBytes(threads, kHeads, kKvHeads, kHeadDim));
  std::vector<AttentionSequence> batch(sequences);
  int64_t layer = 0;
  for (auto _ : state) {
    for (int64_t i = 0; i < sequences; ++i) {
      batch[i] = {.row_begin = i * rows,
                  .num_rows = rows,
                  .first_position = context,
                  .block_table = table.data() + (layer % layers * sequences + i) * pages};
    }
    ++layer;
    PagedAttention(TheMachine().cpu(), kv,
                   {.q = q.data(),
                    .ldq = kHeads * kHeadDim,
                    .out = out.data(),
                    .ldo = kHeads * kHeadDim,
                    .q_heads = kHeads,
                    .scale = 0.088f,
                    .sequences = batch.data(),
                    .num_sequences = sequences,
                    .workspace = workspace.data()});
  }
  const double keys = static_cast<double>(rows * context) + 0.5 * rows * (rows + 1);
  Report(state, 2.0 * 2 * kKvHeads * kHeadDim * sequences * (context + rows),
         4.0 * sequences * keys * kHeads * kHeadDim);
}

// All kernels of one forward pass of Qwen3-0.6B's shape in bfloat16, in order, on constant data:
// what a model on top of them can reach. Decode: m sequences of 512 tokens. Prefill: 512 rows of
// one sequence, logits of the last.
class Forward {
 public:
  Forward(int64_t rows, bool prefill)
      : rows_(rows),
        logits_rows_(prefill ? 1 : rows),
        hidden_(rows * kHidden, 0.5f),
        normed_(hidden_),
        qkv_(rows * kQkv),
        attention_(rows * kHeads * kHeadDim),
        ffn_(rows * 2 * kFfn),
        logits_(logits_rows_ * kVocab),
        weight_(kHidden, 1.0f),
        angles_((kContext + 1) * kHeadDim / 2, 0.5f) {
    for (int layer = 0; layer < kLayers; ++layer) {
      for (auto [n, k] : {std::pair{kQkv, kHidden},
                          {kHidden, kHeads * kHeadDim},
                          {2 * kFfn, kHidden},
                          {kHidden, kFfn}}) {
        AddLinear(n, k);
      }
    }
    AddLinear(kVocab, kHidden);
    const int64_t pages = kContext / kPageSize * (prefill ? 1 : rows);
    for (int layer = 0; layer < kLayers; ++layer) {
      const size_t bytes = KvLayerBytes(DType::kBFloat16, pages, kKvHeads, kHeadDim);
      void* k_pages = Constant(bytes);
      kv_.push_back({.dtype = DType::kBFloat16,
                     .kv_heads = kKvHeads,
                     .head_dim = kHeadDim,
                     .num_pages = pages,
                     .k_pages = k_pages,
                     .v_pages = Constant(bytes)});
    }
    for (int64_t page = 0; page < pages; ++page) table_.push_back(static_cast<int32_t>(page));
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t position = prefill ? row : kContext - 1;
      positions_.push_back(static_cast<int32_t>(position));
      slots_.push_back(prefill ? row : row * kContext + position);
      if (prefill && row > 0) continue;
      sequences_.push_back({.row_begin = row,
                            .num_rows = prefill ? rows : 1,
                            .first_position = position,
                            .block_table = table_.data() + row * (kContext / kPageSize)});
    }
    workspace_ = AlignedBuffer(
        AttentionWorkspaceBytes(TheMachine().pool->num_threads(), kHeads, kKvHeads, kHeadDim));
  }

  void Run() {
    for (int layer = 0; layer < kLayers; ++layer) RunLayer(layer);
    Norm(hidden_, normed_, logits_rows_, 1, kHidden, kHidden);
    Apply(linears_.back(), normed_, logits_, logits_rows_);
  }

  double WeightBytes() const { return weight_bytes_; }
  double Flops() const {
    const double head = 2.0 * kVocab * kHidden;
    return (weight_bytes_ - head) * static_cast<double>(rows_) + head * logits_rows_;
  }

 private:
  static constexpr int kLayers = 28;
  static constexpr int64_t kHidden = 1024, kHeads = 16, kKvHeads = 8, kHeadDim = 128, kFfn = 3072;
  static constexpr int64_t kVocab = 151936, kContext = 512;
  static constexpr int64_t kQkv = (kHeads + 2 * kKvHeads) * kHeadDim;

  void* Constant(size_t bytes) {
    buffers_.emplace_back(bytes);
    std::memset(buffers_.back().data(), 0x3b, bytes);  // 0.0028 in bfloat16
    return buffers_.back().data();
  }
  void AddLinear(int64_t n, int64_t k) {
    const CpuKernels& isa = *TheMachine().isa;
    const size_t bytes = PackedLinearBytes(isa, DType::kBFloat16, n, k);
    linears_.push_back(MakePackedLinear(isa, DType::kBFloat16, n, k, Constant(bytes)));
    weight_bytes_ += static_cast<double>(bytes);
  }
  void Apply(const PackedLinear& w, const std::vector<float>& x, std::vector<float>& y,
             int64_t rows, int64_t ldx = 0) {
    Linear(cpu_, w,
           {.x = x.data(), .ldx = ldx > 0 ? ldx : w.k, .m = rows, .y = y.data(), .ldy = w.n});
  }
  void Norm(std::vector<float>& x, std::vector<float>& y, int64_t rows, int64_t groups, int64_t dim,
            int64_t ld) {
    RmsNorm(cpu_, {.x = x.data(),
                   .ldx = ld,
                   .y = y.data(),
                   .ldy = ld,
                   .weight = weight_.data(),
                   .m = rows,
                   .groups = groups,
                   .dim = dim});
  }

  void RunLayer(int layer) {
    const PackedLinear* w = &linears_[4 * layer];
    Norm(hidden_, normed_, rows_, 1, kHidden, kHidden);
    Apply(w[0], normed_, qkv_, rows_);
    Norm(qkv_, qkv_, rows_, kHeads + kKvHeads, kHeadDim, kQkv);
    Rope(cpu_, {.x = qkv_.data(),
                .ld = kQkv,
                .m = rows_,
                .heads = kHeads + kKvHeads,
                .head_dim = kHeadDim,
                .rotary_dim = kHeadDim,
                .positions = positions_.data(),
                .cos = angles_.data(),
                .sin = angles_.data()});
    const float* k = qkv_.data() + kHeads * kHeadDim;
    WriteKv(cpu_, kv_[layer],
            {.k = k,
             .ldk = kQkv,
             .v = k + kKvHeads * kHeadDim,
             .ldv = kQkv,
             .m = rows_,
             .slots = slots_.data()});
    PagedAttention(cpu_, kv_[layer],
                   {.q = qkv_.data(),
                    .ldq = kQkv,
                    .out = attention_.data(),
                    .ldo = kHeads * kHeadDim,
                    .q_heads = kHeads,
                    .scale = 0.088f,
                    .sequences = sequences_.data(),
                    .num_sequences = static_cast<int64_t>(sequences_.size()),
                    .workspace = workspace_.data()});
    Apply(w[1], attention_, normed_, rows_);
    const MatrixView hidden{.data = hidden_.data(), .ld = kHidden, .m = rows_, .n = kHidden};
    Add(cpu_, hidden, normed_.data(), kHidden);
    Norm(hidden_, normed_, rows_, 1, kHidden, kHidden);
    Apply(w[2], normed_, ffn_, rows_);
    GatedActivation(cpu_, {.x = ffn_.data(),
                           .ldx = 2 * kFfn,
                           .out = ffn_.data(),
                           .ldo = 2 * kFfn,
                           .m = rows_,
                           .ffn = kFfn});
    Apply(w[3], ffn_, normed_, rows_, 2 * kFfn);
    Add(cpu_, hidden, normed_.data(), kHidden);
  }

  const Cpu cpu_ = TheMachine().cpu();
  const int64_t rows_, logits_rows_;
  double weight_bytes_ = 0;
  std::vector<AlignedBuffer> buffers_;
  std::vector<PackedLinear> linears_;
  std::vector<KvLayer> kv_;
  std::vector<float> hidden_, normed_, qkv_, attention_, ffn_, logits_, weight_, angles_;
  std::vector<int32_t> table_, positions_;
  std::vector<int64_t> slots_;
  std::vector<AttentionSequence> sequences_;
  AlignedBuffer workspace_;
};

void BenchForward(benchmark::State& state, bool prefill) {
  Forward forward(state.range(0), prefill);
  for (auto _ : state) forward.Run();
  Report(state, forward.WeightBytes(), forward.Flops());
  state.counters["tokens/s"] = benchmark::Counter(
      static_cast<double>(state.range(0)) * state.iterations(), benchmark::Counter::kIsRate);
}

void BenchElementwise(benchmark::State& state) {
  const int64_t m = state.range(0), dim = 1024, ffn = 3072;
  const std::vector<float> weight = RandomFloats(dim);
  std::vector<float> x = RandomFloats(m * dim), y(m * dim), gate_up = RandomFloats(m * 2 * ffn);
  std::vector<float> out(m * ffn);
  for (auto _ : state) {
    RmsNorm(TheMachine().cpu(), {.x = x.data(),
                                 .ldx = dim,
                                 .y = y.data(),
                                 .ldy = dim,
                                 .weight = weight.data(),
                                 .m = m,
                                 .dim = dim});
    GatedActivation(
        TheMachine().cpu(),
        {.x = gate_up.data(), .ldx = 2 * ffn, .out = out.data(), .ldo = ffn, .m = m, .ffn = ffn});
  }
}

void BenchEmptyLoop(benchmark::State& state) {
  const int threads = TheMachine().pool->num_threads();
  for (auto _ : state) TheMachine().pool->ParallelFor(threads, [](int64_t, int64_t, int) {});
}

void Timing(benchmark::internal::Benchmark* bench) {
  if (TheMachine().pool->num_threads() > 1) bench->UseRealTime();
  bench->Unit(benchmark::kMicrosecond);
}

void RegisterAll() {
  for (DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    const std::string name(DTypeName(dtype));
    const auto add = [&](const char* what, int64_t n, int64_t k) {
      auto* bench = benchmark::RegisterBenchmark(
          ("linear_" + std::string(what) + "/" + name).c_str(),
          [=](benchmark::State& state) { BenchLinear(state, dtype, n, k); });
      for (int64_t m : {1, 2, 4, 8, 16, 64, 512}) bench->Arg(m);
      Timing(bench);
    };
    add("gate_up_6144x1024", 6144, 1024);
    if (dtype == DType::kBFloat16) add("down_1024x3072", 1024, 3072);
  }
  const auto attention = [](const char* name, int64_t sequences, int64_t rows, int64_t context) {
    benchmark::RegisterBenchmark(name, [=](benchmark::State& state) {
      BenchAttention(state, sequences, rows, context);
    })->Apply(Timing);
  };
  for (bool prefill : {false, true}) {
    auto* bench = benchmark::RegisterBenchmark(
        prefill ? "forward_prefill" : "forward_decode",
        [=](benchmark::State& state) { BenchForward(state, prefill); });
    for (int64_t m : prefill ? std::vector<int64_t>{512} : std::vector<int64_t>{1, 8, 16}) {
      bench->Arg(m);
    }
    Timing(bench);
  }
  attention("attention_decode/1x512", 1, 1, 511);
  attention("attention_decode/1x4096", 1, 1, 4095);
  attention("attention_decode/16x512", 16, 1, 511);
  attention("attention_prefill/512", 1, 512, 0);
  attention("attention_prefill/512_after_3584", 1, 512, 3584);
  benchmark::RegisterBenchmark("norm_and_activation", BenchElementwise)
      ->Arg(1)
      ->Arg(16)
      ->Arg(512)
      ->Apply(Timing);
  benchmark::RegisterBenchmark("empty_parallel_for", BenchEmptyLoop)->Apply(Timing);
}

}  // namespace
}  // namespace mlc_native::kernels

int main(int argc, char** argv) {
  using namespace mlc_native::kernels;
  benchmark::Initialize(&argc, argv);
  const Machine& machine = TheMachine();
  std::printf("isa %s, %d threads: reads %.1f GB/s, multiply-adds %.1f GFLOP/s\n",
              std::string(IsaName(*machine.isa)).c_str(), machine.pool->num_threads(),
              machine.bytes_per_second / 1e9, machine.flops_per_second / 1e9);
  RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
