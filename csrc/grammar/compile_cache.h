// CompileCache: compiled grammars by what they were compiled from. Thread-safe.
//
// Callers that ask for the same grammar at the same time share one compilation, and its failure.
// Failures are not kept: they depend on limits and load, and a client that repeats a hostile
// grammar costs a helper process its time limit, nothing else. Evicts the least recently used by
// bytes; what is in use lives on through its shared_ptr.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "grammar/grammar.h"

namespace mlc_native {

class CompileCache {
 public:
  using Grammar = std::shared_ptr<const CompiledGrammar>;

  explicit CompileCache(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // From the cache, from a compilation that is under way, or by `compile` on this thread. Throws
  // GrammarError, or what `compile` throws.
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
  // Both empty: not decided. No exception is shared, so that none is read by two threads.
  struct Outcome {
    Grammar grammar{};
    std::optional<std::string> refusal{};
  };

  Outcome CompileFirst(const GrammarSpec& spec, const std::function<Grammar()>& compile,
                       std::promise<Outcome> promise);
  void Finish(const GrammarSpec& spec, const Outcome& outcome, std::promise<Outcome>* promise);
  // These expect mutex_ to be held.
  Grammar Find(const GrammarSpec& spec);
  void Insert(const GrammarSpec& spec, const Grammar& grammar);

  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  Entries entries_;
  std::unordered_map<GrammarSpec, Entries::iterator, SpecHash> by_spec_;
  std::unordered_map<GrammarSpec, std::shared_future<Outcome>, SpecHash> under_way_;
  int64_t bytes_ = 0;
};

}  // namespace mlc_native
