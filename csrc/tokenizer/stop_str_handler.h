// StopStrHandler withholds bytes that may belong to a stop string and finds the first stop string,
// byte exactly.
//
// Matching runs over the bytes of the text (Aho-Corasick over all stop strings, one step per byte).
// Bytes before the stop string are released, the stop string and everything after it never. A token
// id is released with its last released byte; of the token in which the stop string begins, the id
// is released when some of its bytes were text. One per sequence. The automaton (StopStrSet) is
// immutable and shared by the sequences of a request.
#pragma once

#include <cstdint>
#include <deque>
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
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> children;  // sorted by byte
    int32_t fail = 0;
    int32_t depth = 0;  // bytes from the root: how many trailing bytes may belong to a stop string
    int32_t match_len = 0;  // longest stop string that ends here, 0 when none
  };
  int32_t Next(int32_t node, uint8_t byte) const;
  std::vector<Node> nodes_;
};

class StopStrHandler {
 public:
  explicit StopStrHandler(std::shared_ptr<const StopStrSet> stop_strs);

  // Appends released bytes to *text and released ids to *token_ids. Nothing is released after a
  // stop string.
  void Put(int32_t token_id, std::string_view bytes, std::string* text,
           std::vector<int32_t>* token_ids);
  // End of the sequence without a stop string: releases everything.
  void Finish(std::string* text, std::vector<int32_t>* token_ids);
  bool stop_triggered() const { return stop_triggered_; }

 private:
  struct PendingToken {
    int32_t token_id;
    int64_t end;  // offset in the stream of bytes just behind this token
  };
  std::shared_ptr<const StopStrSet> stop_strs_;
  int32_t node_ = 0;
  std::string held_;          // bytes seen and not released
  int64_t num_released_ = 0;  // bytes
  std::deque<PendingToken> pending_tokens_;
  bool stop_triggered_ = false;
};

}  // namespace mlc_native
