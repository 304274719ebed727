#include "mlc_native/engine.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "checkpoint/dense_layers.h"
#include "engine_adapters.h"
#include "engine_debug.h"
#include "engine_grammars.h"
#include "engine_parts.h"
#include "observe/event_trace.h"
#include "observe/step_profiler.h"
#include "request/input_row_ids.h"
#include "request/queue_limit.h"
#include "request/scheduler.h"
#include "step/deliver.h"
#include "step/grammar_masks.h"
#include "step/grammar_timer.h"
#include "step/jump_forward.h"
#include "step/make_batch_drafter.h"
#include "step/make_room.h"
#include "step/post_process.h"
#include "step/sequence_life.h"
#include "step/slow_grammars.h"
#include "step/speculation.h"
#include "step/step_pipeline.h"
#include "step/token_blocks.h"
#include "support/check.h"
#include "support/error.h"
#include "support/float_environment.h"

namespace mlc_native {
namespace {

class EngineImpl final : public Engine {
 public:
  EngineImpl(EngineParts loaded, const EngineOptions& options);
  ~EngineImpl() override;

  void AddRequest(RequestPtr request) override;
  void AddRequest(RequestPtr request, Submission submission) override;
  void AbortRequest(const std::string& request_id) override;
  void AbortAllRequests() override { EndAllRequests(FinishReason::kAbort, ""); }
  void FailAllRequests(const std::string& message) override {
    EndAllRequests(FinishReason::kError, message);
  }
  void Step() override;
  void Reset() override;
  bool Empty() const override { return estate_->request_states.empty(); }

  const EngineConfig& config() const override { return loaded_.config; }
  const GenerationConfig& default_generation_config() const override {
    return loaded_.defaults.generation;
  }
  RequestLimits request_limits() const override;
  std::shared_ptr<const TokenTable> token_table() const override { return loaded_.token_table; }
  std::shared_ptr<EngineGrammars> grammars() const override { return grammars_; }
  std::shared_ptr<EngineAdapters> adapters() const override { return adapters_; }
  std::shared_ptr<InputRowIds> row_ids() const override { return row_ids_; }
  std::string JSONMetrics() const override { return estate_->metrics.AsJSONString(Gauges()); }
  void AuditPages() const override {
    AuditState(*estate_, kv_);
    if (batch_drafter_ == nullptr) return;
    batch_drafter_->Audit();
    MLC_CHECK(!Empty() || batch_drafter_->kv().num_sequences() == 0)
        << batch_drafter_->kv().num_sequences() << " sequences of the batch drafter have ended";
  }
  int64_t PinPrefix(const std::vector<int32_t>& token_ids) override {
    return RequirePrefixCache().Pin(token_ids);
  }
  void UnpinPrefix(int64_t pin_id) override { RequirePrefixCache().Unpin(pin_id); }
  std::vector<PinnedPrefix> PinnedPrefixes() const override {
    if (estate_->prefix_cache == nullptr) return {};
    return estate_->prefix_cache->pinned_prefixes();
  }
  std::string DebugCall(const std::string& name) override { return debug_functions_.Call(name); }

 private:
  void CheckAdmission(const Request& request) const;
  // The reason of an answer that is empty whatever the model says.
  std::optional<FinishReason> EmptyAnswer(RequestState& rstate);
  // Runs something that ends or advances requests, then post-processes and delivers. If it throws,
  // all requests end with an error.
  template <typename Action>
  void Advance(const Action& action);
  void EndExpired();
  void CreatePrefixCache();
  std::optional<int64_t> MaxPinnedLength() const;  // see RequestLimits
  std::optional<int64_t> MaxWholeRows() const;     // see RequestLimits
  int64_t EmbeddingSize() const;                   // likewise
  int64_t NumClasses() const;                      // likewise
  // Throws InvalidRequest when it is off.
  PrefixCache& RequirePrefixCache();
  void Compute();
  void PlanStep();
  void EndAllRequests(FinishReason reason, const std::string& message);
  void MarkAllEnded(FinishReason reason, const std::string& message);
  void Process() {
    const StepProfiler::Scope scope(&profiler_, StepPhase::kPostProcess);
    PostProcess(context_);
  }
  void Deliver();
  EngineGauges Gauges() const;
  int64_t max_sequence_length() const {
    return std::min(*config().max_single_sequence_length, *config().max_total_sequence_length);
  }

  EngineParts loaded_;
  const std::shared_ptr<EventTraceRecorder> trace_;
  const std::shared_ptr<QueueLimit> queue_;
  const std::shared_ptr<EngineGrammars> grammars_;
  const std::shared_ptr<EngineAdapters> adapters_;
  const std::shared_ptr<InputRowIds> row_ids_ = std::make_shared<InputRowIds>();
  PagedKvCache kv_;
  const std::unique_ptr<BatchDrafter> batch_drafter_;  // may be null
  const std::unique_ptr<TokenBlocks> token_blocks_;    // may be null
  EngineState estate_;                                 // after kv_: its prefix cache holds pages
  StepProfiler profiler_;
  const std::shared_ptr<SlowCalls> slow_calls_;
  MaskFiller mask_filler_;
  const SchedulerLimits limits_;
  StepContext context_;
  SlowGrammars slow_grammars_;
  StepPipeline steps_;
  JumpForward jump_forward_;
  Speculation speculation_;
  StepPlan plan_;  // of the step that Compute submits
  DebugFunctions debug_functions_;
};

// Of a file that is read on first use, when the host may be in another folder.
std::string LastingPath(const std::string& path) {
  std::error_code error;
  if (path.empty()) return path;
  const std::filesystem::path lasting = std::filesystem::absolute(path, error);
  return error ? path : lasting.string();
}

// It has as many pages and slots as the model, so what the model has room for never lacks guesses
// for long.
std::unique_ptr<BatchDrafter> TakeDrafter(EngineParts* loaded, const Log& log) {
  if (loaded->draft_model == nullptr) return nullptr;
  const EngineConfig& config = loaded->config;
  const BatchDrafter::Sizes sizes{.num_pages = NumPages(config),
                                  .max_rows = *config.prefill_chunk_size,
                                  .max_sequences = *config.max_num_sequence,
                                  .target_vocab_size = loaded->model->metadata().vocab_size,
                                  .num_slots = NumSlots(*loaded->draft_model, config)};
  return MakeBatchDrafter(std::move(loaded->draft_model), *loaded->model, sizes, log);
}

EngineImpl::EngineImpl(EngineParts loaded, const EngineOptions& options)
    : loaded_(Allocated(std::move(loaded))),
      trace_(options.trace_recorder),
      queue_(options.queue != nullptr ? options.queue : std::make_shared<QueueLimit>()),
      grammars_(std::make_shared<EngineGrammars>(
          EngineGrammars::Model{.token_table = loaded_.token_table,
                                .eos_token_ids = loaded_.defaults.eos_token_ids,
                                .vocab_size = loaded_.model->metadata().vocab_size,
                                .tokenizer_json = LastingPath(TokenizerJson(loaded_.config.model))},
          loaded_.config, options.create_grammar_compiler, options.log)),
      adapters_(std::make_shared<EngineAdapters>(loaded_.model->adapter_loader())),
      kv_(NumPages(loaded_.config), kKvPageSize, options.log,
          NumSlots(*loaded_.model, loaded_.config)),
      batch_drafter_(TakeDrafter(&loaded_, options.log)),
      token_blocks_(batch_drafter_ == nullptr || options.make_drafter
                        ? nullptr
                        : TokenBlocks::Make(*loaded_.model, batch_drafter_->queue(),
                                            *loaded_.config.max_num_sequence)),
      profiler_(options.now),
      slow_calls_(options.slow_calls != nullptr ? options.slow_calls
                                                : std::make_shared<SlowCallThreads>()),
      mask_filler_(slow_calls_.get()),
      limits_{.max_num_sequence = *config().max_num_sequence,
              .prefill_chunk_size = *config().prefill_chunk_size,
              .prefill_mode = config().prefill_mode,
              .max_num_scored = MaxScoredRows(*config().prefill_chunk_size),
              .max_num_pooled = loaded_.model->metadata().whole_prompts
                                    ? *config().prefill_chunk_size
                                    : MaxPooledRows(*config().prefill_chunk_size)},
      context_{.state = *estate_,
               .kv = kv_,
               .model = *loaded_.model,
               .mask_filler = mask_filler_,
               .eos_token_ids = loaded_.defaults.eos_token_ids,
               .limits = limits_,
               .max_sequence_length = max_sequence_length(),
               .now = options.now,
               .token_table = loaded_.token_table,
               .slow_calls = slow_calls_.get(),
               .slow_grammars = &slow_grammars_,
               .batch_drafter = batch_drafter_.get(),
               .token_blocks = token_blocks_.get(),
               .trace = trace_.get(),
               .profiler = &profiler_},
      slow_grammars_(context_, *slow_calls_,
                     {.step_seconds = loaded_.config.grammar_step_budget_s,
                      .total_seconds = loaded_.config.grammar_time_limit_s,
                      .state_bytes = loaded_.config.grammar_state_bytes}),
      steps_(context_),
      jump_forward_(context_),
      speculation_(context_, loaded_.config, options.make_drafter) {
  adapters_->LoadAll(config().adapters);
  CreatePrefixCache();
  estate_->request_stream_callback_ = options.request_stream_callback;
  RegisterDebugFunctions({*estate_, kv_, *loaded_.model, config(), profiler_}, &debug_functions_);
  queue_->set_limit(config().max_queue_length.value_or(QueueLimit::kUnlimited));
}

void EngineImpl::CreatePrefixCache() {
  const std::optional<int64_t> max_pinned_length = MaxPinnedLength();
  if (!max_pinned_length) return;
  estate_->prefix_cache = std::make_unique<PrefixCache>(
      &kv_, PrefixCacheLimits{
                .max_num_recycling_seqs = config().prefix_cache_max_num_recycling_seqs.value_or(-1),
                .max_pinned_pages = *max_pinned_length / kv_.page_size(),
                .max_pins = config().max_pinned_prefixes,
                .max_pinned_slots = kv_.num_spare_slots()});
}

std::optional<int64_t> EngineImpl::MaxPinnedLength() const {
  if (config().prefix_cache_mode == PrefixCacheMode::kDisable) return std::nullopt;
  // What is pinned leaves room for the longest sequence, which alone can always be served then.
  const int64_t longest = kv_.PagesNeededForNew(max_sequence_length());
  return (kv_.pool().num_total() - longest) * kv_.page_size();
}

// Decoding sequences may take a row each of every step.
int64_t EngineImpl::EmbeddingSize() const {
  const DenseLayers* const layers = loaded_.defaults.embedding.layers.get();
  const int64_t hidden_size = loaded_.model->metadata().hidden_size;
  return layers == nullptr || hidden_size == 0 ? hidden_size : layers->output_size();
}

int64_t EngineImpl::NumClasses() const {
  const DenseLayers* const classifier = loaded_.defaults.embedding.classifier.get();
  const bool has_states = loaded_.model->metadata().hidden_size > 0;
  return classifier == nullptr || !has_states ? 0 : classifier->output_size();
}

std::optional<int64_t> EngineImpl::MaxWholeRows() const {
  const std::optional<int64_t>& most = loaded_.model->metadata().max_whole_rows;
  if (!most) return std::nullopt;
  const int64_t room = *config().prefill_chunk_size - *config().max_num_sequence;
  return std::min(*most, std::max<int64_t>(room, 0));
}

PrefixCache& EngineImpl::RequirePrefixCache() {
  CheckPin(0, request_limits());  // throws without a cache
  return *estate_->prefix_cache;
}

EngineImpl::~EngineImpl() {
  // Outputs of requests that are still live are discarded.
  estate_->request_stream_callback_ = nullptr;
  try {
    AbortAllRequests();
  } catch (const std::exception&) {
    // Only a bug of ours gets here; the memory is freed all the same.
  }
}

// ---- Admission ----

void EngineImpl::CheckAdmission(const Request& request) const {
  if (estate_->request_states.contains(request.id)) {
    throw InvalidRequest("id", "The request id \"" + request.id + "\" is in use");
  }
  // Again, because the request may have been created for another model that was loaded before.
  CheckRequest(request, request_limits());
  grammars_->Check(request);
  adapters_->Check(request);
  row_ids_->Check(request);
  if (!request.generation_cfg.stop_strs.empty() && loaded_.token_table == nullptr) {
    throw InvalidRequest("stop_strs",
                         "\"stop_strs\" needs a model folder with tokenizer.json; this one has "
                         "none, so tokens have no text");
  }
}

void EngineImpl::AddRequest(RequestPtr request) {
  Submission submission{.time = context_.now(), .slot = {}};
  if (request->needs_queue_slot()) submission.slot = QueueLimit::Enter(queue_);
  AddRequest(std::move(request), std::move(submission));
}

void EngineImpl::AddRequest(RequestPtr request, Submission submission) {
  const GenerationConfig& generation = request->generation_cfg;
  CheckAdmission(*request);
  if (trace_) trace_->AddEvent(request->id, "request added");
  if (!generation.debug_config.special_request.empty()) {
    AnswerWithMetrics(context_, *request, Gauges());
    return Deliver();
  }
  if (request->is_aborted) {
    AnswerEmpty(context_, *request, FinishReason::kAbort);
    return Deliver();
  }
  std::shared_ptr<const StopStrSet> stop_strs;
  if (!generation.stop_strs.empty()) {
    stop_strs = std::make_shared<StopStrSet>(generation.stop_strs);
  }
  const bool strip = request->begins_turn && loaded_.token_table != nullptr &&
                     loaded_.token_table->strip_leading_space();
  auto rstate = std::make_unique<RequestState>(request, stop_strs, strip, submission.time,
                                               limits_.max_num_sequence);
  rstate->ends_with_prompt = EmptyAnswer(*rstate);
  if (rstate->ends_with_prompt && !generation.prompt_logprobs && !request->embedding) {
    AnswerEmpty(context_, *request, *rstate->ends_with_prompt);
    return Deliver();
  }
  rstate->queue_slot = std::move(submission.slot);
  rstate->SetDeadlines(config());
  rstate->may_draft = speculation_.IsWantedFor(*request);
  RequestState& admitted = estate_->Admit(std::move(rstate));
  if (trace_) {
    trace_->AddEvent(request->id, "start queue wait");
    admitted.queue_wait_traced = true;
  }
}

std::optional<FinishReason> EngineImpl::EmptyAnswer(RequestState& rstate) {
  std::optional<FinishReason> reason;
  if (rstate.request->embedding) {
    reason = FinishReason::kStop;
  } else if (rstate.config().max_tokens == 0) {
    reason = FinishReason::kLength;
  } else if (rstate.request->grammar != nullptr) {
    ++estate_->metrics.num_constrained_requests;
    const GrammarTimer timer(context_, rstate.leaves()[0]);
    if (GrammarMasks(context_).MustEnd(rstate.leaves()[0])) reason = FinishReason::kStop;
  }
  if (reason) {
    for (RequestStateEntry& leaf : rstate.leaves()) leaf.grammar_matcher.reset();
  }
  return reason;
}

// ---- Steps ----

void EngineImpl::Step() {
  if (Empty()) return;
  const DefaultFloatEnvironment floats;
  const StepProfiler::Scope scope(&profiler_, StepPhase::kStep);
  // Expired requests get their last output before anything is computed: a step may take long.
  if (!estate_->deadlines.empty()) Advance([this] { EndExpired(); });
  if (!Empty()) Advance([this] { Compute(); });
}

// Plans and submits one step. The step before it, if it is still in flight, is collected
// afterwards, so that the model always has something to compute.
void EngineImpl::Compute() {
  // A draft goes on from the last token, which must be known to the host or the device.
  if (steps_.MustCollect() || speculation_.MustCollect()) steps_.CatchUp();
  if (Empty()) return;
  const bool was_in_flight = steps_.num_in_flight() > 0;
  slow_grammars_.Run();
  if (Empty()) return;
  jump_forward_.Run();
  bool may_draft = true;
  do {
    PlanStep();
    if (std::exchange(may_draft, false)) {
      speculation_.AddDrafts(&plan_, steps_.num_in_flight() > 0);
    }
  } while (!plan_.empty() && steps_.Submit(plan_) == StepPipeline::Outcome::kPlanAnew);
  steps_.CollectUntil(!plan_.empty() && steps_.runs_ahead() ? 1 : 0);
  const bool has_worked =
      !plan_.empty() || was_in_flight || !estate_->postproc_workspace.dirty.empty();
  if (!has_worked && slow_grammars_.any_sits_out()) return slow_grammars_.Wait();
  // Every request may have failed; otherwise an empty plan means that the head can never be served.
  MLC_CHECK(has_worked) << "nothing to compute for " << estate_->waiting_queue.size()
                        << " waiting requests, " << kv_.pool().num_available() << " of "
                        << kv_.pool().num_total() << " pages available";
}

// Waiting prompts if any can be admitted (in hybrid mode together with the running sequences),
// otherwise the next tokens of the running sequences.
void EngineImpl::PlanStep() {
  DropExcessProgress(context_, steps_);
  PlanPrefill(*estate_, kv_, limits_, &plan_);
  if (!plan_.empty()) return;
  MakeRoomForDecode(context_, steps_);
  PlanDecode(*estate_, limits_.prefill_chunk_size, &plan_);
  // Room may have been made by preempting every sequence: then there is something to prefill.
  if (plan_.empty()) PlanPrefill(*estate_, kv_, limits_, &plan_);
}

template <typename Action>
void EngineImpl::Advance(const Action& action) {
  try {
    action();
    Process();
  } catch (const std::exception& error) {
    // An internal error or no memory: no caller may wait for an answer that will not come.
    steps_.Discard();
    MarkAllEnded(FinishReason::kError, error.what());
    Process();
  }
  Deliver();
}

void EngineImpl::EndExpired() {
  const TimePoint now = context_.now();
  while (RequestState* rstate = estate_->deadlines.PopExpired(now)) {
    EndRequest(context_, *rstate, FinishReason::kTimeout, "");
  }
}

void EngineImpl::Deliver() {
  // Waits for steps of ended requests only after their last outputs are delivered, also if the
  // callback throws.
  struct AtEnd {
    StepPipeline& steps;
    ~AtEnd() { steps.DiscardDead(); }
  };
  const AtEnd at_end{steps_};
  const StepProfiler::Scope scope(&profiler_, StepPhase::kDeliver);
  DeliverOutputs(context_);
}

void EngineImpl::AbortRequest(const std::string& request_id) {
  RequestState* rstate = estate_->FindRequestState(request_id);
  if (rstate == nullptr) return;
  EndRequest(context_, *rstate, FinishReason::kAbort, "");
  PostProcess(context_);
  Deliver();
}

void EngineImpl::EndAllRequests(FinishReason reason, const std::string& message) {
  MarkAllEnded(reason, message);
  PostProcess(context_);
  Deliver();
}

void EngineImpl::MarkAllEnded(FinishReason reason, const std::string& message) {
  for (const auto& [id, rstate] : estate_->request_states) {
    EndRequest(context_, *rstate, reason, message);
  }
}

void EngineImpl::Reset() {
  MarkAllEnded(FinishReason::kAbort, "");
  PostProcess(context_);
  std::vector<RequestStreamOutput> outputs = std::move(estate_->postproc_workspace.outputs);
  estate_->Reset();
  if (batch_drafter_ != nullptr) batch_drafter_->Clear();
  speculation_.Clear();
  queue_->ResetCounters();
  estate_->postproc_workspace.outputs = std::move(outputs);
  Deliver();
}

// ---- Information ----

RequestLimits EngineImpl::request_limits() const {
  return {.vocab_size = loaded_.model->metadata().vocab_size,
          .max_num_sequence = *config().max_num_sequence,
          .max_sequence_length = max_sequence_length(),
          .length_reason = loaded_.length_reason,
          .max_pinned_length = MaxPinnedLength(),
          .generates = loaded_.model->metadata().generates,
          .embedding_size = EmbeddingSize(),
          .num_classes = NumClasses(),
          .input_size = loaded_.model->metadata().input_size,
          .row_positions = loaded_.model->metadata().row_positions,
          .max_whole_rows = MaxWholeRows(),
          .whole_prompts = loaded_.model->metadata().whole_prompts,
          .embedding = loaded_.defaults.embedding};
}

EngineGauges EngineImpl::Gauges() const {
  const PrefixCache* const cache = estate_->prefix_cache.get();
  return {.num_waiting = std::ssize(estate_->waiting_queue),
          .num_running = std::ssize(estate_->running_queue),
          .queue_length = queue_->length(),
          .num_queue_full = queue_->num_refused(),
          .kv_pages_total = kv_.pool().num_total(),
          .kv_pages_used = kv_.pool().num_used(),
          .kv_pages_free = kv_.pool().num_free(),
          .kv_pages_cached = kv_.pool().num_cached(),
          .kv_pages_pinned = cache != nullptr ? cache->num_pinned_pages() : 0,
          .prefix_cache_evicted_pages = cache != nullptr ? cache->num_evicted_pages() : 0,
          .grammars_cached = grammars_->num_cached(),
          .grammar_cache_bytes = grammars_->cached_bytes()};
}

}  // namespace

std::unique_ptr<Engine> Engine::Create(const EngineConfig& config, const EngineOptions& options) {
  const DefaultFloatEnvironment floats;
  return std::make_unique<EngineImpl>(LoadParts(config, options), options);
}

RequestPtr Engine::CreateRequest(std::string id, std::vector<Data> inputs,
                                 GenerationConfig generation_cfg, bool begins_turn,
                                 const std::stop_token& stop) const {
  return mlc_native::CreateRequest(
      std::move(id), std::move(inputs), std::move(generation_cfg), request_limits(),
      [&](Request* request) {
        adapters()->ResolveFor(request);
        row_ids()->ResolveFor(request);
        grammars()->CompileFor(request, stop);
      },
      begins_turn);
}

RequestPtr Engine::CreateEmbeddingRequest(std::string id, std::vector<Data> inputs,
                                          const EmbeddingConfig& embedding,
                                          const GenerationConfig& service) const {
  return mlc_native::CreateEmbeddingRequest(std::move(id), std::move(inputs), embedding, service,
                                            request_limits(), [&](Request* request) {
                                              adapters()->ResolveFor(request);
                                              row_ids()->ResolveFor(request);
                                            });
}

void Engine::LoadAdapter(const std::string& name, const std::string& folder) const {
  adapters()->Load(name, folder);
}
void Engine::UnloadAdapter(const std::string& name) const { adapters()->Unload(name); }
std::vector<AdapterInfo> Engine::ListAdapters() const { return adapters()->List(); }

std::unique_ptr<Engine> Engine::FromModel(std::unique_ptr<Model> model, const EngineConfig& config,
                                          ModelDefaults defaults,
                                          std::shared_ptr<const TokenTable> token_table,
                                          const EngineOptions& options) {
  CheckResolved(config);
  std::unique_ptr<Model> draft_model;
  if (options.make_draft_model) draft_model = options.make_draft_model();
  return std::make_unique<EngineImpl>(EngineParts{.model = std::move(model),
                                                  .draft_model = std::move(draft_model),
                                                  .config = config,
                                                  .defaults = std::move(defaults),
                                                  .token_table = std::move(token_table)},
                                      options);
}

}  // namespace mlc_native
