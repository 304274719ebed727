// XGrammar is the C++ core of xgrammar as functions, found by reflection in its tvm-ffi library. It
// needs neither Python nor the GIL. Immutable after Load; the functions are thread-safe. They throw
// std::exception types of tvm-ffi, which Call() turns into GrammarError.
#pragma once

#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <memory>
#include <string>
#include <utility>

#include "grammar/backend.h"

namespace mlc_native {

struct XGrammar {
  // Opens the library on the first call: the one that MLC_NATIVE_XGRAMMAR_LIB names, else that of
  // the package xgrammar next to tvm_ffi. Throws InvalidConfig if it is missing or if a function
  // has an unknown signature.
  static std::shared_ptr<const XGrammar> Load();

  tvm::ffi::Function new_tokenizer_info;
  tvm::ffi::Function parse_json_schema;
  tvm::ffi::Function parse_regex;
  tvm::ffi::Function parse_ebnf;
  tvm::ffi::Function parse_structural_tag;
  tvm::ffi::Function serialize_grammar;
  tvm::ffi::Function print_grammar;
  tvm::ffi::Function new_compiler;
  tvm::ffi::Function compile_json_schema;
  tvm::ffi::Function compile_regex;
  tvm::ffi::Function compile_ebnf;
  tvm::ffi::Function compile_structural_tag;
  tvm::ffi::Function memory_size_bytes;
  tvm::ffi::Function new_matcher;
  tvm::ffi::Function accept_token;
  tvm::ffi::Function fill_next_token_bitmask;
  tvm::ffi::Function find_jump_forward_string;
  tvm::ffi::Function rollback;
  tvm::ffi::Function fork;
  tvm::ffi::Function is_terminated;
  tvm::ffi::Function is_completed;
};

// Returns a message of xgrammar without the time and source line at its beginning.
std::string WithoutPlace(std::string message);

template <typename... Args>
tvm::ffi::Any Call(const tvm::ffi::Function& function, Args&&... args) {
  try {
    return function(std::forward<Args>(args)...);
  } catch (const tvm::ffi::Error& error) {
    throw GrammarError(WithoutPlace(error.message()));
  } catch (const std::exception& error) {
    throw GrammarError(WithoutPlace(error.what()));
  }
}

}  // namespace mlc_native
