// An engine whose tokens are letters, and requests for it that a fake grammar constrains.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "mlc_native/tokenizer.h"
#include "testing/test_engine.h"

namespace mlc_native::testing {

constexpr int32_t kCa = 26;
constexpr int32_t kCat = 27;
constexpr int32_t kEos = 31;
constexpr int32_t kEnd = 32;  // a special token that is no end of sequence of the model

// Letters a to z are 0 to 25.
std::shared_ptr<const TokenTable> Letters();

// The model's draws differ.
TestEngineSetup LetterSetup();

// The answer must be one of those that testing/fake_grammar.h reads in the text.
GenerationConfig Constrained(GenerationConfig config, const std::string& answers);

void ExpectStopped(const TestEngine& engine, const std::string& id, const std::string& text);

}  // namespace mlc_native::testing
