// The CPU kernels of the transformer, on raw pointers, sizes and strides (in elements).
//
// Bitwise contract: every output row depends only on its own inputs. Its bits are the same alone
// and at any place of any batch, for any chunking of a prompt and for any number of threads,
// because reductions run in a fixed order: in the order of k in Linear, and in the order of pages
// in PagedAttention, which splits long contexts at fixed positions between threads. Results may
// differ between ISAs.
//
// Activations are float32 [rows, ld]; weights have a WeightFormat, KV pages a KvFormat. No call
// allocates memory. Requires of every call: sizes, aliasing and ids are as documented; an MLC_CHECK
// verifies those that are cheap to verify. No globals; a call uses the threads of its pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "kernels/distance_bias.h"
#include "kernels/format_names.h"
#include "kernels/formats.h"
#include "kernels/kv_format.h"
#include "kernels/residual_streams.h"
#include "kernels/window.h"
#include "mlc_native/detail/dtype.h"
#include "mlc_native/detail/export.h"
#include "support/thread_pool.h"

namespace mlc_native::kernels {

inline constexpr int64_t kPackedAlignment = 64;  // bytes, for packed weights and workspaces
// `bytes`, rounded up to kPackedAlignment.
constexpr size_t AlignUp(size_t bytes) {
  constexpr size_t kAlign = kPackedAlignment;
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

// ---- Instruction sets ----

struct CpuKernels;  // function table of one ISA (kernels/cpu/table.h); static lifetime, immutable

// Returns the best ISA of this machine, or the one that the environment variable MLC_NATIVE_ISA
// names (read at each call). Throws InvalidConfig, which lists the available ISAs, for a name that
// is unknown or that this machine lacks.
MLC_NATIVE_PRIVATE_API const CpuKernels& SelectCpuKernels();
MLC_NATIVE_PRIVATE_API const CpuKernels& SelectCpuKernels(std::string_view isa);
std::vector<std::string_view> AvailableIsas();  // best first; the last is "portable"
std::string_view IsaName(const CpuKernels& kernels);

class KernelProfile;  // kernel_profile.h

// First argument of every kernel. The pointers must outlive the calls; the pool belongs to one
// engine.
struct Cpu {
  const CpuKernels* isa;
  ThreadPool* pool;
  KernelProfile* profile = nullptr;  // null: nothing is measured
};

// ---- Linear ----

// How Linear computes with each WeightFormat, and what it is: formats.h.

// A weight [n, k] as panels of isa->panel_width output columns. Each panel is aligned to 64 bytes;
// tail columns are zero. A view: the owner of `data` keeps it alive. A weight is packed for one
// panel width; using it with an ISA of another width throws InternalError.
struct PackedLinear {
  WeightFormat format = WeightFormat::kFloat32;
  int64_t n = 0;
  int64_t k = 0;
  int64_t panel_width = 0;
  void* data = nullptr;  // PackedLinearBytes bytes, aligned to kPackedAlignment
};

int64_t PanelWidth(const CpuKernels& isa);
MLC_NATIVE_PRIVATE_API size_t PackedLinearBytes(const CpuKernels& isa, WeightFormat format,
                                                int64_t n, int64_t k);
MLC_NATIVE_PRIVATE_API PackedLinear MakePackedLinear(const CpuKernels& isa, WeightFormat format,
                                                     int64_t n, int64_t k, void* data);

// Rows [0, rows) of a row-major source with elements of type `dtype`.
struct PackSource {
  DType dtype = DType::kFloat32;
  const void* data = nullptr;
  int64_t ld = 0;  // elements from row to row, >= k
  int64_t rows = 0;
};

// Writes the source to rows [row_offset, row_offset + source.rows) of `packed`, rounded to nearest
// even or quantized. Each packed row depends only on its source row, on every ISA. Fused matrices
// (q, k, v; gate, up) take one call per part, at any offset. The call that writes row n - 1 also
// zeroes the tail columns. Calls for different panels may run in parallel.
MLC_NATIVE_PRIVATE_API void PackLinear(const PackedLinear& packed, int64_t row_offset,
                                       const PackSource& source);

// Rows [0, rows) of a weight that is already quantized: scale * code.
struct PackCodes {
  // [-2, 1] for 2 bits, [-8, 7] for 4 bits, [-32, 31] for 6 bits, those of TableOf,
  // indices into it for kMxfp4, the bits of E4M3 for kFloat8
  const int8_t* codes = nullptr;
  int64_t ld = 0;  // elements from row to row, >= k
  // float16 bits (kMxfp4: bfloat16; kFloat8: float32, in two; affine formats: each is followed by
  // its shift), [rows, ceil(k / group)]
  const uint16_t* scales = nullptr;
  int64_t group = 0;  // k per scale: a multiple of the format's group, or >= k
  int64_t rows = 0;
};
// The same for formats with scales, without rounding: the packed weight has these codes and scales.
MLC_NATIVE_PRIVATE_API void PackLinear(const PackedLinear& packed, int64_t row_offset,
                                       const PackCodes& source);

// y[m, n] = x[m, k] w^T (+ bias[n]). y must not overlap x.
struct LinearArgs {
  const float* x = nullptr;
  int64_t ldx = 0;
  const int32_t* rows = nullptr;  // row i of y comes from row rows[i] of x; null: from row i
  int64_t m = 0;
  const float* bias = nullptr;  // null: none
  float* y = nullptr;
  int64_t ldy = 0;
  void* workspace = nullptr;  // LinearWorkspaceBytes bytes, aligned to kPackedAlignment
};
// Enough for m rows of k inputs in any format: LinearInputBytes, and what a matrix unit may read
// behind the last row, 16 rows of a group at most.
inline constexpr size_t kLinearReadsBehind = 2048;
MLC_NATIVE_PRIVATE_API size_t LinearInputBytes(int64_t m, int64_t k);
MLC_NATIVE_PRIVATE_API size_t LinearWorkspaceBytes(int64_t m, int64_t k);
MLC_NATIVE_PRIVATE_API void Linear(const Cpu& cpu, const PackedLinear& w, const LinearArgs& args);

// ---- Embedding ----

// out[i, 0:k] = scale * row ids[i] of the [n, k] table; ids in [0, n). GatherRows may add it
// instead.
struct GatherArgs {
  const int32_t* ids = nullptr;
  int64_t m = 0;
  float scale = 1.0f;
  float* out = nullptr;
  int64_t ldo = 0;
  bool adds = false;
  bool is_short = false;  // likewise: ids of n and more are those of row 0
};
MLC_NATIVE_PRIVATE_API void GatherPackedRows(
    const Cpu& cpu, const PackedLinear& table,
    const GatherArgs& args);  // for a table that is also the head
struct RowTable {             // a row-major table that is not packed
  DType dtype = DType::kFloat32;
  const void* data = nullptr;
  int64_t n = 0;
  int64_t k = 0;
  int64_t ld = 0;
};
MLC_NATIVE_PRIVATE_API void GatherRows(const Cpu& cpu, const RowTable& table,
                                       const GatherArgs& args);

// ---- Norm, rope, activation ----

// For each row and each of `groups` consecutive spans of `dim`:
//   y = x / sqrt(mean(x^2) + eps) * (weight + weight_offset)                      (RMSNorm)
//   y = (x - mean(x)) / sqrt(variance(x) + eps) * (weight + weight_offset) + bias (LayerNorm)
// groups = 1 is the usual norm; groups = heads with dim = head_dim is qk-norm, where the heads
// share weight[dim], or have weight[groups, dim]. y may be x. With `accumulate`, the result is
// added to y (post-norms that add to the residual). With a residual[m, groups * dim], x is first
// added to the residual, and the residual is what is normalized; it overlaps neither x nor y.
struct NormalizeArgs {
  const float* x = nullptr;
  int64_t ldx = 0;
  float* residual = nullptr;  // null: none
  int64_t ld_residual = 0;
  float* y = nullptr;
  int64_t ldy = 0;
  const float* weight = nullptr;  // [dim]
  int64_t ld_weight = 0;          // from group to group; 0: they share it
  float weight_offset = 0.0f;     // 1 for Gemma
  const float* bias = nullptr;    // [dim], of LayerNorm; null: none
  float eps = 1e-6f;
  int64_t m = 0;
  int64_t groups = 1;
  int64_t dim = 0;
  bool subtract_mean = false;  // LayerNorm
  bool accumulate = false;
};
MLC_NATIVE_PRIVATE_API void Normalize(const Cpu& cpu, const NormalizeArgs& args);

// Rotates x[m, heads, head_dim] (row stride ld) in place. Of the first rotary_dim (even, <=
// head_dim) elements of each head, element i is paired with i + rotary_dim / 2 ("rotate_half"), or,
// interleaved, element 2 i with 2 i + 1. The other elements stay as they are.
struct RopeArgs {
  float* x = nullptr;
  int64_t ld = 0;
  int64_t m = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;
  const int32_t* positions = nullptr;  // [m]
  const float* cos = nullptr;          // [max_position, rotary_dim / 2]
  const float* sin = nullptr;
  bool interleaved = false;
  bool backward = false;  // by the negative angles; interleaved alone
};
void Rope(const Cpu& cpu, const RopeArgs& args);

// x[m, n] *= scales[positions[row]], or scales[0] without positions, or, by column, scales[column].
struct ScaleArgs {
  float* x = nullptr;
  int64_t ld = 0;
  int64_t m = 0;
  int64_t n = 0;
  const int32_t* positions = nullptr;  // [m]; null: all rows have the same scale
  const float* scales = nullptr;       // [max_position], or [n]
  bool by_column = false;
};
void Scale(const Cpu& cpu, const ScaleArgs& args);

// sum[m, n] += x[m, n], or row rows[i] of `sum` += row i of x. They do not overlap. Requires:
// `rows` is not that of a row step.
struct AddArgs {
  const float* x = nullptr;
  int64_t ldx = 0;
  const int32_t* rows = nullptr;  // [m], each once; null: row i is added to row i
  float* sum = nullptr;
  int64_t ld_sum = 0;
  int64_t m = 0;
  int64_t n = 0;
};
MLC_NATIVE_PRIVATE_API void Add(const Cpu& cpu, const AddArgs& args);

// to[row, h * to_step + i] = from[row, h * from_step + i] for each of `heads` heads h and i < n; 0
// without `from`. A from_step of 0: all heads get the same. They do not overlap, or they are the
// same, and to_step <= from_step.
struct MoveHeadsArgs {
  const float* from = nullptr;
  int64_t ld_from = 0;
  int64_t from_step = 0;
  float* to = nullptr;
  int64_t ld_to = 0;
  int64_t to_step = 0;
  int64_t m = 0;
  int64_t heads = 0;
  int64_t n = 0;
};
void MoveHeads(const Cpu& cpu, const MoveHeadsArgs& args);

// out[m, ffn] = act(x[:, 0:ffn]) * x[:, ffn:2*ffn], or act(x[m, ffn]) without a gate. out is x
// (with the same ld) or does not overlap it.
struct ActivateArgs {
  Activation activation = Activation::kSilu;
  bool gated = true;
  float alpha_p = 0.0f;  // of kXielu
  float alpha_n = 0.0f;
  float sharpness = 1.0f;  // of kClampedSwiGlu
  float limit = 0.0f;      // likewise, and of kClampedSilu
  const float* x = nullptr;
  int64_t ldx = 0;
  float* out = nullptr;
  int64_t ldo = 0;
  int64_t m = 0;
  int64_t ffn = 0;
};
MLC_NATIVE_PRIVATE_API void Activate(const Cpu& cpu, const ActivateArgs& args);

// x[m, i] *= sigmoid(gate[m, i / per_gate]), or likewise softplus. They do not overlap.
struct GateArgs {
  const float* gate = nullptr;
  int64_t ld_gate = 0;
  float* x = nullptr;
  int64_t ldx = 0;
  int64_t m = 0;
  int64_t n = 0;
  int64_t per_gate = 1;  // divides n
  bool softplus = false;
};
MLC_NATIVE_PRIVATE_API void Gate(const Cpu& cpu, const GateArgs& args);

// x[m, i] = max(x[m, i] - mean - deviations * (standard deviation), 0) of each row of n elements.
struct CutArgs {
  float* x = nullptr;
  int64_t ld = 0;
  float deviations = 0.0f;
  int64_t m = 0;
  int64_t n = 0;
};
MLC_NATIVE_PRIVATE_API void Cut(const Cpu& cpu, const CutArgs& args);

struct MatrixView {
  float* data = nullptr;
  int64_t ld = 0;
  int64_t m = 0;
  int64_t n = 0;
};
MLC_NATIVE_PRIVATE_API void SoftCap(const Cpu& cpu, const MatrixView& x,
                                    float cap);  // x = cap * tanh(x / cap)

// ---- Paged KV ----

// One layer's pages, in one block [kv_heads, num_pages] or in blocks [kv_heads, kKvBlockPages] that
// lie block_bytes apart; each page is laid out as in kv_format.h. The heads are the outer dimension
// because attention reads the pages of one head after another, so that consecutive pages are
// contiguous in memory. With blocks, pages that no sequence has used yet take no memory. Without
// v_pages there are keys alone, and without k_pages values, which are written and copied as such.
struct KvPages {
  KvFormat format = KvFormat::kFloat32;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t num_pages = 0;
  void* k_pages = nullptr;  // of the first block, aligned to kPackedAlignment
  void* v_pages = nullptr;
  int64_t block_bytes = 0;  // 0: all pages are in one block
};
// Of K in a block of so many pages; V takes as many.
MLC_NATIVE_PRIVATE_API size_t KvLayerBytes(KvFormat format, int64_t num_pages, int64_t kv_heads,
                                           int64_t head_dim);

// Writes row i of k and of v, [kv_heads, head_dim] each, to slot slots[i] = page * kPageSize +
// offset. The slots of one call are distinct.
struct WriteKvArgs {
  const float* k = nullptr;
  int64_t ldk = 0;
  const float* v = nullptr;
  int64_t ldv = 0;
  int64_t m = 0;
  const int64_t* slots = nullptr;
};
void WriteKv(const Cpu& cpu, const KvPages& kv, const WriteKvArgs& args);

// Copies K and V of a whole page, for copy-on-write.
MLC_NATIVE_PRIVATE_API void CopyPage(const KvPages& kv, int64_t from_page, int64_t to_page);

// Rows [row_begin, row_begin + num_rows) of the batch are consecutive positions of one sequence,
// from first_position on. Position p of the sequence is in page block_table[p / kPageSize].
// Requires: K and V of the rows themselves have been written.
struct AttentionSequence {
  int64_t row_begin = 0;
  int64_t num_rows = 0;
  int64_t first_position = 0;
  const int32_t* block_table = nullptr;
  int64_t last_key = 0;  // that rows in front of it see, too, as far as their window goes
};

// out[row, q_heads, head_dim] = softmax(scale * (q k^T + products with vectors of the distance),
// soft-capped, + bias) v over the keys window.First(p) .. window.Last(p, last_key) for a row at
// position p. Query head h reads kv head h / (q_heads / kv_heads). A head with a sink has e^sink as
// another term of its softmax's denominator. Slots that no row may attend to never affect the
// result; they may hold anything. Entries of the block table for pages wholly outside the window
// are never read.
struct AttentionArgs {
  const float* q = nullptr;  // [m, q_heads, head_dim], row stride ldq
  int64_t ldq = 0;
  float* out = nullptr;  // shape of q; must not overlap q
  int64_t ldo = 0;
  int64_t q_heads = 0;
  float scale = 1.0f;
  float soft_cap = 0.0f;  // 0: none; else s = cap * tanh(s / cap) (Gemma-2)
  AttentionWindow window{};
  DistanceBias bias{};           // by the distance of positions
  DistanceVectors vectors{};     // likewise
  const float* sinks = nullptr;  // [q_heads]; null: none
  int64_t value_columns = 0;     // all values are zero from this element on; 0: from none
  const AttentionSequence* sequences = nullptr;
  int64_t num_sequences = 0;
  void* workspace = nullptr;  // AttentionWorkspaceBytes bytes, aligned to kPackedAlignment
};
// Does not depend on batch and context length, so one allocation per engine is enough.
MLC_NATIVE_PRIVATE_API size_t AttentionWorkspaceBytes(int num_threads, int64_t q_heads,
                                                      int64_t kv_heads, int64_t head_dim);
MLC_NATIVE_PRIVATE_API void PagedAttention(const Cpu& cpu, const KvPages& kv,
                                           const AttentionArgs& args);

// ---- Mixtures of experts (experts.h has the rest) ----

// out[i, n] = the sum over j of weights[i, j] * x[places[i, j], n], in the order of j, and then
// shared_scale * sigmoid(shared_gate[i]) * shared[i, n]. out overlaps neither x nor shared.
struct MixArgs {
  const float* x = nullptr;
  int64_t ldx = 0;
  const int32_t* places = nullptr;  // [m, num_chosen]
  const float* weights = nullptr;   // [m, num_chosen]; null: ones
  int64_t num_chosen = 0;
  const float* shared = nullptr;  // null: none
  int64_t ld_shared = 0;
  float shared_scale = 1.0f;
  const float* shared_gate = nullptr;  // null: its factor is 1
  int64_t ld_gate = 0;
  float* out = nullptr;
  int64_t ldo = 0;
  int64_t m = 0;
  int64_t n = 0;
};
void Mix(const Cpu& cpu, const MixArgs& args);

// The other way: out[places[i, j], n] = weights[i, j] * x[i, n]. out does not overlap x.
struct SpreadArgs {
  const float* x = nullptr;
  int64_t ldx = 0;
  const int32_t* places = nullptr;  // [m, num_chosen], each once
  const float* weights = nullptr;   // [m, num_chosen]
  int64_t num_chosen = 0;
  float* out = nullptr;
  int64_t ldo = 0;
  int64_t m = 0;
  int64_t n = 0;
};
void Spread(const Cpu& cpu, const SpreadArgs& args);

// ---- Several row-wise kernels in one loop ----

struct WriteKvStep {
  const KvPages* kv = nullptr;
  WriteKvArgs rows{};
};

// A kernel whose output row i depends only on the inputs of row i, which no other row's step
// writes. The rows that Spread writes for a row are its own, but no later step of the same loop
// reads them.
using RowStep =
    std::variant<NormalizeArgs, RopeArgs, ScaleArgs, AddArgs, MoveHeadsArgs, ActivateArgs, GateArgs,
                 WriteKvStep, MixArgs, SpreadArgs, CutArgs, StreamStep>;

// Runs the steps on the same m rows, in order. A thread takes some rows through all steps while
// they are in its cache.
MLC_NATIVE_PRIVATE_API void RunRows(const Cpu& cpu, std::span<const RowStep> steps);
// Runs the steps `before` and then Linear on the rows x that they produce. Requires: no args.rows.
MLC_NATIVE_PRIVATE_API void Linear(const Cpu& cpu, const PackedLinear& w, const LinearArgs& args,
                                   std::span<const RowStep> before);

// y[row, h * y_step + i] = x[row, h * x_step + j] w^T for each head h, with its own matrix w [i,
// j].
struct HeadLinearArgs {
  const float* x = nullptr;
  int64_t ldx = 0;
  int64_t x_step = 0;
  int64_t m = 0;
  float* y = nullptr;
  int64_t ldy = 0;
  int64_t y_step = 0;
  void* workspace = nullptr;  // LinearWorkspaceBytes(heads * m, k), aligned to kPackedAlignment
};
// Runs the steps `before` on the rows x and then the linears of all heads, all panels in one loop.
// All of x is read before y is written. Requires: the weights have the same format and shape.
MLC_NATIVE_PRIVATE_API void HeadLinears(const Cpu& cpu, std::span<const PackedLinear> weights,
                                        const HeadLinearArgs& args,
                                        std::span<const RowStep> before = {});

}  // namespace mlc_native::kernels
