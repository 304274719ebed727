#include "tokenizer/byte_trie.h"

#include <algorithm>

namespace mlc_native {
namespace {

constexpr int32_t kFewChildren = 8;  // more are searched by halves

}  // namespace

ByteTrie::ByteTrie(std::vector<std::pair<std::string, int32_t>> texts) : nodes_(1) {
  std::ranges::stable_sort(texts, {}, &std::pair<std::string, int32_t>::first);
  struct Range {  // the texts below a node, which have their first `depth` bytes in common
    size_t begin, end, depth;
  };
  std::vector<Range> ranges = {{0, texts.size(), 0}};  // by node
  for (size_t node = 0; node < ranges.size(); ++node) {
    auto [at, end, depth] = ranges[node];
    for (; at < end && texts[at].first.size() == depth; ++at) {
      if (depth > 0) nodes_[node].value = texts[at].second;
    }
    nodes_[node].first_child = static_cast<int32_t>(nodes_.size());
    while (at < end) {
      const char byte = texts[at].first[depth];
      size_t next = at;
      while (next < end && texts[next].first[depth] == byte) ++next;
      nodes_.push_back({.byte = static_cast<uint8_t>(byte)});
      ranges.push_back({at, next, depth + 1});
      ++nodes_[node].num_children;
      at = next;
    }
  }
  for (int byte = 0; byte < 256; ++byte) first_[byte] = Child(0, static_cast<char>(byte));
}

int32_t ByteTrie::Child(int32_t node, char byte) const {
  const Node* begin = nodes_.data() + nodes_[node].first_child;
  const Node* end = begin + nodes_[node].num_children;
  const auto wanted = static_cast<uint8_t>(byte);
  if (nodes_[node].num_children > kFewChildren) {
    begin = std::lower_bound(begin, end, wanted,
                             [](const Node& child, uint8_t value) { return child.byte < value; });
  } else {
    while (begin != end && begin->byte < wanted) ++begin;
  }
  return begin != end && begin->byte == wanted ? static_cast<int32_t>(begin - nodes_.data())
                                               : kNone;
}

ByteTrie::Found ByteTrie::Longest(std::string_view text) const {
  Found found;
  ForEachPrefix(text, [&](size_t length, int32_t value) { found = {value, length}; });
  return found;
}

}  // namespace mlc_native
