// What one ISA provides: every kernel on a range of its independent rows, panels or blocks. The
// public functions of kernels.h check arguments, split the range over threads and call these. No
// std templates here: this header is compiled with ISA flags, and an inline function emitted there
// could be the copy that the linker keeps for the whole program.
#pragma once

#include <cstdint>

#include "kernels/delta_rule.h"
#include "kernels/kernels.h"
#include "kernels/mamba.h"
#include "kernels/selective_scan.h"
#include "kernels/short_convolution.h"
#include "kernels/token_windows.h"

namespace mlc_native::kernels {

// Rows [row_begin, row_end) of one sequence for some q heads of one kv head, with the scratch
// memory of the thread.
struct AttentionBlock {
  const AttentionSequence* sequence;
  int64_t kv_head;
  int64_t q_head;     // the first one
  int64_t num_heads;  // q heads
  int64_t row_begin;  // within the sequence
  int64_t row_end;
  float* scratch = nullptr;
  // What the thread computes behind this block, or null. Its first pages are prefetched.
  const AttentionBlock* next = nullptr;
  bool prefetched = false;  // whether another block has done so with this one
};

// The states of consecutive segments [begin, end) of a block, and the sum of the states of the
// block's earlier segments.
struct AttentionParts {
  int64_t begin;
  int64_t end;
  float* states;
  int64_t state_floats;  // stride between two states
  float* total;
};

// Greatest number of query vectors (rows x q heads) in a block.
inline constexpr int64_t kMaxBlockQueries = 48;
// Pages per softmax rescaling step. Steps start at multiples of it, so they depend only on
// positions.
inline constexpr int64_t kPagesPerStep = 8;
// Steps per segment. Each segment of a row's keys is summed separately and then added to the
// earlier ones, so that several threads can share the segments of a row. Segments are the same when
// one thread computes them all, because they affect the last bits.
inline constexpr int64_t kStepsPerSegment = 8;
inline constexpr int64_t kSegmentTokens = kStepsPerSegment * kPagesPerStep * kPageSize;

// The scratch memory of a block holds its queries, padded to pairs of the widest vectors of any
// ISA.
inline constexpr int64_t kMaxLanes = 16;
constexpr int64_t AttentionScratchRow(int64_t head_dim) {
  return (head_dim + 2 * kMaxLanes - 1) / (2 * kMaxLanes) * (2 * kMaxLanes);
}
// The sums over some keys for a block's queries: outputs, sums per lane and maxima, in whole cache
// lines.
constexpr int64_t AttentionStateFloats(int64_t queries, int64_t head_dim) {
  return queries * (AttentionScratchRow(head_dim) + kMaxLanes) +
         (queries + kMaxLanes - 1) / kMaxLanes * kMaxLanes;
}
// Inputs, scores of a step, the state of a segment and that of the earlier segments.
constexpr int64_t AttentionScratchFloats(int64_t queries, int64_t head_dim) {
  return queries * (AttentionScratchRow(head_dim) + kPagesPerStep * kPageSize) +
         2 * AttentionStateFloats(queries, head_dim);
}

struct LinearKernels {
  int64_t panel_width;  // output columns of a packed panel: two vectors

  // The first function converts every row of x into args.workspace, in the form that the weight's
  // format multiplies with. The second one computes panels.
  void (*linear_input)(const PackedLinear&, const LinearArgs&, int64_t row_begin, int64_t row_end);
  void (*linear)(const PackedLinear&, const LinearArgs&, int64_t panel_begin, int64_t panel_end);
};

// What scores the keys of a row (key_choice.h).
struct KeyScoreArgs {
  const float* q = nullptr;  // [m, heads, head_dim], row stride ldq
  int64_t ldq = 0;
  const float* weights = nullptr;  // [m, heads], row stride ld_weights
  int64_t ld_weights = 0;
  int64_t heads = 0;
};
// The steps [step_begin, step_end) of kPagesPerStep pages of a sequence of one row.
struct KeyScoreSteps {
  const AttentionSequence* row;
  int64_t begin;
  int64_t end;
  float* scratch;  // AttentionScratchFloats(kMaxBlockQueries, head_dim)
};

// Up to a page of tokens that a row has chosen. Their keys are made of their values (key_choice.h).
struct ChosenTokens {
  const int32_t* block_table;
  const int32_t* chosen;  // [count]: positions
  int64_t count;
  int64_t num_ahead;  // how many there are from `chosen` on, with those that are copied next
  int64_t rope_dim;
  int64_t first_slot = 0;  // of the page that they are written to
};

struct AttentionKernels {
  void (*write_kv)(const KvPages&, const WriteKvArgs&, int64_t row_begin, int64_t row_end);
  void (*attention)(const KvPages&, const AttentionArgs&, const AttentionBlock&);
  // The same in parts. The first function computes the state of one segment. The second one adds
  // segments to the total of their block, and writes args.out after the block's last segment.
  void (*attention_segment)(const KvPages&, const AttentionArgs&, const AttentionBlock&,
                            int64_t segment, float* state);
  void (*attention_fold)(const KvPages&, const AttentionArgs&, const AttentionBlock&,
                         const AttentionParts&);
  // Writes the score of each key of the steps to scores[its position]. Those behind the row's
  // position in the last page are unspecified.
  void (*key_scores)(const KvPages& index, const KeyScoreArgs&, const KeyScoreSteps&,
                     float* scores);
  // Writes the tokens to a page of `to`, from first_slot on.
  void (*copy_chosen)(const KvPages& from, const KvPages& to, const ChosenTokens&, int64_t page);
};

struct DeltaKernels {
  void (*delta_rule)(const DeltaArgs&, const DeltaChunk&);
  void (*short_convolution)(const ConvolutionArgs&, const DeltaSequence&, int64_t channel_begin,
                            int64_t channel_end);
  // Mamba-2: keys and queries of rows of a slice, a head, and the norms of rows of the batch.
  void (*mamba_keys)(const MambaArgs&, const DeltaSequence&, int64_t row_begin, int64_t row_end);
  void (*mamba)(const MambaArgs&, const DeltaChunk&);
  void (*mamba_norm)(const MambaArgs&, int64_t row_begin, int64_t row_end);
  // Mamba-1: the convolution of rows of a slice, the decays of a block of channels, and the block,
  // whose chunk's value_head it is.
  void (*scan_convolution)(const ScanArgs&, const DeltaSequence&, int64_t row_begin,
                           int64_t row_end);
  void (*scan_decays)(const ScanArgs&, int64_t block, float* decays);
  void (*scan)(const ScanArgs&, const DeltaChunk&);
};

struct RowKernels {
  void (*normalize)(const NormalizeArgs&, int64_t row_begin, int64_t row_end);
  void (*rope)(const RopeArgs&, int64_t row_begin, int64_t row_end);
  void (*scale)(const ScaleArgs&, int64_t row_begin, int64_t row_end);
  void (*add)(const AddArgs&, int64_t row_begin, int64_t row_end);
  void (*activate)(const ActivateArgs&, int64_t row_begin, int64_t row_end);
  void (*gate)(const GateArgs&, int64_t row_begin, int64_t row_end);
  void (*soft_cap)(const MatrixView&, float cap, int64_t row_begin, int64_t row_end);
  void (*mix)(const MixArgs&, int64_t row_begin, int64_t row_end);
  void (*spread)(const SpreadArgs&, int64_t row_begin, int64_t row_end);
  void (*cut)(const CutArgs&, int64_t row_begin, int64_t row_end);
  void (*streams)(const StreamStep&, int64_t row_begin, int64_t row_end);
  // The sums of some windows.
  void (*compress)(const CompressArgs&, int64_t begin, int64_t end);
};

struct CpuKernels : LinearKernels, AttentionKernels, RowKernels, DeltaKernels {
  const char* name;
};

// The tables of each ISA, constants of the files *_kernels.cc that are compiled for it. Some have
// linears of their own only, and share the rest with another ISA.
#define MLC_NATIVE_DECLARE_LINEAR(isa) \
  namespace isa {                      \
  extern const LinearKernels kLinear;  \
  }
#define MLC_NATIVE_DECLARE_TABLES(isa)      \
  MLC_NATIVE_DECLARE_LINEAR(isa)            \
  namespace isa {                           \
  extern const AttentionKernels kAttention; \
  extern const RowKernels kRows;            \
  extern const DeltaKernels kDelta;         \
  }
MLC_NATIVE_DECLARE_TABLES(portable)
// Defined on x86-64 only.
MLC_NATIVE_DECLARE_TABLES(avx2)
MLC_NATIVE_DECLARE_TABLES(avx2_vnni)
MLC_NATIVE_DECLARE_TABLES(avx512)
MLC_NATIVE_DECLARE_TABLES(avx512_vnni)
MLC_NATIVE_DECLARE_TABLES(avx512_bf16)
MLC_NATIVE_DECLARE_LINEAR(avx512_amx)
// Defined on AArch64 only.
MLC_NATIVE_DECLARE_TABLES(neon)
MLC_NATIVE_DECLARE_TABLES(neon_dotprod)
MLC_NATIVE_DECLARE_TABLES(neon_bf16)
MLC_NATIVE_DECLARE_LINEAR(neon_i8mm)
#undef MLC_NATIVE_DECLARE_LINEAR
#undef MLC_NATIVE_DECLARE_TABLES

}  // namespace mlc_native::kernels
