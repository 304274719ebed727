// Model: what the engine needs of a decoder, and the only way from the engine to tensors.
//
// The engine owns pages as integers (kv/); the model owns their storage. A forward takes token rows
// grouped by sequence, writes their keys and values into the pages of the block tables and returns
// the logits of the requested rows. Rows of one batch never influence each other. Engine's thread
// only.
//
// A draft head is a model, too: it guesses the tokens that another model, its target, will choose,
// and reads hidden states alongside the tokens.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "mlc_native/config.h"
#include "mlc_native/data.h"
#include "mlc_native/detail/export.h"
#include "mlc_native/detail/log.h"
#include "mlc_native/detail/page.h"
#include "mlc_native/detail/token_block.h"

namespace mlc_native {

// An adapter (LoRA) that is loaded for a model: products of two small matrices, which are added to
// some of the model's linears for the sequences that ask for it. Immutable; any thread. It may
// outlive the model.
class MLC_NATIVE_API ModelAdapter {
 public:
  virtual ~ModelAdapter() = default;

  virtual int64_t rank() const = 0;       // the most that a linear has
  virtual int64_t num_bytes() const = 0;  // of its weights
};

// Loads the adapters of one model, which it may outlive. Any thread, many at a time.
class MLC_NATIVE_API AdapterLoader {
 public:
  virtual ~AdapterLoader() = default;

  // From a folder of PEFT. Throws LoadError.
  virtual std::shared_ptr<const ModelAdapter> Load(const std::string& folder) const = 0;
};

// Rows [first_row, first_row + num_tokens) of the batch: one sequence's next tokens, at consecutive
// positions.
struct SequenceSlice {
  int32_t first_row = 0;
  int32_t num_tokens = 0;
  int64_t position = 0;  // of the first row, == tokens of this sequence already in the KV cache
  std::span<const int32_t> block_table;  // page ids covering [0, position + num_tokens)
  // Each row must have the bits that it has in a slice of its own (see
  // ModelMetadata::max_equal_rows).
  bool rows_alone = false;
  // Tokens that were given rather than drawn one by one: a single row, too, is computed as rows of
  // longer slices are.
  bool of_prompt = false;
  // The slice begins so many positions further on as the count of this block says, which a step
  // before leaves; block_table covers the furthest ones, too.
  TokenBlock behind{};
  // What its last num_guesses + 1 rows draw goes to this block. The logits of each are asked for
  // once, and their tokens behind the first are guesses.
  TokenBlock block{};
  // Of a model with recurrent layers: the slot with their states behind `position` tokens, not read
  // at position 0; and the slots that the slice writes, ascending, the last one behind all its
  // tokens. No slot of a batch is both read and written.
  int32_t recurrent_slot = -1;
  std::span<const RecurrentWrite> recurrent_writes{};
  const ModelAdapter* adapter = nullptr;  // of this model's adapter_loader; null: none
  // Where rope puts the first rows, of a model whose metadata has row_positions. The others, those
  // behind guesses too, are so much further on (or back) than their places in the sequence.
  std::span<const RowPosition> rope_positions{};
  int64_t rope_shift = 0;
  // Of a model that tells two texts apart: the position of the second one; 0: there is one text.
  int64_t second_text = 0;

  bool IsOfSecondText(int64_t at) const { return second_text > 0 && at >= second_text; }
};

// Memory for hidden states on the device of a target and its draft head: forwards of the target
// write rows of it, and forwards of the head read them, so that they never pass through the host.
// Made by Model::MakeStateMemory. Engine's thread only.
class MLC_NATIVE_API StateMemory {
 public:
  virtual ~StateMemory() = default;

  int64_t num_rows() const { return num_rows_; }
  int64_t width() const { return width_; }  // floats of a row
  float* data() const { return data_; }     // [num_rows, width] on the device

  // Copies rows from `first_row` on to or from the host; waits for it. For tests and tools.
  virtual void Read(int64_t first_row, std::span<float> rows) const = 0;
  virtual void Write(int64_t first_row, std::span<const float> rows) = 0;

 protected:
  StateMemory(float* data, int64_t num_rows, int64_t width)
      : data_(data), num_rows_(num_rows), width_(width) {}

 private:
  float* const data_;
  const int64_t num_rows_;
  const int64_t width_;
};

// Memory for tokens and counts (TokenBlock) on the device of a target and its drafter. Made by
// Model::MakeTokenMemory. Engine's thread only.
class MLC_NATIVE_API TokenMemory {
 public:
  virtual ~TokenMemory() = default;

  int32_t num_places() const { return num_places_; }
  int32_t* data() const { return data_; }  // [num_places] on the device

  // Copies to or from the host; waits for it. For tests and tools.
  virtual void Read(int32_t first_place, std::span<int32_t> values) const = 0;
  virtual void Write(int32_t first_place, std::span<const int32_t> values) = 0;

 protected:
  TokenMemory(int32_t* data, int32_t num_places) : data_(data), num_places_(num_places) {}

 private:
  int32_t* const data_;
  const int32_t num_places_;
};

// Asks a forward for hidden states. Stream i < num_layers of ModelMetadata is the residual stream
// that enters layer i, stream num_layers is the one that leaves the last layer, and stream
// num_layers + 1 is its final norm, which the head of the model reads. The logits have the same
// bits as in a forward that is not asked. What a StepQueue is asked for is there when its step is
// collected, and for a queue that runs behind it (StepQueue::RunBehind).
struct HiddenStates {
  std::span<const int32_t> rows;     // ascending rows of the batch; empty: none are asked for
  std::span<const int32_t> streams;  // in any order
  StateMemory* memory = nullptr;     // its rows are [streams, hidden_size]
  std::span<const int32_t> places;   // [rows]: the row of the memory that each is written to
};

// What a draft head reads alongside the tokens. Its row at position p takes the token at position
// p + 1 and the hidden states at position p: those of the target, or its own.
struct DraftInput {
  const StateMemory* target = nullptr;  // its rows are [target_streams, hidden_size of the target]
  std::span<const int32_t> places;      // [num_rows] of `target`
  // Without `target`, [num_rows]: row i reads the head's stream own_stream, as row own_rows[i] of
  // the logits of the forward before had it.
  std::span<const int32_t> own_rows;
  int64_t num_guessed = 0;  // tokens of the draft so far; 0 with the states of the target
};

// Rows of the batch that are not of tokens: the model reads them in place of embeddings. The token
// ids of these rows are 0. `values` are read before the call returns. Those of one EmbeddingData
// are adjacent, and end with its last one where they see each other
// (ModelMetadata::max_whole_rows).
struct InputRows {
  int32_t first_row = 0;
  int32_t num_rows = 0;
  const float* values = nullptr;  // [num_rows, ModelMetadata::input_size]
};

struct ForwardBatch {
  std::span<const int32_t> token_ids;        // [num_rows]
  std::span<const SequenceSlice> sequences;  // in row order, without gaps
  std::span<const int32_t> logits_rows;      // [num_logits], ascending rows whose logits are wanted
  std::span<const InputRows> input_rows{};   // ascending; of a model whose metadata has input_size
  HiddenStates hidden{};                     // of a model whose metadata has hidden_size
  DraftInput draft{};                        // of a model whose metadata has draft_head
  TokenMemory* tokens = nullptr;             // of all places and blocks of the step
  // [num_logits], or empty. Not kNone: the place of a count; the logits are those of the row so
  // much further on, and the rows of its slice behind that one are of no sequence.
  std::span<const int32_t> logits_behind{};
};

// [num_logits, vocab_size] float32 in host memory, writable, valid until the next call into the
// model.
struct LogitsView {
  float* data = nullptr;
  int64_t num_rows = 0;
  int64_t vocab_size = 0;

  std::span<float> row(int64_t i) const {
    return {data + i * vocab_size, static_cast<size_t>(vocab_size)};
  }
};

// Thrown by Forward when exactly one sequence of the batch is at fault: the engine ends that
// request and repeats the step without it. Any other exception ends all requests of the step.
class MLC_NATIVE_API SequenceError : public std::runtime_error {
 public:
  SequenceError(int sequence_idx, const std::string& message)
      : std::runtime_error(message), sequence_idx_(sequence_idx) {}
  int sequence_idx() const { return sequence_idx_; }  // index into ForwardBatch::sequences

 private:
  int sequence_idx_;
};

// How one row of logits becomes a token, with the order and meaning of sampling/sampler.h. The
// memory that it points to is read before StepQueue::Sample returns.
struct TokenRow {
  static constexpr int32_t kNone = -1;

  const GenerationConfig* config = nullptr;
  std::span<const std::pair<int32_t, int32_t>> counts;  // (token, occurrences) generated so far
  int32_t pending_row = kNone;  // the token that this row of the previous step draws counts, too
  uint64_t sequence = 0;        // index of the sequence within its request
  uint64_t position = 0;        // of the token to be drawn, from the start of the prompt
  int32_t behind = kNone;       // the place of a count that is added to the position
  // Bit t % 32 of word t / 32 is set if token t may be drawn. Empty: every token may.
  std::span<const int32_t> allowed;
  // If set, nothing is drawn: the result is this token with its log-probability, and all fields
  // above except `config` are ignored.
  int32_t scored_token = kNone;

  // The number of alternatives in the result.
  int32_t num_top() const {
    if (scored_token == kNone) return config->top_logprobs;
    return static_cast<int32_t>(config->prompt_logprobs.value_or(0));
  }
};

struct DrawnToken {
  SampleResult result;
  std::string error;  // not empty: the row cannot be sampled, and `result` is meaningless
  // Of a row in front of a guess of its slice's `block`: the guess.
  int32_t draft_token = TokenRow::kNone;
};

// The steps of a device that computes alongside the host: a forward and the draw of its tokens are
// queued behind the steps in flight, and the host learns the tokens later.
//
// Forward followed by Sample submits a step; at most kMaxInFlight steps are submitted and not yet
// collected. Everything runs in the order of submission, page copies too, so the pages that a step
// reads or writes may be given to the next step at once. A token id below zero in a batch is the
// token that row -1 - id of the previous step draws (PendingToken); a draft head reads the token of
// its target that it stands for (DraftHeadInfo::target_ids). A call that throws submits
// nothing, and neither does a Forward without a Sample; earlier steps can still be collected.
//
// A step behind guesses begins where the device finds that the step before has ended: counts and
// tokens go through a TokenMemory, which a drafter's queue shares.
class MLC_NATIVE_API StepQueue {
 public:
  static constexpr int kMaxInFlight = 2;

  virtual ~StepQueue() = default;
  // logits_rows may name a row several times; each entry is one row of logits.
  virtual void Forward(const ForwardBatch& batch) = 0;
  // `rows` has one entry per entry of logits_rows, in that order.
  virtual void Sample(std::span<const TokenRow> rows) = 0;
  // Waits for the oldest step and returns one result per row of it. If it throws, all steps in
  // flight are lost.
  virtual void Collect(std::vector<DrawnToken>* tokens) = 0;

  // Of a model that makes a TokenMemory; others throw.
  //
  // In place of Sample: the tokens go to places of ForwardBatch::tokens, a draft head's as those of
  // its target that they stand for (any token where none can be drawn), and the step is not
  // collected. No pending token refers to it.
  virtual void SampleInto(std::span<const TokenRow> rows, std::span<const int32_t> places);
  // What is submitted from now on runs behind all that `other`, of the same library, has been given
  // so far.
  virtual void RunBehind(StepQueue& other);
};

constexpr int32_t PendingToken(int32_t row) { return -1 - row; }

class MLC_NATIVE_API Model {
 public:
  virtual ~Model() = default;

  virtual const ModelMetadata& metadata() const = 0;

  // Called once before the first forward. There are num_pages pages of kKvPageSize tokens; a batch
  // has at most max_num_rows rows and max_num_logits logits rows.
  virtual void Allocate(int64_t num_pages, int64_t max_num_rows, int64_t max_num_logits) = 0;

  // Called before Allocate, of a model with recurrent layers
  // (ModelMetadata::recurrent_bytes_per_slot): there are so many slots for their states.
  virtual void AllocateRecurrent(int64_t num_slots);

  // Repeating a forward after an exception must give the same result.
  virtual LogitsView Forward(const ForwardBatch& batch) = 0;

  // Copies whole pages, all layers; sources and destinations do not overlap.
  virtual void CopyPages(std::span<const PageCopy> copies) = 0;

  // Memory on the device of the model, which outlives it; host memory by default.
  virtual std::unique_ptr<StateMemory> MakeStateMemory(int64_t num_rows, int64_t width);
  // The same for tokens; null, the default, if its steps cannot follow guesses.
  virtual std::unique_ptr<TokenMemory> MakeTokenMemory(int32_t num_places);

  // Null, the default, if the model takes no adapters.
  virtual std::shared_ptr<const AdapterLoader> adapter_loader() const { return nullptr; }

  // Non-null if the model samples on its device; the engine then never calls Forward(). Owned by
  // the model.
  virtual StepQueue* step_queue() { return nullptr; }
};

// Loading
// ---------------------------------------------------------------------------------------------------------

struct ModelSource {
  std::string path{};             // model folder
  const Model* target = nullptr;  // load the draft head of the folder for this model
  std::string model_lib{};        // plug-in library, or empty
  std::string device = "cpu";     // or "cuda:i", or "auto" if the plug-in library chooses
  std::string dtype = "auto";
  WeightQuantization quantization{};
  KvCacheDType kv_cache_dtype = KvCacheDType::kAuto;
  int64_t num_threads = 1;
  CpuIdleMode cpu_idle_mode = CpuIdleMode::kSpin;
  LoadProgress progress{};  // may be empty
  Log log{};
  std::string weight_cache_dir{};               // folder of packed copies of weights; empty: none
  std::optional<int64_t> weight_cache_bytes{};  // of all files in it; nullopt: no limit
  // The longest sequence that will be served, as far as settings say (LongestSequence).
  int64_t longest_sequence = std::numeric_limits<int64_t>::max();
  // Prompts, too, have bits that do not depend on their chunks.
  bool deterministic = false;
  bool strict_weights = false;         // a tensor that the model does not use is an error
  int64_t tensor_parallel_shards = 1;  // GPUs from `device` on, that compute the model together
};

// Returns the plug-in's model if there is a model_lib, else the decoder for the folder's
// architecture, which the CUDA library (device.h) has for "cuda:i". With a target, the result has a
// draft_head and may read memory of the target, which outlives it and comes from the same library.
// Throws LoadError, InvalidConfig, which a model of another number of shards causes, too.
MLC_NATIVE_API std::unique_ptr<Model> LoadModel(const ModelSource& source);

// A plug-in exports `extern "C" mlc_native::Model* mlc_native_create_model(const
// mlc_native::ModelSource*)` and `extern "C" int mlc_native_plugin_abi()`, which returns
// kModelPluginAbi. That number changes with ModelSource, Model and every type that they use. The
// caller owns the model; the library stays loaded while the model lives. Exceptions pass through.
inline constexpr int kModelPluginAbi = 24;

}  // namespace mlc_native
