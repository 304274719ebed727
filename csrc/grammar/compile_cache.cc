#include "grammar/compile_cache.h"

#include <string>
#include <string_view>

#include "grammar/backend.h"
#include "support/error.h"

namespace mlc_native {
namespace {

[[noreturn]] void ThrowQueueFull(int64_t num_waiting, int64_t max_waiting) {
  const char* const field = "max_grammar_queue_length";
  throw QueueFull(field,
                  std::to_string(num_waiting) + " requests wait for their grammars to compile, \"" +
                      field + "\" is " + std::to_string(max_waiting),
                  num_waiting, max_waiting);
}

}  // namespace

size_t CompileCache::SpecHash::operator()(const GrammarSpec& spec) const {
  const size_t kind = static_cast<size_t>(spec.kind) * 2 + (spec.strict ? 1 : 0);
  return std::hash<std::string_view>()(spec.text) ^ (kind * 0x9E3779B97F4A7C15);
}

CompileCache::Grammar CompileCache::Get(const GrammarSpec& spec, const Compile& compile,
                                        const std::stop_token& stop) {
  {
    const MutexLock lock(mutex_);
    if (Grammar found = Find(spec)) return found;
    if (num_waiting_ >= max_waiting_) ThrowQueueFull(num_waiting_, max_waiting_);
    ++num_waiting_;
  }
  struct Leaving {
    CompileCache& cache;
    ~Leaving() {
      const MutexLock lock(cache.mutex_);
      --cache.num_waiting_;
    }
  };
  const Leaving leaving{*this};
  return GetNew(spec, compile, stop);
}

CompileCache::Grammar CompileCache::GetNew(const GrammarSpec& spec, const Compile& compile,
                                           const std::stop_token& stop) {
  for (;;) {
    bool is_first = false;
    std::shared_ptr<Job> job;
    {
      const MutexLock lock(mutex_);
      if (Grammar found = Find(spec)) return found;
      job = Join(spec, &is_first);
    }
    Outcome outcome;
    {
      const std::stop_callback leave(stop, [&] { Leave(spec, *job); });
      outcome = is_first ? Run(spec, compile, *job) : Await(*job, stop);
    }
    if (outcome.grammar != nullptr) return outcome.grammar;
    if (outcome.refusal) throw GrammarError(*outcome.refusal);
    if (stop.stop_requested()) return nullptr;
  }
}

std::shared_ptr<CompileCache::Job> CompileCache::Join(const GrammarSpec& spec, bool* is_first) {
  const auto found = compiling_.find(spec);
  *is_first = found == compiling_.end();
  std::shared_ptr<Job> job = *is_first ? std::make_shared<Job>() : found->second;
  if (*is_first) compiling_.emplace(spec, job);
  ++job->num_callers;
  return job;
}

void CompileCache::Leave(const GrammarSpec& spec, Job& job) {
  {
    const MutexLock lock(mutex_);
    changed_.NotifyAll();
    if (--job.num_callers > 0) return;
    Forget(spec, job);
  }
  job.stop.request_stop();  // without the lock: what it calls has locks of its own
}

CompileCache::Outcome CompileCache::Run(const GrammarSpec& spec, const Compile& compile, Job& job) {
  Outcome outcome;
  try {
    try {
      outcome.grammar = compile(job.stop.get_token());
    } catch (const GrammarError& error) {
      outcome.refusal = error.what();
    }
  } catch (...) {  // also if there is no memory for the refusal
    Finish(spec, {}, job);
    throw;
  }
  Finish(spec, outcome, job);
  return outcome;
}

CompileCache::Outcome CompileCache::Await(const Job& job, const std::stop_token& stop) {
  const MutexLock lock(mutex_);
  while (!job.outcome && !stop.stop_requested()) changed_.Wait(mutex_);
  return job.outcome.value_or(Outcome{});
}

void CompileCache::Finish(const GrammarSpec& spec, const Outcome& outcome, Job& job) {
  const MutexLock lock(mutex_);
  Forget(spec, job);
  // If there is no memory for what follows, those that wait start another compilation.
  job.outcome = Outcome{};
  changed_.NotifyAll();
  // After a stop that came too late, another compilation may have put it there.
  if (outcome.grammar != nullptr && !by_spec_.contains(spec)) Insert(spec, outcome.grammar);
  *job.outcome = outcome;
}

void CompileCache::Forget(const GrammarSpec& spec, const Job& job) {
  const auto found = compiling_.find(spec);
  if (found != compiling_.end() && found->second.get() == &job) compiling_.erase(found);
}

int CompileCache::num_callers(const GrammarSpec& spec) const {
  const MutexLock lock(mutex_);
  const auto found = compiling_.find(spec);
  return found == compiling_.end() ? 0 : found->second->num_callers;
}

int64_t CompileCache::num_waiting() const {
  const MutexLock lock(mutex_);
  return num_waiting_;
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
  Entries made;
  made.push_front({spec, grammar, bytes});
  by_spec_.emplace(spec, made.begin());
  entries_.splice(entries_.begin(), made);
  bytes_ += bytes;
  while (bytes_ > max_bytes_) {
    bytes_ -= entries_.back().bytes;
    by_spec_.erase(entries_.back().spec);
    entries_.pop_back();
  }
}

}  // namespace mlc_native
