// WarpgroupWorker: a block's part of a product with many rows, on Hopper's products of warpgroups,
// with the bits of Gemv.
//
// A block owns 64 rows of the weight for each of its warpgroups but one, and kXRows rows of x. As
// in GemmWorker, stages of 64 k of both go through a ring in shared memory, and sums are added
// chain by chain. What differs is who reads x: the tensor cores themselves, once for 64 rows of the
// weight. The last warpgroup copies; the others load the weights of the next stage to registers
// while one is computed.
//
//   ring    | stage | stage | stage | stage | stage |
//             ^ done  ^ computed  ^ weights in registers  ^ ... being copied
//
// A product of Gemv takes 16 k: of a block of 32 k the first four of each eight, or the others. In
// what order it adds them does not matter to the tensor cores, so here they are neighbours: 16
// bytes of a row of x are the four k of two lanes of Gemv (XAt).
#pragma once

#include "kernels/cuda/gemm_worker.cuh"
#include "kernels/cuda/warpgroup.cuh"

namespace mlc_native::kernels::cuda {

template <int kWarpgroupsThatMultiply, int kTilesOfX, int kStagesOfRing>
struct WarpgroupShape {
  static constexpr int kWarpgroups = kWarpgroupsThatMultiply;
  static constexpr int kThreads = (kWarpgroups + 1) * kWarpgroup;
  static constexpr int kWeightRows = 64 * kWarpgroups;
  static constexpr int kTiles = kTilesOfX;  // of 8 rows of x
  static constexpr int kXRows = 8 * kTiles;
  static constexpr int kStages = kStagesOfRing;
};

// What tests replace in order to see that it matters.
struct WarpgroupRules : GemmRules {
  // Of those that copy: until all but `kLeft` groups of their copies are there.
  template <int kLeft>
  __device__ static void AwaitCopies() {
    WaitForCopies<kLeft>();
    PublishToMma();
  }
  // Until the copies of the next stage have been awaited, and the stage before the last one has
  // been computed.
  __device__ static void AwaitStage() { __syncthreads(); }
};

template <typename T, typename Shape, typename Rules = WarpgroupRules>
class WarpgroupWorker {
 public:
  __device__ WarpgroupWorker(const GemvArgs& args, int first_weight_row, int first_x_row)
      : args_(args),
        shared_(static_cast<unsigned char*>(DynamicShared())),
        k_(static_cast<int>(args.k)),
        num_steps_((k_ + kStep - 1) / kStep),
        first_weight_row_(first_weight_row),
        first_x_row_(first_x_row),
        warp_(static_cast<int>(threadIdx.x) / kWarp),
        line_(static_cast<int>(threadIdx.x) % kWarp / kRowLanes),
        lane_(static_cast<int>(threadIdx.x) % kRowLanes),
        columns_(shared_, kColumn) {}

  static constexpr size_t SharedBytes() {
    return kRingBytes > kOutputBytes ? kRingBytes : kOutputBytes;
  }

  __device__ void Run() {
    if (warp_ >= 4 * Shape::kWarpgroups) {
      if constexpr (kSharesRegisters) GiveRegistersAway<56>();
      Copier(*this).Run();
    } else {
      if constexpr (kSharesRegisters) TakeRegisters<224>();
      Multiply();
    }
    __syncthreads();
    StoreRows();
  }

 private:
  static constexpr int kStep = static_cast<int>(kGemvStep);
  static constexpr int kStageBlocks = 2;
  static constexpr int kStageK = kStageBlocks * kBlock;
  static constexpr int kParts = kBlocks / kStageBlocks;  // stages of a step
  static constexpr int kTiles = Shape::kTiles;
  static constexpr int kStages = Shape::kStages;
  static_assert(kStages >= 4);
  // Whether those that multiply need more registers than a launch can give to all threads.
  static constexpr bool kSharesRegisters = kTiles == 16;
  // Of a row of a stage: 16-byte chunks of a weight, and the pieces of four k of x.
  static constexpr int kChunks = kStageK / kVector;
  static constexpr int kRowBytes = kChunks * 16;
  static constexpr int kPiece = 4;
  static constexpr int kPieces = kStageK / kPiece;
  static constexpr int kColumn = Shape::kXRows * 16 + 16;  // lanes write to different banks
  static constexpr int kXBytes = kChunks * kColumn;        // as many columns as chunks
  static constexpr int kStageBytes = kXBytes + Shape::kWeightRows * kRowBytes;
  static constexpr size_t kRingBytes = static_cast<size_t>(kStages) * kStageBytes;
  static constexpr int kLdOutput = Shape::kWeightRows + 4;
  static constexpr size_t kOutputBytes = sizeof(float) * Shape::kXRows * kLdOutput;

  struct Place {
    int step = 0;
    int part = 0;
  };
  __device__ Place Next(const Place& place) const {
    if (place.part + 1 < kParts) return {place.step, place.part + 1};
    return {Rules::NextStep(place.step, num_steps_), 0};
  }

  __device__ unsigned char* X(int slot) const { return shared_ + slot * kStageBytes; }
  __device__ unsigned char* Codes(int slot) const { return X(slot) + kXBytes; }
  // Rows of chunks; those of one column of eight neighbours lie in different banks.
  __device__ static int Chunk(int row, int chunk) {
    return row * kRowBytes + (chunk ^ row % 8) * 16;
  }

  // What the last warpgroup does.
  class Copier {
   public:
    __device__ explicit Copier(const WarpgroupWorker& worker)
        : worker_(worker),
          thread_(static_cast<int>(threadIdx.x) % kWarpgroup),
          x_(static_cast<const unsigned char*>(worker.args_.x) +
             worker.first_x_row_ * (worker.args_.ldx * static_cast<int64_t>(sizeof(T)))),
          weights_(static_cast<const unsigned char*>(worker.args_.weight) +
                   worker.first_weight_row_ * (worker.args_.k * static_cast<int64_t>(sizeof(T)))) {
      // Behind the last row there is the last one: what it adds is not stored.
      const GemvArgs& args = worker.args_;
#pragma unroll
      for (int i = 0; i < kXCopies; ++i) {
        const int row = min(thread_ / kPieces + i * kXLines,
                            static_cast<int>(args.m) - 1 - worker.first_x_row_);
        x_from_[i] = static_cast<uint32_t>(row * args.ldx * sizeof(T));
      }
#pragma unroll
      for (int i = 0; i < kWeightCopies; ++i) {
        const int row = min(thread_ / kChunks + i * kWeightLines,
                            static_cast<int>(args.n) - 1 - worker.first_weight_row_);
        weights_from_[i] = static_cast<uint32_t>(row * args.k * sizeof(T));
      }
    }

    __device__ void Run() {
      const int num_steps = worker_.num_steps_;
      Place place;
      for (int slot = 0; slot < kStages - 2; ++slot) {
        if (place.step < num_steps) {
          CopyWeights(place, slot);
          place = worker_.Next(place);
        }
      }
      WaitForPrevious();
      place = {};
      for (int slot = 0; slot < kStages - 2; ++slot) {
        if (place.step < num_steps) {
          CopyX(place, slot);
          place = worker_.Next(place);
        }
        CommitCopies();
      }
      Rules::template AwaitCopies<kStages - 3>();
      Rules::AwaitStage();
      int slot = kStages - 2;  // that was computed two stages before
      for (int stage = 0; stage < kParts * num_steps; ++stage) {
        Rules::template AwaitCopies<kStages - 4>();
        Rules::AwaitStage();
        if (place.step < num_steps) {
          CopyWeights(place, slot);
          CopyX(place, slot);
          place = worker_.Next(place);
        }
        CommitCopies();
        slot = slot + 1 < kStages ? slot + 1 : 0;
      }
      WaitForCopies<0>();
      __syncthreads();
    }

   private:
    static constexpr int kWeightLines = kWarpgroup / kChunks;  // at once
    static constexpr int kWeightCopies = Shape::kWeightRows / kWeightLines;
    static constexpr int kXLines = kWarpgroup / kPieces;
    static constexpr int kXCopies = Shape::kXRows / kXLines;
    static_assert(kWeightLines % 8 == 0 && Shape::kXRows % kXLines == 0);

    // Behind the last k there is the last one, which is multiplied by an x of zero.
    __device__ void CopyWeights(const Place& place, int slot) const {
      const int chunk = thread_ % kChunks;
      const int k = place.step * kStep + place.part * kStageK + chunk * kVector;
      const uint32_t at = static_cast<uint32_t>(min(k, worker_.k_ - kVector)) * sizeof(T);
      unsigned char* to = worker_.Codes(slot) + Chunk(thread_ / kChunks, chunk);
#pragma unroll
      for (int i = 0; i < kWeightCopies; ++i) {
        CopyAsync16(to + i * (kWeightLines * kRowBytes), weights_ + (weights_from_[i] + at), true);
      }
    }

    // Zeros behind the last k.
    __device__ void CopyX(const Place& place, int slot) const {
      const int piece = thread_ % kPieces;
      const int k = place.step * kStep + place.part * kStageK + piece * kPiece;
      const bool valid = k < worker_.k_;
      const uint32_t at = static_cast<uint32_t>(valid ? k : 0) * sizeof(T);
      unsigned char* to = worker_.X(slot) + XAt(thread_ / kPieces, piece);
#pragma unroll
      for (int i = 0; i < kXCopies; ++i) {
        CopyAsyncFew<8>(to + i * (kXLines * 16), x_ + (x_from_[i] + at), valid);
      }
    }

    const WarpgroupWorker& worker_;
    const int thread_;
    const unsigned char* const x_;        // the block's first row
    const unsigned char* const weights_;  // likewise
    uint32_t x_from_[kXCopies];           // bytes from there
    uint32_t weights_from_[kWeightCopies];
  };

  // Where a piece of a row lies: pieces 0, 2, 4, 6 of a block are for its first product.
  __device__ static int XAt(int row, int piece) {
    const int in_block = piece % 8;
    const int column = piece / 8 * 4 + in_block % 2 * 2 + in_block / 4;
    return column * kColumn + row * 16 + in_block / 2 % 2 * 8;
  }

  // What the other warpgroups do.
  __device__ void Multiply() {
    WaitForPrevious();
    Rules::AwaitStage();
    LoadWeights(0, 0);
    static_assert(kParts == 2);
    int slot = 0;
    for (int step = 0; step < num_steps_;) {
      // A loop of its own for the steps of a chain: where a path with products in flight meets one
      // without, ptxas would wait for all of them.
      for (bool adds = false;; adds = true) {
        Rules::AwaitStage();
        Start(slot, 0, adds);
        slot = slot + 1 < kStages ? slot + 1 : 0;
        WaitForMma<1>();
        LoadWeights(slot, 1);
        Rules::AwaitStage();
        Start(slot, 1, true);
        slot = slot + 1 < kStages ? slot + 1 : 0;
        const int next = Rules::NextStep(step, num_steps_);
        const bool ends = Rules::IsNewChain(step, next);
        step = next;
        if (ends) break;
        WaitForMma<1>();
        LoadWeights(slot, 0);
      }
      WaitForMma<0>(sums_);
      EndChain();
      LoadWeights(slot, 0);
    }
    __syncthreads();  // all have computed the last stage
    StoreSums();
  }

  // Rows line_ and line_ + 8 of the warp's: the k that the tensor cores want of a lane.
  __device__ void LoadWeights(int slot, int part) {
    const unsigned char* codes = Codes(slot) + warp_ * (16 * kRowBytes);
#pragma unroll
    for (int b = 0; b < kStageBlocks; ++b) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int chunk = b * kRowLanes + i / 2 * 2 + lane_ / 2;
          operands_[part][b][j][i] = *reinterpret_cast<const uint32_t*>(
              codes + Chunk(i % 2 * 8 + line_, chunk) + j * 8 + lane_ % 2 * 4);
        }
      }
    }
  }

  // Starts the products of a stage.
  __device__ void Start(int slot, int part, bool adds) {
    const MmaColumns x = columns_.Behind(slot * kStageBytes);
    FenceMma();
#pragma unroll
    for (int b = 0; b < kStageBlocks; ++b) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        StartMma<T>(sums_, operands_[part][b][j], x.Behind((4 * b + 2 * j) * kColumn),
                    adds || b + j > 0);
      }
    }
    CommitMma();
  }

  __device__ void EndChain() {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) totals_[tile][i] += sums_[tile][i];
    }
  }

  // Through shared memory, so that neighbouring threads store neighbouring columns.
  __device__ void StoreSums() const {
    auto* output = reinterpret_cast<float*>(shared_);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 8 * tile + 2 * lane_ + i % 2;
        output[row * kLdOutput + warp_ * 16 + line_ + 8 * (i / 2)] = totals_[tile][i];
      }
    }
  }
  __device__ void StoreRows() const {
    const auto* output = reinterpret_cast<const float*>(shared_);
    const int column = static_cast<int>(threadIdx.x) % Shape::kWeightRows;
    if (first_weight_row_ + column >= args_.n) return;
    for (int row = static_cast<int>(threadIdx.x) / Shape::kWeightRows;
         row < Shape::kXRows && first_x_row_ + row < args_.m;
         row += Shape::kThreads / Shape::kWeightRows) {
      StoreY<T>(args_, first_x_row_ + row, first_weight_row_ + column,
                output[row * kLdOutput + column]);
    }
  }

  const GemvArgs& args_;
  unsigned char* const shared_;
  const int k_;
  const int num_steps_;
  const int first_weight_row_;  // of the block
  const int first_x_row_;
  const int warp_;
  const int line_;            // row of the weight, and of x, within eight
  const int lane_;            // of a row
  const MmaColumns columns_;  // of the first slot
  uint32_t operands_[kParts][kStageBlocks][2][4];
  float sums_[kTiles][4] = {};    // of this chain
  float totals_[kTiles][4] = {};  // of the chains before it
};

}  // namespace mlc_native::kernels::cuda
