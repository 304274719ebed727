// Every single allocation of the engine's steps fails once. Replaces the global operator new, for
// the whole program; it only fails where a test has armed it, on that thread.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <string>

#include "testing/test_engine.h"

namespace {

thread_local int64_t allocations_until_failure = -1;  // -1: never

void* AllocateOrFail(size_t size) {
  if (allocations_until_failure > 0 && --allocations_until_failure == 0) {
    allocations_until_failure = -1;
    throw std::bad_alloc();
  }
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t size) { return AllocateOrFail(size); }
void* operator new[](size_t size) { return AllocateOrFail(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return std::malloc(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return std::malloc(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace mlc_native::testing {
namespace {

// Arms operator new for the calls in its scope.
class FailingAllocation {
 public:
  explicit FailingAllocation(int64_t* countdown) : countdown_(countdown) {
    allocations_until_failure = *countdown;
  }
  ~FailingAllocation() {
    *countdown_ = allocations_until_failure;
    allocations_until_failure = -1;
  }
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

 private:
  int64_t* const countdown_;
};

TestEngineSetup SmallEngine() {
  TestEngineSetup setup{.prefill_chunk_size = 24, .num_pages = 8};
  std::vector<std::string> bytes(256, "some text that is not short");
  setup.token_table = std::make_shared<TokenTable>(bytes, std::vector<bool>(), false);
  return setup;
}

// Pages shortage, branches, stop strings and logprobs, with the k-th allocation of all steps
// failing. False when there were fewer.
bool RunWithFailingAllocation(int64_t k) {
  const TestEngineSetup setup = SmallEngine();
  TestEngine engine(setup);
  GenerationConfig rich = Greedy(12, 3);
  rich.stop_strs = {"never said"};
  rich.logprobs = true;
  rich.top_logprobs = 2;
  engine.Add("a name that does not fit into a small string", Prompt(50, 1), Greedy(25));
  engine.Add("b", Prompt(20, 2), rich);
  engine.Add("c", Prompt(9, 3), Greedy(15));
  // The test's own part of the callback may not fail: what the checker misses, the engine lost.
  std::vector<RequestStreamOutput> received;
  RequestStreamCallback checked = engine.engine().GetRequestStreamCallback();
  engine.engine().SetRequestStreamCallback(
      [&](std::vector<RequestStreamOutput> outputs) { received = std::move(outputs); });
  int64_t countdown = k;
  while (!engine.engine().Empty()) {
    {
      const FailingAllocation failing(&countdown);
      engine.engine().Step();
    }
    if (!received.empty()) checked(std::exchange(received, {}));
    engine.engine().AuditPages();
  }
  engine.ExpectIdle();
  for (const auto& [id, history] : engine.checker().all()) {
    const std::vector<int32_t> prompt = id == "b"   ? Prompt(20, 2)
                                        : id == "c" ? Prompt(9, 3)
                                                    : Prompt(50, 1);
    for (const SequenceHistory& sequence : history.sequences) {
      const std::vector<int32_t> expected =
          Oracle(setup.model, prompt, static_cast<int64_t>(sequence.token_ids.size()));
      EXPECT_EQ(sequence.token_ids, expected);
    }
  }
  engine.engine().SetRequestStreamCallback(checked);
  engine.Add("next", Prompt(30, 4), Greedy(5));
  engine.Run();
  EXPECT_EQ(engine.Answer("next").token_ids, Oracle(setup.model, Prompt(30, 4), 5));
  return countdown < 0;
}

TEST(EngineMemory, EveryAllocationOfAStepMayFail) {
  int64_t k = 1;
  // All of the first steps, where buffers grow; then a stride without a common pattern.
  while (RunWithFailingAllocation(k) && !HasFailure()) k += k < 400 ? 1 : 7;
  EXPECT_GT(k, 400) << "the scenario is too small";
  EXPECT_FALSE(HasFailure()) << "allocation " << k;
}

}  // namespace
}  // namespace mlc_native::testing
