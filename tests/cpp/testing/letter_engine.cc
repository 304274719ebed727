#include "testing/letter_engine.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace mlc_native::testing {

std::shared_ptr<const TokenTable> Letters() {
  std::vector<std::string> bytes(256);
  for (int i = 0; i < 26; ++i) bytes[i] = std::string(1, static_cast<char>('a' + i));
  bytes[kCa] = "ca";
  bytes[kCat] = "cat";
  bytes[kEos] = "</s>";
  bytes[kEnd] = "<end>";
  std::vector<bool> special(256, false);
  special[kEos] = special[kEnd] = true;
  return std::make_shared<TokenTable>(bytes, special, /*strip_leading_space=*/false);
}

TestEngineSetup LetterSetup() {
  TestEngineSetup setup;
  setup.token_table = Letters();
  setup.eos_token_ids = {kEos};
  setup.model.peak = 3;  // so that draws differ
  return setup;
}

GenerationConfig Constrained(GenerationConfig config, const std::string& answers) {
  config.response_format = {ResponseFormatType::kRegex, answers, {}};
  return config;
}

void ExpectStopped(const TestEngine& engine, const std::string& id, const std::string& text) {
  EXPECT_EQ(engine.Answer(id).text, text);
  EXPECT_EQ(engine.Answer(id).finish_reason, FinishReason::kStop) << text;
}

}  // namespace mlc_native::testing
