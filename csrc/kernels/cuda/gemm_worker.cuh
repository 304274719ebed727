// GemmWorker: a block's part of a product with many rows, on tensor cores, with the bits of Gemv.
//
// A block owns a tile of weight rows and of rows of x. Stages of both, of 64 or 128 k, go through a
// ring in shared memory: a stage is computed while the next ones are on their way.
//
//   ring    | stage | stage | stage | stage |      a stage: x [rows, k], codes [weight rows, k],
//             ^ computed      ^ ... being copied            scales [weight rows]
//
// Every sum is Gemv's. There, warp w of a block adds the steps w, w + 8, ... of 128 k, and the sums
// of the eight warps are added in turn. Here, each warp walks through all of these chains, one
// behind the other: sums_ are those of the chain, and totals_ those of the chains before it. Within
// a chain the instructions are the same: the weights are the first operand, and k has the same
// place in it (gemv_formats.cuh). So a row has the same bits for any number of rows.
#pragma once

#include "kernels/cuda/gemv_worker.cuh"

namespace mlc_native::kernels::cuda {

// Warps along the rows of the weight and of x, and what each of them computes.
template <int kWarpsOfWeight, int kWarpsOfX, int kWeightTiles, int kXTiles>
struct GemmTile {
  static constexpr int kWeightWarps = kWarpsOfWeight;
  static constexpr int kTilesOfWeight = kWeightTiles;  // of 16 rows, of a warp
  static constexpr int kTilesOfX = kXTiles;            // of 8 rows, of a warp
  static constexpr int kWeightRows = kWarpsOfWeight * kWeightTiles * 16;
  static constexpr int kXRows = kWarpsOfX * kXTiles * 8;
  static constexpr int kWarps = kWarpsOfWeight * kWarpsOfX;
  static constexpr int kThreads = kWarps * kWarp;
  // Rows that are written to shared memory and read from it, for each k.
  static constexpr int kCost = kWeightRows + kXRows + kWarps * (kWeightTiles * 16 + kXTiles * 8);
};

// What tests replace in order to see that it matters.
struct GemmRules {
  // The step behind `step`: of the same chain, then the first one of the next. None: a number of at
  // least num_steps that is not kGemvWarps behind it, so that the last chain ends, too.
  __device__ static int NextStep(int step, int num_steps) {
    if (step + kGemvWarps < num_steps) return step + kGemvWarps;
    const int chain = step % kGemvWarps + 1;
    return chain < kGemvWarps ? chain : num_steps + kGemvWarps;
  }
  __device__ static bool IsNewChain(int step, int next) { return next != step + kGemvWarps; }
  // Until all but `kLeft` groups of copies of all threads are there, and all threads have computed
  // the stage before.
  template <int kLeft>
  __device__ static void AwaitStage() {
    WaitForCopies<kLeft>();
    __syncthreads();
  }
};

template <typename Format, typename Tile, typename Rules = GemmRules>
class GemmWorker {
 public:
  using T = typename Format::Element;

  __device__ GemmWorker(const GemvArgs& args, int first_weight_row, int first_x_row)
      : args_(args),
        shared_(static_cast<unsigned char*>(DynamicShared())),
        num_steps_((static_cast<int>(args.k) + kStep - 1) / kStep),
        first_weight_row_(first_weight_row),
        first_x_row_(first_x_row),
        line_(static_cast<int>(threadIdx.x) % kWarp / kRowLanes),
        lane_(static_cast<int>(threadIdx.x) % kRowLanes) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    warp_weight_row_ = warp % Tile::kWeightWarps * kTilesOfWeight * 16;
    warp_x_row_ = warp / Tile::kWeightWarps * kTilesOfX * 8;
  }

  static constexpr size_t SharedBytes() {
    return kRingBytes > kOutputBytes ? kRingBytes : kOutputBytes;
  }

  __device__ void Run() {
    Place copied = StartRing();
    Place at;
    int slot = 0;
    int free = kStages - 1;  // the slot that was computed before
    while (at.step < num_steps_) {
      Rules::template AwaitStage<kStages - 2>();
      if (copied.step < num_steps_) {
        CopyWeights(copied, free);
        CopyX(copied, free);
        copied = Next(copied);
      }
      CommitCopies();
      AddStage(slot, at.part);
      const Place next = Next(at);
      if (next.part == 0 && Rules::IsNewChain(at.step, next.step)) EndChain();
      at = next;
      free = slot;
      slot = slot + 1 < kStages ? slot + 1 : 0;
    }
    WaitForCopies<0>();
    Store();
  }

 private:
  static constexpr int kStep = static_cast<int>(kGemvStep);
  static constexpr bool kScaled = Format::kGroupBlocks > 0;
  static constexpr int kTilesOfWeight = Tile::kTilesOfWeight;
  static constexpr int kTilesOfX = Tile::kTilesOfX;
  static constexpr int kVectorBlocks = Format::kVectorBlocks;
  static constexpr int kStageBlocks = kVectorBlocks > 2 ? kVectorBlocks : 2;
  static constexpr int kStageVectors = kStageBlocks / kVectorBlocks;  // of a lane
  static constexpr int kParts = kBlocks / kStageBlocks;               // of a step
  static constexpr int kGroupBlocks = kScaled ? Format::kGroupBlocks : 1;
  static constexpr int kStageGroups = kStageBlocks / kGroupBlocks;
  // Scales and their sums take the registers that addresses would have.
  static constexpr int kUnrolledGroups = kScaled ? 1 : kStageGroups;
  static constexpr int kUnrolledCopies = kScaled ? 4 / kVectorBlocks : Tile::kXRows;

  // Of a stage: 16-byte chunks of a row, and bytes of all rows.
  static constexpr int kXChunks = kStageBlocks * kRowLanes;
  static constexpr int kCodeChunks = kStageVectors * kRowLanes;
  static constexpr int kXBytes = Tile::kXRows * kXChunks * 16;
  static constexpr int kCodeBytes = Tile::kWeightRows * kCodeChunks * 16;
  // A stage has the scales of its groups, or of the step where they are too few for a copy.
  static constexpr int kOwnScaleBytes = Format::kScaleBytes * kStageBlocks / kBlocks;
  static constexpr bool kHasOwnScales = kOwnScaleBytes >= 4;
  static constexpr int kRowScaleBytes = kHasOwnScales ? kOwnScaleBytes : Format::kScaleBytes;
  static constexpr int kStageBytes = kXBytes + kCodeBytes + Tile::kWeightRows * kRowScaleBytes;
  static constexpr int kMaxStages = 8;
  static constexpr int kFit = static_cast<int>(kMostSharedBytes) / kStageBytes;
  static constexpr int kStages = kFit < kMaxStages ? kFit : kMaxStages;
  static constexpr size_t kRingBytes = static_cast<size_t>(kStages) * kStageBytes;
  static constexpr int kLdOutput = Tile::kWeightRows + 4;  // lanes write to different banks
  static constexpr size_t kOutputBytes = sizeof(float) * Tile::kXRows * kLdOutput;
  static_assert(kStages >= 2);

  // A stage's place in the order of the sum.
  struct Place {
    int step = 0;
    int part = 0;
  };
  __device__ Place Next(const Place& place) const {
    if (place.part + 1 < kParts) return {place.step, place.part + 1};
    return {Rules::NextStep(place.step, num_steps_), 0};
  }

  // Rows of chunks; those of one column of two neighbours lie in different banks.
  template <int kChunks>
  __device__ static int Chunk(int row, int chunk) {
    const int permuted = kChunks % 8 == 0 ? chunk ^ (row % 2 * 4) : chunk;
    return (row * kChunks + permuted) * 16;
  }
  __device__ unsigned char* Codes(int slot) const { return shared_ + slot * kStageBytes + kXBytes; }
  __device__ unsigned char* Scales(int slot) const { return Codes(slot) + kCodeBytes; }

  // Copies all stages but one; returns the one. The weights do not wait for the kernel before.
  __device__ Place StartRing() {
    Place place;
    for (int slot = 0; slot < kStages - 1 && place.step < num_steps_; ++slot) {
      CopyWeights(place, slot);
      place = Next(place);
    }
    WaitForPrevious();
    place = {};
    for (int slot = 0; slot < kStages - 1; ++slot) {
      if (place.step < num_steps_) {
        CopyX(place, slot);
        place = Next(place);
      }
      CommitCopies();
    }
    return place;
  }

  // Zeros behind the last row and the last k.
  __device__ void CopyX(const Place& place, int slot) const {
    constexpr int kLines = Tile::kThreads / kXChunks;  // at once
    unsigned char* to = shared_ + slot * kStageBytes;
    const int chunk = static_cast<int>(threadIdx.x) % kXChunks;
    const int line = static_cast<int>(threadIdx.x) / kXChunks;
    const int k = place.step * kStep + place.part * kStageBlocks * kBlock + chunk * kVector;
    const T* x = static_cast<const T*>(args_.x);
    const T* from = x + (first_x_row_ + line) * args_.ldx + k;
    const int rows = k < args_.k ? static_cast<int>(args_.m) - first_x_row_ - line : 0;
#pragma unroll kUnrolledCopies
    for (int i = 0; i < Tile::kXRows; i += kLines) {
      const bool valid = i < rows;
      CopyAsync16(to + Chunk<kXChunks>(line + i, chunk), valid ? from : x, valid);
      from += kLines * args_.ldx;
    }
  }

  __device__ void CopyWeights(const Place& place, int slot) const {
    constexpr int kLines = Tile::kThreads / kCodeChunks;
    const int chunk = static_cast<int>(threadIdx.x) % kCodeChunks;
    const int line = static_cast<int>(threadIdx.x) / kCodeChunks;
    const int vector = place.part * kStageVectors + chunk / kRowLanes;
    const auto* from = static_cast<const unsigned char*>(
        Format::VectorAt(args_, first_weight_row_ + line, place.step, vector, chunk % kRowLanes));
    const int rows = from == nullptr ? 0 : static_cast<int>(args_.n) - first_weight_row_ - line;
    if (kLines <= Tile::kWeightRows || line < Tile::kWeightRows) {
#pragma unroll kUnrolledCopies
      for (int i = 0; i < Tile::kWeightRows; i += kLines) {
        const bool valid = i < rows;
        CopyAsync16(Codes(slot) + Chunk<kCodeChunks>(line + i, chunk), valid ? from : args_.weight,
                    valid);
        from += kLines * Format::RowBytes(args_);
      }
    }
    if constexpr (kScaled) {
      const int row = static_cast<int>(threadIdx.x);
      static_assert(Tile::kThreads >= Tile::kWeightRows);
      if (row < Tile::kWeightRows) {
        const bool valid = first_weight_row_ + row < args_.n;
        const auto* scales = static_cast<const unsigned char*>(
            Format::ScalesAt(args_, first_weight_row_ + (valid ? row : 0), place.step));
        CopyAsyncFew<kRowScaleBytes>(Scales(slot) + row * kRowScaleBytes,
                                     scales + (kHasOwnScales ? place.part * kOwnScaleBytes : 0),
                                     valid);
      }
    }
  }

  // The codes of a stage, of the lane's weight rows: 16 a tile, line_ and 8 further.
  struct Weights {
    typename Format::Step rows[kTilesOfWeight][2];
  };
  __device__ void LoadWeights(int slot, Weights* weights) const {
#pragma unroll
    for (int tile = 0; tile < kTilesOfWeight; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = warp_weight_row_ + 16 * tile + 8 * half + line_;
        typename Format::Step& step = weights->rows[tile][half];
#pragma unroll
        for (int i = 0; i < kStageVectors; ++i) {
          step.raw[i] = *reinterpret_cast<const uint4*>(
              Codes(slot) + Chunk<kCodeChunks>(row, i * kRowLanes + lane_));
        }
      }
    }
  }

  __device__ Pairs Block(int slot, const Weights& weights, int tile, int half, int block) const {
    const typename Format::Step& step = weights.rows[tile][half];
    if constexpr (Format::kBlockReadsScales) {
      static_assert(kParts == 1 && kGroupBlocks == 1);
      return Format::BlockWith(step, block, ScaleBits(slot, tile, half)[block]);
    } else {
      return Format::Block(step, block);
    }
  }

  // Those of a stage, of one of the lane's weight rows.
  __device__ const auto* ScaleBits(int slot, int tile, int half) const {
    const int row = warp_weight_row_ + 16 * tile + 8 * half + line_;
    return reinterpret_cast<const typename Format::ScaleBits*>(Scales(slot) + row * kRowScaleBytes);
  }

  // Of a group of a stage, and of the lane's weight rows; `index`: among the scales of the stage.
  struct GroupScales {
    float of[kTilesOfWeight][2];
  };
  __device__ GroupScales LoadScales(int slot, int index) const {
    GroupScales scales;
#pragma unroll
    for (int tile = 0; tile < kTilesOfWeight; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        scales.of[tile][half] = Format::ScaleOf(ScaleBits(slot, tile, half)[index]);
      }
    }
    return scales;
  }

  __device__ Pairs LoadX(int slot, int tile, int block) const {
    const int row = warp_x_row_ + 8 * tile + line_;
    return PairsOf(*reinterpret_cast<const uint4*>(
        shared_ + slot * kStageBytes + Chunk<kXChunks>(row, block * kRowLanes + lane_)));
  }

  __device__ void AddStage(int slot, int part) {
    Weights weights;
    LoadWeights(slot, &weights);
#pragma unroll kUnrolledGroups
    for (int group = 0; group < kStageGroups; ++group) {
      Pairs w[kTilesOfWeight][2][kGroupBlocks];
#pragma unroll
      for (int tile = 0; tile < kTilesOfWeight; ++tile) {
#pragma unroll
        for (int b = 0; b < kGroupBlocks; ++b) {
          const int block = (group * kGroupBlocks + b) % kStageBlocks;  // which is known to be less
          w[tile][0][b] = Block(slot, weights, tile, 0, block);
          w[tile][1][b] = Block(slot, weights, tile, 1, block);
          if constexpr (!kScaled) {
            Pin(&w[tile][0][b]);
            Pin(&w[tile][1][b]);
          }
        }
      }
      if constexpr (kScaled) {
        const GroupScales scales =
            LoadScales(slot, kHasOwnScales ? group : part * kStageGroups + group);
#pragma unroll
        for (int tile = 0; tile < kTilesOfX; ++tile) {
          float sums[kTilesOfWeight][4] = {};
          AddGroup(slot, group, tile, w, sums);
#pragma unroll
          for (int i = 0; i < 4 * kTilesOfWeight; ++i) {
            AddScaled(&sums_[tile][i / 4][i % 4], scales.of[i / 4][i % 4 / 2], sums[i / 4][i % 4]);
          }
        }
      } else {
#pragma unroll
        for (int tile = 0; tile < kTilesOfX; ++tile) AddGroup(slot, group, tile, w, sums_[tile]);
      }
    }
  }

  __device__ void Pin(Pairs* w) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) w->pair[i] |= zero_;
  }

  // As GemvWorker::AddBlock, for eight rows of x.
  __device__ void AddGroup(int slot, int group, int x_tile,
                           const Pairs (&w)[kTilesOfWeight][2][kGroupBlocks],
                           float (&sums)[kTilesOfWeight][4]) const {
#pragma unroll
    for (int b = 0; b < kGroupBlocks; ++b) {
      const Pairs x = LoadX(slot, x_tile, group * kGroupBlocks + b);
#pragma unroll
      for (int tile = 0; tile < kTilesOfWeight; ++tile) {
        const Pairs& low = w[tile][0][b];
        const Pairs& high = w[tile][1][b];
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          const uint32_t a[4] = {low.pair[i], high.pair[i], low.pair[i + 1], high.pair[i + 1]};
          Mma<T>(sums[tile], a, x.pair[i], x.pair[i + 1]);
        }
      }
    }
  }

  __device__ void EndChain() {
#pragma unroll
    for (int tile = 0; tile < kTilesOfWeight; ++tile) {
#pragma unroll
      for (int x_tile = 0; x_tile < kTilesOfX; ++x_tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          totals_[x_tile][tile][i] += sums_[x_tile][tile][i];
          sums_[x_tile][tile][i] = 0.0f;
        }
      }
    }
  }

  // Through shared memory, so that neighbouring threads store neighbouring columns.
  __device__ void Store() const {
    auto* output = reinterpret_cast<float*>(shared_);
    __syncthreads();  // all warps have read the last stage
#pragma unroll
    for (int tile = 0; tile < kTilesOfWeight; ++tile) {
#pragma unroll
      for (int x_tile = 0; x_tile < kTilesOfX; ++x_tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = warp_x_row_ + 8 * x_tile + 2 * lane_ + i % 2;
          const int column = warp_weight_row_ + 16 * tile + line_ + 8 * (i / 2);
          output[row * kLdOutput + column] = totals_[x_tile][tile][i];
        }
      }
    }
    __syncthreads();
    const int column = static_cast<int>(threadIdx.x) % Tile::kWeightRows;
    if (first_weight_row_ + column >= args_.n) return;
    for (int row = static_cast<int>(threadIdx.x) / Tile::kWeightRows;
         row < Tile::kXRows && first_x_row_ + row < args_.m;
         row += Tile::kThreads / Tile::kWeightRows) {
      StoreY<T>(args_, first_x_row_ + row, first_weight_row_ + column,
                output[row * kLdOutput + column]);
    }
  }

  const GemvArgs& args_;
  unsigned char* const shared_;
  const int num_steps_;
  const int first_weight_row_;  // of the block
  const int first_x_row_;
  const int line_;       // row of the weight, and of x, within eight
  const int lane_;       // of a row
  int warp_weight_row_;  // of the warp, within the block's
  int warp_x_row_;
  // Zero, which the compiler does not know. What is or-ed with it is in registers of its own, where
  // the tensor cores want it, once for all rows; else it would be moved there for each product.
  const uint32_t zero_ = gridDim.z - 1;
  float sums_[kTilesOfX][kTilesOfWeight][4] = {};  // of this chain
  float totals_[kTilesOfX][kTilesOfWeight][4] = {};
};

}  // namespace mlc_native::kernels::cuda
