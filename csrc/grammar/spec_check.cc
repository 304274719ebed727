#include "grammar/spec_check.h"

#include <algorithm>
#include <optional>
#include <string>

#include "grammar/backend.h"
#include "grammar/regex.h"
#include "grammar/schema_keywords.h"
#include "grammar/schema_rewrite.h"
#include "support/error.h"
#include "support/json.h"
#include "support/utf8.h"

namespace mlc_native {
namespace {

bool IsJson(GrammarKind kind) {
  return kind == GrammarKind::kJsonSchema || kind == GrammarKind::kStructuralTag;
}

void CheckJson(const GrammarSpec& spec) {
  try {
    // Of equal names, one would be checked and the other enforced.
    ParseJson(spec.text, {.refuse_duplicates = true});
  } catch (const JsonParseError& error) {
    throw GrammarError(std::string("the grammar is not valid JSON: ") + error.what());
  }
}

// A regex in the form that the library reads as ECMA-262 has it. It ignores anchors in the middle,
// and lets "." be the end of a line and a class the bytes of surrogates, which are no UTF-8.
std::string LibraryRegex(const std::string& text) {
  const std::optional<Regex> regex = Regex::Parse(text);
  return regex ? regex->ForLibrary(Regex::Place::kText).value_or(text) : text;
}

}  // namespace

int64_t BracketDepth(GrammarKind kind, std::string_view text) {
  const bool has_strings = kind != GrammarKind::kRegex;
  const bool has_classes = !IsJson(kind);
  int64_t depth = 0, deepest = 0;
  char literal_end = 0;  // '"' or ']' while inside of a literal
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\') {
      ++i;  // whatever is escaped
    } else if (literal_end != 0) {
      if (c == literal_end) literal_end = 0;
    } else if (c == '"' && has_strings) {
      literal_end = '"';
    } else if (c == '[' && has_classes) {
      literal_end = ']';
    } else if (c == '(' || c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ')' || c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

void CheckGrammarText(const GrammarSpec& spec, const GrammarLimits& limits) {
  const int64_t size = static_cast<int64_t>(spec.text.size());
  if (size > limits.max_text_bytes) {
    throw GrammarError(OutOfRangeMessage(
        "size of the grammar", size,
        "at most max_text_bytes = " + std::to_string(limits.max_text_bytes) + " bytes"));
  }
  if (!IsValidUtf8(spec.text)) throw GrammarError("the grammar is not valid UTF-8");
  if (spec.text.find('\0') != std::string::npos) {
    throw GrammarError("the grammar contains a NUL byte");
  }
  const int64_t depth = BracketDepth(spec.kind, spec.text);
  if (depth > limits.max_depth) {
    throw GrammarError(
        OutOfRangeMessage("nesting of the grammar", depth,
                          "at most max_depth = " + std::to_string(limits.max_depth) + " levels"));
  }
  if (IsJson(spec.kind)) CheckJson(spec);
  if (spec.kind == GrammarKind::kRegex && LooksAround(spec.text)) {
    throw GrammarError("the regex has a lookahead or lookbehind, which cannot be enforced");
  }
}

GrammarSpec RewriteGrammar(const GrammarSpec& spec) {
  GrammarSpec rewritten = spec;
  if (spec.kind == GrammarKind::kJsonSchema) {
    rewritten.text = RewriteSchema(spec.text, spec.strict);
  }
  if (spec.kind == GrammarKind::kStructuralTag) rewritten.text = RewriteTag(spec.text);
  if (spec.kind == GrammarKind::kRegex) rewritten.text = LibraryRegex(spec.text);
  return rewritten;
}

}  // namespace mlc_native
