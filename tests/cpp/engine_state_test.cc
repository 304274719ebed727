#include "engine_state.h"

#include <gtest/gtest.h>

#include "support/check.h"

namespace mlc_native {
namespace {

RequestPtr MakeRequest(const std::string& id, int32_t n = 1) {
  auto request = std::make_shared<Request>();
  request->id = id;
  request->prompt_token_ids = {1, 2, 3};
  request->generation_cfg.n = n;
  return request;
}

RequestState& Admit(EngineState& estate, const std::string& id, int32_t n = 1) {
  auto rstate = std::make_unique<RequestState>(MakeRequest(id, n), nullptr, false, TimePoint());
  return *estate->request_states.emplace(id, std::move(rstate)).first->second;
}

void MakeRunning(EngineState& estate, RequestState& rstate) {
  for (RequestStateEntry& entry : rstate.entries) entry.status = RequestStateStatus::kAlive;
  estate->PushRunning(rstate);
  estate->running_rsentries_changed = true;
}

TEST(EngineInternalIDManager, ReusesTheIdRecycledLast) {
  EngineInternalIDManager ids;
  EXPECT_EQ(ids.GetNewId(), 0);
  EXPECT_EQ(ids.GetNewId(), 1);
  EXPECT_EQ(ids.GetNewId(), 2);
  ids.RecycleId(0);
  ids.RecycleId(2);
  EXPECT_EQ(ids.num_live(), 1);
  EXPECT_EQ(ids.GetNewId(), 2);
  EXPECT_EQ(ids.GetNewId(), 0);
  EXPECT_EQ(ids.GetNewId(), 3);
  EXPECT_EQ(ids.num_live(), 4);
}

TEST(EngineInternalIDManager, RecyclingWhatIsNotLiveIsAnInternalError) {
  EngineInternalIDManager ids;
  EXPECT_THROW(ids.RecycleId(0), InternalError);
  EXPECT_THROW(ids.RecycleId(-1), InternalError);
  ids.RecycleId(ids.GetNewId());
  EXPECT_THROW(ids.RecycleId(0), InternalError);  // twice
  EXPECT_EQ(ids.num_live(), 0);
}

TEST(EngineInternalIDManager, ResetForgetsAll) {
  EngineInternalIDManager ids;
  ids.GetNewId();
  ids.Reset();
  EXPECT_EQ(ids.num_live(), 0);
  EXPECT_THROW(ids.RecycleId(0), InternalError);
  EXPECT_EQ(ids.GetNewId(), 0);
}

TEST(EngineState, IsNeverNullAndIsAReference) {
  EngineState a;
  EngineState b = a;
  b->spec_draft_length = 3;
  EXPECT_EQ(a->spec_draft_length, 3);
}

TEST(EngineState, StateOfAnUnknownRequestIsAnInternalError) {
  EngineState estate;
  EXPECT_EQ(estate->FindRequestState("a"), nullptr);
  EXPECT_THROW(estate->GetRequestState("a"), InternalError);
  const RequestState& admitted = Admit(estate, "a");
  EXPECT_EQ(&admitted, &estate->GetRequestState("a"));
}

TEST(EngineState, RunningEntriesAreCachedBehindTheFlag) {
  EngineState estate;
  RequestState& a = Admit(estate, "a");
  RequestState& b = Admit(estate, "b", 2);
  MakeRunning(estate, a);
  MakeRunning(estate, b);
  // The root of b has children and does not decode itself.
  const std::vector<RequestStateEntry*> expected = {&a.entries[0], &b.entries[1], &b.entries[2]};
  EXPECT_EQ(estate->GetRunningRequestStateEntries(), expected);
  EXPECT_FALSE(estate->running_rsentries_changed);

  b.entries[1].status = RequestStateStatus::kPending;
  EXPECT_EQ(estate->GetRunningRequestStateEntries(), expected) << "the flag was not set";
  estate->running_rsentries_changed = true;
  EXPECT_EQ(estate->GetRunningRequestStateEntries().size(), 2u);
}

TEST(EngineState, QueuesKeepOrderAndHoldARequestOnce) {
  EngineState estate;
  RequestState& a = Admit(estate, "a");
  RequestState& b = Admit(estate, "b");
  RequestState& c = Admit(estate, "c");
  estate->PushWaiting(a);
  estate->PushWaiting(b);
  estate->PushWaitingFront(c);
  estate->PushWaitingFront(b);  // is there already
  ASSERT_EQ(estate->waiting_queue.size(), 3u);
  EXPECT_EQ(estate->waiting_queue[0]->id, "c");
  EXPECT_EQ(estate->waiting_queue[1]->id, "a");

  c.entries[0].status = RequestStateStatus::kAlive;
  b.entries[0].status = RequestStateStatus::kAlive;
  estate->PopPrefilled();  // c; b stays behind a
  EXPECT_FALSE(c.in_waiting_queue);
  EXPECT_EQ(estate->waiting_queue.size(), 2u);
}

TEST(EngineState, EraseTakesRequestsOutOfEverything) {
  EngineState estate;
  RequestState& a = Admit(estate, "a");
  RequestState& b = Admit(estate, "b");
  RequestState& c = Admit(estate, "c");
  MakeRunning(estate, a);
  MakeRunning(estate, b);
  estate->PushWaiting(c);
  estate->PushWaiting(b);
  EXPECT_EQ(estate->GetRunningRequestStateEntries().size(), 2u);
  std::vector<const Request*> finished = {b.request.get(), c.request.get()};
  estate->Erase(&finished);
  EXPECT_TRUE(finished.empty());
  EXPECT_EQ(estate->running_queue.size(), 1u);
  EXPECT_TRUE(estate->waiting_queue.empty());
  EXPECT_EQ(estate->FindRequestState("b"), nullptr);
  EXPECT_EQ(estate->GetRunningRequestStateEntries().size(), 1u);
  estate->RemoveFromRunning(a);
  EXPECT_TRUE(estate->running_queue.empty());
}

TEST(EngineState, ResetClearsAllButTheCallback) {
  PagedKvCache kv(4, 16);
  EngineState estate;
  estate->request_stream_callback_ = [](std::vector<RequestStreamOutput>) {};
  estate->PushWaiting(Admit(estate, "a"));
  estate->id_manager.GetNewId();
  estate->metrics.num_preemptions = 4;
  estate->spec_draft_length = 2;
  estate->disaggregation = true;
  estate->prefix_cache = std::make_unique<PrefixCache>(&kv, PrefixCacheLimits());
  const std::vector<int32_t> tokens(20);
  std::vector<PageCopy> copies;
  kv.AddSequence(0);
  kv.Reserve(0, 20, &copies);
  kv.Commit(0, 20);
  estate->prefix_cache->Insert(0, tokens);
  kv.RemoveSequence(0);
  estate->MarkDirty(estate->GetRequestState("a"));
  estate->GetRunningRequestStateEntries();
  estate->Reset();
  EXPECT_TRUE(estate->request_states.empty());
  EXPECT_TRUE(estate->waiting_queue.empty());
  EXPECT_EQ(estate->id_manager.num_live(), 0);
  EXPECT_EQ(estate->metrics.num_preemptions, 0);
  EXPECT_EQ(estate->spec_draft_length, 0);
  EXPECT_FALSE(estate->disaggregation);
  EXPECT_NE(estate->prefix_cache, nullptr);
  EXPECT_EQ(kv.pool().num_free(), 4);
  EXPECT_TRUE(estate->postproc_workspace.dirty.empty());
  EXPECT_TRUE(estate->running_rsentries_changed);
  EXPECT_TRUE(estate->request_stream_callback_ != nullptr);
}

}  // namespace
}  // namespace mlc_native
