// A thread with a stack of a size that we choose: grammar compilers recurse over their input, and
// the stack of a caller's thread may be small. Any thread.
#pragma once

#include <cstddef>
#include <functional>

namespace mlc_native {

// What a grammar may need in the worker; the engine's process then grants the same.
inline constexpr size_t kCompileStackBytes = size_t{64} << 20;

// Runs `work` on a thread of its own, waits for it, and rethrows what it threw. Throws
// std::system_error when no thread can be made. Memory is taken only as the stack grows.
void RunOnBigStack(size_t stack_bytes, const std::function<void()>& work);

}  // namespace mlc_native
