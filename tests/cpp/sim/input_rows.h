// Rows in place of tokens: how prompts of a simulation have them. Among the tokens of a prompt, a
// row is the token that the fake model makes of it, which no vocabulary has. Pure functions.
#pragma once

#include <vector>

#include "request/request.h"
#include "sim/random.h"

namespace mlc_native::sim {

bool HasRows(const std::vector<int32_t>& prompt);
// Puts rows in place of some of its tokens. They are few, so that prompts meet in them.
void PutRows(SimRandom& rng, std::vector<int32_t>* prompt);
// Tokens only, up to the first row.
std::vector<int32_t> TokensInFront(std::vector<int32_t> prompt);

// The inputs of a request with this prompt, and its prompt again.
std::vector<Data> InputsOf(const std::vector<int32_t>& prompt);
std::vector<int32_t> PromptOf(const Request& request);

}  // namespace mlc_native::sim
