#include "grammar/xgrammar/compile.h"

#include <string>

namespace mlc_native {
namespace {

namespace ffi = tvm::ffi;

// "JSON" of OpenAI's JSON mode is an object.
constexpr char kAnyObject[] = R"({"type": "object"})";

ffi::Any CompileSchema(const XGrammar& library, const ffi::Any& compiler, const std::string& schema,
                       bool strict) {
  return Call(library.compile_json_schema, compiler, ffi::String(schema), /*any_whitespace=*/false,
              /*indent=*/nullptr, /*separators=*/nullptr, strict, /*max_whitespace_cnt=*/nullptr,
              /*any_order=*/false);
}

}  // namespace

ffi::Any CompileWithXGrammar(const GrammarTokens& tokens, const GrammarSpec& spec) {
  const XGrammar& library = tokens.library();
  // One thread, and no cache: ours (compile_cache.h) counts bytes and is shared.
  const ffi::Any compiler = Call(library.new_compiler, tokens.tokenizer_info(),
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
      return Call(library.compile_ebnf, compiler, text, ffi::String("root"));
    case GrammarKind::kStructuralTag:
      return Call(library.compile_structural_tag, compiler, text);
  }
  throw GrammarError("unknown kind of grammar");
}

}  // namespace mlc_native
