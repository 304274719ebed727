// SlowGrammar: the state of a sequence whose grammar takes long (step/slow_grammars.h).
//
// The calls of its matcher run on other threads, one at a time. While a call runs, the matcher
// belongs to it. The sequence sits out steps until its mask is there. Engine's thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "grammar/slow_calls.h"
#include "mlc_native/data.h"

namespace mlc_native {

struct SlowGrammar {
  std::shared_ptr<SlowCall> call;  // null: none runs, and the matcher may be used
  // What may follow the tokens of the sequence.
  bool has_mask = false;
  bool constrained = false;   // false: anything; `mask` is then unspecified
  bool completed = false;     // the tokens are a complete answer
  std::vector<int32_t> mask;  // [TokenMaskWords(vocab_size)]
  // The last token, until the matcher has accepted it: it is not delivered yet.
  std::optional<SampleResult> undelivered;
  int num_cheap = 0;  // tokens in a row that have taken little

  SlowGrammar() = default;
  ~SlowGrammar() {
    if (call != nullptr) call->Abandon();
  }
  SlowGrammar(const SlowGrammar&) = delete;
  SlowGrammar& operator=(const SlowGrammar&) = delete;
};

}  // namespace mlc_native
