// What the benchmarks of CUDA kernels share: device memory with inputs, and the time of graphs of
// calls. Only runtime.h is used, so that they also run on the emulator of the tests, where times
// mean nothing. Of device 0. One thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "kernels/cuda/runtime.h"
#include "support/half.h"

namespace mlc_native::kernels::cuda {

// Device memory filled with random bfloat16 in [-1, 1], which are finite in every type used here.
class Buffer {
 public:
  explicit Buffer(int64_t bytes) : memory_(static_cast<size_t>(std::max<int64_t>(bytes, 16))) {
    const std::vector<uint16_t> noise =
        Noise(std::min<int64_t>(static_cast<int64_t>(memory_.size()) / 2, 8 << 20));
    const size_t piece = noise.size() * sizeof(uint16_t);
    for (size_t at = 0; at < memory_.size(); at += piece) {
      CopyToDevice(memory_.data() + at, noise.data(), std::min(piece, memory_.size() - at),
                   nullptr);
    }
    Wait();
  }
  template <typename T>
  explicit Buffer(const std::vector<T>& items)
      : Buffer(static_cast<int64_t>(items.size() * sizeof(T))) {
    CopyToDevice(memory_.data(), items.data(), items.size() * sizeof(T), nullptr);
    Wait();
  }

  template <typename T = void>
  T* data(int64_t byte_offset = 0) const {
    return reinterpret_cast<T*>(memory_.data() + byte_offset);
  }
  void Clear(size_t bytes) {
    SetToZero(memory_.data(), bytes, nullptr);
    Wait();
  }
  std::vector<std::byte> Download(size_t bytes) const {
    std::vector<std::byte> out(bytes);
    CopyToHost(out.data(), memory_.data(), bytes, nullptr);
    return out;
  }

 private:
  static std::vector<uint16_t> Noise(int64_t size) {
    std::minstd_rand random(1);
    std::vector<uint16_t> noise(static_cast<size_t>(size));
    for (uint16_t& value : noise) {
      value = FloatToBFloat16(static_cast<float>(random() % 2001) / 1000.0f - 1);
    }
    return noise;
  }
  // Copies of memory that is not pinned return before they have arrived.
  static void Wait() {
    Event copied;
    copied.Record(nullptr);
    copied.Synchronize();
  }

  DeviceMemory memory_;
};

struct Cost {
  double bytes = 0;
  double operations = 0;
};

// Results go to a file as soon as they are measured: what a process that runs out of time has
// measured stays.
class Bench {
 public:
  // `tiny`: one replay, and the caller takes small shapes. `only`: what names of kernels must have
  // in them.
  Bench(std::string file, bool tiny, std::string only)
      : file_(std::move(file)), is_tiny_(tiny), only_(std::move(only)) {
    Write();
  }

  bool is_tiny() const { return is_tiny_; }
  // Whether kernels with `part` in their names may be wanted.
  bool MayWant(const std::string& part) const {
    return only_.find(part) != std::string::npos || part.find(only_) != std::string::npos;
  }
  int64_t Size(int64_t size, int64_t tiny) const { return is_tiny_ ? tiny : size; }

  // Times a graph of `calls` calls, call(i, stream) each, so that the launch time of the host does
  // not count; those of a graph use different buffers where the cache shall not hit more often than
  // in a model. The seconds are per call: the median over rounds of replays of a millisecond and
  // more.
  double Seconds(int calls, LaunchOrder order, const std::function<void(int, Stream)>& call) {
    const OwnedStream stream(order);
    call(0, stream.get());  // modules are loaded, and algorithms looked up, outside of the capture
    stream.Synchronize();
    const Graph graph = Graph::Capture(stream.get(), [&] {
      for (int i = 0; i < calls; ++i) call(i, stream.get());
    });
    const auto replay = [&](int times) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < times; ++i) graph.Launch(stream.get());
      stream.Synchronize();
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    const double first = replay(1);
    if (is_tiny_) return first / calls;
    constexpr double kRound = 5e-3;
    constexpr int kRounds = 9;
    const int times = std::clamp(static_cast<int>(kRound / replay(2) * 2), 1, 1000);
    std::vector<double> rounds;
    for (int i = 0; i < kRounds; ++i) rounds.push_back(replay(times) / times / calls);
    std::ranges::nth_element(rounds, rounds.begin() + kRounds / 2);
    return rounds[kRounds / 2];
  }

  // As in a model.
  void Run(const std::string& name, const Cost& cost, int calls,
           const std::function<void(int, Stream)>& call) {
    if (name.find(only_) == std::string::npos) return;
    const double seconds = Seconds(is_tiny_ ? 2 : calls, LaunchOrder::kDependent, call);
    Add({{"name", name},
         {"seconds", seconds},
         {"bytes", cost.bytes},
         {"operations", cost.operations}});
    std::printf("%-44s %10.1f us %8.0f GB/s %8.1f TFLOP/s\n", name.c_str(), seconds * 1e6,
                cost.bytes / seconds * 1e-9, cost.operations / seconds * 1e-12);
    std::fflush(stdout);
  }

  void Add(nlohmann::json result) {
    results_.push_back(std::move(result));
    Write();
  }

 private:
  void Write() const { std::ofstream(file_) << results_.dump(1) << '\n'; }

  const std::string file_;
  const bool is_tiny_;
  const std::string only_;
  nlohmann::json results_ = nlohmann::json::array();
};

// main() of a benchmark: NAME [--tiny] [--only TEXT] FILE.
inline int RunBench(int argc, char** argv, const std::function<void(Bench&)>& run) {
  std::vector<std::string> args(argv + 1, argv + argc);
  const std::string usage = std::string("usage: ") + argv[0] + " [--tiny] [--only TEXT] FILE\n";
  if (!args.empty() && args[0] == "--help") {
    std::fputs(usage.c_str(), stdout);
    return 0;
  }
  const bool tiny = !args.empty() && args[0] == "--tiny";
  if (tiny) args.erase(args.begin());
  std::string only;
  if (args.size() == 3 && args[0] == "--only") {
    only = args[1];
    args.erase(args.begin(), args.begin() + 2);
  }
  if (args.size() != 1 || args[0].starts_with("--")) {
    std::fputs(usage.c_str(), stderr);
    return 2;
  }
  try {
    UseDevice(0);
    Bench bench(args[0], tiny, only);
    run(bench);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace mlc_native::kernels::cuda
