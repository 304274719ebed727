// Runs work on a thread with a stack of a given size. Grammar compilers recurse over their input,
// and the stack of a caller's thread may be small. Any thread.
#pragma once

#include <cstddef>
#include <functional>

namespace mlc_native {

// Stack for compiling a grammar, in the worker and in the engine's process.
inline constexpr size_t kCompileStackBytes = size_t{64} << 20;

// Runs `work` on a new thread, waits for it, and rethrows its exception. Throws std::system_error
// if no thread can be started. Memory is allocated only as the stack grows.
void RunOnBigStack(size_t stack_bytes, const std::function<void()>& work);

}  // namespace mlc_native
