// Simulation: one seed against the engine core. Single thread, no real time, no randomness but the
// seed: the same seed and features give the same history, event for event.
//
// Each step draws what arrives and what goes wrong, steps the engine and checks everything that
// promises hold: HistoryChecker (outputs), StateChecker (queues, states, ids, progress), AuditPages
// (pages), Reference (tokens, text, finish reasons, usage), and that requests end with "abort" or
// "error" only when there was a cause. After the last step the engine must drain, be clean, and
// serve one more request.
#pragma once

#include <cstdint>
#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "mlc_native/engine.h"
#include "sim/adapters.h"
#include "sim/faults.h"
#include "sim/pins.h"
#include "sim/reference.h"
#include "sim/scenario.h"
#include "sim/state_checker.h"
#include "sim/workload.h"
#include "testing/fake_slow_calls.h"
#include "testing/history_checker.h"
#include "testing/temp_folder.h"
#include "testing/virtual_clock.h"

namespace mlc_native::sim {

struct SimResult {
  std::string failure;  // empty: every promise was kept
  uint64_t digest = 0;  // of the whole history: equal digests mean equal histories
  int64_t num_steps = 0;
  int64_t num_requests = 0;
  int64_t num_tokens = 0;
  int64_t num_injected = 0;   // faults that fired
  int64_t num_jumped = 0;     // tokens that jump-forward put in
  int64_t num_drafted = 0;    // tokens of the answers that were guessed
  int64_t num_slow = 0;       // calls of slow grammars
  int64_t num_embedded = 0;   // prompts
  int64_t num_with_rows = 0;  // requests with rows in place of tokens
};

class Simulation {
 public:
  // `trace`: print the history on stdout as it happens.
  Simulation(const Scenario& scenario, bool trace);
  ~Simulation();

  SimResult Run();

 private:
  struct CallbackError {};  // what the callback throws when it is told to
  struct LiveRequest {
    RequestPtr request;
    TimePoint added;
    bool may_abort = false;  // somebody asked for its end
    bool may_fail = false;   // FailAllRequests was called
  };

  // ---- the loop
  void CreateEngine();
  void SimulateStep(int64_t step);
  void Drain();
  void CheckState(bool undisturbed);
  void CheckCachedTokens();
  std::optional<int64_t> NumDraftFailuresWithCause() const;
  void CheckIdle();
  void StepEngine(SimRandom& rng);
  void RunSlowCalls(SimRandom& rng);

  // ---- what comes in
  void Arrive(SimRandom& rng);
  // Embeds the prompt if there is an `embedding`.
  void Submit(SimRandom& rng, const GenerationConfig& config, const std::vector<int32_t>& prompt,
              const std::optional<EmbeddingConfig>& embedding);
  void RememberRows(const Request& request);
  bool AddToEngine(SimRandom& rng, const RequestPtr& request);
  void SubmitDrawn(SimRandom& rng);
  void SubmitInvalid(SimRandom& rng);
  RequestPtr CreateInvalidEmbedding(SimRandom& rng, const std::string& id) const;
  std::string DrawId(SimRandom& rng);
  std::string AnyId(SimRandom& rng) const;
  void Abort(const std::string& id);
  void Disturb(SimRandom& rng);
  void AllowEnds(bool by_failure);
  void EndAll(SimRandom& rng);

  // ---- what goes wrong
  // Looks at the outputs of the step too. Whether a fault has fired.
  bool DisarmFaults();
  bool Happens(SimRandom& rng, Feature feature) const {
    return rng.Chance(scenario_.rate(feature));
  }

  // ---- what comes out
  void OnOutputs(std::vector<RequestStreamOutput> outputs);
  void ProcessOutputs();
  void ProcessOutput(const RequestStreamOutput& output);
  void Settle(const std::string& id);
  void CheckDeadlines();
  bool DeadlineHasPassed(const LiveRequest& live, const std::optional<double>& asked,
                         const std::optional<double>& preset) const;
  void CheckCause(const LiveRequest& live, const testing::RequestHistory& answer, bool fails_alone);

  // Runs a call into the engine; its callback may throw what the simulation told it to.
  template <typename Call>
  void CallEngine(const Call& call);
  void Fail(const std::string& violation);
  template <typename... Parts>
  void Note(const Parts&... parts);

  const Scenario scenario_;
  const bool trace_;
  Workload workload_;
  testing::HistoryChecker history_;
  StateChecker state_;
  Reference reference_;
  testing::VirtualClock clock_;
  Pins pins_;
  Adapters adapters_;
  Faults faults_;
  std::shared_ptr<EventTraceRecorder> recorder_;  // null if there is none
  std::optional<testing::TempFolder> folder_;     // with the tokenizer of a vocabulary that has one
  std::unique_ptr<Engine> engine_;
  testing::FakeModel* model_ = nullptr;        // owned by engine_, like the next one
  testing::FakeModel* draft_model_ = nullptr;  // null if there is none

  std::map<std::string, LiveRequest> live_;
  std::vector<std::string> used_ids_;          // of requests that ended
  std::map<int32_t, int32_t> tokens_of_rows_;  // by their ids
  std::vector<std::vector<RequestStreamOutput>> received_;
  SimRandom callback_random_;
  int callback_depth_ = 0;
  bool calm_ = false;  // the callback neither throws nor calls the engine

  uint64_t num_drafters_ = 0;
  int64_t num_drafter_failures_ = 0;

  bool callback_threw_ = false;  // which ends a step early

  int64_t step_ = 0;
  std::string last_state_;                              // "dump_state"
  std::shared_ptr<testing::FakeSlowCalls> slow_calls_;  // of engine_
  SimResult result_;
};

template <typename Call>
void Simulation::CallEngine(const Call& call) {
  try {
    call();
  } catch (const CallbackError&) {
    callback_threw_ = true;
    Note("the callback threw");
  }
  // Nested calls leave their outputs to the outermost one, which knows what was injected.
  if (callback_depth_ == 0 && !faults_.armed()) ProcessOutputs();
}

template <typename... Parts>
void Simulation::Note(const Parts&... parts) {
  std::ostringstream line;
  (line << ... << parts);
  for (char c : line.str()) result_.digest = MixBits(result_.digest ^ static_cast<uint8_t>(c));
  if (trace_) std::cout << step_ << ' ' << line.str() << '\n';
}

// With the features that are allowed.
SimResult Simulate(uint64_t seed, const FeatureSet& allowed, bool trace);

}  // namespace mlc_native::sim
