// The rows of a forward as the kernels read them: one buffer that holds ids, positions, slots,
// lengths, tables and tiles, packed by the host and copied in one piece. Engine's thread only.
//
// Sequences with one token come first, whatever their place in the batch, so that a row goes
// through the same kernel in every batch. Block tables lie one behind the other without gaps: a
// "table" is where a sequence's pages begin, and ld_block_tables is 1.
//
// A batch of such rows alone whose logits are all wanted, in order, is a decode batch. It is filled
// up with unused rows to one of a few sizes, so that its launches can be replayed: where its arrays
// lie depends on nothing but the number of rows.
#pragma once

#include <vector>

#include "models/batch_check.h"
#include "models/cuda/decoder.h"
#include "models/cuda/upload_buffer.h"

namespace mlc_native {

class StepInputs {
 public:
  struct Limits {
    BatchLimits batch;
    int64_t num_pages = 0;
    int64_t vocab_size = 0;
    int64_t tile_rows = 0;  // of prefill
  };

  explicit StepInputs(const Limits& limits);

  static size_t Bytes(const Limits& limits);
  // Of a decode batch: 1, 2, 4, 8, 12, 16, 24, 32, 48, ..., at most max_rows.
  static int64_t PaddedRows(int64_t rows, int64_t max_rows);

  // The arrays of the result are on the device once what is on the stream by now has run; without
  // `sampled`. num_pending: ids below zero go down to -num_pending.
  CudaBatch Upload(const ForwardBatch& batch, int64_t num_pending, kernels::cuda::Stream stream);
  // Whether the last one was a decode batch.
  bool is_decode() const { return is_decode_; }

 private:
  struct Arrays {
    std::span<int64_t> slots;
    std::span<int32_t> ids, positions, lengths, tables, logits_rows, block_tables;
    std::span<kernels::cuda::PrefillTile> tiles;
  };

  static bool IsDecode(const ForwardBatch& batch);
  void CheckContents(const ForwardBatch& batch, int64_t num_pending) const;
  int64_t NumTiles(const ForwardBatch& batch) const;
  void Pack(const ForwardBatch& batch, const Arrays& arrays);
  void PackSlice(const ForwardBatch& batch, const SequenceSlice& slice, const Arrays& arrays);

  Limits limits_;
  UploadBuffer buffer_;
  bool is_decode_ = false;

  // Of the batch that is being packed: how far the arrays are filled.
  int64_t num_rows_ = 0;
  int64_t num_tiles_ = 0;
  int64_t num_table_pages_ = 0;
  std::vector<int32_t> packed_rows_;  // where the rows of the batch went
};

}  // namespace mlc_native
