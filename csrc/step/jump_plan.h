// What a jump over forced text does to a sequence, and whether a grammar leaves nothing but the
// end: the parts of steps that ask a matcher at length.
//
// Pure except for the matcher, and without the engine: for a slow grammar they run on another
// thread, and may outlive the engine there. Any thread; one at a time for a matcher.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "mlc_native/grammar.h"
#include "request/request.h"
#include "support/token_mask.h"

namespace mlc_native {

struct StepContext;

// New tokens that replace the last ones of a sequence.
struct Jump {
  int64_t num_taken_back = 0;
  size_t num_old_bytes = 0;  // of their text; the text of `added` begins with it
  std::vector<int32_t> added;
  bool ends = false;  // only the end may follow
};

// The tokens that end answers, for MustEnd.
struct EndTokens {
  std::vector<int32_t> eos;
  int64_t vocab_size = 0;

  // The number of words of a mask.
  size_t mask_size() const { return TokenMaskWords(vocab_size); }
};

EndTokens EndTokensOf(const StepContext& context);

// What a jump depends on besides the matcher.
struct JumpInput {
  RequestPtr request;
  std::vector<int32_t> replaceable;  // the last tokens that the user has not been given for good
  int64_t room = 0;                  // tokens that may be added
};

// Moves the matcher over the jump; where there is none, the matcher is where it was. `mask` is a
// buffer.
std::optional<Jump> FindJump(const JumpInput& input, const EndTokens& ends, GrammarMatcher& matcher,
                             std::vector<int32_t>* mask);

// Whether the grammar leaves nothing but the end to come.
bool MustEnd(const Request& request, const EndTokens& ends, GrammarMatcher& matcher,
             std::vector<int32_t>* mask);

}  // namespace mlc_native
