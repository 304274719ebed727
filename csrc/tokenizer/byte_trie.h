// ByteTrie finds texts of a list at a place of another text. Immutable after building; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mlc_native {

class ByteTrie {
 public:
  static constexpr int32_t kNone = -1;

  ByteTrie() : ByteTrie(std::vector<std::pair<std::string, int32_t>>()) {}
  // Texts with their values, which are at least 0. Of equal texts the last one counts.
  explicit ByteTrie(std::vector<std::pair<std::string, int32_t>> texts);

  struct Found {
    int32_t value = kNone;
    size_t length = 0;
  };
  // The longest text at the beginning of `text`.
  Found Longest(std::string_view text) const;

  // Calls visit(length, value) for each text at the beginning of `text`, the shortest first.
  template <typename Visit>
  void ForEachPrefix(std::string_view text, Visit visit) const {
    int32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = i == 0 ? first_[static_cast<uint8_t>(text[0])] : Child(node, text[i]);
      if (node == kNone) return;
      if (nodes_[node].value != kNone) visit(i + 1, nodes_[node].value);
    }
  }

 private:
  struct Node {
    int32_t first_child = 0;  // the children lie one behind the other, by their bytes
    int32_t value = kNone;
    uint16_t num_children = 0;
    uint8_t byte = 0;
  };
  // Returns kNone if there is none.
  int32_t Child(int32_t node, char byte) const;

  std::vector<Node> nodes_;           // [0] is the root
  std::array<int32_t, 256> first_{};  // the children of the root
};

}  // namespace mlc_native
