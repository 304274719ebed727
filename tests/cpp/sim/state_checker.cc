#include "sim/state_checker.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>

#include "mlc_native/detail/page.h"
#include "request/request_state.h"

namespace mlc_native::sim {
namespace {

using nlohmann::json;

std::vector<EntryView> ParseEntries(const json& entries) {
  std::vector<EntryView> views;
  for (const json& entry : entries) {
    views.push_back({.status = entry["status"],
                     .internal_id = entry["internal_id"],
                     .num_tokens = entry["num_tokens"],
                     .kv_len = entry["kv_len"],
                     .num_pending = entry["num_pending"],
                     .num_generated = entry["num_generated"],
                     .sits_out = entry["sits_out"]});
  }
  return views;
}

// Has started, and waits to be computed again.
bool WasPreempted(const std::vector<EntryView>& entries) {
  return std::any_of(entries.begin(), entries.end(), [](const EntryView& entry) {
    return entry.status == "pending" && entry.num_generated > 0;
  });
}

bool Started(const std::vector<EntryView>& entries) {
  return std::any_of(entries.begin(), entries.end(), [](const EntryView& entry) {
    return entry.kv_len > 0 || entry.num_generated > 0 || entry.status != "pending";
  });
}

int64_t Sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

}  // namespace

void StateChecker::Added(const std::string& id, RequestPriority priority, bool jumps) {
  const int64_t num_before = std::ssize(arrivals_);
  arrivals_[id] = {
      .number = num_arrivals_++, .priority = priority, .jumps = jumps, .num_before = num_before};
}

void StateChecker::Ended(const std::string& id) {
  requests_.erase(id);
  arrivals_.erase(id);
  started_.erase(id);
  ended_progress_ += 1 + Sum(best_[id]);
  best_.erase(id);
}

void StateChecker::AfterStep(const std::string& dump, bool undisturbed,
                             std::optional<int64_t> draft_failures) {
  const json state = json::parse(dump);
  const int64_t cached = state.value("kv_pages_cached", int64_t{0});
  if (state["kv_pages_free"].get<int64_t>() + state["kv_pages_used"].get<int64_t>() + cached !=
      state["kv_pages_total"].get<int64_t>()) {
    fail_("free + used + cached is not total: " + dump);
  }
  // Pins leave room for the longest request.
  const int64_t longest =
      std::min(*config_.max_single_sequence_length, *config_.max_total_sequence_length);
  const int64_t pinned = state["kv_pages_pinned"];
  if (pinned > state["kv_pages_total"].get<int64_t>() - (longest + kKvPageSize - 1) / kKvPageSize) {
    fail_("too many pages are pinned: " + dump);
  }
  std::map<std::string, Entries> now;
  for (const auto& [id, entries] : state["requests"].items()) now[id] = ParseEntries(entries);
  for (const auto& [id, entries] : now) {
    if (!arrivals_.contains(id)) fail_("request \"" + id + "\" is live but was never added");
  }
  for (const auto& [id, arrival] : arrivals_) {
    if (!now.contains(id)) fail_("request \"" + id + "\" is gone without a final output");
  }
  for (const auto& [id, before] : requests_) {
    if (now.contains(id)) CheckEntries(id, before, now[id], undisturbed);
  }
  requests_ = std::move(now);
  CheckDraftFailures(state["num_draft_failures"], undisturbed, draft_failures);
  CheckIds();
  CheckOrder();
  CheckProgress(undisturbed);
}

void StateChecker::CheckEntries(const std::string& id, const Entries& before, const Entries& now,
                                bool undisturbed) {
  if (before.size() != now.size()) return fail_("request \"" + id + "\" changed its entries");
  for (size_t i = 0; i < now.size(); ++i) {
    const bool is_root = now.size() > 1 && i == 0;
    CheckTransition(id + '[' + std::to_string(i) + ']', before[i], now[i], arrivals_[id].jumps,
                    undisturbed && !is_root);
  }
}

void StateChecker::CheckTransition(const std::string& id, const EntryView& before,
                                   const EntryView& now, bool jumps, bool undisturbed) {
  const auto fail = [&](const std::string& what) {
    fail_(id + ": " + what + " (" + before.status + " to " + now.status + ", " +
          std::to_string(before.num_tokens) + " to " + std::to_string(now.num_tokens) +
          " tokens, " + std::to_string(before.kv_len) + " to " + std::to_string(now.kv_len) +
          " in the cache)");
  };
  if (before.finished() && !now.finished()) fail("came back to life");
  const int64_t may_be_replaced = jumps ? kMaxGrammarRollback : 0;
  // An answer whose end is delivered has none.
  if (!now.finished() && now.num_tokens < before.num_tokens - may_be_replaced) fail("lost tokens");
  if (now.finished() && now.internal_id >= 0) fail("is finished and holds an id");
  if (now.finished() || now.num_tokens == 0) return;
  // The last token, known or not, is not in the cache yet.
  if (now.kv_len > now.num_tokens + std::max<int64_t>(now.num_pending - 1, 0))
    fail("has more in the cache than tokens");
  const bool advances = config_.prefill_mode == PrefillMode::kHybrid && undisturbed;
  const bool sits_out = before.sits_out || now.sits_out;
  // Behind a step that was not followed by another, because an answer might have ended, the next
  // one is submitted and nothing is there to collect.
  const bool begins = before.num_pending == 0 && now.num_pending > 0;
  if (advances && !jumps && !sits_out && !begins && before.alive() && now.alive() &&
      now.num_tokens == before.num_tokens) {
    fail("runs but did not advance");
  }
}

// A step that fails is repeated without its drafts, which hides why it failed: drafts that take
// what is not left over, say.
void StateChecker::CheckDraftFailures(int64_t num_failures, bool undisturbed,
                                      std::optional<int64_t> excused) {
  const int64_t num_new = num_failures - std::exchange(draft_failures_, num_failures);
  if (!excused) return;
  const int64_t num_excused = *excused - std::exchange(excused_failures_, *excused);
  if (undisturbed && num_new > num_excused) fail_("a draft was given up without a cause");
}

void StateChecker::CheckIds() {
  std::map<int64_t, std::string> ids;
  int64_t num_alive = 0;
  for (const auto& [request, entries] : requests_) {
    for (size_t i = 0; i < entries.size(); ++i) {
      const bool is_root = entries.size() > 1 && i == 0;
      if (entries[i].alive() && !is_root) ++num_alive;
      if (entries[i].internal_id < 0) continue;
      const auto [other, is_new] = ids.emplace(entries[i].internal_id, request);
      if (!is_new) fail_("\"" + request + "\" and \"" + other->second + "\" share an internal id");
    }
  }
  if (num_alive > *config_.max_num_sequence) {
    fail_(std::to_string(num_alive) + " sequences generate, more than max_num_sequence");
  }
}

// First come, first started, within a priority.
void StateChecker::CheckOrder() {
  std::vector<Arrival> new_starts;
  for (const auto& [id, entries] : requests_) {
    if (Started(entries) && arrivals_.contains(id) && started_.insert(id).second) {
      new_starts.push_back(arrivals_[id]);
    }
  }
  for (const Arrival& started : new_starts) {
    CheckOvertaken(started);
    for (const auto& [id, entries] : requests_) {
      if (WasPreempted(entries) && arrivals_[id].priority <= started.priority) {
        fail_("a request started while \"" + id + "\" waits to go on");
      }
    }
  }
}

void StateChecker::CheckOvertaken(const Arrival& started) {
  // Each request lets 8 of a higher priority in directly before it (EngineStateObj::PushWaiting),
  // and each of these, when it is of normal priority, 8 of high priority.
  constexpr int64_t kMaxOvertakes = 8 + 8 * 8;
  for (auto& [id, arrival] : arrivals_) {
    if (arrival.number >= started.number || started_.contains(id)) continue;
    if (started.priority >= arrival.priority) {
      fail_("request \"" + id + "\" was overtaken before it started");
    } else if (++arrival.num_overtaken > kMaxOvertakes * (arrival.num_before + 1)) {
      fail_("request \"" + id + "\" starves");
    }
  }
}

void StateChecker::CheckProgress(bool undisturbed) {
  int64_t progress = ended_progress_;
  for (const auto& [id, entries] : requests_) {
    std::vector<int64_t>& best = best_[id];
    best.resize(entries.size());
    for (size_t i = 0; i < entries.size(); ++i) {
      const EntryView& entry = entries[i];
      const int64_t prompt_len = entry.num_tokens - entry.num_generated;
      best[i] = std::max(best[i], entry.num_generated + std::min(entry.kv_len, prompt_len));
    }
  }
  for (const auto& [id, best] : best_)
    progress += std::accumulate(best.begin(), best.end(), int64_t{0});
  if (requests_.empty() || progress != last_progress_) {
    last_progress_ = progress;
    steps_without_progress_ = steps_allowed_ = 0;
    return;
  }
  if (undisturbed) ++steps_without_progress_;
  // A sequence that sat out during these steps may be ready now.
  steps_allowed_ = std::max(steps_allowed_, StepsAllowed());
  if (steps_without_progress_ > steps_allowed_) {
    fail_("no progress in " + std::to_string(steps_without_progress_) + " steps");
  }
}

// Everything that is live may have to be computed again before anybody gets a new token.
int64_t StateChecker::StepsAllowed() const {
  const int64_t rows =
      std::max<int64_t>(1, *config_.prefill_chunk_size - *config_.max_num_sequence);
  int64_t steps = 4;
  for (const auto& [id, entries] : requests_) {
    for (const EntryView& entry : entries) {
      if (!entry.finished()) steps += 1 + (entry.num_tokens + rows - 1) / rows;
      if (entry.sits_out) steps += 64;  // each call of its matcher may take a while
      if (arrivals_.at(id).jumps) steps += kMaxGrammarRollback;
    }
  }
  return steps;
}

}  // namespace mlc_native::sim
