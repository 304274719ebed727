// What tests of the compile cache compile: a grammar that is nothing but its size, from a regex.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "mlc_native/grammar.h"

namespace mlc_native {

class FakeGrammar final : public CompiledGrammar {
 public:
  explicit FakeGrammar(int64_t bytes = 1) : bytes_(bytes) {}
  std::unique_ptr<GrammarMatcher> NewMatcher(int64_t) const override { return nullptr; }
  int64_t memory_bytes() const override { return bytes_; }

 private:
  const int64_t bytes_;
};

inline GrammarSpec Regex(const std::string& text) { return {GrammarKind::kRegex, text}; }

}  // namespace mlc_native
