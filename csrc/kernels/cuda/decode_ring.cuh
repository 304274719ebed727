// A ring of pages in shared memory that one warp fills and reads, and the order in which the pages
// come: those of the warp's part of one item after the other, so that the first pages of an item
// are on their way while the item before it is computed.
//
//   slots   | keys 0 | values 0 | keys 1 | values 1 |     kPageSlots of them: a page is read, its
//             ^ read     ^ ... being copied               slot is filled again, and so on in turn
//
// Two kinds of copies, with the same slots. BulkRing: one lane starts the copy of a page, and a
// barrier in shared memory says when it is there (sm_90 and later). GroupRing: all lanes copy 16
// bytes at a time. `Rules` is what tests replace in order to see that it matters.
#pragma once

#include "kernels/cuda/decode_items.cuh"

namespace mlc_native::kernels::cuda {

template <int kSlots, int kSlotBytes, typename Rules>
class BulkRing {
 public:
  __device__ BulkRing(unsigned char* slots, uint64_t* barriers)
      : slots_(slots), barriers_(barriers) {
    if (threadIdx.x % kWarp == 0) {
      for (int slot = 0; slot < kSlots; ++slot) InitBarrier(barriers + slot);
      FenceBarriers();
    }
    __syncwarp();
  }

  // Starts the copy of a page, of 16 keys or values; null: of nothing. No lane reads the slot.
  __device__ void Fill(int slot, const void* page, int bytes) {
    if (page == nullptr || threadIdx.x % kWarp != 0) return;
    ExpectBytes(barriers_ + slot, bytes);
    CopyBulk(slots_ + slot * kSlotBytes, page, bytes, barriers_ + slot);
  }

  // Waits for the page of the slot that was filled longest ago.
  __device__ const unsigned char* Await(int slot) {
    Rules::WaitForBytes(barriers_ + slot, phases_ >> slot & 1);
    phases_ ^= 1u << slot;
    return slots_ + slot * kSlotBytes;
  }

 private:
  unsigned char* const slots_;
  uint64_t* const barriers_;
  uint32_t phases_ = 0;  // a bit for each slot: the parity of the phase that is waited for next
};

template <int kSlots, int kSlotBytes, typename Rules>
class GroupRing {
 public:
  __device__ GroupRing(unsigned char* slots, uint64_t*) : slots_(slots) {}

  // A group of copies each time, so that their number says which of them are there.
  __device__ void Fill(int slot, const void* page, int bytes) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    if (page != nullptr) {
#pragma unroll 4
      for (int at = lane * 16; at < bytes; at += kWarp * 16) {
        CopyAsync16(slots_ + slot * kSlotBytes + at, static_cast<const char*>(page) + at, true);
      }
    }
    CommitCopies();
  }

  __device__ const unsigned char* Await(int slot) {
    Rules::template WaitForGroups<kSlots - 1>();
    return slots_ + slot * kSlotBytes;
  }

 private:
  unsigned char* const slots_;
};

// The pages of a warp: of the block's items in turn, every kWarps-th page of their splits, keys and
// then values. Page numbers are loaded an item ahead, and splits two items.
template <int kWarps, typename Rules>
class PageSequence {
 public:
  // Behind the wait for the previous launch.
  __device__ PageSequence(const DecodeKernelArgs& args, int num_items, int page_bytes)
      : args_(args),
        num_items_(num_items),
        page_bytes_(page_bytes),
        index_(static_cast<int>(blockIdx.x)) {
    const int step = static_cast<int>(gridDim.x);
    const Item first = FindItem(args, index_);
    const Item second = FindItem(args, Rules::ItemAhead(index_, step));
    third_ = FindItem(args, Rules::ItemAhead(index_, 2 * step));
    of_item_ = PagesOf(first, index_);
    of_next_ = PagesOf(second, index_ + step);
  }

  // The next page; null: there are no more. By all lanes.
  __device__ const void* Next() {
    while (at_ == 2 * of_item_.size) {
      if (index_ >= num_items_) return nullptr;
      GoOn();
    }
    const int64_t page = __shfl_sync(kAllLanes, of_item_.page, at_ / 2);
    const void* pages = at_ % 2 == 0 ? args_.kv.k : args_.kv.v;
    ++at_;
    return static_cast<const char*>(pages) +
           (page * args_.kv.kv_heads + of_item_.kv_head) * page_bytes_;
  }

  // How many pages of a split a warp has.
  __device__ static int NumPages(const DecodeSplit& split) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int pages = (split.count + kPageKeys - 1) / kPageKeys;
    return max(pages - warp + kWarps - 1, 0) / kWarps;
  }

 private:
  static constexpr int kPageKeys = static_cast<int>(kKvPageSize);
  static_assert(kMaxSplit / kPageKeys <= kWarps * kWarp);

  struct Pages {
    int32_t page = 0;  // of the lane: its number
    int size = 0;
    int kv_head = 0;
  };

  __device__ Pages PagesOf(const Item& item, int index) const {
    if (index >= num_items_) return {};
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    Pages pages{.size = NumPages(item.split), .kv_head = item.kv_head};
    if (lane < pages.size) {
      const int32_t* table = args_.a.block_tables + item.split.table * args_.a.ld_block_tables;
      pages.page = table[item.split.begin / kPageKeys + warp + lane * kWarps];
    }
    return pages;
  }

  __device__ void GoOn() {
    const int step = static_cast<int>(gridDim.x);
    at_ = 0;
    index_ += step;
    of_item_ = of_next_;
    of_next_ = PagesOf(third_, index_ + step);
    third_ = FindItem(args_, Rules::ItemAhead(index_, 2 * step));
  }

  const DecodeKernelArgs& args_;
  const int num_items_;
  const int page_bytes_;
  int index_;   // of the item
  int at_ = 0;  // of its keys and values
  Pages of_item_, of_next_;
  Item third_;
};

}  // namespace mlc_native::kernels::cuda
