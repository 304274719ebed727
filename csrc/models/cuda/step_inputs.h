// StepInputs holds the rows of a forward for the kernels: one buffer with ids, positions, slots,
// lengths, tables and tiles, packed by the host and copied at once. Engine's thread only.
//
// Slices of one token, and those with rows_alone, come first: each of their rows goes through the
// decode kernel, in every batch. Rows of one slice share its block table.
// Where a batch reads a TokenMemory, Upload is followed by kernels that complete the arrays on the
// device. Block tables are adjacent without gaps: a "table" is the position where a sequence's
// pages begin, and ld_block_tables is 1.
//
// A batch of only such rows whose logits are all wanted, in order, is a decode batch. It is padded
// with unused rows to one of a few sizes. The addresses of its arrays depend only on the number of
// rows, on whether hidden states are asked for and on whether a row has an adapter, so its launches
// can be replayed.
#pragma once

#include <vector>

#include "models/batch_check.h"
#include "models/cuda/cuda_adapter.h"
#include "models/cuda/decoder.h"
#include "models/cuda/upload_buffer.h"

namespace mlc_native {

class StepInputs {
 public:
  struct Limits {
    BatchLimits batch;
    int64_t num_pages = 0;
    int64_t num_slots = 0;        // of states
    bool has_slots = false;       // the model has layers with states
    bool has_row_places = false;  // rope puts rows where three numbers say
    int64_t num_text_types = 0;   // of the model
    RowSight sight = RowSight::kBefore;
    int64_t vocab_size = 0;  // of the logits
    int64_t num_ids = 0;     // of the tokens: a draft head reads those of its target
    int64_t tile_rows = 0;   // of prefill
    const AdapterTargets* adapters = nullptr;  // of the model's adapters; null: it takes none
  };

  explicit StepInputs(const Limits& limits);

  static size_t Bytes(const Limits& limits);
  // The size of a padded decode batch: 1, 2, 4, 8, 12, 16, 24, 32, 48, ..., at most max_rows.
  static int64_t PaddedRows(int64_t rows, int64_t max_rows);

  // The arrays of the result are on the device once the work queued on the stream has run;
  // `sampled` is not set. Negative ids are at least -num_pending, and own states are those of fewer
  // rows than that.
  CudaBatch Upload(const ForwardBatch& batch, int64_t num_pending, kernels::cuda::Stream stream);
  // True if the last batch was a decode batch.
  bool is_decode() const { return is_decode_; }

  // Of the last batch: its blocks, and what AcceptGuesses needs of them until the next Upload
  // besides what is drawn.
  std::span<const kernels::cuda::GuessedRows> blocks() const { return blocks_; }
  const kernels::cuda::AcceptGuessesArgs& accept_args() const { return accept_args_; }

 private:
  struct Arrays {
    std::span<int64_t> slots;
    std::span<int32_t> ids, positions, rope_positions, lengths, tables, logits_rows;
    std::span<int32_t> joined_rows, state_rows, places;
    std::span<kernels::cuda::DeltaSlice> delta_slices;
    std::span<kernels::cuda::DeltaWrite> delta_writes;
    std::span<int32_t> slice_of_row;
    std::span<const kernels::cuda::AdapterMatrices*> adapters;
    std::span<int32_t> block_tables;
    std::span<kernels::cuda::PrefillTile> tiles;
    std::span<int32_t> from, counts, logits_counts;
    std::span<kernels::cuda::GuessedRows> blocks;
  };

  bool IsDecode(const ForwardBatch& batch) const;
  static bool ReadsTokens(const ForwardBatch& batch);
  void CheckContents(const ForwardBatch& batch, int64_t num_pending) const;
  int64_t NumTiles(const ForwardBatch& batch) const;
  void Pack(const ForwardBatch& batch, const Arrays& arrays);
  void PackInputRows(const ForwardBatch& batch);
  void AddTextRuns(const SequenceSlice& slice, int64_t first_row);
  void PackRowPlaces(const SequenceSlice& slice, int32_t first_row, const Arrays& arrays) const;
  void PackParts(const ForwardBatch& batch, const SequenceSlice& slice, int32_t first_row,
                 const Arrays& arrays);
  void PackSlice(const ForwardBatch& batch, const SequenceSlice& slice, const Arrays& arrays);
  void PackStates(const SequenceSlice& slice, int32_t first_row, const Arrays& arrays);
  void CheckSlots(const SequenceSlice& slice) const;
  void PackDraft(const DraftInput& draft, const Arrays& arrays) const;
  void PackPlaces(const HiddenStates& hidden, const Arrays& arrays) const;
  void PackCounts(const ForwardBatch& batch, const Arrays& arrays) const;
  void FindBlocks(const ForwardBatch& batch);

  Limits limits_;
  UploadBuffer buffer_;
  bool is_decode_ = false;

  // How far the arrays of the current batch are filled.
  int64_t num_rows_ = 0;
  int64_t num_tiles_ = 0;
  int64_t num_table_pages_ = 0;
  int64_t num_delta_slices_ = 0;
  int64_t num_delta_writes_ = 0;
  std::vector<int32_t> packed_rows_;  // the packed position of each row of the batch
  std::vector<InputRows> input_rows_;
  std::vector<TextRun> text_runs_;
  std::vector<kernels::cuda::GuessedRows> blocks_;
  kernels::cuda::AcceptGuessesArgs accept_args_;
};

}  // namespace mlc_native
