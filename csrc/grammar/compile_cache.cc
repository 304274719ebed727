#include "grammar/compile_cache.h"

#include <string_view>
#include <utility>

#include "grammar/backend.h"

namespace mlc_native {

size_t CompileCache::SpecHash::operator()(const GrammarSpec& spec) const {
  const size_t kind = static_cast<size_t>(spec.kind) * 2 + (spec.strict ? 1 : 0);
  return std::hash<std::string_view>()(spec.text) ^ (kind * 0x9E3779B97F4A7C15);
}

CompileCache::Grammar CompileCache::Get(const GrammarSpec& spec,
                                        const std::function<Grammar()>& compile) {
  for (;;) {
    std::promise<Outcome> promise;
    std::shared_future<Outcome> other;
    {
      const MutexLock lock(mutex_);
      if (Grammar found = Find(spec)) return found;
      const auto [position, is_first] = compiling_.try_emplace(spec);
      if (is_first) {
        position->second = promise.get_future().share();
      } else {
        other = position->second;
      }
    }
    const Outcome outcome =
        other.valid() ? other.get() : CompileFirst(spec, compile, std::move(promise));
    if (outcome.grammar != nullptr) return outcome.grammar;
    if (outcome.refusal) throw GrammarError(*outcome.refusal);
  }
}

CompileCache::Outcome CompileCache::CompileFirst(const GrammarSpec& spec,
                                                 const std::function<Grammar()>& compile,
                                                 std::promise<Outcome> promise) {
  Outcome outcome;
  try {
    outcome.grammar = compile();
  } catch (const GrammarError& error) {
    outcome.refusal = error.what();
  } catch (...) {
    Finish(spec, outcome, &promise);
    throw;
  }
  Finish(spec, outcome, &promise);
  return outcome;
}

void CompileCache::Finish(const GrammarSpec& spec, const Outcome& outcome,
                          std::promise<Outcome>* promise) {
  {
    const MutexLock lock(mutex_);
    compiling_.erase(spec);
    if (outcome.grammar != nullptr) Insert(spec, outcome.grammar);
  }
  promise->set_value(outcome);
}

int64_t CompileCache::num_cached() const {
  const MutexLock lock(mutex_);
  return static_cast<int64_t>(entries_.size());
}

int64_t CompileCache::cached_bytes() const {
  const MutexLock lock(mutex_);
  return bytes_;
}

CompileCache::Grammar CompileCache::Find(const GrammarSpec& spec) {
  const auto found = by_spec_.find(spec);
  if (found == by_spec_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return entries_.front().grammar;
}

void CompileCache::Insert(const GrammarSpec& spec, const Grammar& grammar) {
  const int64_t bytes = grammar->memory_bytes() + static_cast<int64_t>(spec.text.size());
  entries_.push_front({spec, grammar, bytes});
  by_spec_[spec] = entries_.begin();
  bytes_ += bytes;
  while (bytes_ > max_bytes_) {
    bytes_ -= entries_.back().bytes;
    by_spec_.erase(entries_.back().spec);
    entries_.pop_back();
  }
}

}  // namespace mlc_native
