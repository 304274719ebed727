#include "grammar/compile_cache.h"

#include <string_view>
#include <utility>

namespace mlc_native {

size_t CompileCache::SpecHash::operator()(const GrammarSpec& spec) const {
  const size_t kind = static_cast<size_t>(spec.kind) * 2 + (spec.strict ? 1 : 0);
  return std::hash<std::string_view>()(spec.text) ^ (kind * 0x9E3779B97F4A7C15);
}

CompileCache::Grammar CompileCache::Get(const GrammarSpec& spec,
                                        const std::function<Grammar()>& compile) {
  std::promise<Grammar> promise;
  std::shared_future<Grammar> other;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (Grammar found = Find(spec)) return found;
    const auto [position, is_first] = under_way_.try_emplace(spec);
    if (is_first)
      position->second = promise.get_future().share();
    else
      other = position->second;
  }
  if (other.valid()) return other.get();

  Grammar grammar;
  std::exception_ptr error;
  try {
    grammar = compile();
  } catch (...) {
    error = std::current_exception();
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    under_way_.erase(spec);
    if (!error) Insert(spec, grammar);
  }
  if (!error) {
    promise.set_value(grammar);
    return grammar;
  }
  promise.set_exception(error);
  std::rethrow_exception(error);
}

int64_t CompileCache::num_cached() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int64_t>(entries_.size());
}

int64_t CompileCache::cached_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
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
