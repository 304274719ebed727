#include "grammar/xgrammar/tokens.h"

#include <tvm/ffi/container/array.h>

#include <algorithm>
#include <string>
#include <utility>

#include "support/check.h"

namespace mlc_native {
namespace {

namespace ffi = tvm::ffi;

constexpr int64_t kRawVocab = 0;  // xgrammar's VocabType::RAW: the tokens are bytes already

bool HasControlCharacter(const std::string& bytes) {
  return std::any_of(bytes.begin(), bytes.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20; });
}

}  // namespace

GrammarTokens::GrammarTokens(std::shared_ptr<const XGrammar> library, const GrammarVocab& vocab)
    : library_(std::move(library)), vocab_size_(vocab.vocab_size) {
  MLC_CHECK(static_cast<int64_t>(vocab.token_bytes.size()) <= vocab_size_);
  usable_.assign(vocab_size_, false);
  usable_in_json_.assign(vocab_size_, false);
  ffi::Array<ffi::Any> tokens;
  ffi::Array<ffi::Any> json_tokens;
  tokens.reserve(static_cast<int64_t>(vocab.token_bytes.size()));
  json_tokens.reserve(static_cast<int64_t>(vocab.token_bytes.size()));
  for (size_t i = 0; i < vocab.token_bytes.size(); ++i) {
    const std::string& bytes = vocab.token_bytes[i];
    usable_[i] = !bytes.empty();
    usable_in_json_[i] = usable_[i] && !HasControlCharacter(bytes);
    tokens.push_back(ffi::Bytes(bytes.data(), bytes.size()));
    json_tokens.push_back(usable_in_json_[i] ? tokens.back() : ffi::Any(ffi::Bytes("", 0)));
  }
  ffi::Array<int64_t> stop_tokens;
  for (int32_t token_id : vocab.stop_token_ids) {
    MLC_CHECK(token_id >= 0 && token_id < vocab_size_) << token_id;
    usable_[token_id] = usable_in_json_[token_id] = true;
    stop_tokens.push_back(token_id);
  }
  tokenizer_info_ = Call(library_->new_tokenizer_info, tokens, kRawVocab, vocab_size_, stop_tokens,
                         /*add_prefix_space=*/false);
  json_tokenizer_info_ = Call(library_->new_tokenizer_info, json_tokens, kRawVocab, vocab_size_,
                              stop_tokens, /*add_prefix_space=*/false);
}

}  // namespace mlc_native
