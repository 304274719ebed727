// cuda_micro [--tiny] FILE: measures on GPU 0 what decides how the kernels go on: the cost of an
// edge between two kernels of a graph, with and without dependent launches; of a barrier of all
// blocks; the bandwidth of reads with several loads in flight, from memory and from the level-2
// cache; whether cuBLASLt's bits depend on the number of rows; and from how many rows on it,
// BatchGemv and Gemm are faster than Gemv. Writes a JSON list to FILE; tools/gpu_decisions.py says
// what follows from each. With --tiny, also on the emulator.
#include "micro.h"

#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/runtime.h"
#include "models/cuda/cublas_lt.h"
#include "timing.h"

namespace mlc_native::kernels::cuda {
namespace {

const char* NameOf(LaunchOrder order) {
  return order == LaunchOrder::kDependent ? "dependent" : "one by one";
}

// Seconds per kernel of a graph of kernels that do nothing: the edge and an empty kernel.
void Edges(Bench& bench, int multiprocessors) {
  Buffer counter(4);
  const auto calls = static_cast<int>(bench.Size(400, 3));
  for (const int blocks : {1, multiprocessors}) {
    for (const LaunchOrder order : {LaunchOrder::kOneByOne, LaunchOrder::kDependent}) {
      const double seconds = bench.Seconds(calls, order, [&](int, Stream stream) {
        LaunchStep(counter.data<int32_t>(), blocks, stream);
      });
      bench.Add(
          {{"name", "edge"}, {"order", NameOf(order)}, {"blocks", blocks}, {"seconds", seconds}});
      std::printf("edge, %s, %d blocks: %.2f us\n", NameOf(order), blocks, seconds * 1e6);
    }
  }
}

// Seconds of a barrier: the difference of many and few in one kernel. The emulator runs one block
// after another, so that it has a barrier of one block.
void Barriers(Bench& bench, int multiprocessors, bool is_emulated) {
  const int blocks = is_emulated ? 1 : multiprocessors;
  const auto seconds = [&](int rounds) {
    Buffer counter(4);
    return bench.Seconds(1, LaunchOrder::kOneByOne, [&](int, Stream stream) {
      SetToZero(counter.data(), 4, stream);
      LaunchBarriers(counter.data<int32_t>(), blocks, rounds, stream);
    });
  };
  constexpr int kFew = 10;
  constexpr int kMany = 1010;
  const double each = (seconds(kMany) - seconds(kFew)) / (kMany - kFew);
  bench.Add({{"name", "grid barrier"}, {"blocks", blocks}, {"seconds", each}});
  std::printf("barrier of %d blocks: %.2f us\n", blocks, each * 1e6);
}

void Reads(Bench& bench) {
  Buffer out(NumReadBlocks() * static_cast<int64_t>(sizeof(int32_t)));
  const Buffer data(bench.Size(int64_t{4} << 30, 1 << 16));
  // A matrix of 0.6B, one of 8B, and what a large copy moves.
  for (const int64_t bytes : {int64_t{8} << 20, int64_t{128} << 20, int64_t{2} << 30}) {
    const int64_t size = bench.Size(bytes, 1 << 14);
    const auto calls = static_cast<int>(bench.Size((int64_t{4} << 30) / bytes, 2));
    for (const int loads : {1, 2, 4, 8}) {
      const double seconds = bench.Seconds(calls, LaunchOrder::kOneByOne, [&](int i, Stream s) {
        LaunchRead(data.data(i * size), size, 1, loads, out.data<int32_t>(), s);
      });
      bench.Add({{"name", "read"}, {"bytes", size}, {"loads", loads}, {"seconds", seconds}});
      std::printf("read of %lld MB, %d loads: %.0f GB/s\n", static_cast<long long>(bytes >> 20),
                  loads, static_cast<double>(size) / seconds * 1e-9);
    }
  }
}

// The bandwidth of the level-2 cache: what does not fit into a multiprocessor is read many times.
void CachedReads(Bench& bench) {
  Buffer out(NumReadBlocks() * static_cast<int64_t>(sizeof(int32_t)));
  const int64_t size = bench.Size(int64_t{16} << 20, 1 << 14);
  const Buffer data(size);
  const auto seconds = [&](int rounds) {
    return bench.Seconds(1, LaunchOrder::kOneByOne, [&](int, Stream stream) {
      LaunchRead(data.data(), size, rounds, 8, out.data<int32_t>(), stream);
    });
  };
  constexpr int kFew = 2;
  constexpr int kMany = 34;
  const double each = (seconds(kMany) - seconds(kFew)) / (kMany - kFew);
  bench.Add({{"name", "cached read"}, {"bytes", size}, {"seconds", each}});
  std::printf("cached read of %lld MB: %.0f GB/s\n", static_cast<long long>(size >> 20),
              static_cast<double>(size) / each * 1e-9);
}

// ---- Products ----

struct Shape {
  const char* name;
  int64_t n, k;
};
constexpr Shape kShapes[] = {{"qwen3-0.6b qkv", 4096, 1024},
                             {"qwen3-0.6b down", 1024, 3072},
                             {"llama-3.1-8b qkv", 6144, 4096},
                             {"llama-3.1-8b down", 4096, 14336}};

class Products {
 public:
  Products(Bench& bench, const Shape& shape)
      : bench_(bench),
        name_(shape.name),
        n_(bench.Size(shape.n, 64)),
        k_(bench.Size(shape.k, 128)),
        max_rows_(bench.Size(8192, 130)),
        copies_(bench.is_tiny() ? 1 : static_cast<int>((int64_t{256} << 20) / (n_ * k_ * 2) + 1)),
        weights_(copies_ * n_ * k_ * 2),
        x_(max_rows_ * k_ * 2),
        y_(max_rows_ * n_ * 2) {}

  // The first 33 rows are those of every m.
  void CompareBits() {
    constexpr int64_t kFew = 33;
    const auto row_bytes = static_cast<size_t>(n_) * 2;
    std::vector<std::byte> first;
    nlohmann::json rows = nlohmann::json::array();
    for (const int64_t m : {33, 48, 64, 96, 128, 192, 256, 512, 1000, 2048, 8192}) {
      if (m > max_rows_) continue;
      const OwnedStream stream;
      const bool was_done = cublas_.Multiply(Args(0, m), stream.get());
      stream.Synchronize();
      if (!was_done) {
        rows.push_back({{"m", m}, {"equal", nullptr}});
        continue;
      }
      const std::vector<std::byte> got = y_.Download(kFew * row_bytes);
      if (first.empty()) first = got;
      rows.push_back({{"m", m}, {"equal", got == first}});
    }
    bench_.Add({{"name", "cublaslt bits"}, {"shape", name_}, {"rows", rows}});
    std::printf("cublaslt bits, %s: %s\n", name_, rows.dump().c_str());
  }

  // Of all ways at each number of rows, also where a model takes only one of them.
  void CompareTimes() {
    for (const int64_t m : {4, 8, 16, 24, 32, 64, 128, 256}) {
      if (m > max_rows_) continue;
      const double gemv = bench_.Seconds(copies_, LaunchOrder::kDependent, [&](int i, Stream s) {
        GemvArgs args = Args(i, m);
        for (int64_t row = 0; row < m; row += kMaxGemvRows) {
          args.m = std::min(kMaxGemvRows, m - row);
          args.x = x_.data(row * k_ * 2);
          args.y = y_.data(row * n_ * 2);
          Gemv(args, s);
        }
      });
      const double gemm = bench_.Seconds(copies_, LaunchOrder::kDependent,
                                         [&](int i, Stream s) { Gemm(Args(i, m), s); });
      nlohmann::json result{
          {"name", "product"}, {"shape", name_}, {"m", m}, {"gemv_s", gemv}, {"gemm_s", gemm}};
      if (HasBatchGemv(Args(0, m))) {
        result["batch_gemv_s"] = bench_.Seconds(copies_, LaunchOrder::kDependent,
                                                [&](int i, Stream s) { BatchGemv(Args(i, m), s); });
      }
      if (HasWarpgroupGemm(Args(0, m))) {
        result["warpgroup_gemm_s"] =
            bench_.Seconds(copies_, LaunchOrder::kDependent,
                           [&](int i, Stream s) { WarpgroupGemm(Args(i, m), s); });
      }
      if (HasCublas(m)) {
        result["cublaslt_s"] =
            bench_.Seconds(copies_, LaunchOrder::kDependent,
                           [&](int i, Stream s) { cublas_.Multiply(Args(i, m), s); });
      }
      bench_.Add(result);
      std::printf("product, %s: %s\n", name_, result.dump().c_str());
    }
  }

 private:
  GemvArgs Args(int copy, int64_t m) const {
    return {.format = WeightFormat::kBFloat16,
            .weight = weights_.data(copy * n_ * k_ * 2),
            .n = n_,
            .k = k_,
            .x = x_.data(),
            .ldx = k_,
            .m = m,
            .y = y_.data(),
            .ldy = n_};
  }
  bool HasCublas(int64_t m) {
    const OwnedStream stream;
    const bool was_done = cublas_.Multiply(Args(0, m), stream.get());
    stream.Synchronize();
    return was_done;
  }

  Bench& bench_;
  const char* const name_;
  const int64_t n_, k_, max_rows_;
  const int copies_;
  const Buffer weights_, x_, y_;
  CublasLt cublas_{0};
};

void Measure(Bench& bench) {
  const DeviceInfo device = GetDeviceInfo(0);
  bench.Add({{"name", "device"}, {"text", device.name}, {"emulated", device.is_emulated}});
  Edges(bench, device.num_multiprocessors);
  Barriers(bench, device.num_multiprocessors, device.is_emulated);
  for (const Shape& shape : kShapes) Products(bench, shape).CompareBits();
  for (const Shape& shape : kShapes) Products(bench, shape).CompareTimes();
  Reads(bench);
  CachedReads(bench);
}

}  // namespace
}  // namespace mlc_native::kernels::cuda

int main(int argc, char** argv) {
  using namespace mlc_native::kernels::cuda;  // NOLINT: main has nothing else
  return RunBench(argc, argv, Measure);
}
