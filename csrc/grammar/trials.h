// GrammarTrials: tries to compile a grammar in a helper process first, where it may take for ever,
// eat its memory or overflow its stack without harm to this process.
//
// Only the verdict comes back. The caller then compiles here: serialized, xgrammar 0.2.8 repeats
// the whole automaton for each rule, so that a schema of 3,000 properties does not fit into 4 GB.
// Any thread; each helper serves one trial at a time. There are at most kMaxWorkers, started when
// all others are busy; one stays for the next trial. The helper of a trial that is stopped is
// killed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "grammar/trial_protocol.h"
#include "grammar/worker_process.h"
#include "mlc_native/grammar.h"
#include "support/mutex.h"

namespace mlc_native {

class GrammarTrials {
 public:
  static constexpr int kMaxWorkers = 4;

  // Starts nothing yet. Throws InvalidConfig("grammar") when there is no such program.
  GrammarTrials(std::string program, const GrammarVocab& vocab, const GrammarLimits& limits);

  // status kCompiled, or nothing if `stop` is requested first. Throws GrammarError naming the limit
  // that was exceeded or what is wrong with the grammar, InvalidConfig("grammar") when helpers
  // cannot work at all.
  std::optional<TrialReply> Run(const GrammarSpec& spec, const std::stop_token& stop = {});

 private:
  using Worker = std::unique_ptr<WorkerProcess>;

  // Waits until one more worker may be at work; it is the idle one, if there is one. False after a
  // stop.
  bool TakeTurn(const std::stop_token& stop, Worker* worker);
  void EndTurn(Worker worker);
  // Null after a stop.
  Worker Start(const std::stop_token& stop) const;
  std::optional<TrialReply> Ask(WorkerProcess& worker, const GrammarSpec& spec,
                                const std::stop_token& stop) const;

  const std::string program_;
  const std::string encoded_vocab_;
  const GrammarLimits limits_;

  Mutex mutex_;
  CondVar freed_;
  std::vector<Worker> idle_ MLC_GUARDED_BY(mutex_);
  int num_taken_ MLC_GUARDED_BY(mutex_) = 0;
};

}  // namespace mlc_native
