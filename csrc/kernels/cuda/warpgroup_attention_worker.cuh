// WarpgroupAttentionWorker: a block's tile of rows of prefill attention, on Hopper's products of
// warpgroups, with the bits of PrefillWorker.
//
// Two warpgroups own 64 rows each, a warp 16 of them (prefill_rows.cuh), whose queries, too, stay
// in registers. The tensor cores read keys and values from shared memory themselves, once for 64
// rows. The third warpgroup copies them there, into a ring of stages. A stage has the keys of a
// step and the values of the step before it, whose products run at the same time:
//
//   tensor cores   | scores(i) | values(i - 1) |         | scores(i + 1) | values(i) ...
//   warps                      | softmax(i)         | scale sums, pack |
//                              ^ AwaitScores   ^ AwaitSums: the stage is free
//
// While a warpgroup computes its softmax, the products of the other one run, too: the two follow
// one another as they please, as far as the ring allows.
//
// Keys and values lie alike: of eight elements of a head 16 bytes for each key, keys one behind the
// other, then the next eight elements. For scores that is a matrix of columns (MmaColumns), for the
// products with values one of rows (MmaRows).
#pragma once

#include "kernels/cuda/prefill_rows.cuh"
#include "kernels/cuda/warpgroup.cuh"

namespace mlc_native::kernels::cuda {

template <int kHeadDim>
struct WarpgroupAttentionShape {
  static constexpr int kDim = kHeadDim;
  static constexpr int kWarpgroups = 2;  // that multiply
  static constexpr int kThreads = (kWarpgroups + 1) * kWarpgroup;
  static constexpr int kRows = 64 * kWarpgroups;
  static constexpr int kStages = 6;
  static constexpr int kStagesInFlight = 3;  // those that are being copied
};

// What tests replace in order to see that it matters.
struct WarpgroupAttentionRules : PrefillRowRules {
  // Of those that copy: until all but `kLeft` groups of their copies are there.
  template <int kLeft>
  __device__ static void AwaitCopies() {
    WaitForCopies<kLeft>();
    PublishToMma();
  }
  // Until a stage has been copied, or everything has been computed from it.
  __device__ static void AwaitFull(ArrivalBarrier& full, uint32_t parity) { full.Await(parity); }
  __device__ static void AwaitFree(ArrivalBarrier& free, uint32_t parity) { free.Await(parity); }
  // Until products are done: those that were started first, or all.
  template <typename Scores>
  __device__ static void AwaitScores(Scores& scores) {
    WaitForMma<1>(scores);
  }
  template <typename Sums>
  __device__ static void AwaitSums(Sums& sums) {
    WaitForMma<0>(sums);
  }
};

template <typename T, typename Shape, typename Rules = WarpgroupAttentionRules>
class WarpgroupAttentionWorker {
 public:
  __device__ WarpgroupAttentionWorker(const PrefillArgs& args, const PrefillTile& tile, int kv_head)
      : args_(args),
        tile_(tile),
        kv_head_(kv_head),
        shared_(*static_cast<Shared*>(DynamicShared())),
        first_key_(FirstSeenOf(args, tile) / kKeys * kKeys),
        num_steps_((TileKeys::Of(args, tile).end - first_key_ + kKeys - 1) / kKeys) {}

  static constexpr size_t SharedBytes() { return sizeof(Shared); }

  __device__ void Run() {
    if (threadIdx.x == 0) {
      shared_.keys = TileKeys::Of(args_, tile_);
      shared_.tokens = TileTokens::Of(tile_);
      for (int slot = 0; slot < kStages; ++slot) {
        shared_.full[slot].Init(kWarpgroup);
        shared_.free[slot].Init(kWarpsThatMultiply);
      }
    }
    __syncthreads();
    if (threadIdx.x >= kWarpsThatMultiply * kWarp) {
      GiveRegistersAway<40>();
      Copier(*this).Run();
    } else {
      TakeRegisters<232>();
      Multiplier(*this).Run();
    }
  }

 private:
  static constexpr int kDim = Shape::kDim;
  static constexpr int kStages = Shape::kStages;
  static constexpr int kStagesInFlight = Shape::kStagesInFlight;
  static_assert(kStagesInFlight < kStages);
  static constexpr int kWarpsThatMultiply = Shape::kWarpgroups * 4;
  static constexpr int kKeys = static_cast<int>(kPrefillKeys);
  static constexpr int kChunks = kDim / kVector;
  static constexpr int kChunkBytes = kKeys * 16 + 16;  // neighbouring chunks lie in other banks

  struct Stage {
    unsigned char keys[kChunks * kChunkBytes];    // of a step
    unsigned char values[kChunks * kChunkBytes];  // of the step before it
  };
  struct alignas(16) Shared {
    TileKeys keys;
    TileTokens tokens;
    ArrivalBarrier full[kStages];
    ArrivalBarrier free[kStages];
    alignas(16) Stage stages[kStages];
  };
  static_assert(sizeof(Shared) <= kMostSharedBytesOf90);

  // Of the ring, and the parity of how often it has been gone round.
  struct Slot {
    int index = 0;
    uint32_t parity = 0;
    __device__ void Advance() {
      if (++index < kStages) return;
      index = 0;
      parity ^= 1;
    }
  };

  __device__ bool HasChunk(int chunk) const { return chunk * kVector < args_.kv.head_dim; }

  // What the last warpgroup does.
  class Copier {
   public:
    __device__ explicit Copier(const WarpgroupAttentionWorker& worker)
        : worker_(worker),
          args_(worker.args_),
          thread_(static_cast<int>(threadIdx.x) % kWarpgroup),
          chunk_(thread_ % kWarp / 8 + thread_ / kWarp % kWarpsOfRow * 4),
          row_(thread_ % 8 + thread_ / kWarp / kWarpsOfRow * 8) {}

    __device__ void Run() const {
      Shared& shared = worker_.shared_;
      const int num_steps = worker_.num_steps_;
      int key = worker_.first_key_;
      int32_t page_before = 0;
      int32_t page = FindPage(key);
      Slot to, arrived;
      for (int stage = 0; stage <= num_steps + kStagesInFlight; ++stage) {
        if (stage <= num_steps) {
          Rules::AwaitFree(shared.free[to.index], to.parity ^ 1);
          const int32_t next_page = FindPage(key + kKeys);
          Stage& place = shared.stages[to.index];
          if (stage < num_steps) Copy(key, args_.kv.k, page, place.keys);
          if (stage > 0) Copy(key - kKeys, args_.kv.v, page_before, place.values);
          page_before = page;
          page = next_page;
          key += kKeys;
          to.Advance();
        }
        CommitCopies();
        if (stage >= kStagesInFlight) {
          Rules::template AwaitCopies<kStagesInFlight>();
          shared.full[arrived.index].Arrive();
          arrived.Advance();
        }
      }
    }

   private:
    static constexpr int kPageKeys = static_cast<int>(kKvPageSize);
    static constexpr int kPages = kKeys / kPageKeys;          // of a step
    static constexpr int kCopiedKeys = kWarpgroup / kChunks;  // at once
    static constexpr int kWarpsOfRow = kChunks / 4;
    static_assert(kPageKeys % kCopiedKeys == 0 && kCopiedKeys % 8 == 0);

    // A lane's page of the keys from `first` on; for a page to which no row of the tile attends,
    // another to which one does.
    __device__ int32_t FindPage(int first) const {
      const TileKeys keys = worker_.shared_.keys;
      const int32_t* table = args_.a.block_tables + keys.table * args_.a.ld_block_tables;
      const int page = min(first / kPageKeys + thread_ % kPages, (keys.end - 1) / kPageKeys);
      return table[max(page, keys.first / kPageKeys)];
    }

    // Keys or values from `first` on, which lie in `pages`; zeros for keys that no row of the tile
    // attends to: what lies there may be anything. A warp copies four chunks of eight keys, so that
    // eight lanes write 128 bytes that lie together.
    __device__ void Copy(int first, const void* pages, int32_t page_of_lane,
                         unsigned char* to) const {
      const auto dim = static_cast<int>(args_.kv.head_dim);
      const bool has_chunk = worker_.HasChunk(chunk_);
      const int offset =
          (worker_.kv_head_ * kPageKeys + row_) * dim + (has_chunk ? chunk_ * kVector : 0);
      const int page_elements = static_cast<int>(args_.kv.kv_heads) * kPageKeys * dim;
      unsigned char* const place = to + chunk_ * kChunkBytes + row_ * 16;
      const TileKeys keys = worker_.shared_.keys;
      const unsigned num_keys = has_chunk ? keys.end - keys.first : 0;
#pragma unroll
      for (int i = 0; i < kPages; ++i) {
        const T* page =
            static_cast<const T*>(pages) +
            (static_cast<int64_t>(__shfl_sync(kAllLanes, page_of_lane, i)) * page_elements +
             offset);
#pragma unroll
        for (int j = 0; j < kPageKeys; j += kCopiedKeys) {
          const int at = i * kPageKeys + j;
          const bool valid = static_cast<unsigned>(first + at + row_ - keys.first) < num_keys;
          CopyAsync16(place + at * 16, page + j * dim, valid);
        }
      }
    }

    const WarpgroupAttentionWorker& worker_;
    const PrefillArgs& args_;
    const int thread_;
    const int chunk_;
    const int row_;
  };

  // What the other warpgroups do.
  class Multiplier {
   public:
    __device__ explicit Multiplier(const WarpgroupAttentionWorker& worker)
        : worker_(worker),
          shared_(worker.shared_),
          lane_(static_cast<int>(threadIdx.x) % kWarp),
          first_row_(static_cast<int>(threadIdx.x) / kWarp * 16),
          keys_(shared_.stages[0].keys, kChunkBytes),
          values_(shared_.stages[0].values, kChunkBytes),
          rows_(worker.args_, shared_.keys, shared_.tokens, worker.kv_head_, first_row_) {}

    __device__ void Run() {
      LoadQueries();
      int key = worker_.first_key_;
      Slot slot;
      typename Rows::Factors factors;
      Rules::AwaitFull(shared_.full[slot.index], slot.parity);
      FenceMma(queries_);
      StartScores(slot);
      Rules::AwaitSums(rows_.scores[0]);
      Release(slot);
      rows_.Weigh(key, factors);  // there are no sums yet
      PackWeights();
      for (int step = 1; step < worker_.num_steps_; ++step) {
        slot.Advance();
        key += kKeys;
        Rules::AwaitFull(shared_.full[slot.index], slot.parity);
        FenceMma(rows_.sums[0], weights_);
        StartScores(slot);
        StartValues(slot);
        Rules::AwaitScores(rows_.scores[0]);
        const bool scales = rows_.Weigh(key, factors);
        Rules::AwaitSums(rows_.sums[0]);
        Release(slot);
        if (scales) rows_.ScaleSums(factors);
        PackWeights();
      }
      slot.Advance();
      Rules::AwaitFull(shared_.full[slot.index], slot.parity);
      FenceMma(rows_.sums[0], weights_);
      StartValues(slot);
      Rules::AwaitSums(rows_.sums[0]);
      rows_.StoreOutput();
    }

   private:
    using Rows = PrefillRows<T, kDim, 1, Rules>;
    static constexpr int kScoreSteps = kDim / 16;
    static constexpr int kValueSteps = kKeys / 16;

    // As products want them of a lane, zeros for rows without a token.
    __device__ void LoadQueries() {
      const PrefillArgs& args = worker_.args_;
      const PrefillTile& tile = args.tiles[blockIdx.x];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first_row_ + lane_ / 4 + 8 * half;
        const int token = row / args.group;
        const int head = worker_.kv_head_ * args.group + row % args.group;
        const T* from = static_cast<const T*>(args.a.q) + (tile.row_begin + token) * args.a.ldq +
                        head * args.kv.head_dim + lane_ % 4 * 2;
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
          uint32_t& q = queries_[chunk / 2][chunk % 2 * 2 + half];
          q = 0;
          if (token < tile.num_rows && worker_.HasChunk(chunk)) {
            q = *reinterpret_cast<const uint32_t*>(from + chunk * kVector);
          }
        }
      }
    }

    // q k^T of the warpgroup's rows.
    __device__ void StartScores(const Slot& slot) {
      const MmaColumns keys = keys_.Behind(slot.index * static_cast<int>(sizeof(Stage)));
#pragma unroll
      for (int step = 0; step < kScoreSteps; ++step) {
        StartMma<T>(rows_.scores[0], queries_[step], keys.Behind(step * 2 * kChunkBytes), step > 0);
      }
      CommitMma();
    }

    // The sums += weights v
    __device__ void StartValues(const Slot& slot) {
      const MmaRows values = values_.Behind(slot.index * static_cast<int>(sizeof(Stage)));
#pragma unroll
      for (int step = 0; step < kValueSteps; ++step) {
        StartMma<T>(rows_.sums[0], weights_[step], values.Behind(step * 16 * 16), true);
      }
      CommitMma();
    }

    __device__ void PackWeights() {
#pragma unroll
      for (int step = 0; step < kValueSteps; ++step) rows_.PackWeights(0, step, weights_[step]);
    }

    // Once the warp's products with this stage are done.
    __device__ void Release(const Slot& slot) const {
      if (lane_ == 0) shared_.free[slot.index].Arrive();
    }

    const WarpgroupAttentionWorker& worker_;
    Shared& shared_;
    const int lane_;
    const int first_row_;    // of the warp
    const MmaColumns keys_;  // of the first stage
    const MmaRows values_;   // likewise
    uint32_t queries_[kScoreSteps][4];
    uint32_t weights_[kValueSteps][4];  // of the last step
    Rows rows_;
  };

  const PrefillArgs& args_;
  const PrefillTile& tile_;
  const int kv_head_;
  Shared& shared_;
  const int first_key_;
  const int num_steps_;
};

}  // namespace mlc_native::kernels::cuda
