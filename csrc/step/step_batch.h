// StepBatch: the rows of one step, as the model and the sampler take them, and what becomes of
// each.
//
// Made from the slices of a plan, in order. Buffers are reused, so a step in steady state allocates
// nothing here. Owned by a step of the StepPipeline; engine's thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "mlc_native/model.h"
#include "sampling/token_counts.h"

namespace mlc_native {

class PagedKvCache;
struct PlannedSlice;
struct RequestStateEntry;

class StepBatch {
 public:
  static constexpr int32_t kNoToken = -1;

  // A row of logits that the step asks for. For branches, the last row of a prompt counts once for
  // each of them.
  struct Row {
    RequestStateEntry* entry = nullptr;
    bool is_scored = false;  // otherwise a token is drawn
    size_t num_drafts = 0;   // guesses that it was computed for
    // The next row was computed for this guess of what is drawn. One that is on the device
    // (TokenAt) is known when the step is collected.
    int32_t draft_token = kNoToken;
    bool is_withheld = false;  // the mask is not there yet; what is drawn is dropped
    bool is_rejected = false;  // so is this: a guess that it was computed for is wrong
  };

  // Rows [first_row, first_row + num_rows) of the batch, whose hidden states become an embedding.
  struct Pooled {
    RequestStateEntry* entry = nullptr;
    int32_t first_row = 0;
    int32_t num_rows = 0;
    int sequence_idx = 0;      // of its slice
    bool is_complete = false;  // with these, the embedding is there
  };

  void Clear();
  // Requires: `kv` has pages for all tokens of the slice. Reserves the room in the entry that the
  // results of the step take. What it draws goes to `block`, if that is one.
  void Add(const PlannedSlice& slice, const PagedKvCache& kv, TokenBlock block = {});

  ForwardBatch forward() const {
    return {.token_ids = token_ids_,
            .sequences = sequences_,
            .logits_rows = logits_rows_,
            .input_rows = input_rows_};
  }
  // How a token is drawn from each row; as rows().
  std::span<TokenRow> token_rows() { return token_rows_; }
  std::span<Row> rows() { return rows_; }
  std::span<const Row> rows() const { return rows_; }
  std::span<const Pooled> pooled() const { return pooled_; }
  // The guesses that row i was computed for.
  std::span<const int32_t> drafts_before(size_t i) const {
    const auto end = static_cast<size_t>(logits_rows_[i]) + 1;
    return std::span(token_ids_).subspan(end - rows_[i].num_drafts, rows_[i].num_drafts);
  }
  // The most guesses of a sequence.
  size_t max_drafts() const { return max_drafts_; }
  // The device has made guesses of it, or will.
  bool is_in_chain() const { return is_in_chain_; }
  // Of slice i.
  const TokenBlock& block(size_t i) const { return sequences_[i].block; }
  // The next plan depends on what is drawn.
  bool must_collect() const { return must_collect_; }

 private:
  void AddInputs(const PlannedSlice& slice);
  void AddInputRows(const RequestStateEntry& entry, int64_t end);
  void AddDrafts(const PlannedSlice& slice);
  void AddPooledRows(const PlannedSlice& slice);
  void AddScoredRows(const PlannedSlice& slice, int64_t end);
  void AddDrawnRows(const PlannedSlice& slice, int64_t end, const TokenBlock& behind,
                    bool has_block);
  void AddDrawnRow(RequestStateEntry& leaf, int64_t end, std::span<const int32_t> drafts,
                   size_t num_before, const TokenBlock& behind = {});
  TokenCountsView CountsWith(const RequestStateEntry& leaf, std::span<const int32_t> drafts);

  std::vector<int32_t> token_ids_;        // [num_rows]
  std::vector<SequenceSlice> sequences_;  // one per slice
  std::vector<InputRows> input_rows_;
  std::vector<int32_t> logits_rows_;  // as rows_
  std::vector<TokenRow> token_rows_;  // as rows_
  std::vector<Row> rows_;
  std::vector<Pooled> pooled_;
  std::deque<TokenCounts> draft_counts_;  // of rows behind draft tokens; their addresses stay
  bool must_collect_ = false;
  bool is_in_chain_ = false;
  size_t max_drafts_ = 0;
};

}  // namespace mlc_native
