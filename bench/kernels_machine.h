// Parts that the kernel benchmarks share: thread pool and ISA, the measured limits of the machine,
// inputs, and counters that show a result as a share of those limits. One thread.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "machine_peaks.h"
#include "support/aligned_buffer.h"
#include "support/half.h"

namespace mlc_native::kernels {
struct Machine {
  std::unique_ptr<ThreadPool> pool;
  const CpuKernels* isa = nullptr;
  AlignedBuffer stream;  // read by MeasureReads
  double bytes_per_second = 0;
  double ops_per_second[std::size(kArithmeticNames)] = {};  // by Arithmetic; 2 per multiply-add

  Cpu cpu() const { return {isa, pool.get()}; }
  // Keeps the best peak: other programs can only make a measurement slower.
  void MeasurePeaks();
  // Measures the bandwidth again: on a shared machine it changes within seconds.
  void MeasureReads();
  double Peak(Arithmetic arithmetic) const {
    return ops_per_second[static_cast<size_t>(arithmetic)];
  }
};

inline double Now(const ThreadPool& pool) {
  if (pool.num_threads() == 1) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline AlignedBuffer RandomWeights(DType dtype, int64_t count) {
  AlignedBuffer buffer(count * DTypeSize(dtype));
  std::minstd_rand random(1);
  for (int64_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(random() % 2001) * 1e-3f - 1.0f;
    StoreElement(dtype, buffer.data(), i, value);
  }
  return buffer;
}

inline std::vector<float> RandomFloats(int64_t count) {
  std::minstd_rand random(2);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() % 2001) * 1e-3f - 1.0f;
  return values;
}

// One pass over the buffer, cache line by cache line with prefetch, as the kernels read weights.
// The fastest number of parallel streams differs between machines.
template <int kStreams>
void ReadAll(ThreadPool& pool, const AlignedBuffer& buffer) {
  constexpr int64_t kWords = 8, kPrefetch = 64 * kWords;  // of a line, and 64 lines ahead
  const auto* words = static_cast<const uint64_t*>(buffer.data());
  const auto num_lines = static_cast<int64_t>(buffer.size()) / (kWords * 8);
  pool.ParallelFor(num_lines, [words](int64_t begin, int64_t end, int) {
    const int64_t lines = (end - begin) / kStreams;
    uint64_t sum = 0;
    for (int64_t line = begin; line < begin + lines; ++line) {
      for (int stream = 0; stream < kStreams; ++stream) {
        const uint64_t* at = words + (line + stream * lines) * kWords;
        __builtin_prefetch(at + kPrefetch);
        sum += *at;
      }
    }
    benchmark::DoNotOptimize(sum);
  });
}

inline double MeasureBandwidth(ThreadPool& pool, const AlignedBuffer& buffer) {
  double best = 0;
  for (int pass = 0; pass < 12; ++pass) {
    const double start = Now(pool);
    if (pass % 3 == 0) ReadAll<1>(pool, buffer);
    if (pass % 3 == 1) ReadAll<2>(pool, buffer);
    if (pass % 3 == 2) ReadAll<4>(pool, buffer);
    best = std::max(best, static_cast<double>(buffer.size()) / (Now(pool) - start));
  }
  return best;
}

// The best of several passes of some milliseconds, on all threads.
inline double MeasurePeak(ThreadPool& pool, PeakLoop loop) {
  constexpr int64_t kIterations = 200000;
  double best = 0;
  for (int pass = 0; loop != nullptr && pass < 12; ++pass) {
    std::vector<int64_t> operations(pool.num_threads());
    const double start = Now(pool);
    pool.ParallelFor(pool.num_threads(), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) operations[i] = loop(kIterations) * kIterations;
    });
    const auto total = std::accumulate(operations.begin(), operations.end(), int64_t{0});
    best = std::max(best, static_cast<double>(total) / (Now(pool) - start));
  }
  return best;
}

inline void Machine::MeasureReads() { bytes_per_second = MeasureBandwidth(*pool, stream); }

inline void Machine::MeasurePeaks() {
  for (size_t i = 0; i < std::size(kArithmeticNames); ++i) {
    const PeakLoop loop = PeakLoopOf(IsaName(*isa), static_cast<Arithmetic>(i));
    ops_per_second[i] = std::max(ops_per_second[i], MeasurePeak(*pool, loop));
  }
}

inline Machine MeasureMachine() {
  const char* threads = std::getenv("MLC_NATIVE_BENCH_THREADS");
  Machine m;
  m.pool = std::make_unique<ThreadPool>(threads != nullptr ? std::atoi(threads) : 2);
  m.isa = &SelectCpuKernels();
  m.stream = AlignedBuffer(size_t{512} << 20);
  std::memset(m.stream.data(), 1, m.stream.size());
  m.MeasureReads();
  m.MeasurePeaks();
  return m;
}

inline Machine& TheMachine() {
  static Machine machine = MeasureMachine();
  return machine;
}

inline void PrintLimits(const Machine& machine) {
  std::printf("isa %s, %d threads: reads %.1f GB/s; ", std::string(IsaName(*machine.isa)).c_str(),
              machine.pool->num_threads(), machine.bytes_per_second / 1e9);
  for (size_t i = 0; i < std::size(kArithmeticNames); ++i) {
    std::printf("%s%s %.0f Gop/s", i > 0 ? ", " : "", kArithmeticNames[i],
                machine.ops_per_second[i] / 1e9);
  }
  std::printf("\n");
}

// `limit` is the share of max(bytes / bandwidth, operations / peak), 1.0 = reached.
inline void Report(benchmark::State& state, double bytes, double operations,
                   Arithmetic arithmetic) {
  const auto iterations = static_cast<double>(state.iterations());
  const auto rate = [&](double amount) {
    return benchmark::Counter(amount * iterations, benchmark::Counter::kIsRate);
  };
  const double memory_time = bytes / TheMachine().bytes_per_second;
  const double arithmetic_time = operations / TheMachine().Peak(arithmetic);
  state.counters["GB/s"] = rate(bytes / 1e9);
  state.counters["Gop/s"] = rate(operations / 1e9);
  state.counters["bandwidth"] = rate(memory_time);
  state.counters["peak"] = rate(arithmetic_time);
  state.counters["limit"] = rate(std::max(memory_time, arithmetic_time));
}

}  // namespace mlc_native::kernels
