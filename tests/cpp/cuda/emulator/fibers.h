// Runs the threads of a block without a GPU: one fiber each, blocks one after another.
//
// A fiber runs until it waits, for its warp or for the block. Waiting for a warp it gives way to
// lanes of its own alone: a warp runs as far ahead of the others as the block's barriers let it.
// The order is drawn anew for each block, so a missing barrier shows as a wrong result sooner or
// later. A barrier that some thread never reaches ends the process with a message. Tests only; one
// thread of the host.
#pragma once

#include <cstddef>
#include <functional>

namespace mlc_native::emulator {

struct Grid {
  unsigned x = 1, y = 1, z = 1;
};

// Calls `thread` once per thread of the grid. Dynamic shared memory is filled with NaNs first.
void RunGrid(const Grid& grid, unsigned threads, size_t shared_bytes,
             const std::function<void()>& thread);

void* DynamicShared();
void BlockBarrier();  // all threads of the block
void WarpBarrier();   // all lanes of the warp

// Every lane gives `bytes` (at most 64) and then sees what all lanes gave.
class WarpExchange {
 public:
  WarpExchange(const void* mine, size_t bytes);
  const void* of(unsigned lane) const;

 private:
  const std::byte* slots_;
};

// Copies that the running thread has asked for: they arrive as late as they may, when it waits, or
// in every other block as early as they may, at once.
void CopyLater(void* to, const void* from, size_t bytes);  // from null: zeros
void CommitCopies();
void WaitForCopies(int groups_left);

}  // namespace mlc_native::emulator
