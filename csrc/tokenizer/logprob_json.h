// The log-probabilities of one token as the JSON that the OpenAI protocol puts into "content":
//   {"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", "bytes"}, ...]}
//
// Built by hand because there is one for every token. Pure; any thread.
#pragma once

#include <string>

#include "mlc_native/data.h"
#include "mlc_native/detail/export.h"
#include "mlc_native/tokenizer.h"

namespace mlc_native {

// Token texts are the tokens' bytes as valid UTF-8 (U+FFFD for what is none), also of special
// tokens. Without a table a token is named "token_id:ID" and has no bytes. A logprob of -inf is
// written as -9999.0, since JSON has no infinity.
MLC_NATIVE_PRIVATE_API std::string LogprobJson(const SampleResult& result,
                                               const TokenTable* token_table);

}  // namespace mlc_native
