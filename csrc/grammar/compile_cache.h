// CompileCache maps grammar specs to compiled grammars. Thread-safe.
//
// Callers that request the same grammar at the same time share one compilation, including its
// failure. The compilation runs on the thread of the first of them, and is told to stop when all of
// them have given it up; whoever asks after that starts another one. Failures are not cached,
// because they depend on limits and load; a client that repeats a hostile grammar only costs a
// helper process its time limit. The least recently used grammars are evicted when the cache
// exceeds its bytes. A grammar in use lives on through its shared_ptr.
// Callers that wait are bounded in number.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_map>

#include "mlc_native/grammar.h"
#include "support/mutex.h"

namespace mlc_native {

class CompileCache {
 public:
  using Grammar = std::shared_ptr<const CompiledGrammar>;

  explicit CompileCache(int64_t max_bytes,
                        int64_t max_waiting = std::numeric_limits<int64_t>::max())
      : max_bytes_(max_bytes), max_waiting_(max_waiting) {}

  // Compiles on the thread that calls it. Returns null only if the stop was requested.
  using Compile = std::function<Grammar(const std::stop_token& stop)>;

  // Returns the grammar from the cache, from a compilation in progress, or by calling `compile` on
  // this thread. Returns null as soon as `stop` is requested, except while `compile` runs on this
  // thread for others that still wait: then it returns what they get. Throws GrammarError, the
  // exception of `compile`, or QueueFull if the grammar is not in the cache and max_waiting callers
  // are inside.
  Grammar Get(const GrammarSpec& spec, const Compile& compile, const std::stop_token& stop = {});

  // Those that wait for the compilation of a grammar.
  int num_callers(const GrammarSpec& spec) const;
  // Those that wait for any, or compile.
  int64_t num_waiting() const;
  int64_t num_cached() const;
  int64_t cached_bytes() const;

 private:
  struct SpecHash {
    size_t operator()(const GrammarSpec& spec) const;
  };
  struct Entry {
    GrammarSpec spec;
    Grammar grammar;
    int64_t bytes = 0;
  };
  using Entries = std::list<Entry>;  // most recently used first
  // Both are empty after a stop, and after a failure that is not shared. The refusal is a text
  // instead of an exception, so that no exception object is shared by threads.
  struct Outcome {
    Grammar grammar{};
    std::optional<std::string> refusal{};
  };
  // One compilation; what is not constant is guarded by mutex_.
  struct Job {
    std::stop_source stop{};
    int num_callers = 0;  // that have not given up
    std::optional<Outcome> outcome{};
  };

  // Adds a caller to the compilation that runs, or to a new one, which the caller then runs.
  std::shared_ptr<Job> Join(const GrammarSpec& spec, bool* is_first) MLC_REQUIRES(mutex_);
  // A caller gives up.
  void Leave(const GrammarSpec& spec, Job& job);
  Outcome Run(const GrammarSpec& spec, const Compile& compile, Job& job);
  Outcome Await(const Job& job, const std::stop_token& stop);
  // May throw std::bad_alloc; the job has ended all the same, without an outcome that is shared.
  void Finish(const GrammarSpec& spec, const Outcome& outcome, Job& job);
  // Later callers do not join the job any more.
  void Forget(const GrammarSpec& spec, const Job& job) MLC_REQUIRES(mutex_);
  Grammar Find(const GrammarSpec& spec) MLC_REQUIRES(mutex_);
  // If it throws std::bad_alloc, nothing has changed.
  void Insert(const GrammarSpec& spec, const Grammar& grammar) MLC_REQUIRES(mutex_);

  // Counts a caller that waits.
  Grammar GetNew(const GrammarSpec& spec, const Compile& compile, const std::stop_token& stop);

  const int64_t max_bytes_;
  const int64_t max_waiting_;
  mutable Mutex mutex_;
  Entries entries_ MLC_GUARDED_BY(mutex_);
  std::unordered_map<GrammarSpec, Entries::iterator, SpecHash> by_spec_ MLC_GUARDED_BY(mutex_);
  std::unordered_map<GrammarSpec, std::shared_ptr<Job>, SpecHash> compiling_ MLC_GUARDED_BY(mutex_);
  CondVar changed_;  // a job has an outcome, or a caller gives up
  int64_t bytes_ MLC_GUARDED_BY(mutex_) = 0;
  int64_t num_waiting_ MLC_GUARDED_BY(mutex_) = 0;
};

}  // namespace mlc_native
