#include "sim/vocabulary.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace mlc_native::sim {
namespace {

using nlohmann::json;

constexpr size_t kMaxMergedBytes = 6;

struct Symbol {
  std::string bytes;
  std::string spelled;  // as byte-level vocabularies write the bytes
};

const std::vector<Symbol> kLetters = {{"a", "a"}, {"b", "b"},    {"c", "c"},
                                      {" ", "Ġ"}, {"\xc3", "Ã"}, {"\xa9", "©"}};

std::vector<int64_t> DrawOrder(SimRandom& rng, int64_t size) {
  std::vector<int64_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = size - 1; i > 0; --i) std::swap(order[i], order[rng.Range(0, i)]);
  return order;
}

}  // namespace

Vocabulary DrawPieces(SimRandom rng, int64_t vocab_size) {
  const std::vector<std::string> pieces = {"a",        "b",        "ab",   "ba",   "c",
                                           "abc",      " ",        "\xc3", "\xa9", "",
                                           "\xf0\x9f", "\x98\x80", " a",   "aa"};
  std::vector<std::string> bytes(vocab_size);
  std::vector<bool> special(vocab_size);
  for (int64_t i = 0; i < vocab_size; ++i) {
    bytes[i] = rng.Pick(pieces);
    special[i] = rng.Chance(0.05);
  }
  if (rng.Chance(0.2)) bytes.resize(vocab_size / 2 + 1);  // padded embeddings
  if (bytes.size() < special.size()) special.resize(bytes.size());
  return {std::make_shared<TokenTable>(std::move(bytes), std::move(special), rng.Chance(0.5)), ""};
}

Vocabulary DrawMerges(SimRandom rng, int64_t vocab_size) {
  std::vector<Symbol> symbols = kLetters;
  symbols.resize(std::min<size_t>(symbols.size(), vocab_size));
  std::set<std::string> known;
  for (const Symbol& symbol : symbols) known.insert(symbol.spelled);
  json merges = json::array();
  for (int64_t attempt = 0; attempt < 4 * vocab_size && std::ssize(symbols) < vocab_size;
       ++attempt) {
    const Symbol left = rng.Pick(symbols);
    const Symbol right = rng.Pick(symbols);
    if (left.bytes.size() + right.bytes.size() > kMaxMergedBytes) continue;
    if (!known.insert(left.spelled + right.spelled).second) continue;
    merges.push_back({left.spelled, right.spelled});
    symbols.push_back({left.bytes + right.bytes, left.spelled + right.spelled});
  }
  const std::vector<int64_t> ids = DrawOrder(rng, vocab_size);
  std::vector<std::string> bytes(vocab_size);
  std::vector<bool> special(vocab_size);
  json vocab = json::object();
  for (size_t i = 0; i < symbols.size(); ++i) {
    bytes[ids[i]] = symbols[i].bytes;
    special[ids[i]] = i >= kLetters.size() && rng.Chance(0.05);
    vocab[symbols[i].spelled] = ids[i];
  }
  const json pre_tokenizer = {{"type", "ByteLevel"}, {"use_regex", rng.Chance(0.5)}};
  const json tokenizer = {{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}},
                          {"pre_tokenizer", pre_tokenizer},
                          {"decoder", {{"type", "ByteLevel"}}}};
  return {std::make_shared<TokenTable>(std::move(bytes), std::move(special), rng.Chance(0.5)),
          tokenizer.dump()};
}

}  // namespace mlc_native::sim
