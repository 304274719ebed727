// The requests of a simulation: what comes in, and what comes out.
#include <sstream>
#include <stop_token>
#include <utility>

#include "sim/embeddings.h"
#include "sim/input_rows.h"
#include "sim/simulation.h"
#include "support/error.h"

namespace mlc_native::sim {
namespace {

using testing::RequestHistory;
using testing::SequenceHistory;

constexpr size_t kMaxLive = 40;

std::string Describe(const std::string& id, const Request& request) {
  const GenerationConfig& config = request.generation_cfg;
  std::ostringstream out;
  out << id << ": prompt of " << request.prompt_len() << ", max_tokens " << config.max_tokens
      << ", n " << config.n << ", temperature " << config.temperature << ", "
      << config.stop_strs.size() << " stop strings, " << config.stop_token_ids.size()
      << " stop tokens, seed " << config.seed.value_or(-1);
  if (request.embedding) out << ", embedded by " << ToString(*request.embedding->pooling);
  return out.str();
}

// What of the settings concerns an embedding.
bool HasServiceOf(const Request& request, const GenerationConfig& config) {
  const GenerationConfig& own = request.generation_cfg;
  return (request.adapter != nullptr) == !config.adapter.empty() && own.adapter == config.adapter &&
         own.cache_salt == config.cache_salt && own.priority == config.priority &&
         own.timeout_s == config.timeout_s && own.queue_timeout_s == config.queue_timeout_s;
}

}  // namespace

// ---- What comes in

void Simulation::Arrive(SimRandom& rng) {
  if (!rng.Chance(scenario_.arrivals_per_step)) return;
  for (int64_t i = rng.Range(1, scenario_.max_burst); i > 0 && live_.size() < kMaxLive; --i) {
    SubmitDrawn(rng);
  }
}

void Simulation::SubmitDrawn(SimRandom& rng) {
  if (Happens(rng, Feature::kInvalid)) return SubmitInvalid(rng);
  std::vector<int32_t> prompt = workload_.DrawPrompt(rng);
  GenerationConfig config = workload_.DrawGeneration(rng, std::ssize(prompt));
  if (SimRandom own = rng.Fork(21); Happens(own, Feature::kAdapters)) {
    config.adapter = adapters_.Pick(own);
  }
  if (rng.Chance(0.01)) config.debug_config.special_request = "query_engine_metrics";
  // A prompt that exceeds the room for pins is refused.
  config.debug_config.pinned_system_prompt &=
      std::ssize(prompt) <= engine_->request_limits().max_pinned_length.value_or(0);
  if (SimRandom own = rng.Fork(24); Happens(own, Feature::kInputRows)) PutRows(own, &prompt);
  if (HasRows(prompt)) {  // for which these are refused
    config.debug_config.pinned_system_prompt = false;
    config.prompt_logprobs.reset();
  }
  std::optional<EmbeddingConfig> embedding;
  SimRandom other = rng.Fork(static_cast<uint64_t>(*config.seed)).Fork(23);
  const bool is_whole = scenario_.model.whole_prompts;
  if (Happens(other, Feature::kEmbeddings) || is_whole) embedding = DrawEmbedding(other, is_whole);
  Submit(rng, config, prompt, embedding);
}

void Simulation::Submit(SimRandom& rng, const GenerationConfig& config,
                        const std::vector<int32_t>& prompt,
                        const std::optional<EmbeddingConfig>& embedding) {
  const std::string id = DrawId(rng);
  const std::optional<int64_t> most = engine_->request_limits().max_whole_rows;
  std::vector<Data> inputs = InputsOf(prompt, most.value_or(std::ssize(prompt)));
  SimRandom own = rng.Fork(20);
  std::stop_source given_up;
  if (Happens(own, Feature::kGivenUp)) given_up.request_stop();
  const bool begins_turn = Happens(own, Feature::kOutputOptions) && own.Chance(0.5);
  const RequestPtr request =
      embedding ? engine_->CreateEmbeddingRequest(id, std::move(inputs), *embedding, config)
                : engine_->CreateRequest(id, std::move(inputs), config, begins_turn,
                                         given_up.get_token());
  if (embedding && !HasServiceOf(*request, config)) return Fail("another service than asked for");
  if (!request->generation_cfg.stop_strs.empty() && scenario_.vocabulary.table == nullptr) {
    return Fail("the workload drew stop strings without text");
  }
  RememberRows(*request);
  Note("add ", Describe(id, *request));
  ++result_.num_requests;
  history_.Add(*request);
  live_[id] = {.request = request, .added = clock_.now(), .may_abort = request->is_aborted};
  state_.Added(id, request->generation_cfg.priority, request->jumps());
  if (AddToEngine(rng, request)) return;
  Note("  refused");
  history_.Forget(id);
  live_.erase(id);
  state_.Ended(id);
}

// One id never stands for two rows.
void Simulation::RememberRows(const Request& request) {
  const std::vector<int32_t> prompt = PromptOf(request);
  result_.num_with_rows += request.prompt_rows.empty() ? 0 : 1;
  for (size_t i = 0; i < prompt.size(); ++i) {
    const int32_t id = request.prompt_token_ids[i];
    if (!IsInputRow(id)) continue;
    const auto [known, is_new] = tokens_of_rows_.emplace(id, prompt[i]);
    if (known->second != prompt[i]) Fail("two rows have the id " + std::to_string(id));
  }
}

// False when it was refused for a good reason: a full queue, no memory, a grammar that fails.
bool Simulation::AddToEngine(SimRandom& rng, const RequestPtr& request) {
  const int64_t limit = scenario_.config.max_queue_length.value_or(-1);
  bool added = true;
  // Only of the simulation's own calls: a callback has no business with memory that fails.
  const bool armed = callback_depth_ == 0 && faults_.ArmAdmission(rng);
  CallEngine([&] {
    try {
      faults_.Run([&] { engine_->AddRequest(request); });
    } catch (const QueueFull&) {
      if (limit < 0 || std::ssize(live_) <= limit) Fail("the queue was not full");
      added = false;
    } catch (const std::bad_alloc&) {
      added = false;
    } catch (const GrammarError&) {
      added = false;
    }
  });
  if (armed) {
    faults_.DisarmAdmission();
    if (added) ProcessOutputs();
  }
  return added;
}

// Must be refused, and then nothing may come of it.
void Simulation::SubmitInvalid(SimRandom& rng) {
  // Inside the callback it is not known which requests are still live.
  const bool duplicate = callback_depth_ == 0 && !live_.empty() && rng.Chance(0.5);
  const std::string id = duplicate ? AnyId(rng) : "invalid";
  const RequestLimits limits = engine_->request_limits();
  std::vector<int32_t> prompt(duplicate ? 1 : limits.max_sequence_length + rng.Range(1, 20));
  try {
    RequestLimits generous = limits;
    generous.max_sequence_length += 100;  // as if created for another model
    if (SimRandom own = rng.Fork(23); !duplicate && Happens(own, Feature::kEmbeddings)) {
      engine_->AddRequest(CreateInvalidEmbedding(own, id));
      return Fail("an invalid embedding was accepted");
    }
    const bool create_checks = rng.Chance(0.5);
    std::vector<Data> inputs;
    inputs.emplace_back(TokenData{std::move(prompt)});
    GenerationConfig config = workload_.DrawGeneration(rng, 1);
    config.response_format = {};
    const RequestPtr request =
        CreateRequest(id, std::move(inputs), std::move(config), create_checks ? limits : generous);
    engine_->AddRequest(request);
  } catch (const InvalidRequest&) {
    return;
  }
  Fail("an invalid request was accepted");
}

RequestPtr Simulation::CreateInvalidEmbedding(SimRandom& rng, const std::string& id) const {
  RequestLimits limits = engine_->request_limits();
  if (rng.Chance(0.5)) limits.embedding_size += 100;  // as if created for another model
  std::vector<Data> inputs;
  inputs.emplace_back(TokenData{{0}});
  return CreateEmbeddingRequest(id, std::move(inputs), DrawInvalidEmbedding(rng), {}, limits);
}

std::string Simulation::DrawId(SimRandom& rng) {
  if (!used_ids_.empty() && Happens(rng, Feature::kIdReuse)) {
    const std::string& id = rng.Pick(used_ids_);
    if (!live_.contains(id)) {
      history_.Forget(id);
      return id;
    }
  }
  return "r" + std::to_string(result_.num_requests);
}

std::string Simulation::AnyId(SimRandom& rng) const {
  return std::next(live_.begin(), rng.Range(0, std::ssize(live_) - 1))->first;
}

void Simulation::Abort(const std::string& id) {
  Note("abort ", id);
  if (const auto found = live_.find(id); found != live_.end()) found->second.may_abort = true;
  CallEngine([&] { engine_->AbortRequest(id); });
}

void Simulation::Disturb(SimRandom& rng) {
  if (Happens(rng, Feature::kAborts)) {
    std::string id = "nobody";
    if (!live_.empty() && rng.Chance(0.9)) id = AnyId(rng);
    Abort(id);
    if (callback_depth_ == 0 && live_.contains(id)) Fail("\"" + id + "\" lives on after an abort");
    if (rng.Chance(0.2)) Abort(id);
  }
  if (Happens(rng, Feature::kEndAll)) EndAll(rng);
  if (Happens(rng, Feature::kPinCalls)) {
    Note(pins_.Act(*engine_, rng, workload_.DrawRemembered(rng)));
  }
  if (SimRandom own = rng.Fork(22); Happens(own, Feature::kAdapters) && own.Chance(0.3)) {
    Note(adapters_.Act(*engine_, own));
  }
  if (rng.Chance(0.02)) engine_->JSONMetrics();
}

void Simulation::AllowEnds(bool by_failure) {
  for (auto& [id, live] : live_) (by_failure ? live.may_fail : live.may_abort) = true;
}

void Simulation::EndAll(SimRandom& rng) {
  // A callback keeps its engine.
  const int64_t kind = rng.Range(0, callback_depth_ > 0 ? 2 : 3);
  AllowEnds(kind == 0);
  const char* const names[] = {"fail all", "abort all", "reset", "new engine"};
  Note(names[kind]);
  CallEngine([&] {
    if (kind == 0) return engine_->FailAllRequests("told to fail");
    if (kind == 2) return engine_->Reset();
    engine_->AbortAllRequests();
  });
  if (kind >= 2) pins_.Clear();
  // The callback may have added new ones.
  if (kind != 3) return engine_->AuditPages();
  calm_ = true;
  AllowEnds(/*by_failure=*/false);
  CallEngine([&] { engine_->AbortAllRequests(); });
  calm_ = false;
  adapters_.Clear();
  tokens_of_rows_.clear();
  CreateEngine();
}

// ---- What comes out

void Simulation::OnOutputs(std::vector<RequestStreamOutput> outputs) {
  received_.push_back(std::move(outputs));
  if (calm_ || callback_depth_ > 1 || faults_.allocations_fail()) return;
  ++callback_depth_;
  SimRandom own = callback_random_.Fork(received_.size());
  if (scenario_.has(Feature::kEndAll) && Happens(own, Feature::kCallbackCalls) && own.Chance(0.1)) {
    EndAll(own);
  }
  if (Happens(callback_random_, Feature::kCallbackCalls)) {
    if (callback_random_.Chance(0.5)) {
      SubmitDrawn(callback_random_);
    } else if (!live_.empty()) {
      Abort(AnyId(callback_random_));
    }
  }
  --callback_depth_;
  if (Happens(callback_random_, Feature::kCallbackThrows)) {
    throw CallbackError();  // NOLINT(bugprone-std-exception-baseclass): callbacks throw anything
  }
}

void Simulation::ProcessOutputs() {
  std::vector<std::vector<RequestStreamOutput>> received;
  received.reserve(received_.capacity());
  received.swap(received_);
  for (const auto& outputs : received) {
    history_.Receive(outputs);
    for (const RequestStreamOutput& output : outputs) ProcessOutput(output);
  }
}

void Simulation::ProcessOutput(const RequestStreamOutput& output) {
  for (size_t i = 0; i < output.group.size(); ++i) {
    const SequenceDelta& delta = output.group[i];
    result_.num_tokens += std::ssize(delta.token_ids);
    std::ostringstream text;
    for (int32_t token : delta.token_ids) text << ' ' << token;
    if (delta.finish_reason) text << ' ' << ToString(*delta.finish_reason);
    Note("  ", output.request_id, '[', i, "]:", text.str());
  }
  if (!output.embedding.empty()) {
    ++result_.num_embedded;
    std::ostringstream numbers;
    for (const float number : output.embedding) numbers << ' ' << number;
    Note("  ", output.request_id, " is embedded:", numbers.str());
  }
  if (!output.is_final()) return;
  result_.num_jumped += output.usage->jump_forward_tokens;
  result_.num_drafted += output.usage->accepted_draft_tokens;
  Note("  ", output.request_id, " is final: ", UsageJSONString(*output.usage), ' ',
       output.error_message);
  Settle(output.request_id);
}

void Simulation::Settle(const std::string& id) {
  const auto found = live_.find(id);
  if (found == live_.end()) return Fail("a final output for \"" + id + "\", which is not live");
  const LiveRequest live = std::move(found->second);
  live_.erase(found);
  state_.Ended(id);
  used_ids_.push_back(id);
  const RequestHistory& answer = history_.of(id);
  const bool fails_alone = reference_.Check(*live.request, answer);
  CheckCause(live, answer, fails_alone);
  SimRandom rng = SimRandom(scenario_.seed).Fork(7).Fork(used_ids_.size());
  workload_.Remember(PromptOf(*live.request), answer.sequences.front().token_ids, rng);
}

bool Simulation::DeadlineHasPassed(const LiveRequest& live, const std::optional<double>& asked,
                                   const std::optional<double>& preset) const {
  const std::optional<double> seconds = asked ? asked : preset;
  return seconds && std::chrono::duration<double>(clock_.now() - live.added).count() > *seconds;
}

// Time stands still during a step, so a request that is late now was late when the step began.
void Simulation::CheckDeadlines() {
  for (const auto& [id, live] : live_) {
    if (DeadlineHasPassed(live, live.request->generation_cfg.timeout_s,
                          scenario_.config.timeout_s)) {
      Fail("\"" + id + "\" lives on after its deadline");
    }
  }
}

// No request ends without a cause, and an error names its cause.
void Simulation::CheckCause(const LiveRequest& live, const RequestHistory& answer,
                            bool fails_alone) {
  const std::string& id = live.request->id;
  bool failed = false;
  for (const SequenceHistory& sequence : answer.sequences) {
    if (sequence.finish_reason == FinishReason::kAbort && !live.may_abort) {
      Fail("\"" + id + "\" was aborted without a cause");
    }
    const GenerationConfig& config = live.request->generation_cfg;
    if (sequence.finish_reason == FinishReason::kTimeout &&
        !DeadlineHasPassed(live, config.timeout_s, scenario_.config.timeout_s) &&
        !DeadlineHasPassed(live, config.queue_timeout_s, scenario_.config.queue_timeout_s)) {
      Fail("\"" + id + "\" timed out early");
    }
    if (sequence.finish_reason != FinishReason::kError) continue;
    failed = true;
    if (!live.may_fail && !fails_alone && !faults_.excuses_errors()) {
      Fail("\"" + id + "\" failed without a cause: " + answer.error_message);
    }
  }
  if (failed && answer.error_message.empty()) Fail("\"" + id + "\" failed without a message");
}

}  // namespace mlc_native::sim
