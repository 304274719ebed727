// The helper processes that try grammars, as tests see them: which there are, and whether they
// work.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace mlc_native {

// Workers that a thread of this process has started and that have not been reaped; of this thread
// unless its id is given.
std::vector<pid_t> Children(const std::string& thread = {});

// CPU time in user mode; -1 when there is no such process or only its zombie.
int64_t CpuTicks(pid_t pid);

// Calls `start` and returns when the worker, which was idle, has begun to compute.
void AwaitWork(pid_t worker, const std::function<void()>& start);

// A grammar that takes far longer than any limit in these tests: alternatives that all share their
// first half. Each variant is another text.
std::string SlowEbnf(int variant = 0);

}  // namespace mlc_native
