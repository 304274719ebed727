#include "grammar/xgrammar/compile.h"

#include <string_view>
#include <utility>

#include "grammar/xgrammar/structural_tag.h"

namespace mlc_native {
namespace {

namespace ffi = tvm::ffi;

// "JSON" of OpenAI's JSON mode is an object.
constexpr char kAnyObject[] = R"({"type": "object"})";
constexpr char kRootRule[] = "root";

// One character of a string with a limit of its length, as the library prints the rule within a
// structural tag, and the same without control characters, which are not JSON, with one class for
// each length in UTF-8 (structural_tag.cc says why). Such rules have kCharactersName in their
// names. No text of the client looks like it: it would have a quote before the end of the line.
constexpr std::string_view kCharactersName = "_characters";
constexpr std::string_view kLimitedCharacter = R"( ::= (([^\"\\\r\n])))"
                                               "\n";
constexpr std::string_view kJsonCharacter =
    R"( ::= (([ !#-\[\]-\x7F]) | ([\u0080-\u07FF]) | ([\u0800-\u0FFF]) | ([\u1000-\uCFFF]))"
    R"( | ([\uD000-\uD7FF]) | ([\uE000-\uFFFF]) | ([\U00010000-\U0003FFFF]))"
    R"( | ([\U00040000-\U000FFFFF]) | ([\U00100000-\U0010FFFF])))"
    "\n";

// A structural tag, or the EBNF grammar for it where the library's own would take control
// characters.
struct TagText {
  std::string text;
  bool is_ebnf = false;
};

TagText ReadStructuralTag(const XGrammar& library, const std::string& tag) {
  const std::string prepared = PrepareStructuralTag(tag);
  const ffi::Any parsed = Call(library.parse_structural_tag, ffi::String(prepared));
  std::string ebnf = Call(library.print_grammar, parsed).cast<ffi::String>();
  bool is_replaced = false;
  for (size_t at = 0; (at = ebnf.find(kLimitedCharacter, at)) != std::string::npos; ++at) {
    const size_t line = ebnf.rfind('\n', at) + 1;  // 0 in the first one
    const std::string_view name = std::string_view(ebnf).substr(line, at - line);
    if (name.find(kCharactersName) == std::string_view::npos) continue;
    ebnf.replace(at, kLimitedCharacter.size(), kJsonCharacter);
    is_replaced = true;
  }
  if (is_replaced) return {std::move(ebnf), true};
  return {prepared, false};
}

ffi::Any ParseSchema(const XGrammar& library, const std::string& schema, bool strict) {
  return Call(library.parse_json_schema, ffi::String(schema), /*any_whitespace=*/false,
              /*indent=*/nullptr, /*separators=*/nullptr, strict, /*max_whitespace_cnt=*/nullptr,
              /*print_converted_ebnf=*/false, /*any_order=*/false);
}

ffi::Any Parse(const XGrammar& library, const GrammarSpec& spec) {
  const ffi::String text(spec.text);
  switch (spec.kind) {
    case GrammarKind::kJsonObject:
      return ParseSchema(library, kAnyObject, /*strict=*/false);
    case GrammarKind::kJsonSchema:
      return ParseSchema(library, spec.text, spec.strict);
    case GrammarKind::kRegex:
      return Call(library.parse_regex, text, /*print_converted_ebnf=*/false);
    case GrammarKind::kEbnf:
      return Call(library.parse_ebnf, text, ffi::String(kRootRule));
    case GrammarKind::kStructuralTag: {
      const TagText tag = ReadStructuralTag(library, spec.text);
      return tag.is_ebnf ? Call(library.parse_ebnf, ffi::String(tag.text), ffi::String(kRootRule))
                         : Call(library.parse_structural_tag, ffi::String(tag.text));
    }
  }
  throw GrammarError("unknown kind of grammar");
}

ffi::Any CompileSchema(const XGrammar& library, const ffi::Any& compiler, const std::string& schema,
                       bool strict) {
  return Call(library.compile_json_schema, compiler, ffi::String(schema), /*any_whitespace=*/false,
              /*indent=*/nullptr, /*separators=*/nullptr, strict, /*max_whitespace_cnt=*/nullptr,
              /*any_order=*/false);
}

}  // namespace

bool IsJson(GrammarKind kind) {
  return kind == GrammarKind::kJsonObject || kind == GrammarKind::kJsonSchema;
}

ffi::Any CompileWithXGrammar(const GrammarTokens& tokens, const GrammarSpec& spec) {
  const XGrammar& library = tokens.library();
  // One thread, and no cache: ours (compile_cache.h) counts bytes and is shared.
  const ffi::Any& tokenizer_info =
      IsJson(spec.kind) ? tokens.json_tokenizer_info() : tokens.tokenizer_info();
  const ffi::Any compiler = Call(library.new_compiler, tokenizer_info,
                                 /*max_threads=*/int64_t{1}, /*cache_enabled=*/false,
                                 /*cache_limit_bytes=*/int64_t{-1});
  const ffi::String text(spec.text);
  switch (spec.kind) {
    case GrammarKind::kJsonObject:
      return CompileSchema(library, compiler, kAnyObject, /*strict=*/false);
    case GrammarKind::kJsonSchema:
      return CompileSchema(library, compiler, spec.text, spec.strict);
    case GrammarKind::kRegex:
      return Call(library.compile_regex, compiler, text);
    case GrammarKind::kEbnf:
      return Call(library.compile_ebnf, compiler, text, ffi::String(kRootRule));
    case GrammarKind::kStructuralTag: {
      const TagText tag = ReadStructuralTag(library, spec.text);
      return tag.is_ebnf ? Call(library.compile_ebnf, compiler, ffi::String(tag.text),
                                ffi::String(kRootRule))
                         : Call(library.compile_structural_tag, compiler, ffi::String(tag.text));
    }
  }
  throw GrammarError("unknown kind of grammar");
}

int64_t CompiledBytes(const XGrammar& library, const ffi::Any& compiled) {
  return Call(library.memory_size_bytes, compiled).cast<int64_t>();
}

std::string SerializeGrammar(const XGrammar& library, const GrammarSpec& spec) {
  return Call(library.serialize_grammar, Parse(library, spec)).cast<ffi::String>();
}

}  // namespace mlc_native
