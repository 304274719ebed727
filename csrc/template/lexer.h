// From the source of a template to tokens, with the white space around tags removed as trim_blocks,
// lstrip_blocks and the signs of the tags say.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mlc_native::templates {

enum class TokenKind : uint8_t {
  kData,
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kString,  // with its quotes
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  std::string_view text;
  int line;

  bool Is(std::string_view operation) const {
    return kind == TokenKind::kOperator && text == operation;
  }
  bool IsName(std::string_view name) const { return kind == TokenKind::kName && text == name; }
};

// The source with \n at the ends of lines, and without the last one.
std::string NormalizeLines(std::string_view source);

// The tokens of a source that is normalized and lives as long as they do; the last is kEnd. Throws
// TemplateError.
std::vector<Token> ReadTokens(std::string_view source);

}  // namespace mlc_native::templates
