// FakeModel: a Model without weights. The next token is a hash of the sequence's history, read back
// through the block table, so that any error in the bookkeeping of pages changes tokens.
//
// It stores token ids where a model stores keys and values. Costs and failures are injected by
// options; a failing forward has already written its rows, as a real one would. Deterministic; one
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "models/model.h"

namespace mlc_native::testing {

// The "fake" object of config.json. Forwards and copies are counted from 1.
struct FakeModelOptions {
  int64_t vocab_size = 256;
  int64_t context_window_size = 4096;
  int64_t max_batch_size = 128;
  int64_t prefill_chunk_size = 2048;
  int64_t kv_bytes_per_token = 4096;  // claimed; what is stored takes 4
  int64_t free_memory_bytes = -1;     // of the device that it claims to be on; -1: on the host
  int64_t history_window = 0;         // tokens that the next one depends on, 0: all
  int32_t eos_token_id = -1;          // never comes out of the hash
  std::vector<int32_t> script;        // not empty: the answers, in turn, instead of the hash
  float peak = 12;                    // logit of the next token; the others have 0
  bool reuse_rows = false;  // rows are not refilled: only for samplers that leave them as they were

  double us_per_step = 0;
  double us_per_row = 0;
  bool sleep = false;  // "cost": "sleep" instead of "spin"

  std::vector<int64_t> fail_at_forward;
  bool fail_always = false;
  std::vector<int64_t> fail_copy_at;
  int32_t poison_token = -1;  // a sequence that contains it: SequenceError
  int32_t nan_token = -1;     // a sequence whose last token is it: a row of NaN
};

// Throws LoadError for a config.json without a valid "fake" object.
FakeModelOptions ReadFakeModelOptions(const std::string& model_path);

class FakeModel : public Model {
 public:
  explicit FakeModel(FakeModelOptions options);

  const ModelMetadata& metadata() const override { return metadata_; }
  void Allocate(int64_t num_pages, int64_t max_num_rows, int64_t max_num_logits) override;
  LogitsView Forward(const ForwardBatch& batch) override;
  void CopyPages(std::span<const PageCopy> copies) override;

  // The oracle: what a sequence with this history goes on with.
  static int32_t NextToken(const FakeModelOptions& options, std::span<const int32_t> history);

  FakeModelOptions& options() { return options_; }
  // Called at the start of every forward; what it throws comes out of Forward.
  void set_on_forward(std::function<void(const ForwardBatch&)> hook) { hook_ = std::move(hook); }

  int64_t num_forwards() const { return num_forwards_; }
  int64_t num_rows() const { return num_rows_; }
  int64_t max_batch() const { return max_batch_; }    // sequences of the largest forward
  int64_t num_copies() const { return num_copies_; }  // calls of CopyPages

 private:
  void CheckBatch(const ForwardBatch& batch) const;
  void StoreTokens(const ForwardBatch& batch);
  void CheckPoison(const ForwardBatch& batch);
  std::span<const int32_t> History(const SequenceSlice& slice, int64_t length, int64_t window);
  void FillRow(int64_t row, const SequenceSlice& slice, int64_t length);
  void SpendTime(int64_t num_rows) const;

  FakeModelOptions options_;
  ModelMetadata metadata_;
  std::function<void(const ForwardBatch&)> hook_;
  std::vector<int32_t> stored_;  // [num_pages * kKvPageSize]
  std::vector<float> logits_;    // [max_num_logits, vocab_size]
  std::vector<int32_t> peaks_;   // [max_num_logits], the token that a reused row favours
  std::vector<int32_t> history_;
  int64_t max_num_rows_ = 0;
  int64_t num_forwards_ = 0;
  int64_t num_rows_ = 0;
  int64_t max_batch_ = 0;
  int64_t num_copies_ = 0;
};

}  // namespace mlc_native::testing
