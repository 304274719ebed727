// GrammarTrials: tries to compile a grammar in a helper process first, where it may take for ever,
// eat its memory or overflow its stack without harm to this process.
//
// Only the verdict comes back. The caller then compiles here: serialized, xgrammar 0.2.8 repeats
// the whole automaton for each rule, so that a schema of 3,000 properties does not fit into 4 GB.
// Any thread; each helper serves one trial at a time. Which trial is next, and how many there are
// at a time, is decided by TrialTurns. Helpers are started when all others are busy; one stays for
// the next trial. The helper of a trial that is stopped is killed, and so is that of a long one
// that makes room for short ones. A trial whose helper is killed from outside (by the kernel when
// memory runs out, by hand) is repeated once.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "grammar/trial_protocol.h"
#include "grammar/trial_turns.h"
#include "grammar/worker_process.h"
#include "mlc_native/grammar.h"
#include "support/mutex.h"

namespace mlc_native {

class GrammarTrials {
 public:
  // Starts nothing yet. Throws InvalidConfig("grammar") when there is no such program.
  GrammarTrials(std::string program, const GrammarVocab& vocab, const GrammarLimits& limits);

  // status kCompiled, or nothing if `stop` is requested first. The limit of time counts the wait
  // for a turn and not the start of a helper. Throws GrammarError naming the limit that was
  // exceeded or what is wrong with the grammar, QueueFull when all of the time passes without a
  // turn, InvalidConfig("grammar") when helpers cannot work at all.
  std::optional<TrialReply> Run(const GrammarSpec& spec, const std::stop_token& stop = {});

 private:
  using Worker = std::unique_ptr<WorkerProcess>;
  using Clock = std::chrono::steady_clock;

  // One call of Run.
  struct Trial {
    const GrammarSpec& spec;
    const std::stop_token& stop;
    Clock::duration left;  // of compile_seconds
    TrialTurns::Kind kind = TrialTurns::Kind::kShort;
    int num_lost = 0;  // helpers that were killed from outside
  };
  enum class Ending : uint8_t {
    kReplied,
    kStopped,
    kTimeout,
    kTooLong,  // for a short turn, and there are too many long ones
    kLost,     // the helper has ended
  };

  // False after a stop.
  bool TakeTurn(Trial* trial);
  // Runs the trial in its turn, which it ends. Nothing if it is to be repeated.
  std::optional<TrialReply> RunInTurn(Trial* trial);
  // The idle worker, or a new one. Null after a stop.
  Worker GetWorker(const std::stop_token& stop);
  Worker Start(const std::stop_token& stop) const;
  Ending Ask(WorkerProcess& worker, Trial* trial, TrialReply* reply);
  Ending AwaitReply(WorkerProcess& worker, Trial* trial, Clock::time_point deadline);

  const std::string program_;
  const std::string encoded_vocab_;
  const GrammarLimits limits_;

  TrialTurns turns_;
  Mutex mutex_;
  Worker idle_ MLC_GUARDED_BY(mutex_);
};

}  // namespace mlc_native
