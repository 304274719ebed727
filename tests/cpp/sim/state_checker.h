// StateChecker: looks at the engine's state after every step ("dump_state") and holds it to the
// invariants of its queues, states, ids and pages, and to its progress.
//
// Checked: states take only the allowed transitions and nothing is forgotten while a request lives;
// internal ids are unique; free + used + cached == total; no more than max_num_sequence sequences
// generate; drafts are given up for a reason only; no request is overtaken by a later one of its
// priority or a lower one, and by few of a higher one; in hybrid mode every running sequence
// advances in every step; the engine as a whole advances in a bounded number of steps. Pages and
// reference counts are swept by Engine::AuditPages. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "mlc_native/config.h"

namespace mlc_native::sim {

using FailureSink = std::function<void(const std::string& violation)>;

struct EntryView {
  std::string status;
  int64_t internal_id = -1;
  int64_t num_tokens = 0;
  int64_t kv_len = 0;
  int64_t num_pending = 0;
  int64_t num_generated = 0;
  bool sits_out = false;

  bool alive() const { return status == "alive"; }
  bool finished() const { return status == "finished"; }
};

class StateChecker {
 public:
  StateChecker(const EngineConfig& config, FailureSink fail)
      : config_(config), fail_(std::move(fail)) {}

  // `jumps`: jump-forward may replace tokens of the request by fewer ones of the same text.
  void Added(const std::string& id, RequestPriority priority, bool jumps);
  void Ended(const std::string& id);
  // `dump`: the answer of DebugCall("dump_state"). `undisturbed`: nothing was injected into the
  // step that ended now, so every request had to advance. draft_failures: drafts that were given up
  // for a known reason since the beginning; absent if that is not known.
  void AfterStep(const std::string& dump, bool undisturbed, std::optional<int64_t> draft_failures);

 private:
  using Entries = std::vector<EntryView>;
  struct Arrival {
    int64_t number = 0;
    RequestPriority priority = RequestPriority::kNormal;
    bool jumps = false;
    int64_t num_before = 0;     // requests that were live then
    int64_t num_overtaken = 0;  // by requests that came later and started earlier
  };

  void CheckEntries(const std::string& id, const Entries& before, const Entries& now,
                    bool undisturbed);
  void CheckTransition(const std::string& id, const EntryView& before, const EntryView& now,
                       bool jumps, bool undisturbed);
  void CheckDraftFailures(int64_t num_failures, bool undisturbed, std::optional<int64_t> excused);
  void CheckIds();
  void CheckOrder();
  void CheckOvertaken(const Arrival& started);
  void CheckProgress(bool undisturbed);
  int64_t StepsAllowed() const;

  const EngineConfig config_;
  const FailureSink fail_;
  std::map<std::string, Entries> requests_;  // as of the last step
  std::map<std::string, Arrival> arrivals_;  // of the live requests
  std::set<std::string> started_;            // of those, the ones that have computed something
  // Per entry: the most tokens that it ever generated, and prompt tokens that it had in the cache.
  std::map<std::string, std::vector<int64_t>> best_;
  int64_t draft_failures_ = 0;    // as of the last step
  int64_t excused_failures_ = 0;  // of those, the ones with a known reason
  int64_t num_arrivals_ = 0;
  int64_t ended_progress_ = 0;  // of the requests that ended
  int64_t last_progress_ = -1;  // a count that grows with progress
  int64_t steps_without_progress_ = 0;
  int64_t steps_allowed_ = 0;  // since the last progress
};

}  // namespace mlc_native::sim
