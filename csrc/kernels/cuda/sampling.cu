// SampleTokens without a sort: from rows of logits to tokens in three launches.
//
// 1. ScanKernel (sampling_scan.cuh) applies bias, penalties and mask in place, and summarizes each
//    chunk.
// 2. CutKernel (sampling_cut.cuh), of rows with top-k or top-p, finds a narrow range of logits in
//    which the cut lies.
// 3. DrawKernel (sampling_draw.cuh) draws the token of each row.
//
// Weights are multiples of 2^-40 (the largest is 1), so that sums over threads in an unknown order
// are sums of integers, and a row's token is the same in every batch and run. Ties at a threshold
// go to the lowest ids, as on the CPU.
//
// Bytes: each launch reads the row once; the second and third one from L2 if it is there. If more
// than kMaxListed tokens lie in the range of the cut (equal logits, mostly), the last block
// searches the whole row by itself, which is slow.
#include "kernels/cuda/sampling_cut.cuh"
#include "kernels/cuda/sampling_draw.cuh"
#include "kernels/cuda/sampling_scan.cuh"

namespace mlc_native::kernels::cuda {
inline namespace sampling_cu {

// Block (x, y): every gridDim.x-th piece of row y.
__global__ void __launch_bounds__(kSampleThreads, 4)
    DrawKernel(const __grid_constant__ SampleKernelArgs args) {
  WaitForPrevious();
  auto* sums = static_cast<uint64_t*>(DynamicShared());
  auto* shared = reinterpret_cast<DrawShared*>(sums + (args.chunks + 1) / 2 * 2);
  Drawer(args, *shared, sums).Run();
}

int64_t NumChunks(int64_t vocab) { return (vocab + kChunk - 1) / kChunk; }

// Gives out parts of a workspace, which may be null to measure it.
class Parts {
 public:
  explicit Parts(void* workspace) : begin_(reinterpret_cast<uintptr_t>(workspace)) {}

  template <typename T>
  T* Take(int64_t count) {
    auto* part = reinterpret_cast<T*>(begin_ + bytes_);  // NOLINT(performance-no-int-to-ptr)
    bytes_ += (static_cast<size_t>(count) * sizeof(T) + 15) / 16 * 16;
    return part;
  }
  size_t bytes() const { return bytes_; }

 private:
  uintptr_t begin_;
  size_t bytes_ = 0;
};

SampleKernelArgs ArgsOf(const SampleArgs& a, Parts& parts) {
  const int64_t m = a.m;
  const int64_t chunks = NumChunks(a.vocab);
  const int64_t ld_raw = (a.vocab + 3) / 4 * 4;
  return {.a = a,
          .chunks = chunks,
          .pieces = (chunks + kSampleWarps - 1) / kSampleWarps,
          .ld_raw = ld_raw,
          .scans = parts.Take<Scan>(m * chunks),
          .raw_scans = parts.Take<RawScan>(m * chunks),
          .sums = parts.Take<uint64_t>(m * chunks),
          .bins = parts.Take<unsigned long long>(m * kCutBins),
          .states = parts.Take<RowState>(m),
          .listed_logits = parts.Take<float>(m * kMaxListed),
          .listed_ids = parts.Take<int32_t>(m * kMaxListed),
          .raw = parts.Take<float>(m * ld_raw)};
}

}  // namespace sampling_cu

size_t SampleWorkspaceBytes(int64_t m, int64_t vocab) {
  SampleArgs args;
  args.m = m;
  args.vocab = vocab;
  Parts parts(nullptr);
  ArgsOf(args, parts);
  return parts.bytes();
}

void SampleTokens(const SampleArgs& args, Stream stream) {
  MLC_CHECK(args.vocab > 0 && args.vocab <= args.ld) << args.vocab << " of " << args.ld;
  MLC_CHECK(args.ld % 4 == 0) << args.ld;
  if (args.m == 0) return;
  Parts parts(args.workspace);
  const SampleKernelArgs kernel_args = ArgsOf(args, parts);
  // Where there are many rows, as many blocks as run at once, each with many pieces.
  constexpr int64_t kBlocksOfMultiprocessor = 4;
  const int64_t blocks = kBlocksOfMultiprocessor * NumMultiprocessors() / args.m;
  const dim3 grid(static_cast<unsigned>(max(min(blocks, kernel_args.pieces), int64_t{1})),
                  static_cast<unsigned>(args.m));
  Launch(ScanKernel, {.grid = grid, .threads = kSampleThreads}, stream, kernel_args);
  Launch(CutKernel, {.grid = grid, .threads = kSampleThreads}, stream, kernel_args);
  const size_t sums_bytes = static_cast<size_t>(kernel_args.chunks + 1) / 2 * 2 * sizeof(uint64_t);
  Launch(DrawKernel,
         {.grid = grid, .threads = kSampleThreads, .shared_bytes = sums_bytes + sizeof(DrawShared)},
         stream, kernel_args);
}

}  // namespace mlc_native::kernels::cuda
