// GrammarTokens is a vocabulary in xgrammar's form, and the set of tokens that a grammar may allow.
// Immutable; any thread.
#pragma once

#include <tvm/ffi/any.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "grammar/xgrammar/library.h"
#include "support/token_mask.h"

namespace mlc_native {

class GrammarTokens {
 public:
  GrammarTokens(std::shared_ptr<const XGrammar> library, const GrammarVocab& vocab);

  const XGrammar& library() const { return *library_; }
  const tvm::ffi::Any& tokenizer_info() const { return tokenizer_info_; }
  // Without the tokens that JSON on one line cannot have: those with a control character. XGrammar
  // allows them in strings with a length, and the answer would not parse.
  const tvm::ffi::Any& json_tokenizer_info() const { return json_tokenizer_info_; }
  int64_t vocab_size() const { return vocab_size_; }
  // The number of words of a mask.
  int64_t mask_size() const { return TokenMaskWords(vocab_size_); }
  // Whether a grammar may have the token at all; for JSON, whether it is in json_tokenizer_info.
  bool usable(int32_t token_id, bool in_json) const {
    return token_id >= 0 && token_id < vocab_size_ &&
           (in_json ? usable_in_json_ : usable_)[token_id];
  }

 private:
  const std::shared_ptr<const XGrammar> library_;
  const int64_t vocab_size_;
  std::vector<bool> usable_;  // has bytes, or is a stop token
  std::vector<bool> usable_in_json_;
  tvm::ffi::Any tokenizer_info_;
  tvm::ffi::Any json_tokenizer_info_;
};

}  // namespace mlc_native
