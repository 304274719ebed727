#include "sim/simulation.h"

#include <iostream>
#include <stdexcept>
#include <utility>

#include <nlohmann/json.hpp>

#include "mlc_native/detail/page.h"
#include "observe/event_trace.h"
#include "testing/adversarial_drafter.h"
#include "testing/fake_grammar.h"

namespace mlc_native::sim {
namespace {

using testing::FakeModel;

}  // namespace

Simulation::Simulation(const Scenario& scenario, bool trace)
    : scenario_(scenario),
      trace_(trace),
      workload_(scenario_),
      history_([this](const std::string& what) { Fail(what); }),
      state_(scenario_.config, [this](const std::string& what) { Fail(what); }),
      reference_(scenario_, [this](const std::string& what) { Fail(what); }),
      pins_([this](const std::string& what) { Fail(what); }),
      adapters_([this](const std::string& what) { Fail(what); }),
      faults_(scenario_),
      callback_random_(SimRandom(scenario.seed).Fork(5)) {
  if (!scenario_.vocabulary.tokenizer_json.empty()) {
    folder_.emplace().Write("tokenizer.json", scenario_.vocabulary.tokenizer_json);
  }
  // Small, so that events are dropped.
  if (scenario_.has(Feature::kTrace)) recorder_ = std::make_shared<EventTraceRecorder>(100);
  // The callback may run while allocations fail, so it must not need any.
  received_.reserve(64);
  CreateEngine();
}

Simulation::~Simulation() = default;

void Simulation::CreateEngine() {
  auto model = std::make_unique<FakeModel>(scenario_.model);
  model_ = model.get();
  faults_.Attach(model_);
  ModelDefaults defaults;
  defaults.eos_token_ids = scenario_.eos_token_ids;
  defaults.embedding = scenario_.embedding;
  EngineOptions options;
  options.now = clock_.function();
  options.create_grammar_compiler = testing::FakeGrammarFactory(faults_.grammar_hooks());
  options.request_stream_callback = [this](std::vector<RequestStreamOutput> outputs) {
    OnOutputs(std::move(outputs));
  };
  if (scenario_.has(Feature::kAdversarialDrafts)) {
    options.make_drafter = [this](const DraftSource&) {
      return std::make_unique<testing::AdversarialDrafter>(scenario_.model, ++num_drafters_,
                                                           &num_drafter_failures_);
    };
  }
  if (scenario_.draft_model) {
    options.make_draft_model = [this] {
      auto model = std::make_unique<FakeModel>(*scenario_.draft_model);
      draft_model_ = model.get();
      return model;
    };
  }
  options.trace_recorder = recorder_;
  options.slow_calls = slow_calls_ = std::make_shared<testing::FakeSlowCalls>();
  EngineConfig config = scenario_.config;
  config.grammar_step_budget_s = 0.001;  // so that sequences become slow soon
  config.grammar_time_limit_s = 3600;
  config.grammar_state_bytes = int64_t{1} << 50;
  if (folder_) config.model = folder_->path();
  engine_ = Engine::FromModel(std::move(model), config, std::move(defaults),
                              scenario_.vocabulary.table, options);
}

// ---- The loop

SimResult Simulation::Run() {
  Note(scenario_.Describe());
  try {
    for (step_ = 0; step_ < scenario_.num_steps && result_.failure.empty(); ++step_) {
      SimulateStep(step_);
    }
    if (result_.failure.empty()) Drain();
  } catch (const std::exception& error) {
    Fail(std::string("exception: ") + error.what());
  } catch (...) {
    Fail("an exception of no known type");
  }
  return result_;
}

void Simulation::SimulateStep(int64_t step) {
  const SimRandom rng = SimRandom(scenario_.seed).Fork(6).Fork(static_cast<uint64_t>(step));
  callback_random_ = rng.Fork(1);
  SimRandom arrivals = rng.Fork(2);
  Arrive(arrivals);
  SimRandom disturbances = rng.Fork(3);
  Disturb(disturbances);
  SimRandom faults = rng.Fork(4);
  StepEngine(faults);
}

// Some of them, before a step, so that none of its faults happens in them.
void Simulation::RunSlowCalls(SimRandom& rng) {
  slow_calls_->Run([&] {
    ++result_.num_slow;
    return rng.Chance(0.5);
  });
}

void Simulation::StepEngine(SimRandom& rng) {
  ++result_.num_steps;
  SimRandom slow = rng.Fork(20);
  RunSlowCalls(slow);
  const bool was_empty = engine_->Empty();
  clock_.Advance(rng.Uniform() * 0.1);
  faults_.ArmStep(rng);
  callback_threw_ = false;
  CallEngine([this] { faults_.Run([this] { engine_->Step(); }); });
  const bool disturbed = DisarmFaults() || callback_threw_;
  CheckState(!disturbed && !was_empty);
  if (engine_->Empty() && !live_.empty()) Fail("the engine is empty, but requests wait");
  CheckDeadlines();
}

// Without further arrivals and faults, every request must end.
void Simulation::Drain() {
  Note("drain");
  calm_ = true;
  while (!engine_->Empty() && result_.failure.empty()) {
    ++step_;
    ++result_.num_steps;
    slow_calls_->RunAll();
    CallEngine([this] { engine_->Step(); });
    DisarmFaults();
    CheckState(true);
  }
  if (result_.failure.empty()) CheckIdle();
}

void Simulation::CheckState(bool undisturbed) {
  engine_->AuditPages();
  pins_.Check(*engine_);
  last_state_ = engine_->DebugCall("dump_state");
  state_.AfterStep(last_state_, undisturbed, NumDraftFailuresWithCause());
  if (draft_model_ != nullptr && draft_model_->num_wrong_states() > 0) {
    Fail("the drafter was given a state that is not of its tokens");
  }
  int64_t num_early_reads = model_->steps().num_early_reads();
  if (draft_model_ != nullptr) num_early_reads += draft_model_->steps().num_early_reads();
  if (num_early_reads > 0) Fail("a step has read a place that was not written yet");
  // The cache may be large, and mostly what is wrong in it stays wrong for a while.
  const int64_t period = scenario_.has(Feature::kJumpForward) ? 1 : 8;
  if (scenario_.has(Feature::kPrefixCache) && step_ % period == 0) CheckCachedTokens();
}

// Drafts that were given up for a reason that the simulation knows, so far.
std::optional<int64_t> Simulation::NumDraftFailuresWithCause() const {
  if (scenario_.model.poison_token >= 0) return std::nullopt;  // each draft with it fails
  int64_t count = num_drafter_failures_;
  if (draft_model_ == nullptr) return count;
  for (int64_t forward : draft_model_->options().fail_at_forward) {
    count += forward <= draft_model_->num_forwards() ? 1 : 0;
  }
  return count;
}

// What the prefix cache shows is what the pages hold.
void Simulation::CheckCachedTokens() {
  const auto cache = nlohmann::json::parse(engine_->DebugCall("dump_prefix_cache"));
  for (const auto& path : cache["paths"]) {
    const auto tokens = path["token_ids"].get<std::vector<int32_t>>();
    const auto pages = path["page_ids"].get<std::vector<int64_t>>();
    for (int64_t i = 0; i < std::ssize(tokens); ++i) {
      const int64_t page = pages[i / kKvPageSize];
      const int32_t stored = model_->stored_token(page, i % kKvPageSize);
      const int32_t shown = IsInputRow(tokens[i]) ? tokens_of_rows_.at(tokens[i]) : tokens[i];
      if (stored == shown) continue;
      return Fail("the prefix cache shows token " + std::to_string(tokens[i]) + " at position " +
                  std::to_string(i) + ", but page " + std::to_string(page) + " holds " +
                  std::to_string(stored));
    }
  }
}

void Simulation::CheckIdle() {
  history_.ExpectAllFinal();
  if (!live_.empty()) Fail("request \"" + live_.begin()->first + "\" never ended");
  engine_->AuditPages();
  pins_.UnpinAll(*engine_);
  auto pages = nlohmann::json::parse(engine_->DebugCall("audit_pages"));
  if (pages["kv_pages_used"] != 0) Fail("pages are in use when all is done: " + pages.dump());
  engine_->Reset();
  pages = nlohmann::json::parse(engine_->DebugCall("audit_pages"));
  if (pages["kv_pages_free"] != pages["kv_pages_total"]) {
    Fail("not every page is free after a reset: " + pages.dump());
  }
}

// ---- What goes wrong

bool Simulation::DisarmFaults() {
  const bool fired = faults_.DisarmStep();
  if (fired) {
    ++result_.num_injected;
    Note("a fault was injected");
  }
  ProcessOutputs();
  faults_.ForgetStep(callback_threw_);
  return fired;
}

// ---- Record

void Simulation::Fail(const std::string& violation) {
  if (!result_.failure.empty()) return;
  result_.failure = "step " + std::to_string(step_) + ": " + violation;
  if (!trace_) return;
  std::cout << "VIOLATION " << result_.failure << "\nstate after the step before: " << last_state_
            << '\n';
}

SimResult Simulate(uint64_t seed, const FeatureSet& allowed, bool trace) {
  const Scenario scenario = DrawScenario(seed, allowed);
  return Simulation(scenario, trace).Run();
}

}  // namespace mlc_native::sim
