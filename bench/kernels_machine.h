// What the kernel benchmarks share: thread pool and ISA, the machine's measured limits, inputs, and
// counters that show a result as a share of those limits. Included by kernels.cc only.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <random>
#include <vector>

#include "kernels/kernels.h"
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

}  // namespace
}  // namespace mlc_native::kernels
