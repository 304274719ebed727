#include "step/slow_grammars.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "engine_state.h"
#include "step/post_process.h"
#include "step/sequence_life.h"
#include "support/check.h"
#include "support/message.h"

namespace mlc_native {
namespace {

// The step that the budget is for; a shorter one has less, but not less than this share.
constexpr double kStepSeconds = 0.02;
constexpr double kLeastShare = 0.02;

// Budgets by which the tokens of a sequence may exceed theirs, one after another, until it is slow.
// Ordinary grammars have a token among many that takes long, which is no reason to sit out steps.
constexpr double kMaxExcess = 8;

// Tokens in a row, with an excess of at most half of that, after which a sequence is fast again.
constexpr int kCheapTokens = 32;
constexpr int kMaxDoublings = 10;

std::string ErrorText(const std::exception_ptr& error) {
  constexpr char kWhat[] = "the grammar of the answer failed";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& thrown) {
    return std::string(kWhat) + ": " + thrown.what();
  } catch (...) {
    return kWhat;
  }
}

}  // namespace

// What a slow sequence asks its matcher between two draws: first whether a token ends the answer,
// then what jumps over forced text, then the mask, each if it is wanted.
class SlowGrammars::Call : public SlowCall {
 public:
  void Run() override {
    if (token) {
      MLC_CHECK(matcher->AcceptToken(*token)) << "the grammar forbids token " << *token;
    }
    must_end = asks_end && MustEnd(*request, *ends, *matcher, &mask);
    if (must_end) return;
    if (jump_input) jump = FindJump(*jump_input, *ends, *matcher, &mask);
    if (!fills || (jump && jump->ends)) return;
    mask.resize(ends->mask_size());
    constrained = matcher->FillMask(mask);
    completed = matcher->IsCompleted();
    is_filled = true;
  }

  std::shared_ptr<GrammarMatcher> matcher;
  RequestPtr request;
  std::shared_ptr<const EndTokens> ends;
  std::optional<int32_t> token;
  bool asks_end = false;
  std::optional<JumpInput> jump_input;
  bool fills = false;

  bool must_end = false;
  std::optional<Jump> jump;
  bool is_filled = false;
  bool constrained = false;
  bool completed = false;
  std::vector<int32_t> mask;
};

SlowGrammars::SlowGrammars(StepContext& context, SlowCalls& calls, const GrammarBudgets& budgets)
    : context_(context),
      calls_(calls),
      budgets_(budgets),
      ends_(std::make_shared<const EndTokens>(EndTokensOf(context))),
      jump_forward_(context) {}

void SlowGrammars::Run() {
  any_sits_out_ = false;
  if (context_.state.num_grammar_requests == 0) return;
  ListRequests();
  for (RequestState* rstate : requests_) {
    for (RequestStateEntry& leaf : rstate->leaves()) {
      if (!leaf.finished() && leaf.grammar_matcher != nullptr) Classify(leaf);
      if (leaf.slow != nullptr && MayFinish(leaf)) Finish(leaf);
    }
    CheckLimits(*rstate);
  }
  LimitStates();
  if (!context_.state.postproc_workspace.dirty.empty()) {
    PostProcess(context_);
    ListRequests();
  }
  for (RequestState* rstate : requests_) {
    for (RequestStateEntry& leaf : rstate->leaves()) {
      if (leaf.slow == nullptr) continue;
      if (leaf.slow->call == nullptr && !leaf.slow->has_mask) StartNext(leaf);
      any_sits_out_ |= leaf.sits_out();
    }
  }
}

// In the order of the queues, which does not depend on addresses. Requests that have not started
// have no slow grammars yet.
void SlowGrammars::ListRequests() {
  requests_.clear();
  for (const RequestPtr& request : context_.state.running_queue) {
    if (request->grammar == nullptr) continue;
    requests_.push_back(&context_.state.GetRequestState(request->id));
  }
  for (const RequestPtr& request : context_.state.waiting_queue) {
    RequestState& rstate = context_.state.GetRequestState(request->id);
    if (!rstate.started) break;
    if (request->grammar != nullptr && !rstate.in_running_queue) requests_.push_back(&rstate);
  }
}

double SlowGrammars::StepBudget() const {
  const auto num_running =
      static_cast<int64_t>(context_.state.GetRunningRequestStateEntries().size());
  const double seconds = context_.state.decode_costs.Seconds(std::max<int64_t>(num_running, 1), 0);
  const double share = seconds <= 0 ? 1 : std::clamp(seconds / kStepSeconds, kLeastShare, 1.0);
  return share * budgets_.step_seconds;
}

// ---- Which sequences are slow, and which requests too slow

double SlowGrammars::AddExcess(RequestStateEntry& leaf, double seconds) const {
  const double budgets = leaf.grammar_excess + seconds / StepBudget() - 1;
  return leaf.grammar_excess = std::clamp(budgets, 0.0, 2 * kMaxExcess);
}

void SlowGrammars::Classify(RequestStateEntry& leaf) {
  if (leaf.slow != nullptr || !leaf.pending_rows.empty() || leaf.matcher_error != nullptr) return;
  RequestState& rstate = *leaf.rstate;
  const double seconds = leaf.grammar_cost.Take();
  rstate.grammar_seconds += seconds;
  if (AddExcess(leaf, seconds) <= kMaxExcess) return;
  leaf.slow = std::make_unique<SlowGrammar>();
  leaf.drafts.reset();
  ++rstate.num_slow;
}

bool SlowGrammars::MakeFast(RequestStateEntry& leaf) const {
  const double excess = AddExcess(leaf, leaf.grammar_cost.Take());
  int& num_cheap = leaf.slow->num_cheap;
  num_cheap = excess <= kMaxExcess / 2 ? num_cheap + 1 : 0;
  if (num_cheap < kCheapTokens << std::min(leaf.rstate->num_slow - 1, kMaxDoublings)) return false;
  leaf.slow.reset();
  return true;
}

void SlowGrammars::CheckLimits(RequestState& rstate) {
  SlowCalls::Progress progress;
  for (const RequestStateEntry& leaf : rstate.leaves()) {
    if (leaf.slow == nullptr || leaf.slow->call == nullptr || leaf.slow->call->is_done()) continue;
    const SlowCalls::Progress own = calls_.ProgressOf(*leaf.slow->call);
    progress.cpu_seconds += own.cpu_seconds;
    progress.waiting_seconds = std::max(progress.waiting_seconds, own.waiting_seconds);
  }
  const double seconds = rstate.grammar_seconds + progress.cpu_seconds;
  std::string message = "matching the grammar of the answer has ";
  if (seconds > budgets_.total_seconds) {
    message += "taken ";
    AppendTo(&message, seconds);
    message += " s";
  } else if (progress.waiting_seconds > budgets_.total_seconds) {
    message += "waited ";
    AppendTo(&message, progress.waiting_seconds);
    message += " s for those of other requests";
  } else {
    return;
  }
  message += ", \"grammar_time_limit_s\" is ";
  AppendTo(&message, budgets_.total_seconds);
  EndRequest(context_, rstate, FinishReason::kError, message);
}

// Ends at most one request per step.
void SlowGrammars::LimitStates() {
  const auto bytes = [](double seconds) { return seconds * kStateBytesPerSecond; };
  RequestState* largest = nullptr;
  double total = 0;
  for (RequestState* rstate : requests_) {
    if (rstate->all_leaves_finished()) continue;
    total += rstate->slow_seconds;
    if (largest == nullptr || rstate->slow_seconds > largest->slow_seconds) largest = rstate;
  }
  if (bytes(total) <= static_cast<double>(budgets_.state_bytes)) return;
  EndRequest(context_, *largest, FinishReason::kError,
             "matching the grammars of all answers takes about " +
                 std::to_string(std::llround(bytes(total))) +
                 " bytes, \"grammar_state_bytes\" is " + std::to_string(budgets_.state_bytes) +
                 "; this answer's takes most of them");
}

// ---- Calls

// A call that has accepted a token may change tokens and pages, which nothing in flight may use.
bool SlowGrammars::MayFinish(const RequestStateEntry& leaf) const {
  if (leaf.slow->call == nullptr || !leaf.slow->call->is_done()) return false;
  const auto& call = static_cast<const Call&>(*leaf.slow->call);
  const bool only_fills = !call.asks_end && !call.jump_input;
  return only_fills || (leaf.status == RequestStateStatus::kAlive && leaf.pending_rows.empty() &&
                        leaf.mstate.kv_in_flight == 0);
}

void SlowGrammars::Finish(RequestStateEntry& leaf) {
  RequestState& rstate = *leaf.rstate;
  const auto call = std::static_pointer_cast<Call>(std::exchange(leaf.slow->call, nullptr));
  leaf.grammar_cost.Add(call->seconds());
  rstate.grammar_seconds += call->seconds();
  rstate.slow_seconds += call->seconds();
  if (call->error() != nullptr) {
    return EndRequest(context_, rstate, FinishReason::kError, ErrorText(call->error()));
  }
  SlowGrammar& slow = *leaf.slow;
  if (call->asks_end) {
    CountToken(context_, leaf, leaf.num_generated() == 1, context_.now());
    leaf.Deliver(std::move(*slow.undelivered));
    slow.undelivered.reset();
    leaf.grammar_ended = call->must_end;
    context_.state.MarkDirty(rstate);
  }
  slow.has_mask = call->is_filled;
  slow.constrained = call->constrained;
  slow.completed = call->completed;
  slow.mask = std::move(call->mask);
  if (call->jump) jump_forward_.Commit(leaf, *call->jump);  // which may end the sequence
}

void SlowGrammars::StartNext(RequestStateEntry& leaf) {
  std::shared_ptr<Call> call = NewCall(leaf);
  call->fills = true;
  if (leaf.rstate->request->jumps() && leaf.status == RequestStateStatus::kAlive &&
      std::exchange(leaf.tries_jump_forward, false)) {
    call->jump_input = jump_forward_.InputOf(leaf);
    if (call->jump_input->room <= 0) call->jump_input.reset();
  }
  Start(leaf, std::move(call));
}

void SlowGrammars::Accept(RequestStateEntry& leaf, SampleResult result) {
  SlowGrammar& slow = *leaf.slow;
  std::shared_ptr<Call> call = NewCall(leaf);
  const int32_t token_id = result.token.token_id;
  if (leaf.IsOfGrammar(token_id)) call->token = token_id;
  call->asks_end = true;
  call->fills = !leaf.rstate->request->jumps();
  leaf.AppendToken(token_id);
  slow.undelivered = std::move(result);
  slow.has_mask = false;
  Start(leaf, std::move(call));
}

std::shared_ptr<SlowGrammars::Call> SlowGrammars::NewCall(const RequestStateEntry& leaf) const {
  auto call = std::make_shared<Call>();
  call->matcher = leaf.grammar_matcher;
  call->request = leaf.rstate->request;
  call->ends = ends_;
  return call;
}

void SlowGrammars::Start(RequestStateEntry& leaf, std::shared_ptr<Call> call) {
  calls_.Start(call);
  leaf.slow->call = std::move(call);
}

}  // namespace mlc_native
