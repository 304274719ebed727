// Runs the threads of a block without a GPU, as one fiber each. Blocks run one after another, or
// those of a cluster together.
//
// A fiber runs until it waits for its warp or for the block. While it waits for its warp, only
// lanes of the same warp run, so a warp runs as far ahead of the others as the barriers of the
// block allow. The order is random for each block, so a missing barrier eventually shows as a wrong
// result. A barrier that some thread never reaches ends the process with a message, and so does a
// thread that ends without having waited for the previous launch. One host thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace mlc_native::emulator {

struct Grid {
  unsigned x = 1, y = 1, z = 1;
};

// Calls `thread` once per thread of the grid, whose blocks form clusters of `cluster` along x (at
// most 8). Dynamic shared memory is filled with NaNs first. Some
// blocks, the first and the last among them, run between shield(true) and shield(false) until all
// of their threads wait for the previous launch.
void RunGrid(const Grid& grid, unsigned threads, unsigned cluster, size_t shared_bytes,
             const std::function<void()>& thread, void (*shield)(bool));

void* DynamicShared();
void BlockBarrier();    // all threads of the block
void WarpBarrier();     // all lanes of the warp
void ClusterBarrier();  // all threads of the blocks of a cluster
// Where block `rank` of the cluster has what `own` is in this block's dynamic shared memory. Ends
// the process if a thread of that block has ended.
const void* SharedOfCluster(const void* own, unsigned rank);
void WaitForPrevious();

// Until is_done(), which another thread brings about; that one says so with NoteProgress.
void AwaitOthers(const std::function<bool()>& is_done);
void NoteProgress();

// Every lane contributes `bytes` bytes (at most 64) and then reads those of all lanes.
class WarpExchange {
 public:
  WarpExchange(const void* mine, size_t bytes);
  const void* of(unsigned lane) const;

 private:
  const std::byte* slots_;
};

// Ends the process if the address is not a multiple of `bytes`, which a GPU does not forgive.
void CheckAligned(const void* address, size_t bytes);

// Starts an asynchronous copy for the running thread. It arrives when the thread waits for it or,
// in every other block, immediately.
void CopyLater(void* to, const void* from, size_t bytes);  // from null: zeros
void CommitCopies();
void WaitForCopies(int groups_left);

// What copies have brought that the running thread has waited for: products may read it once that
// thread has published. CheckPublished ends the process if it has not.
void Publish();
void CheckPublished(const void* shared);

// Registers may be written behind a wait for products, so there has to be a fence before the next
// one starts: without it the process ends.
void FenceProducts();

// Starts a product of the running thread's warp. It is computed, from what its operands are then,
// when the warp waits for it or, in half of the blocks, immediately.
void MultiplyLater(std::function<void()> product);
void CommitProducts();
void WaitForProducts(int groups_left);

}  // namespace mlc_native::emulator
