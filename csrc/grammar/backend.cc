#include "grammar/backend.h"

#include <dlfcn.h>

#include <csignal>
#include <filesystem>

#include "support/companion.h"
#include "support/error.h"

namespace mlc_native {
namespace {

constexpr char kLibraryName[] = "libmlc_native_grammar.so";
constexpr char kWorkerName[] = "mlc_native_grammar_worker";
constexpr char kLibraryVariable[] = "MLC_NATIVE_GRAMMAR_LIB";
constexpr char kInstallHint[] = "; `pip install 'mlc_native[grammar]'` provides what it needs";

InvalidConfig BackendError(const std::string& library, const std::string& what) {
  return InvalidConfig("grammar", "grammars need " + library + ": " + what + kInstallHint);
}

std::string LibraryPath() {
  return EnvironmentValue(kLibraryVariable).value_or(CompanionPath(kLibraryName));
}

// libtvm_ffi puts a handler of its own on SIGSEGV when it is loaded; the host's stays.
void* OpenLibrary(const std::string& path) {
  struct sigaction handler;
  sigaction(SIGSEGV, nullptr, &handler);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  sigaction(SIGSEGV, &handler, nullptr);
  return library;
}

template <typename Function>
Function* Symbol(const std::string& path, void* library, const char* name) {
  void* symbol = dlsym(library, name);
  if (symbol == nullptr) throw BackendError(path, std::string("it does not export ") + name);
  return reinterpret_cast<Function*>(symbol);
}

}  // namespace

std::string GrammarWorkerPath() {
  return (std::filesystem::path(LibraryPath()).parent_path() / kWorkerName).string();
}

std::unique_ptr<GrammarBackend> LoadGrammarBackend(const GrammarVocab& vocab) {
  const std::string path = LibraryPath();
  void* library = OpenLibrary(path);
  if (library == nullptr) {
    const char* error = dlerror();
    throw BackendError(path, error != nullptr ? error : "unknown error of the dynamic linker");
  }
  const int abi = Symbol<int()>(path, library, "mlc_native_grammar_abi")();
  if (abi != kGrammarBackendAbi) {
    throw BackendError(path, "it has ABI " + std::to_string(abi) + ", this build needs " +
                                 std::to_string(kGrammarBackendAbi));
  }
  auto* create = Symbol<GrammarBackend*(const GrammarVocab*)>(path, library,
                                                              "mlc_native_create_grammar_backend");
  return std::unique_ptr<GrammarBackend>(create(&vocab));
}

}  // namespace mlc_native
