#include "grammar/xgrammar/library.h"

#include <dlfcn.h>
#include <tvm/ffi/reflection/accessor.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/error.h"
#include "support/json.h"

namespace mlc_native {
namespace {

namespace ffi = tvm::ffi;

constexpr char kLibraryName[] = "libxgrammar_bindings.so";
constexpr char kLibraryVariable[] = "MLC_NATIVE_XGRAMMAR_LIB";
constexpr char kTypePrefix[] = "xgrammar.tvm_ffi_binding.";

struct MethodRow {
  ffi::Function XGrammar::* slot;
  const char* type;
  const char* name;
  const char* signature;             // result(arguments), as Signature() writes it
  bool may_end_with_switch = false;  // a later release has one more argument, which is bool
};

constexpr MethodRow kMethods[] = {
    {&XGrammar::new_tokenizer_info, "TokenizerInfo", "__ffi_init__",
     "Object(Array,int,Any,Any,bool)"},
    {&XGrammar::parse_json_schema, "Grammar", "from_json_schema",
     "Object(String,bool,Any,Any,bool,Any,bool,bool)"},
    {&XGrammar::parse_regex, "Grammar", "from_regex", "Object(String,bool)"},
    {&XGrammar::parse_ebnf, "Grammar", "from_ebnf", "Object(String,String)"},
    {&XGrammar::parse_structural_tag, "Grammar", "from_structural_tag", "Object(String)"},
    {&XGrammar::serialize_grammar, "Grammar", "serialize_json", "String(Grammar)"},
    {&XGrammar::print_grammar, "Grammar", "to_string", "String(Grammar)"},
    {&XGrammar::new_compiler, "GrammarCompiler", "__ffi_init__", "Object(Object,int,bool,int)",
     /*may_end_with_switch=*/true},  // 0.2.9: enable_dynamic_compilation
    {&XGrammar::compile_json_schema, "GrammarCompiler", "compile_json_schema",
     "Object(GrammarCompiler,String,bool,Any,Any,bool,Any,bool)"},
    {&XGrammar::compile_regex, "GrammarCompiler", "compile_regex",
     "Object(GrammarCompiler,String)"},
    {&XGrammar::compile_ebnf, "GrammarCompiler", "compile_grammar_from_strings",
     "Object(GrammarCompiler,String,String)"},
    {&XGrammar::compile_structural_tag, "GrammarCompiler", "compile_structural_tag",
     "Object(GrammarCompiler,String)"},
    {&XGrammar::memory_size_bytes, "CompiledGrammar", "memory_size_bytes", "int(CompiledGrammar)"},
    {&XGrammar::new_matcher, "GrammarMatcher", "__ffi_init__",
     "Object(Object,Any,bool,int,std::optional)"},
    {&XGrammar::accept_token, "GrammarMatcher", "accept_token", "bool(GrammarMatcher,int,bool)"},
    {&XGrammar::fill_next_token_bitmask, "GrammarMatcher", "fill_next_token_bitmask",
     "bool(GrammarMatcher,Any,int,bool)"},
    {&XGrammar::find_jump_forward_string, "GrammarMatcher", "find_jump_forward_string",
     "String(GrammarMatcher)"},
    {&XGrammar::rollback, "GrammarMatcher", "rollback", "None(GrammarMatcher,int)"},
    {&XGrammar::fork, "GrammarMatcher", "fork", "Object(GrammarMatcher)"},
    {&XGrammar::is_terminated, "GrammarMatcher", "is_terminated", "bool(GrammarMatcher)"},
    {&XGrammar::is_completed, "GrammarMatcher", "is_completed", "bool(GrammarMatcher)"},
};

InvalidConfig LibraryError(const std::string& what) {
  return InvalidConfig(
      "grammar", "xgrammar cannot be used: " + what + "; `pip install 'mlc_native[grammar]'`");
}

// Returns the type `key`, or null if it is not registered.
const TVMFFITypeInfo* FindType(const std::string& key) {
  const TVMFFIByteArray bytes{key.data(), key.size()};
  int32_t index = 0;
  if (TVMFFITypeKeyToIndex(&bytes, &index) != 0) {
    ffi::detail::MoveFromSafeCallRaised();  // forgets the error
    return nullptr;
  }
  return TVMFFIGetTypeInfo(index);
}

std::string_view View(const TVMFFIByteArray& bytes) { return {bytes.data, bytes.size}; }

// "xgrammar.tvm_ffi_binding.Grammar" -> "Grammar"
std::string ShortName(const JsonValue& type) {
  const std::string& name = type.At("type").AsString();
  return name.substr(name.rfind('.') + 1);
}

// The types of the result and the arguments are in "args", since 0.2.9 in "named_args".
std::string Signature(const TVMFFIMethodInfo& method) {
  if (!IsValidJson(View(method.metadata))) return "unknown";
  const JsonValue metadata = ParseJson(View(method.metadata));
  const JsonValue* type_schema = metadata.Find("type_schema");
  if (type_schema == nullptr) return "unknown";
  const JsonValue schema = ParseJson(type_schema->AsString());
  JsonArray types;
  if (const JsonValue* named = schema.Find("named_args")) {
    types = named->At("return").AsArray();
    for (const JsonValue& type : named->At("params").AsArray()) types.push_back(type);
  } else if (const JsonValue* args = schema.Find("args")) {
    types = args->AsArray();
  }
  if (types.empty()) return "unknown";
  std::string signature = ShortName(types[0]) + "(";
  for (size_t i = 1; i < types.size(); ++i) {
    signature += (i > 1 ? "," : "") + ShortName(types[i]);
  }
  return signature + ")";
}

// Returns `function` with a last argument that is always false.
ffi::Function SwitchedOff(ffi::Function function) {
  return ffi::Function::FromPacked(
      [function = std::move(function)](ffi::PackedArgs args, ffi::Any* result) {
        std::vector<ffi::AnyView> all(args.data(), args.data() + args.size());
        all.emplace_back(false);
        function.CallPacked(ffi::PackedArgs(all.data(), static_cast<int32_t>(all.size())), result);
      });
}

ffi::Function FindMethod(const MethodRow& row) {
  const std::string name = std::string(row.type) + "." + row.name;
  const TVMFFITypeInfo* type = FindType(kTypePrefix + std::string(row.type));
  for (int32_t i = 0; type != nullptr && i < type->num_methods; ++i) {
    const TVMFFIMethodInfo& method = type->methods[i];
    if (View(method.name) != row.name) continue;
    auto function = ffi::AnyView::CopyFromTVMFFIAny(method.method).cast<ffi::Function>();
    const std::string signature = Signature(method);
    const std::string known = row.signature;
    if (signature == known) return function;
    if (row.may_end_with_switch && signature == known.substr(0, known.size() - 1) + ",bool)") {
      return SwitchedOff(std::move(function));
    }
    throw LibraryError(name + " is " + signature + ", this build knows " + known);
  }
  throw LibraryError("it has no " + name);
}

// Next to tvm-ffi in site-packages, else where the dynamic linker finds it. (The run path is not
// enough: under sanitizers dlopen is called from their library, not from this one.)
std::string LibraryPath() {
  const char* chosen = std::getenv(kLibraryVariable);
  if (chosen != nullptr && *chosen != '\0') return chosen;
  Dl_info tvm_ffi;
  if (dladdr(reinterpret_cast<const void*>(&TVMFFIGetTypeInfo), &tvm_ffi) == 0) return kLibraryName;
  const auto packages =
      std::filesystem::path(tvm_ffi.dli_fname).parent_path().parent_path().parent_path();
  const auto path = packages / "xgrammar" / kLibraryName;
  std::error_code error;
  return std::filesystem::exists(path, error) ? path.string() : kLibraryName;
}

void OpenLibrary() {
  // A Python program may have loaded it already, from elsewhere; its types register only once.
  if (FindType(std::string(kTypePrefix) + "GrammarCompiler") != nullptr) return;
  const std::string path = LibraryPath();
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) == nullptr) {
    const char* error = dlerror();
    throw LibraryError(error != nullptr ? error : path);
  }
}

}  // namespace

std::shared_ptr<const XGrammar> XGrammar::Load() {
  auto library = std::make_shared<XGrammar>();
  try {
    OpenLibrary();
    for (const MethodRow& row : kMethods) (*library).*row.slot = FindMethod(row);
  } catch (const ffi::Error& error) {
    throw LibraryError(error.message());
  } catch (const JsonError& error) {
    throw LibraryError(error.what());
  }
  return library;
}

// "[11:06:44] /project/cpp/regex_converter.cc:32: The regex ...\n" -> "The regex ..."
std::string WithoutPlace(std::string message) {
  while (message.ends_with('\n')) message.pop_back();
  constexpr std::string_view kFile = ".cc:";
  const size_t file = message.find(kFile);
  if (message.empty() || message[0] != '[' || file == std::string::npos) return message;
  const size_t text = message.find(": ", file + kFile.size());
  return text == std::string::npos ? message : message.substr(text + 2);
}

}  // namespace mlc_native
