// FakeModel is a Model without weights. The next token is a hash of the sequence's history, which
// is read through the block table, so that any error in the bookkeeping of pages changes tokens.
//
// A hidden state is the token of its row, the number of its stream and a hash of the history, of
// which a draft head reads the first two. A fake draft head counts the states that do not belong to
// the tokens in its pages. A recurrent one keeps the hash in slots of states, and throws where a
// slot does not have the state of the tokens in the pages.
//
// A row in place of a token is one number, and counts as a token that no vocabulary has.
//
// It stores token ids instead of keys and values, and which adapter they were computed with:
// reading those of another adapter is an error. Options inject costs and failures; a failing
// forward has already written its rows, like a real one. Deterministic; one thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fake_model/fake_model_options.h"
#include "fake_model/fake_steps.h"
#include "mlc_native/model.h"

namespace mlc_native::testing {

// The folder of a fake adapter is a number, on which the tokens depend that sequences get with it.
class FakeAdapter : public ModelAdapter {
 public:
  FakeAdapter(int64_t number, int64_t load) : number_(number), load_(load) {}

  int64_t rank() const override { return number_; }
  int64_t num_bytes() const override { return 0; }
  int64_t number() const { return number_; }
  int64_t load() const { return load_; }  // which of the loader's it was, from 1 on

 private:
  const int64_t number_;
  const int64_t load_;
};

class FakeAdapterLoader : public AdapterLoader {
 public:
  // Throws LoadError for what is no number above 0.
  std::shared_ptr<const ModelAdapter> Load(const std::string& folder) const override;
  bool has_loaded() const { return num_loaded_ > 0; }

 private:
  mutable std::atomic<int64_t> num_loaded_ = 0;
};

class FakeModel : public Model {
 public:
  explicit FakeModel(FakeModelOptions options);

  const ModelMetadata& metadata() const override { return metadata_; }
  void Allocate(int64_t num_pages, int64_t max_num_rows, int64_t max_num_logits) override;
  void AllocateRecurrent(int64_t num_slots) override;
  LogitsView Forward(const ForwardBatch& batch) override;
  LogitsView ForwardTokens(const ForwardBatch& batch);
  void CopyPages(std::span<const PageCopy> copies) override;
  std::unique_ptr<TokenMemory> MakeTokenMemory(int32_t num_places) override {
    return options_.run_ahead && !options_.is_recurrent ? std::make_unique<FakeTokens>(num_places)
                                                        : nullptr;
  }
  std::shared_ptr<const AdapterLoader> adapter_loader() const override { return adapters_; }
  StepQueue* step_queue() override { return options_.run_ahead ? &steps_ : nullptr; }

  // The oracle: returns the next token of a sequence with this history and the adapter of this
  // number; 0: none.
  static int32_t NextToken(const FakeModelOptions& options, std::span<const int32_t> history,
                           int64_t adapter = 0);

  // What a row of one number in place of a token is in a history.
  static int32_t TokenOfRow(float value);

  // The same for hidden states: that of the last token of this history.
  static std::vector<float> HiddenState(std::span<const int32_t> history, int32_t stream,
                                        int64_t adapter = 0);

  FakeModelOptions& options() { return options_; }
  FakeSteps& steps() { return steps_; }
  // Called at the start of every forward. Forward passes its exceptions on.
  void set_on_forward(std::function<void(const ForwardBatch&)> hook) { hook_ = std::move(hook); }

  std::chrono::nanoseconds CostOf(int64_t num_rows) const;
  void SpendTimeUntil(std::chrono::steady_clock::time_point end) const;

  // The places that the last forward has written, and a function that spoils them when a step is
  // lost.
  const std::vector<int64_t>& written() const { return written_; }
  void Spoil(std::span<const int64_t> written);
  int64_t num_slots() const { return std::ssize(recurrent_); }

  // The token whose key and value a place of a page holds.
  int32_t stored_token(int64_t page, int64_t offset) const {
    return stored_.at(page * kKvPageSize + offset);
  }

  int64_t num_forwards() const { return num_forwards_; }
  int64_t num_rows() const { return num_rows_; }
  int64_t max_batch() const { return max_batch_; }            // most sequences in one forward
  int64_t num_copies() const { return num_copies_; }          // number of calls of CopyPages
  int64_t num_misaligned() const { return num_misaligned_; }  // states that a draft head was given
  // What a draft head was given in their place, or a recurrent model that is not of its tokens.
  int64_t num_wrong_states() const { return num_wrong_states_; }

 private:
  void CheckBatch(const ForwardBatch& batch) const;
  std::span<const int32_t> TokensOf(const ForwardBatch& batch);
  void StoreTokens(const ForwardBatch& batch);
  void CheckAdapters(const ForwardBatch& batch) const;
  void RunRecurrence(const ForwardBatch& batch);
  uint64_t HashBefore(const SequenceSlice& slice);
  void CheckPoison(const ForwardBatch& batch);
  std::span<const int32_t> History(const SequenceSlice& slice, int64_t length, int64_t window);
  // The logits of a row of the batch.
  void FillRow(int64_t row, const SequenceSlice& slice, int32_t batch_row);
  static int32_t TokenOf(const FakeModelOptions& options, uint64_t hash);
  void WriteStates(const ForwardBatch& batch);
  // Of the draft head: what it is given, and the guesses.
  void ReadStates(const ForwardBatch& batch);
  void FillGuesses(const ForwardBatch& batch);

  FakeModelOptions options_;
  FakeSteps steps_{this};
  const std::shared_ptr<const FakeAdapterLoader> adapters_ = std::make_shared<FakeAdapterLoader>();
  ModelMetadata metadata_;
  std::function<void(const ForwardBatch&)> hook_;
  std::vector<int32_t> stored_;   // [num_pages * kKvPageSize]
  std::vector<int64_t> loads_;    // as stored_: the load of the adapter that wrote it; 0: none
  std::vector<int64_t> written_;  // indices of stored_
  std::vector<float> logits_;     // [max_num_logits, vocab_size]
  std::vector<int32_t> peaks_;    // [max_num_logits], the token that a reused row favours
  std::vector<int32_t> history_;
  std::vector<int32_t> tokens_;  // of a batch with rows that are not of tokens
  // The hash of the first `position` tokens of a sequence.
  struct RecurrentState {
    int64_t position = -1;
    uint64_t hash = 0;
  };
  std::vector<RecurrentState> recurrent_;  // [slots]
  std::vector<uint64_t> row_hashes_;       // of the last forward
  int64_t max_num_rows_ = 0;
  int64_t num_forwards_ = 0;
  int64_t num_rows_ = 0;
  int64_t max_batch_ = 0;
  int64_t num_copies_ = 0;
  int64_t num_misaligned_ = 0;
  int64_t num_wrong_states_ = 0;
  std::vector<int32_t> state_tokens_;  // of the rows of a draft head
  std::vector<float> own_states_;      // of a draft head: of the logits of the last forward
};

}  // namespace mlc_native::testing
