// PrecompiledMap is SentencePiece's table of replacements ("precompiled_charsmap"): a double array
// (the trie of Darts) over texts, and what each becomes. Immutable after building; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mlc_native {

class PrecompiledMap {
 public:
  // Throws LoadError for a table that is damaged.
  explicit PrecompiledMap(std::string_view base64);

  // Replaces, as the tokenizers package does, each cluster of characters of less than 6 bytes that
  // begins with a text of the table, and otherwise each such character. Returns at most one result
  // more than `max_bytes`.
  std::string Replaced(std::string_view text, size_t max_bytes) const;

 private:
  // What the shortest text of the table becomes that `part` begins with.
  std::optional<std::string_view> Find(std::string_view part) const;

  std::vector<uint32_t> units_;
  std::string results_;  // each ends with a byte of 0
};

}  // namespace mlc_native
