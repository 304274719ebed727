#include "tokenizer/text_encoder.h"

#include "support/utf8.h"

namespace mlc_native {

bool BpeEncoder::Encode(std::string_view text, std::vector<int32_t>* token_ids) const {
  size_t plain_begin = 0;
  for (size_t at = 0; at < text.size();) {
    const AddedToken* added = AddedTokenAt(text.substr(at));
    if (added == nullptr) {
      ++at;
      continue;
    }
    if (!EncodePlain(text.substr(plain_begin, at - plain_begin), token_ids)) return false;
    token_ids->push_back(added->token_id);
    at += added->text.size();
    plain_begin = at;
  }
  return EncodePlain(text.substr(plain_begin), token_ids);
}

const BpeEncoder::AddedToken* BpeEncoder::AddedTokenAt(std::string_view text) const {
  for (const AddedToken& added : added_tokens_[static_cast<uint8_t>(text[0])]) {
    if (text.starts_with(added.text)) return &added;
  }
  return nullptr;
}

bool BpeEncoder::EncodePlain(std::string_view text, std::vector<int32_t>* token_ids) const {
  if (text.empty()) return true;
  std::vector<std::string_view> words;
  std::vector<int32_t> word_ids;
  pre_tokenizer_.Split(text, &words);
  for (std::string_view word : words) {
    if (const auto whole = word_ids_.find(std::string(word)); whole != word_ids_.end()) {
      token_ids->push_back(whole->second);
      continue;
    }
    if (!SpellWord(word, &word_ids)) return false;
    merges_.Apply(&word_ids);
    token_ids->insert(token_ids->end(), word_ids.begin(), word_ids.end());
  }
  return true;
}

bool BpeEncoder::SpellWord(std::string_view word, std::vector<int32_t>* token_ids) const {
  token_ids->clear();
  while (!word.empty()) {
    const Utf8Step step = ReadUtf8(word);
    const std::string_view bytes = word.substr(0, step.length);
    word.remove_prefix(step.length);
    if (const auto found = char_ids_.find(std::string(bytes)); found != char_ids_.end()) {
      token_ids->push_back(found->second);
      continue;
    }
    for (char byte : bytes) {
      const int32_t id = byte_ids_[static_cast<uint8_t>(byte)];
      if (id == kNoToken) return false;
      token_ids->push_back(id);
    }
  }
  return true;
}

}  // namespace mlc_native
