// Measures the CPU kernels against the limits of the machine. First prints the read bandwidth and
// the peaks of the threads in use (limits.cc prints only those). Every row then shows its share of
// them ("bandwidth", "peak") and of the nearer one ("limit", 1.0 = reached). Threads:
// MLC_NATIVE_BENCH_THREADS (default 2). ISA: MLC_NATIVE_ISA. With one thread, times are CPU times,
// which other programs on the machine distort less.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels_machine.h"

namespace mlc_native::kernels {
namespace {

struct Format {
  const char* name;
  WeightFormat format;
  Arithmetic arithmetic;
};
constexpr Format kFormats[] = {
    {"bfloat16", WeightFormat::kBFloat16, Arithmetic::kBFloat16},
    {"q8", WeightFormat::kQ8, Arithmetic::kInt8},
    {"q8 of 32", WeightFormat::kQ8Group32, Arithmetic::kInt8},
    {"q6", WeightFormat::kQ6, Arithmetic::kInt8},
    {"q6 of 16", WeightFormat::kQ6Group16, Arithmetic::kInt8},
    {"q6 affine", WeightFormat::kQ6Affine, Arithmetic::kInt8},
    {"q6 affine of 16", WeightFormat::kQ6AffineGroup16, Arithmetic::kInt8},
    {"q4", WeightFormat::kQ4, Arithmetic::kInt8},
    {"q4 affine", WeightFormat::kQ4Affine, Arithmetic::kInt8},
    {"q4 of 16", WeightFormat::kQ4Group16, Arithmetic::kInt8},
    {"q4 affine of 16", WeightFormat::kQ4AffineGroup16, Arithmetic::kInt8},
    {"nvfp4", WeightFormat::kFp4Group16, Arithmetic::kInt8},
    {"iq4", WeightFormat::kIq4, Arithmetic::kInt8},
    {"iq3", WeightFormat::kIq3, Arithmetic::kInt8},
    {"iq2", WeightFormat::kIq2Group16, Arithmetic::kInt8},
    {"q2 affine of 16", WeightFormat::kQ2AffineGroup16, Arithmetic::kInt8},
    {"q2", WeightFormat::kQ2, Arithmetic::kInt8},
    {"mxfp4", WeightFormat::kMxfp4, Arithmetic::kInt8},
    {"fp8", WeightFormat::kFloat8, Arithmetic::kBFloat16},
    {"float16", WeightFormat::kFloat16, Arithmetic::kFloat32},
    {"float32", WeightFormat::kFloat32, Arithmetic::kFloat32},
};

// Enough different weights that none is in a cache when it is used again; of a small matrix, one,
// which stays there.
constexpr int64_t kSmall = int64_t{1} << 20;  // elements
struct Weights {
  AlignedBuffer buffer;
  std::vector<PackedLinear> layers;

  Weights(WeightFormat format, int64_t n, int64_t k) {
    const CpuKernels& isa = *TheMachine().isa;
    const AlignedBuffer source = RandomWeights(DType::kBFloat16, n * k);
    const size_t bytes = PackedLinearBytes(isa, format, n, k);
    const size_t all_bytes = n * k < kSmall ? bytes : size_t{256} << 20;
    const size_t count = std::max<size_t>(1, all_bytes / bytes);
    buffer = AlignedBuffer(bytes * count);
    for (size_t i = 0; i < count; ++i) {
      char* data = static_cast<char*>(buffer.data()) + i * bytes;
      layers.push_back(MakePackedLinear(isa, format, n, k, data));
      if (i > 0) {
        std::memcpy(data, buffer.data(), bytes);
      } else {
        PackLinear(layers.back(), 0,
                   {.dtype = DType::kBFloat16, .data = source.data(), .ld = k, .rows = n});
      }
    }
  }
};

void BenchLinear(benchmark::State& state, const Format& format, int64_t n, int64_t k) {
  const int64_t m = state.range(0);
  const Weights weights(format.format, n, k);
  const std::vector<float> x = RandomFloats(m * k);
  std::vector<float> y(m * n);
  const AlignedBuffer workspace(LinearWorkspaceBytes(m, k));
  size_t layer = 0;
  for (auto _ : state) {
    Linear(
        TheMachine().cpu(), weights.layers[layer++ % weights.layers.size()],
        {.x = x.data(), .ldx = k, .m = m, .y = y.data(), .ldy = n, .workspace = workspace.data()});
  }
  Report(state, static_cast<double>(PackedLinearBytes(*TheMachine().isa, format.format, n, k)),
         2.0 * m * n * k, format.arithmetic);
}

// Packs rows of a bfloat16 checkpoint into panels, as loading does.
void BenchPack(benchmark::State& state, const Format& format) {
  constexpr int64_t kRows = 256, kInputs = 1024;
  const CpuKernels& isa = *TheMachine().isa;
  const AlignedBuffer source = RandomWeights(DType::kBFloat16, kRows * kInputs);
  const AlignedBuffer data(PackedLinearBytes(isa, format.format, kRows, kInputs));
  const PackedLinear w = MakePackedLinear(isa, format.format, kRows, kInputs, data.data());
  for (auto _ : state) {
    PackLinear(w, 0,
               {.dtype = DType::kBFloat16, .data = source.data(), .ld = kInputs, .rows = kRows});
  }
  state.counters["weights/s"] = benchmark::Counter(
      static_cast<double>(kRows * kInputs) * state.iterations(), benchmark::Counter::kIsRate);
}

struct KvCase {
  const char* name;
  KvFormat format;
  Arithmetic arithmetic;  // type of the products
};
constexpr KvCase kKvCases[] = {
    {"bfloat16", KvFormat::kBFloat16, Arithmetic::kBFloat16},
    {"int8", KvFormat::kInt8, Arithmetic::kBFloat16},
    {"float16", KvFormat::kFloat16, Arithmetic::kFloat32},
};

// Qwen3-0.6B: 16 q heads, 8 kv heads of 128.
constexpr int64_t kHeads = 16, kKvHeads = 8, kHeadDim = 128;

// A layer full of random keys and values.
struct PagesInMemory {
  AlignedBuffer k_pages, v_pages;
  KvPages layer;

  PagesInMemory(KvFormat format, int64_t pages) {
    const size_t bytes = KvLayerBytes(format, pages, kKvHeads, kHeadDim);
    k_pages = AlignedBuffer(bytes);
    v_pages = AlignedBuffer(bytes);
    layer = {.format = format,
             .kv_heads = kKvHeads,
             .head_dim = kHeadDim,
             .num_pages = pages,
             .k_pages = k_pages.data(),
             .v_pages = v_pages.data()};
    const std::vector<float> values = RandomFloats(kPageSize * kKvHeads * kHeadDim);
    std::vector<int64_t> slots(kPageSize);
    for (int64_t page = 0; page < pages; ++page) {
      std::iota(slots.begin(), slots.end(), page * kPageSize);
      WriteKv(TheMachine().cpu(), layer,
              {.k = values.data(),
               .ldk = kKvHeads * kHeadDim,
               .v = values.data(),
               .ldv = kKvHeads * kHeadDim,
               .m = kPageSize,
               .slots = slots.data()});
    }
  }
};

// A prompt's keys and values, from rows in the cache to a layer's pages.
void BenchWriteKv(benchmark::State& state, const KvCase& kv) {
  constexpr int64_t kWidth = kKvHeads * kHeadDim;
  const int64_t m = state.range(0);
  const PagesInMemory cache(kv.format, (m + kPageSize - 1) / kPageSize);
  const std::vector<float> rows = RandomFloats(m * 2 * kWidth);
  std::vector<int64_t> slots(m);
  std::iota(slots.begin(), slots.end(), 0);
  for (auto _ : state) {
    WriteKv(TheMachine().cpu(), cache.layer,
            {.k = rows.data(),
             .ldk = 2 * kWidth,
             .v = rows.data() + kWidth,
             .ldv = 2 * kWidth,
             .m = m,
             .slots = slots.data()});
  }
}

struct AttentionShape {
  const char* name;
  int64_t sequences;
  int64_t rows;     // new tokens of each sequence
  int64_t context;  // earlier tokens of each sequence
  bool shuffled;    // pages in random order, as after long use; else in order, as in a new pool
};
constexpr AttentionShape kAttentionShapes[] = {
    {"decode/1x512", 1, 1, 511, false},
    {"decode/1x4096", 1, 1, 4095, false},
    {"decode/1x4096_shuffled", 1, 1, 4095, true},
    {"decode/16x144", 16, 1, 143, true},
    {"decode/16x512", 16, 1, 511, false},
    {"prefill/512", 1, 512, 0, false},
    {"prefill/512_after_3584", 1, 512, 3584, false},
};

void BenchAttention(benchmark::State& state, const KvCase& kv, const AttentionShape& shape) {
  const auto [name, sequences, rows, context, shuffled] = shape;
  const int64_t pages = (context + rows + kPageSize - 1) / kPageSize;
  // Enough layers to exceed every cache.
  const int64_t layers = std::max<int64_t>(1, 65536 / (pages * kPageSize * sequences));
  const PagesInMemory cache(kv.format, pages * sequences * layers);
  std::vector<int32_t> table(pages * sequences * layers);
  std::iota(table.begin(), table.end(), 0);
  if (shuffled) std::shuffle(table.begin(), table.end(), std::minstd_rand(3));
  const int64_t elements = sequences * rows * kHeads * kHeadDim;
  const AlignedBuffer q = RandomWeights(DType::kFloat32, elements);  // aligned, as in a step
  const AlignedBuffer out(elements * sizeof(float));
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
    PagedAttention(TheMachine().cpu(), cache.layer,
                   {.q = static_cast<const float*>(q.data()),
                    .ldq = kHeads * kHeadDim,
                    .out = static_cast<float*>(out.data()),
                    .ldo = kHeads * kHeadDim,
                    .q_heads = kHeads,
                    .scale = 0.088f,
                    .sequences = batch.data(),
                    .num_sequences = sequences,
                    .workspace = workspace.data()});
  }
  const double keys = static_cast<double>(rows * context) + 0.5 * rows * (rows + 1);
  const auto bytes = static_cast<double>(2 * KvLayerBytes(kv.format, 1, kKvHeads, kHeadDim));
  Report(state, bytes / kPageSize * sequences * (context + rows),
         4.0 * sequences * keys * kHeads * kHeadDim, kv.arithmetic);
}

// The row-wise work of a layer with the shape of Qwen3-0.6B between its linears and attention, with
// the conversion of the linears' inputs (each linear itself is one panel). A prefill: consecutive
// slots.
void BenchBetweenLinears(benchmark::State& state, const Format& format) {
  constexpr int64_t kHidden = 1024, kHeads = 16, kKvHeads = 8, kHeadDim = 128, kFfn = 3072;
  constexpr int64_t kQkv = (kHeads + 2 * kKvHeads) * kHeadDim;
  const int64_t m = state.range(0), pages = (m + kPageSize - 1) / kPageSize;
  const CpuKernels& isa = *TheMachine().isa;
  const Cpu cpu = TheMachine().cpu();
  std::vector<float> hidden = RandomFloats(m * kHidden), residual = hidden, normed = hidden;
  std::vector<float> qkv = RandomFloats(m * kQkv), ffn = RandomFloats(m * 2 * kFfn);
  std::vector<float> active(m * kFfn), y(m * kFfn);
  const std::vector<float> weight = RandomFloats(kHidden), angles = RandomFloats(m * kHeadDim / 2);
  std::vector<int32_t> positions(m);
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<int64_t> slots(positions.begin(), positions.end());
  const AlignedBuffer k_pages(KvLayerBytes(KvFormat::kBFloat16, pages, kKvHeads, kHeadDim));
  const AlignedBuffer v_pages(KvLayerBytes(KvFormat::kBFloat16, pages, kKvHeads, kHeadDim));
  const KvPages kv{.format = KvFormat::kBFloat16,
                   .kv_heads = kKvHeads,
                   .head_dim = kHeadDim,
                   .num_pages = pages,
                   .k_pages = k_pages.data(),
                   .v_pages = v_pages.data()};
  const AlignedBuffer workspace(LinearWorkspaceBytes(m, kFfn));
  const auto narrow = [&](int64_t k) {  // few columns
    return std::pair(AlignedBuffer(PackedLinearBytes(isa, format.format, 16, k)), k);
  };
  const auto hidden_panel = narrow(kHidden), ffn_panel = narrow(kFfn);
  const auto linear = [&](const auto& panel, const std::vector<float>& x, int64_t ldx,
                          const RowStep& before) {
    Linear(cpu, MakePackedLinear(isa, format.format, 16, panel.second, panel.first.data()),
           {.x = x.data(),
            .ldx = ldx,
            .m = m,
            .y = y.data(),
            .ldy = kFfn,
            .workspace = workspace.data()},
           {&before, 1});
  };
  const auto head_norm = [&](float* x, int64_t heads) {
    return NormalizeArgs{.x = x,
                         .ldx = kQkv,
                         .y = x,
                         .ldy = kQkv,
                         .weight = weight.data(),
                         .m = m,
                         .groups = heads,
                         .dim = kHeadDim};
  };
  const NormalizeArgs join{.x = hidden.data(),
                           .ldx = kHidden,
                           .residual = residual.data(),
                           .ld_residual = kHidden,
                           .y = normed.data(),
                           .ldy = kHidden,
                           .weight = weight.data(),
                           .m = m,
                           .dim = kHidden};
  float* k = qkv.data() + kHeads * kHeadDim;
  const RowStep heads[] = {head_norm(qkv.data(), kHeads), head_norm(k, kKvHeads),
                           RopeArgs{.x = qkv.data(),
                                    .ld = kQkv,
                                    .m = m,
                                    .heads = kHeads + kKvHeads,
                                    .head_dim = kHeadDim,
                                    .rotary_dim = kHeadDim,
                                    .positions = positions.data(),
                                    .cos = angles.data(),
                                    .sin = angles.data()},
                           WriteKvStep{.kv = &kv,
                                       .rows = {.k = k,
                                                .ldk = kQkv,
                                                .v = k + kKvHeads * kHeadDim,
                                                .ldv = kQkv,
                                                .m = m,
                                                .slots = slots.data()}}};
  const ActivateArgs gate{
      .x = ffn.data(), .ldx = 2 * kFfn, .out = active.data(), .ldo = kFfn, .m = m, .ffn = kFfn};
  for (auto _ : state) {
    linear(hidden_panel, normed, kHidden, join);
    RunRows(cpu, heads);
    linear(hidden_panel, normed, kHidden, join);
    linear(ffn_panel, active, kFfn, gate);
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
  for (const Format& format : kFormats) {
    const std::string name = format.name;
    const auto add = [&](const char* what, int64_t n, int64_t k) {
      auto* bench = benchmark::RegisterBenchmark(
          ("linear_" + std::string(what) + "/" + name).c_str(),
          [&format, n, k](benchmark::State& state) { BenchLinear(state, format, n, k); });
      for (int64_t m : {1, 2, 4, 8, 16, 64, 512}) bench->Arg(m);
      Timing(bench);
    };
    add("cached_512x1024", 512, 1024);
    add("qkv_4096x1024", 4096, 1024);
    add("out_1024x2048", 1024, 2048);
    add("gate_up_6144x1024", 6144, 1024);
    add("down_1024x3072", 1024, 3072);
    auto* head = benchmark::RegisterBenchmark(
        ("linear_head_151936x1024/" + name).c_str(),
        [&format](benchmark::State& state) { BenchLinear(state, format, 151936, 1024); });
    head->Arg(1)->Arg(16)->Apply(Timing);
    benchmark::RegisterBenchmark(("pack/" + name).c_str(), [&format](benchmark::State& state) {
      BenchPack(state, format);
    })->Apply(Timing);
    auto* rows = benchmark::RegisterBenchmark(
        ("between_linears/" + name).c_str(),
        [&format](benchmark::State& state) { BenchBetweenLinears(state, format); });
    rows->Arg(1)->Arg(16)->Arg(64)->Arg(128)->Arg(256)->Arg(512)->Apply(Timing);
  }
  for (const KvCase& kv : kKvCases) {
    benchmark::RegisterBenchmark((std::string("write_kv/") + kv.name).c_str(),
                                 [&](benchmark::State& state) { BenchWriteKv(state, kv); })
        ->Arg(1)
        ->Arg(512)
        ->Apply(Timing);
    for (const AttentionShape& shape : kAttentionShapes) {
      benchmark::RegisterBenchmark(
          ("attention_" + std::string(shape.name) + "/" + kv.name).c_str(),
          [&](benchmark::State& state) { BenchAttention(state, kv, shape); })
          ->Apply(Timing);
    }
  }
  benchmark::RegisterBenchmark("empty_parallel_for", BenchEmptyLoop)->Apply(Timing);
}

}  // namespace
}  // namespace mlc_native::kernels

int main(int argc, char** argv) {
  using namespace mlc_native::kernels;
  benchmark::Initialize(&argc, argv);
  const Machine& machine = TheMachine();
  PrintLimits(machine);
  RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
