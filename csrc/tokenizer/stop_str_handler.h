// StopStrHandler withholds bytes that may belong to a stop string and finds the first stop string,
// byte exactly.
//
// Matching runs over the bytes of the text (Aho-Corasick over all stop strings, amortised O(1) per
// byte). The stop string is the one that ends first; of several that end there, the longest. Bytes
// before it are released, itself and everything after it never. A token id is released with its
// last byte, an id without text when everything before it is released; of the token in which the
// stop string begins, the id is released when some of its bytes were text. One per sequence. The
// automaton (StopStrSet) is immutable and shared by the sequences of a request.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace mlc_native {

class StopStrSet {
 public:
  // Throws InvalidRequest for an empty string and above kMaxStopStrs strings or kMaxTotalBytes
  // bytes.
  explicit StopStrSet(const std::vector<std::string>& stop_strs);
  static constexpr int kMaxStopStrs = 1024;
  static constexpr int kMaxTotalBytes = 65536;

  bool empty() const { return nodes_.size() <= 1; }

 private:
  friend class StopStrHandler;
  class Builder;
  struct Node {
    int32_t first_child = 0;  // index into children_
    int32_t num_children = 0;
    int32_t fail = 0;   // node of the longest proper suffix
    int32_t depth = 0;  // bytes from the root: how many trailing bytes may belong to a stop string
    int32_t match_len = 0;  // longest stop string that ends here, 0 when none
  };
  struct Child {
    uint8_t byte;
    int32_t node;
  };
  int32_t Next(int32_t node, uint8_t byte) const;
  // -1 when there is none.
  int32_t FindChild(const Node& node, uint8_t byte) const;

  std::vector<Node> nodes_;      // [0] is the root
  std::vector<Child> children_;  // of each node together, ascending by byte
  std::array<int32_t, 256> root_next_{};
};

class StopStrHandler {
 public:
  static constexpr int32_t kNoToken = -1;

  explicit StopStrHandler(std::shared_ptr<const StopStrSet> stop_strs);

  // Appends released bytes to *text and released ids to *token_ids. Nothing is released after a
  // stop string. kNoToken: bytes without an id.
  void Put(int32_t token_id, std::string_view bytes, std::string* text,
           std::vector<int32_t>* token_ids);
  // End of the sequence without a stop string: releases everything.
  void Finish(std::string* text, std::vector<int32_t>* token_ids);
  bool stop_triggered() const { return stop_triggered_; }

 private:
  struct PendingToken {
    int32_t token_id;
    int64_t begin;  // offset of its first byte in the stream of bytes
    int64_t end;    // offset just behind this token
  };
  static void Release(const PendingToken& token, std::vector<int32_t>* token_ids) {
    if (token.token_id != kNoToken) token_ids->push_back(token.token_id);
  }
  // Moves the bytes before `end` out of held_, and the ids of the tokens that end there.
  void ReleaseUntil(int64_t end, std::string* text, std::vector<int32_t>* token_ids);

  std::shared_ptr<const StopStrSet> stop_strs_;
  int32_t node_ = 0;
  // Queues in vectors: what is before the head is dead and dropped now and then.
  std::string held_;  // bytes seen and not released, from held_head_ on
  size_t held_head_ = 0;
  std::vector<PendingToken> pending_;  // tokens seen and not released, from pending_head_ on
  size_t pending_head_ = 0;
  int64_t num_seen_ = 0;  // bytes; held_ ends there
  bool stop_triggered_ = false;
};

}  // namespace mlc_native
