// BatchWorker: a block's part of a product with 9 to 128 rows, on tensor cores, with the bits of
// Gemv.
//
// Such a product is bound by the bandwidth of the weights, as long as the rows of x, which every
// block needs for its part of k, are not read too often. So a block owns many rows of the weight,
// 16 a warp, and a part of k: kSplits blocks, a cluster, share the eight chains in which Gemv adds
// (gemm_worker.cuh), kChains each. In the end the sums of all chains lie in the shared memory of
// the blocks, from which each block adds those of its rows of x in Gemv's order.
//
// Stages of k, of the weights and of x, go through a ring in shared memory, as in GemmWorker. (With
// weights in registers, steps ahead, a warp would wait for all its loads: they share a scoreboard.)
// A block's chains take turns, so that it reads kChains steps of a row that follow one another.
#pragma once

#include "kernels/cuda/gemv_formats.cuh"
#include "kernels/cuda/gemv_store.cuh"
#include "kernels/cuda/gemv_worker.cuh"

namespace mlc_native::kernels::cuda {

template <int kWarpsOfBlock, int kTilesOfX, int kSplitsOfK, int kStagesOfRing>
struct BatchShape {
  static constexpr int kWarps = kWarpsOfBlock;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kWeightRows = 16 * kWarps;
  static constexpr int kTiles = kTilesOfX;  // of 8 rows of x
  static constexpr int kXRows = 8 * kTiles;
  static constexpr int kSplits = kSplitsOfK;
  static constexpr int kChains = kGemvWarps / kSplits;
  static constexpr int kStages = kStagesOfRing;
};

// What tests replace in order to see that it matters.
struct BatchRules {
  // Until all but `kLeft` groups of copies of all threads are there, and all threads have computed
  // the stage before.
  template <int kLeft>
  __device__ static void AwaitStage() {
    WaitForCopies<kLeft>();
    __syncthreads();
  }
  // Until all blocks of the cluster have stored their sums, and until all have read them.
  template <int kBlocks>
  __device__ static void AwaitSums() {
    ClusterBarrier<kBlocks>();
  }
  template <int kBlocks>
  __device__ static void AwaitReaders() {
    ClusterBarrier<kBlocks>();
  }
};

template <typename Format, typename Shape, typename Rules = BatchRules>
class BatchWorker {
 public:
  using T = typename Format::Element;

  __device__ BatchWorker(const GemvArgs& args, int tile, int split, int first_x_row)
      : args_(args),
        shared_(static_cast<unsigned char*>(DynamicShared())),
        num_steps_((static_cast<int>(args.k) + kStep - 1) / kStep),
        has_pairs_(HasPairs(args)),
        split_(split),
        first_column_(tile * (has_pairs_ ? Shape::kWeightRows / 2 : Shape::kWeightRows)),
        first_x_row_(first_x_row),
        warp_(static_cast<int>(threadIdx.x) / kWarp),
        line_(static_cast<int>(threadIdx.x) % kWarp / kRowLanes),
        lane_(static_cast<int>(threadIdx.x) % kRowLanes),
        warp_row_(first_column_ + warp_ * (has_pairs_ ? 8 : 16)),
        half_rows_(has_pairs_ ? static_cast<int>(args.n) / 2 : 8) {}

  static constexpr size_t SharedBytes() {
    return kRingBytes > kOutputBytes ? kRingBytes : kOutputBytes;
  }

  __device__ void Run() {
    const int count = NumOwnSteps();
    // Not unrolled: code that a block runs once.
    const int num_first = min(kStages - 1, count);
#pragma unroll 1
    for (int i = 0; i < num_first; ++i) CopyWeights(StepAt(i), i);
    WaitForPrevious();
#pragma unroll 1
    for (int i = 0; i < num_first; ++i) {
      CopyX(StepAt(i), i);
      CommitCopies();
    }
#pragma unroll 1
    for (int i = num_first; i < kStages - 1; ++i) CommitCopies();
    int slot = 0;
    int free = kStages - 1;  // the slot that was computed before
    for (int first = 0; first < count; first += kChains) {
#pragma unroll
      for (int i = 0; i < kChains; ++i) {  // so that each has its chain's sums
        const int at = first + i;
        if (at < count) {
          Rules::template AwaitStage<kStages - 2>();
          if (at + kStages - 1 < count) {
            CopyWeights(StepAt(at + kStages - 1), free);
            CopyX(StepAt(at + kStages - 1), free);
          }
          CommitCopies();
          AddStep(slot, sums_[i]);
          free = slot;
          slot = slot + 1 < kStages ? slot + 1 : 0;
        }
      }
    }
    WaitForCopies<0>();
    Store();
  }

 private:
  static constexpr int kTiles = Shape::kTiles;
  static constexpr int kChains = Shape::kChains;
  static constexpr int kStages = Shape::kStages;
  static constexpr int kStep = static_cast<int>(kGemvStep);
  static constexpr bool kScaled = Format::kGroupBlocks > 0;
  static constexpr int kVectorBlocks = Format::kVectorBlocks;
  static constexpr int kGroupBlocks = kScaled ? Format::kGroupBlocks : 1;
  static constexpr int kTilesAtOnce = kTiles % 4 == 0 ? 4 : kTiles % 3 == 0 ? 3 : 2;
  static_assert(kTiles % kTilesAtOnce == 0);

  // A stage is a step. Chunks: of 16 bytes, of a row.
  static constexpr int kVectors = kBlocks / kVectorBlocks;  // of a lane
  static constexpr int kXChunks = kBlocks * kRowLanes;
  static constexpr int kCodeChunks = kVectors * kRowLanes;
  static constexpr int kXBytes = Shape::kXRows * kXChunks * 16;
  static constexpr int kCodeBytes = Shape::kWeightRows * kCodeChunks * 16;
  static constexpr int kStageBytes =
      kXBytes + kCodeBytes + Shape::kWeightRows * Format::kScaleBytes;
  static constexpr size_t kRingBytes = static_cast<size_t>(kStages) * kStageBytes;
  static constexpr int kLdOutput = Shape::kWeightRows + 4;  // lanes write to different banks
  static constexpr size_t kOutputBytes = sizeof(float) * kChains * Shape::kXRows * kLdOutput;

  // Chains c, c + 1, ... of the block take turns: its i-th step.
  __device__ int StepAt(int i) const {
    return i / kChains * kGemvWarps + split_ * kChains + i % kChains;
  }
  __device__ int NumOwnSteps() const {
    const int rest = num_steps_ % kGemvWarps - split_ * kChains;
    return num_steps_ / kGemvWarps * kChains + (rest < 0 ? 0 : rest < kChains ? rest : kChains);
  }

  // Rows of chunks; those of one column of two neighbours lie in different banks.
  template <int kChunks>
  __device__ static int Chunk(int row, int chunk) {
    const int permuted = kChunks % 8 == 0 ? chunk ^ (row % 2 * 4) : chunk;
    return (row * kChunks + permuted) * 16;
  }
  __device__ unsigned char* X(int slot) const { return shared_ + slot * kStageBytes; }
  // Of the warp's rows.
  __device__ unsigned char* Codes(int slot) const {
    return X(slot) + kXBytes + warp_ * (16 * kCodeChunks * 16);
  }
  __device__ unsigned char* Scales(int slot) const {
    return X(slot) + kXBytes + kCodeBytes + warp_ * (16 * Format::kScaleBytes);
  }

  // Zeros behind the last row and the last k.
  __device__ void CopyX(int step, int slot) const {
    constexpr int kLines = Shape::kThreads / kXChunks;  // at once
    static_assert(kLines % 2 == 0 && Shape::kXRows % kLines == 0);
    const int chunk = static_cast<int>(threadIdx.x) % kXChunks;
    const int line = static_cast<int>(threadIdx.x) / kXChunks;
    const int k = step * kStep + chunk * kVector;
    const T* x = static_cast<const T*>(args_.x);
    const T* from = x + (first_x_row_ + line) * args_.ldx + k;
    const int rows = k < args_.k ? static_cast<int>(args_.m) - first_x_row_ - line : 0;
    unsigned char* to = X(slot) + Chunk<kXChunks>(line, chunk);
#pragma unroll
    for (int i = 0; i < Shape::kXRows; i += kLines) {
      const bool valid = i < rows;
      CopyAsync16(to + i * kXChunks * 16, valid ? from : x, valid);
      from += kLines * args_.ldx;
    }
  }

  // The warp's own rows.
  __device__ void CopyWeights(int step, int slot) const {
    constexpr int kLines = kWarp / kCodeChunks;  // at once
    static_assert(8 % kLines == 0);
    const int in_warp = static_cast<int>(threadIdx.x) % kWarp;
    const int chunk = in_warp % kCodeChunks;
    const int line = in_warp / kCodeChunks;
    const int vector = chunk / kRowLanes;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_row_ + half * half_rows_ + line;
      const auto* from = static_cast<const unsigned char*>(
          Format::VectorAt(args_, row, step, vector, chunk % kRowLanes));
      const int rows = from == nullptr ? 0 : static_cast<int>(args_.n) - row;
#pragma unroll
      for (int i = 0; i < 8; i += kLines) {
        const bool valid = i < rows;
        CopyAsync16(Codes(slot) + Chunk<kCodeChunks>(8 * half + i + line, chunk),
                    valid ? from : args_.weight, valid);
        from += kLines * Format::RowBytes(args_);
      }
    }
    if constexpr (kScaled) {
      if (in_warp < 16) {
        const int row = warp_row_ + in_warp / 8 * half_rows_ + in_warp % 8;
        const bool valid = row < args_.n;
        CopyAsyncFew<Format::kScaleBytes>(Scales(slot) + in_warp * Format::kScaleBytes,
                                          Format::ScalesAt(args_, valid ? row : 0, step), valid);
      }
    }
  }

  // Where the lane's part of x begins, of a stage's even blocks and of its odd ones.
  struct XParts {
    const unsigned char* of[2];
  };

  __device__ static Pairs LoadX(const XParts& parts, int tile, int block) {
    static_assert(kXChunks % 8 == 0);
    return PairsOf(*reinterpret_cast<const uint4*>(
        parts.of[block % 2] + tile * (8 * kXChunks * 16) + block / 2 * (2 * kRowLanes * 16)));
  }

  __device__ void AddStep(int slot, float (&sums)[kTiles][4]) const {
    const XParts x{{X(slot) + Chunk<kXChunks>(line_, lane_),
                    X(slot) + Chunk<kXChunks>(line_, kRowLanes + lane_)}};
    typename Format::Step weights[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        weights[half].raw[i] = *reinterpret_cast<const uint4*>(
            Codes(slot) + Chunk<kCodeChunks>(8 * half + line_, i * kRowLanes + lane_));
      }
      if constexpr (kScaled) {
        weights[half].scales = *reinterpret_cast<const decltype(weights[half].scales)*>(
            Scales(slot) + (8 * half + line_) * Format::kScaleBytes);
      }
    }
#pragma unroll
    for (int group = 0; group < kBlocks / kGroupBlocks; ++group) {
      AddGroup(x, group, weights, sums);
    }
  }

  __device__ void AddGroup(const XParts& x_parts, int group,
                           const typename Format::Step (&weights)[2],
                           float (&sums)[kTiles][4]) const {
    Pairs low[kGroupBlocks];
    Pairs high[kGroupBlocks];
#pragma unroll
    for (int b = 0; b < kGroupBlocks; ++b) {
      low[b] = Format::Block(weights[0], group * kGroupBlocks + b);
      high[b] = Format::Block(weights[1], group * kGroupBlocks + b);
      if constexpr (!kScaled) {
        Pin(&low[b]);
        Pin(&high[b]);
      }
    }
#pragma unroll
    for (int first = 0; first < kTiles; first += kTilesAtOnce) {
      float parts[kTilesAtOnce][4] = {};
#pragma unroll
      for (int b = 0; b < kGroupBlocks; ++b) {
        Pairs x[kTilesAtOnce];
#pragma unroll
        for (int tile = 0; tile < kTilesAtOnce; ++tile) {
          x[tile] = LoadX(x_parts, first + tile, group * kGroupBlocks + b);
        }
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          const uint32_t a[4] = {low[b].pair[i], high[b].pair[i], low[b].pair[i + 1],
                                 high[b].pair[i + 1]};
#pragma unroll
          for (int tile = 0; tile < kTilesAtOnce; ++tile) {
            Mma<T>(kScaled ? parts[tile] : sums[first + tile], a, x[tile].pair[i],
                   x[tile].pair[i + 1]);
          }
        }
      }
      if constexpr (kScaled) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float scale = Format::Scale(weights[h], group);
#pragma unroll
          for (int tile = 0; tile < kTilesAtOnce; ++tile) {
            AddScaled(&sums[first + tile][2 * h], scale, parts[tile][2 * h]);
            AddScaled(&sums[first + tile][2 * h + 1], scale, parts[tile][2 * h + 1]);
          }
        }
      }
    }
  }

  __device__ void Pin(Pairs* pairs) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs->pair[i] |= zero_;
  }

  // The chains' sums through shared memory: [chain, row of x, row of the weight].
  __device__ void Store() const {
    auto* output = reinterpret_cast<float*>(shared_);
    __syncthreads();  // all warps have read the last stage
#pragma unroll
    for (int chain = 0; chain < kChains; ++chain) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = chain * Shape::kXRows + 8 * tile + 2 * lane_ + i % 2;
          output[row * kLdOutput + warp_ * 16 + line_ + 8 * (i / 2)] = sums_[chain][tile][i];
        }
      }
    }
    Rules::template AwaitSums<Shape::kSplits>();
    // Four columns a thread; a block of the cluster has every kSplits-th row of x.
    const int width = has_pairs_ ? Shape::kWeightRows / 2 : Shape::kWeightRows;
    const int columns = static_cast<int>(Columns(args_)) - first_column_;
    const int rows = min(Shape::kXRows, static_cast<int>(args_.m) - first_x_row_);
    for (int i = static_cast<int>(threadIdx.x);; i += Shape::kThreads) {
      const int row = i / (width / 4) * Shape::kSplits + split_;
      if (row >= rows) break;
      const int column = i % (width / 4) * 4;
      const int64_t y_row = first_x_row_ + row;
      const int in_tile = has_pairs_ ? column / 8 * 16 + column % 8 : column;
      float sums[4];
      float others[4] = {};
      SumChains(output, row, in_tile, sums);
      if (has_pairs_) SumChains(output, row, in_tile + 8, others);
      if (args_.activates) {
        StoreActivated<T>(args_, y_row, first_column_ + column, columns - column, sums, others);
      } else {
        StoreY<T>(args_, y_row, first_column_ + column, columns - column, sums);
      }
    }
    Rules::template AwaitReaders<Shape::kSplits>();
  }

  __device__ void SumChains(const float* output, int row, int column, float (&sums)[4]) const {
    float4 parts[kGemvWarps];
#pragma unroll
    for (int c = 0; c < kGemvWarps; ++c) {
      parts[c] = LoadOfCluster<Shape::kSplits>(
          output + ((c % kChains) * Shape::kXRows + row) * kLdOutput + column, c / kChains);
    }
#pragma unroll
    for (float& sum : sums) sum = 0.0f;
#pragma unroll
    for (int c = 0; c < kGemvWarps; ++c) {
      sums[0] += parts[c].x;
      sums[1] += parts[c].y;
      sums[2] += parts[c].z;
      sums[3] += parts[c].w;
    }
  }

  const GemvArgs& args_;
  unsigned char* const shared_;
  const int num_steps_;
  const bool has_pairs_;
  const int split_;         // of the block
  const int first_column_;  // of y
  const int first_x_row_;
  const int warp_;
  const int line_;       // row of the weight, and of x, within eight
  const int lane_;       // of a row
  const int warp_row_;   // the first of the warp's rows of the weight
  const int half_rows_;  // from there to the second eight of them
  // Zero, which the compiler does not know. What is or-ed with it is in registers of its own, where
  // the tensor cores want it, once for all rows; else it would be moved there for each product.
  const uint32_t zero_ = gridDim.z - 1;
  float sums_[kChains][kTiles][4] = {};
};

}  // namespace mlc_native::kernels::cuda
