// An allocation that fails while a grammar is compiled ends the call that it was for, and nothing
// else: callers that wait for the same grammar, and what the process has open, are not affected.
#include <dirent.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <new>
#include <stop_token>
#include <string>
#include <thread>

#include "grammar/backend.h"
#include "grammar/compile_cache.h"
#include "grammar/fake_compiled.h"
#include "grammar/worker_process.h"
#include "testing/allocations.h"

namespace mlc_native {
namespace {

using Grammar = CompileCache::Grammar;
using testing::FailAllocation;

const std::string kText = "a text that does not fit into a small string";

int NumOpenFiles() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// Compiles while another caller waits, with the k-th allocation behind `compile` failing. False if
// there were fewer.
template <typename Compile>
bool CompileForTwo(int64_t k, const Compile& compile) {
  CompileCache cache(1 << 20);
  const GrammarSpec spec = Regex(kText);
  std::atomic<bool> may_go_on = false;
  std::jthread waiting([&] {
    while (cache.num_callers(spec) == 0) std::this_thread::yield();
    try {
      cache.Get(spec, [](const std::stop_token&) { return std::make_shared<const FakeGrammar>(); });
    } catch (const GrammarError&) {  // that of the other one
    }
  });
  bool has_failed = true;
  try {
    cache.Get(spec, [&](const std::stop_token&) -> Grammar {
      while (cache.num_callers(spec) < 2) std::this_thread::yield();
      Grammar made = std::make_shared<const FakeGrammar>();
      FailAllocation(k);
      return compile(made);
    });
    has_failed = FailAllocation(-1);
  } catch (const GrammarError&) {
    has_failed = FailAllocation(-1);
  } catch (const std::bad_alloc&) {
    FailAllocation(-1);
  }
  waiting.join();  // the time limit of the test ends it
  EXPECT_EQ(cache.num_callers(spec), 0) << k;
  EXPECT_EQ(cache.num_waiting(), 0) << k;
  const int64_t bytes = 1 + static_cast<int64_t>(kText.size());
  EXPECT_EQ(cache.cached_bytes(), bytes * cache.num_cached()) << k;
  return has_failed;
}

TEST(GrammarMemory, NobodyWaitsForACompilationThatLackedMemory) {
  const std::string refusal = "refused because " + kText;
  const auto succeed = [](const Grammar& grammar) { return grammar; };
  const auto refuse = [&](const Grammar&) -> Grammar { throw GrammarError(refusal); };
  int64_t k = 1;
  while (CompileForTwo(k, succeed) && !HasFailure()) ++k;
  EXPECT_GT(k, 2) << "the scenario is too small";
  k = 1;
  while (CompileForTwo(k, refuse) && !HasFailure()) ++k;
  EXPECT_GT(k, 2) << "the scenario is too small";
}

TEST(GrammarMemory, AHelperThatIsNotStartedLeavesNoFileOpen) {
  const int num_files = NumOpenFiles();
  bool has_failed = true;
  int64_t k = 0;
  while (has_failed) {
    FailAllocation(++k);
    try {
      const WorkerProcess helper("/bin/true", {kText});
    } catch (const std::bad_alloc&) {
    }
    has_failed = FailAllocation(-1);
    ASSERT_EQ(NumOpenFiles(), num_files) << k;
  }
  EXPECT_GT(k, 1);
}

}  // namespace
}  // namespace mlc_native
