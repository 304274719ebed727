#include "request/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "engine_state.h"
#include "kv/paged_kv_cache.h"

namespace mlc_native {
namespace {

// Queues and pages without a model. A committed plan moves sequences on as the engine would.
class SchedulerBench {
 public:
  SchedulerBench(int64_t num_pages, SchedulerLimits limits) : kv_(num_pages, 16), limits_(limits) {}

  RequestState& Wait(const std::string& id, int64_t prompt_len, int32_t n = 1) {
    auto request = std::make_shared<Request>();
    request->id = id;
    request->prompt_token_ids.assign(prompt_len, 1);
    request->generation_cfg.n = n;
    auto rstate = std::make_unique<RequestState>(request, nullptr, false, TimePoint());
    RequestState& result = *estate_->request_states.emplace(id, std::move(rstate)).first->second;
    estate_->PushWaiting(result);
    return result;
  }

  RequestState& Run(const std::string& id, int64_t prompt_len) {
    RequestState& rstate = Wait(id, prompt_len);
    Start(rstate.entries[0], prompt_len);
    Complete(rstate.entries[0]);
    return rstate;
  }

  // Gives a running sequence that many tokens in addition to the one sampled last.
  static void Force(RequestState& rstate, int64_t num_tokens) {
    for (int64_t i = 0; i < num_tokens; ++i) rstate.entries[0].CommitToken(SampleResult());
  }

  const StepPlan& Decode() {
    plan_.Clear();
    PlanDecode(*estate_, limits_.prefill_chunk_size, &plan_);
    return plan_;
  }

  const StepPlan& Prefill() {
    PlanPrefill(*estate_, kv_, limits_, &plan_);
    return plan_;
  }

  void Commit() {
    for (const PlannedSlice& slice : plan_.slices) {
      Start(*slice.entry, slice.num_tokens);
      if (!slice.completes_input) continue;
      if (slice.is_decode) {
        slice.entry->CommitToken(SampleResult());
      } else {
        Complete(*slice.entry);
      }
    }
  }

  void Finish(RequestState& rstate) {
    kv_.RemoveSequence(rstate.entries[0].mstate.internal_id);
    estate_->id_manager.RecycleId(rstate.entries[0].mstate.internal_id);
    std::vector<const Request*> finished = {rstate.request.get()};
    estate_->Erase(&finished);
  }

  EngineState estate_;
  PagedKvCache kv_;
  SchedulerLimits limits_;
  StepPlan plan_;

 private:
  void Start(RequestStateEntry& entry, int64_t num_tokens) {
    if (entry.mstate.internal_id == RequestModelState::kNoId) {
      entry.mstate.internal_id = estate_->id_manager.GetNewId();
      kv_.AddSequence(entry.mstate.internal_id);
    }
    std::vector<PageCopy> copies;
    kv_.Reserve(entry.mstate.internal_id, entry.num_tokens_to_compute(), &copies);
    kv_.Commit(entry.mstate.internal_id, num_tokens);
    entry.mstate.kv_len += num_tokens;
  }

  void Complete(RequestStateEntry& entry) {
    entry.status = RequestStateStatus::kAlive;
    entry.CommitToken(SampleResult());
    estate_->PushRunning(*entry.rstate);
    estate_->PopPrefilled();
    estate_->running_rsentries_changed = true;
  }
};

// "a:3 b:5" with "+" for a slice that completes its input, "=" for decode rows that do and "~" for
// those that do not.
std::string Describe(const StepPlan& plan) {
  std::string text;
  for (const PlannedSlice& slice : plan.slices) {
    if (!text.empty()) text += ' ';
    text += slice.entry->rstate->request->id;
    text +=
        slice.is_decode ? (slice.completes_input ? "=" : "~") : (slice.completes_input ? "+" : ":");
    text += std::to_string(slice.num_tokens);
  }
  return text;
}

SchedulerLimits Limits(int64_t sequences, int64_t chunk, PrefillMode mode = PrefillMode::kHybrid) {
  return {.max_num_sequence = sequences, .prefill_chunk_size = chunk, .prefill_mode = mode};
}

TEST(PlanPrefill, TakesRequestsInOrderAndCutsTheLast) {
  SchedulerBench bench(100, Limits(8, 16));
  bench.Wait("a", 6);
  bench.Wait("b", 7);
  bench.Wait("c", 30);
  bench.Wait("d", 1);
  EXPECT_EQ(Describe(bench.Prefill()), "a+6 b+7 c:3");
  EXPECT_EQ(bench.plan_.num_rows, 16);
  EXPECT_EQ(bench.plan_.num_prefill_rows, 16);
}

TEST(PlanPrefill, ACutRequestGoesOnFromTheFront) {
  SchedulerBench bench(100, Limits(8, 16, PrefillMode::kChunked));
  bench.Wait("a", 20);
  bench.Wait("b", 4);
  EXPECT_EQ(Describe(bench.Prefill()), "a:16");
  bench.Commit();
  EXPECT_EQ(Describe(bench.Prefill()), "a+4 b+4");
}

TEST(PlanPrefill, HybridPutsDecodeRowsFirst) {
  SchedulerBench bench(100, Limits(8, 8));
  bench.Run("a", 3);
  bench.Run("b", 3);
  bench.Wait("c", 30);
  EXPECT_EQ(Describe(bench.Prefill()), "a=1 b=1 c:6");
  EXPECT_EQ(bench.plan_.num_prefill_rows, 6);
}

TEST(PlanPrefill, ChunkedLeavesDecodeOut) {
  SchedulerBench bench(100, Limits(8, 8, PrefillMode::kChunked));
  bench.Run("a", 3);
  bench.Wait("c", 30);
  EXPECT_EQ(Describe(bench.Prefill()), "c:8");
}

TEST(PlanPrefill, NothingWaitingIsAnEmptyPlan) {
  SchedulerBench bench(100, Limits(8, 8));
  bench.Run("a", 3);
  EXPECT_TRUE(bench.Prefill().empty());
}

TEST(PlanPrefill, SequencesAreLimited) {
  SchedulerBench bench(100, Limits(3, 100));
  bench.Run("a", 3);
  bench.Wait("b", 3);
  bench.Wait("c", 3);
  bench.Wait("d", 3);
  EXPECT_EQ(Describe(bench.Prefill()), "a=1 b+3 c+3");
}

TEST(PlanPrefill, BranchesNeedASlotForEachSequence) {
  SchedulerBench bench(100, Limits(4, 100));
  bench.Run("a", 3);
  bench.Wait("b", 3, /*n=*/2);
  bench.Wait("c", 3, /*n=*/2);
  bench.Wait("d", 3);  // would fit, but nothing overtakes
  EXPECT_EQ(Describe(bench.Prefill()), "a=1 b+3");
}

TEST(PlanPrefill, AllPagesOfAPromptAreCountedAtItsFirstChunk) {
  SchedulerBench bench(4, Limits(4, 16));
  bench.Wait("a", 40);  // 3 pages, 16 tokens now
  EXPECT_EQ(Describe(bench.Prefill()), "a:16");
  bench.Commit();
  EXPECT_EQ(bench.kv_.pool().num_free(), 1);
  bench.Prefill();
  bench.Commit();
  EXPECT_EQ(Describe(bench.Prefill()), "a+8");
  EXPECT_EQ(bench.kv_.pool().num_free(), 1);
}

TEST(PlanPrefill, LeavesAPageForEveryRunningSequence) {
  SchedulerBench bench(5, Limits(8, 100, PrefillMode::kChunked));
  bench.Run("a", 3);
  bench.Run("b", 3);
  RequestState& waiting = bench.Wait("c", 20);  // 2 pages, 3 are free, 2 must stay
  EXPECT_TRUE(bench.Prefill().empty());
  bench.Finish(bench.estate_->GetRequestState("b"));
  EXPECT_EQ(Describe(bench.Prefill()), "c+20");
  EXPECT_EQ(bench.plan_.slices[0].entry, &waiting.entries[0]);
}

TEST(PlanPrefill, ALoneRequestMayTakeEveryPage) {
  SchedulerBench bench(2, Limits(8, 100));
  bench.Wait("a", 32);
  EXPECT_EQ(Describe(bench.Prefill()), "a+32");
}

TEST(PlanPrefill, WithoutPagesForDecodeNothingIsAdmitted) {
  SchedulerBench bench(2, Limits(8, 100));
  bench.Run("a", 16);  // its next token needs a page
  bench.Run("b", 16);
  bench.Wait("c", 1);
  EXPECT_EQ(PagesNeededForDecode(*bench.estate_, bench.kv_), 2);
  EXPECT_TRUE(bench.Prefill().empty());
}

TEST(PlanDecode, IsOneRowForEveryRunningSequence) {
  SchedulerBench bench(10, Limits(8, 100));
  bench.Run("a", 16);
  bench.Run("b", 5);
  EXPECT_EQ(Describe(bench.Decode()), "a=1 b=1");
  EXPECT_EQ(bench.plan_.num_prefill_rows, 0);
  EXPECT_EQ(PagesNeededForDecode(*bench.estate_, bench.kv_), 1);
}

TEST(PlanDecode, ComputesAllThatASequenceLacks) {
  SchedulerBench bench(10, Limits(8, 100));
  bench.Run("a", 16);
  SchedulerBench::Force(bench.Run("b", 5), 30);
  EXPECT_EQ(PagesNeededForDecode(*bench.estate_, bench.kv_), 3);
  EXPECT_EQ(Describe(bench.Decode()), "a=1 b=31");
  bench.Commit();
  EXPECT_EQ(Describe(bench.Decode()), "a=1 b=1");
}

TEST(PlanDecode, LongTailsShareTheChunkAndEverybodyAdvances) {
  SchedulerBench bench(10, Limits(4, 8));
  bench.Run("a", 3);
  SchedulerBench::Force(bench.Run("b", 3), 6);
  SchedulerBench::Force(bench.Run("c", 3), 6);
  bench.Run("d", 3);
  EXPECT_EQ(Describe(bench.Decode()), "a=1 b~5 c~1 d=1");
  bench.Commit();
  EXPECT_EQ(Describe(bench.Decode()), "a=1 b=2 c~4 d=1");
  bench.Commit();
  EXPECT_EQ(Describe(bench.Decode()), "a=1 b=1 c=2 d=1");
}

TEST(PlanPrefill, TailsOfRunningSequencesGoFirst) {
  SchedulerBench bench(10, Limits(4, 8));
  SchedulerBench::Force(bench.Run("a", 3), 5);
  bench.Run("b", 3);
  bench.Wait("c", 4);
  EXPECT_EQ(Describe(bench.Prefill()), "a=6 b=1 c:1");
  EXPECT_EQ(bench.plan_.num_rows, 8);
  bench.Commit();
  SchedulerBench::Force(bench.estate_->GetRequestState("a"), 20);
  EXPECT_TRUE(bench.Prefill().empty()) << "no row left: the decode step comes first";
}

TEST(PlanPrefill, PagesOfTailsAreCounted) {
  SchedulerBench bench(5, Limits(4, 100));
  SchedulerBench::Force(bench.Run("a", 3), 40);  // 2 of the 4 free pages
  bench.Wait("b", 20);                           // 2 pages, and one must stay
  EXPECT_TRUE(bench.Prefill().empty());
  bench.Wait("c", 3);
  bench.Finish(bench.estate_->GetRequestState("a"));
  EXPECT_EQ(Describe(bench.Prefill()), "b+20 c+3");
}

// Random arrivals and ends: whatever the queues look like, limits hold and the head makes progress.
class RandomQueues {
 public:
  explicit RandomQueues(uint32_t seed)
      : rng_(seed),
        num_pages_(Random(8, 40)),
        bench_(num_pages_,
               Limits(Random(1, 6), Random(6, 40),
                      Random(0, 1) == 0 ? PrefillMode::kHybrid : PrefillMode::kChunked)) {}

  void Run(int num_steps) {
    for (int step = 0; step < num_steps; ++step) {
      if (Random(0, 2) == 0) bench_.Wait(std::to_string(step), Random(1, num_pages_ * 16 - 1));
      const StepPlan& plan = bench_.Prefill();
      CheckPlan(plan);
      if (::testing::Test::HasFailure()) return;
      bench_.Commit();
      if (!bench_.estate_->running_queue.empty() && Random(0, 4) == 0) ForceSomebody();
      // In place of decode and preemption: a random running request ends when nothing fits.
      const auto& running = bench_.estate_->running_queue;
      if (!running.empty() && (plan.empty() || Random(0, 9) == 0)) {
        bench_.Finish(bench_.estate_->GetRequestState(running[Random(0, running.size() - 1)]->id));
      }
    }
  }

 private:
  void CheckPlan(const StepPlan& plan) {
    const auto& waiting = bench_.estate_->waiting_queue;
    const int64_t running = bench_.estate_->GetRunningRequestStateEntries().size();
    if (running == 0 && !waiting.empty()) {
      EXPECT_FALSE(plan.empty()) << "no progress";
    }
    int64_t rows = 0;
    int64_t pages = 0;
    int64_t started = 0;
    for (const PlannedSlice& slice : plan.slices) {
      EXPECT_GT(slice.num_tokens, 0);
      EXPECT_EQ(slice.completes_input, slice.num_tokens == slice.entry->num_tokens_to_compute());
      rows += slice.num_tokens;
      const int64_t id = slice.entry->mstate.internal_id;
      const int64_t tokens = slice.entry->num_tokens_to_compute();
      pages += id < 0 ? bench_.kv_.PagesNeededForNew(tokens) : bench_.kv_.PagesNeeded(id, tokens);
      started += slice.is_decode ? 0 : 1;
    }
    EXPECT_EQ(rows, plan.num_rows);
    EXPECT_LE(rows, bench_.limits_.prefill_chunk_size);
    EXPECT_LE(pages, bench_.kv_.pool().num_free());
    EXPECT_LE(running + started, bench_.limits_.max_num_sequence);
    // The slices are the head of the queue, without gaps.
    size_t next = 0;
    for (const PlannedSlice& slice : plan.slices) {
      if (slice.is_decode) continue;
      EXPECT_EQ(slice.entry->rstate->request, waiting[next++]);
    }
  }

  // A long tail, as far as the pages reach.
  void ForceSomebody() {
    const auto& running = bench_.estate_->running_queue;
    RequestState& rstate =
        bench_.estate_->GetRequestState(running[Random(0, running.size() - 1)]->id);
    SchedulerBench::Force(rstate, Random(1, 50));
  }

  int64_t Random(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(rng_);
  }

  std::mt19937 rng_;
  const int64_t num_pages_;
  SchedulerBench bench_;
};

TEST(PlanPrefill, NeverExceedsLimitsOnRandomQueues) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    RandomQueues(seed).Run(200);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace mlc_native
