// ByteRanks are the tokens of a tokenizer of tiktoken's kind: the bytes of each, by its rank.
// Belongs to one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "model_files/vocabulary.h"

namespace mlc_native {

class ByteRanks {
 public:
  // `path` is that of the file, for messages.
  explicit ByteRanks(std::string path) : path_(std::move(path)) {}

  // `place` is where the file says it. Throws LoadError for a rank or a token that is there
  // already, for what is no base64, and for a rank beyond the largest vocabulary.
  void Add(const std::string& place, std::string_view base64, size_t rank);

  size_t size() const { return bytes_.size(); }  // one more than the last rank

  // Appends the tokens, spelled as byte-level BPE does, behind those that the vocabulary has, which
  // is then one of byte-level BPE. Throws LoadError if a byte has no token.
  void AppendTo(Vocabulary* vocabulary, bool with_merges) const;

  [[noreturn]] void Fail(const std::string& place, const std::string& what) const;

 private:
  std::string path_;
  std::vector<std::string> bytes_;
  std::unordered_set<std::string> known_;
};

}  // namespace mlc_native
