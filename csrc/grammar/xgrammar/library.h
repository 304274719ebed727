// XGrammar: xgrammar's C++ core as functions, found by reflection in its tvm-ffi library. No
// Python, no GIL. The functions are thread-safe; immutable after Load. Throws std::exception types
// of tvm-ffi; Call() turns them into GrammarError.
#pragma once

#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <memory>
#include <string>
#include <utility>

#include "grammar/backend.h"

namespace mlc_native {

struct XGrammar {
  // The library is opened on the first call: MLC_NATIVE_XGRAMMAR_LIB of the environment, else the
  // one of the package xgrammar beside tvm_ffi's. Throws InvalidConfig when it is missing or when a
  // function has another signature than we know.
  static std::shared_ptr<const XGrammar> Load();

  tvm::ffi::Function new_tokenizer_info;
  tvm::ffi::Function parse_json_schema;
  tvm::ffi::Function parse_regex;
  tvm::ffi::Function parse_ebnf;
  tvm::ffi::Function parse_structural_tag;
  tvm::ffi::Function serialize_grammar;
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

// A message of xgrammar without the time and the source line that it begins with.
std::string WithoutPlace(const std::string& message);

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
