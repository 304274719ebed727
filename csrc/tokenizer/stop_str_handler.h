// StopStrHandler finds the first stop string in a text, byte by byte, and withholds bytes that may
// belong to one.
//
// Matching uses Aho-Corasick over all stop strings, in amortised O(1) per byte. The match is the
// stop string that ends first, and the longest one of several that end at the same byte. Bytes
// before the match are released, the match itself if that was asked for, and everything after it
// never is. A token id is released with its last byte, and an id without text when everything
// before it has been released. The id of the token in which the text ends is released if some of
// its bytes were. One per sequence; not thread-safe. The automaton (StopStrSet) is immutable and
// shared by the sequences of a request.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mlc_native/detail/export.h"

namespace mlc_native {

class MLC_NATIVE_PRIVATE_API StopStrSet {
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
    int32_t fail = 0;       // node of the longest proper suffix
    int32_t depth = 0;      // bytes from the root: trailing bytes that may belong to a stop string
    int32_t match_len = 0;  // length of the longest stop string that ends here, or 0
  };
  struct Child {
    uint8_t byte;
    int32_t node;
  };
  int32_t Next(int32_t node, uint8_t byte) const;
  // Returns -1 if there is none.
  int32_t FindChild(const Node& node, uint8_t byte) const;

  std::vector<Node> nodes_;      // [0] is the root
  std::vector<Child> children_;  // the children of a node are adjacent, ascending by byte
  std::array<int32_t, 256> root_next_{};
};

class MLC_NATIVE_PRIVATE_API StopStrHandler {
 public:
  static constexpr int32_t kNoToken = -1;

  // With include_match the text ends behind the stop string instead of before it.
  explicit StopStrHandler(std::shared_ptr<const StopStrSet> stop_strs, bool include_match = false);

  // Appends released bytes to *text and released ids to *token_ids. Releases nothing after a stop
  // string. kNoToken means bytes without an id.
  void Put(int32_t token_id, std::string_view bytes, std::string* text,
           std::vector<int32_t>* token_ids);
  // Releases everything, at the end of a sequence without a stop string.
  void Finish(std::string* text, std::vector<int32_t>* token_ids);
  bool stop_triggered() const { return stop_triggered_; }

 private:
  struct PendingToken {
    int32_t token_id;
    int64_t begin;  // offset of its first byte in the stream of bytes
    int64_t end;    // offset behind its last byte
  };
  static void Release(const PendingToken& token, std::vector<int32_t>* token_ids) {
    if (token.token_id != kNoToken) token_ids->push_back(token.token_id);
  }
  // Releases the bytes before `end`, and the ids of the tokens that end at or before it.
  void ReleaseUntil(int64_t end, std::string* text, std::vector<int32_t>* token_ids);

  std::shared_ptr<const StopStrSet> stop_strs_;
  bool include_match_;
  int32_t node_ = 0;
  // Queues in vectors. Elements before the head have been released and are erased from time to
  // time.
  std::string held_;  // bytes seen and not released, from held_head_ on
  size_t held_head_ = 0;
  std::vector<PendingToken> pending_;  // tokens seen and not released, from pending_head_ on
  size_t pending_head_ = 0;
  int64_t num_seen_ = 0;  // bytes seen; the offset of the end of held_
  bool stop_triggered_ = false;
};

}  // namespace mlc_native
