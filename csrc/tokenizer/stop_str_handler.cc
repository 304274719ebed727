#include "tokenizer/stop_str_handler.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "support/check.h"
#include "support/error.h"

namespace mlc_native {
namespace {

constexpr int kLinearSearchLimit = 8;  // nodes with more children use binary search

void CheckStopStrs(const std::vector<std::string>& stop_strs) {
  if (stop_strs.size() > StopStrSet::kMaxStopStrs) {
    throw InvalidRequest("stop_strs", "\"stop_strs\" must hold at most " +
                                          std::to_string(StopStrSet::kMaxStopStrs) +
                                          " strings, got " + std::to_string(stop_strs.size()));
  }
  size_t total = 0;
  for (const std::string& stop_str : stop_strs) {
    if (stop_str.empty()) {
      throw InvalidRequest("stop_strs", "\"stop_strs\" must not hold an empty string");
    }
    total += stop_str.size();
  }
  if (total > StopStrSet::kMaxTotalBytes) {
    throw InvalidRequest("stop_strs", "\"stop_strs\" must hold at most " +
                                          std::to_string(StopStrSet::kMaxTotalBytes) +
                                          " bytes in total, got " + std::to_string(total));
  }
}

// Erases the elements before the head once they are the larger part: amortised O(1) per element.
template <typename Queue>
void DropDeadPart(Queue* queue, size_t* head) {
  if (*head == queue->size()) {
    queue->clear();
    *head = 0;
  } else if (*head > 64 && *head > queue->size() / 2) {
    queue->erase(queue->begin(), queue->begin() + static_cast<ptrdiff_t>(*head));
    *head = 0;
  }
}

}  // namespace

// Builds the trie with children in maps, and then flattens it.
class StopStrSet::Builder {
 public:
  explicit Builder(StopStrSet* set) : set_(set) {
    set_->nodes_.emplace_back(), trie_.emplace_back();
  }

  void Add(std::string_view stop_str) {
    int32_t node = 0;
    for (char c : stop_str) {
      const auto next = static_cast<int32_t>(trie_.size());
      const auto [it, is_new] = trie_[node].try_emplace(static_cast<uint8_t>(c), next);
      const int32_t child = it->second;
      if (is_new) {
        trie_.emplace_back();
        set_->nodes_.emplace_back().depth = set_->nodes_[node].depth + 1;
      }
      node = child;
    }
    set_->nodes_[node].match_len = set_->nodes_[node].depth;
  }

  // Breadth first, so that the failure link of a node (which is less deep) is complete before it.
  void Finish() {
    std::vector<int32_t> order = {0};
    for (size_t i = 0; i < order.size(); ++i) {
      const int32_t parent = order[i];
      set_->nodes_[parent].first_child = static_cast<int32_t>(set_->children_.size());
      set_->nodes_[parent].num_children = static_cast<int32_t>(trie_[parent].size());
      for (const auto& [byte, child] : trie_[parent]) {
        set_->children_.push_back({byte, child});
        order.push_back(child);
        if (parent == 0) {
          set_->root_next_[byte] = child;
          continue;
        }
        Node& node = set_->nodes_[child];
        node.fail = set_->Next(set_->nodes_[parent].fail, byte);
        // A stop string that ends at the node itself is longer than those of its suffixes.
        if (node.match_len == 0) node.match_len = set_->nodes_[node.fail].match_len;
      }
    }
  }

 private:
  StopStrSet* set_;
  std::vector<std::map<uint8_t, int32_t>> trie_;  // children of each node of set_->nodes_
};

StopStrSet::StopStrSet(const std::vector<std::string>& stop_strs) {
  CheckStopStrs(stop_strs);
  Builder builder(this);
  for (const std::string& stop_str : stop_strs) builder.Add(stop_str);
  builder.Finish();
}

int32_t StopStrSet::FindChild(const Node& node, uint8_t byte) const {
  const auto begin = children_.begin() + node.first_child;
  const auto end = begin + node.num_children;
  const auto it =
      node.num_children <= kLinearSearchLimit
          ? std::find_if(begin, end, [byte](const Child& child) { return child.byte == byte; })
          : std::lower_bound(begin, end, byte,
                             [](const Child& child, uint8_t value) { return child.byte < value; });
  return it != end && it->byte == byte ? it->node : -1;
}

int32_t StopStrSet::Next(int32_t node, uint8_t byte) const {
  while (node != 0) {
    const int32_t child = FindChild(nodes_[node], byte);
    if (child >= 0) return child;
    node = nodes_[node].fail;
  }
  return root_next_[byte];
}

StopStrHandler::StopStrHandler(std::shared_ptr<const StopStrSet> stop_strs, bool include_match)
    : stop_strs_(std::move(stop_strs)), include_match_(include_match) {
  MLC_CHECK(stop_strs_ != nullptr);
}

void StopStrHandler::Put(int32_t token_id, std::string_view bytes, std::string* text,
                         std::vector<int32_t>* token_ids) {
  if (stop_triggered_) return;
  const int64_t begin = num_seen_;
  const auto num_bytes = static_cast<int64_t>(bytes.size());
  held_.append(bytes);
  num_seen_ = begin + num_bytes;
  pending_.push_back({token_id, begin, num_seen_});
  for (int64_t i = 0; i < num_bytes; ++i) {
    node_ = stop_strs_->Next(node_, static_cast<uint8_t>(bytes[i]));
    const int32_t match_len = stop_strs_->nodes_[node_].match_len;
    if (match_len == 0) continue;
    const int64_t text_end = begin + i + 1 - (include_match_ ? 0 : match_len);
    ReleaseUntil(text_end, text, token_ids);
    if (pending_head_ < pending_.size() && pending_[pending_head_].begin < text_end) {
      Release(pending_[pending_head_], token_ids);
    }
    stop_triggered_ = true;
    return;
  }
  ReleaseUntil(num_seen_ - stop_strs_->nodes_[node_].depth, text, token_ids);
}

void StopStrHandler::Finish(std::string* text, std::vector<int32_t>* token_ids) {
  if (stop_triggered_) return;
  ReleaseUntil(num_seen_, text, token_ids);
  node_ = 0;
}

void StopStrHandler::ReleaseUntil(int64_t end, std::string* text, std::vector<int32_t>* token_ids) {
  const int64_t released = num_seen_ - static_cast<int64_t>(held_.size() - held_head_);
  const auto num_bytes = static_cast<size_t>(end - released);
  text->append(held_, held_head_, num_bytes);
  held_head_ += num_bytes;
  while (pending_head_ < pending_.size() && pending_[pending_head_].end <= end) {
    Release(pending_[pending_head_++], token_ids);
  }
  DropDeadPart(&held_, &held_head_);
  DropDeadPart(&pending_, &pending_head_);
}

}  // namespace mlc_native
