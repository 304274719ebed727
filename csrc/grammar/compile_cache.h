// CompileCache maps grammar specs to compiled grammars. Thread-safe.
//
// Callers that request the same grammar at the same time share one compilation, including its
// failure. Failures are not cached, because they depend on limits and load; a client that repeats a
// hostile grammar only costs a helper process its time limit. The least recently used grammars are
// evicted when the cache exceeds its bytes. A grammar in use lives on through its shared_ptr.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "mlc_native/grammar.h"
#include "support/mutex.h"

namespace mlc_native {

class CompileCache {
 public:
  using Grammar = std::shared_ptr<const CompiledGrammar>;

  explicit CompileCache(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // Returns the grammar from the cache, from a compilation in progress, or by calling `compile` on
  // this thread. Throws GrammarError, or the exception of `compile`.
  Grammar Get(const GrammarSpec& spec, const std::function<Grammar()>& compile);

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
  // Both are empty while the compilation runs. The refusal is a text instead of an exception, so
  // that no exception object is shared by threads.
  struct Outcome {
    Grammar grammar{};
    std::optional<std::string> refusal{};
  };

  Outcome CompileFirst(const GrammarSpec& spec, const std::function<Grammar()>& compile,
                       std::promise<Outcome> promise);
  void Finish(const GrammarSpec& spec, const Outcome& outcome, std::promise<Outcome>* promise);
  Grammar Find(const GrammarSpec& spec) MLC_REQUIRES(mutex_);
  void Insert(const GrammarSpec& spec, const Grammar& grammar) MLC_REQUIRES(mutex_);

  const int64_t max_bytes_;
  mutable Mutex mutex_;
  Entries entries_ MLC_GUARDED_BY(mutex_);
  std::unordered_map<GrammarSpec, Entries::iterator, SpecHash> by_spec_ MLC_GUARDED_BY(mutex_);
  std::unordered_map<GrammarSpec, std::shared_future<Outcome>, SpecHash> compiling_
      MLC_GUARDED_BY(mutex_);
  int64_t bytes_ MLC_GUARDED_BY(mutex_) = 0;
};

}  // namespace mlc_native
