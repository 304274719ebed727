#include "grammar/xgrammar/compile.h"

#include "grammar/xgrammar/structural_tag.h"

namespace mlc_native {
namespace {

namespace ffi = tvm::ffi;

// "JSON" of OpenAI's JSON mode is an object.
constexpr char kAnyObject[] = R"({"type": "object"})";
constexpr char kRootRule[] = "root";

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
    case GrammarKind::kStructuralTag:
      return Call(library.parse_structural_tag, ffi::String(PrepareStructuralTag(spec.text)));
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

ffi::Any CompileWithXGrammar(const GrammarTokens& tokens, const GrammarSpec& spec) {
  const XGrammar& library = tokens.library();
  // One thread, and no cache: ours (compile_cache.h) counts bytes and is shared.
  const bool is_json =
      spec.kind == GrammarKind::kJsonObject || spec.kind == GrammarKind::kJsonSchema;
  const ffi::Any& tokenizer_info = is_json ? tokens.json_tokenizer_info() : tokens.tokenizer_info();
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
    case GrammarKind::kStructuralTag:
      return Call(library.compile_structural_tag, compiler,
                  ffi::String(PrepareStructuralTag(spec.text)));
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
