// The ops on the CPU around paged keys and values.

#include "kernels/kv_format.h"
#include "support/half.h"
#include "torch_ops/cpu.h"
#include "torch_ops/library.h"
#include "torch_ops/outputs.h"
#include "torch_ops/query_spans.h"

namespace mlc_native::ops {
namespace {

using kernels::Cpu;

// ---- Paged KV ----

kernels::KvPages Layer(const Tensor& kv, int64_t head_dim) {
  CheckValue(kv.scalar_type() != ScalarType::Float8_e4m3fn,
             "kv must be of type float32, bfloat16, float16 or int8, got float8_e4m3fn");
  const auto format = kv.scalar_type() == ScalarType::Char ? kernels::KvFormat::kInt8
                                                           : kernels::KvFormatOf(DTypeOf(kv));
  auto* pages = static_cast<char*>(kv.data_ptr());
  return {.format = format,
          .kv_heads = KvHeads(kv),
          .head_dim = head_dim,
          .num_pages = kv.size(1),
          .k_pages = pages,
          .v_pages = pages + kernels::KvLayerBytes(format, kv.size(1), KvHeads(kv), head_dim)};
}

// Element `index` of one head's part of a page, int8 with the scale of its token.
float KvElement(kernels::KvFormat format, const char* part, int64_t index, int64_t row,
                int64_t token) {
  if (format != kernels::KvFormat::kInt8)
    return LoadElement(static_cast<DType>(format), part, index);
  const auto* scales = reinterpret_cast<const float*>(part + kernels::kPageSize * row);
  return static_cast<float>(static_cast<int8_t>(part[index])) * scales[token];
}

Tensor ReadKv(const Tensor& kv, const Tensor& slots, int64_t head_dim) {
  Tensor out = outputs::ReadKv(kv, slots, head_dim);
  const kernels::KvPages layer = Layer(kv, head_dim);
  const bool in_pairs = kernels::KvInPairs(layer.format);
  const int64_t row = kernels::KvRow(head_dim);
  const int64_t page_bytes = kernels::KvPageBytes(layer.format, head_dim);
  const Tensor list = torch::stable::contiguous(slots);
  auto* to = out.mutable_data_ptr<float>();
  for (const bool is_v : {false, true}) {
    for (int64_t i = 0; i < list.numel(); ++i) {
      const int64_t slot = list.const_data_ptr<int64_t>()[i];
      const int64_t token = slot % kernels::kPageSize;
      for (int64_t head = 0; head < layer.kv_heads; ++head) {
        const int64_t page = head * layer.num_pages + slot / kernels::kPageSize;
        const char* part =
            static_cast<const char*>(is_v ? layer.v_pages : layer.k_pages) + page * page_bytes;
        for (int64_t d = 0; d < head_dim; ++d) {
          const int64_t at = is_v ? kernels::KvValueIndex(in_pairs, row, token, d)
                                  : kernels::KvKeyIndex(in_pairs, token, d);
          *to++ = KvElement(layer.format, part, at, row, token);
        }
      }
    }
  }
  return out;
}

// Calls f(begin, end) for each run of rows with a slot.
template <typename F>
void ForWrittenRows(const Tensor& slots, const F& f) {
  const auto* slot = slots.const_data_ptr<int64_t>();
  for (int64_t begin = 0; begin < slots.numel();) {
    int64_t end = begin;
    while (end < slots.numel() && slot[end] >= 0) ++end;
    if (end > begin) f(begin, end);
    begin = end + 1;
  }
}

void QkRopeWriteKv(const Tensor& qkv, const Tensor& kv, const Tensor& positions,
                   const Tensor& slots, const Tensor& cos, const Tensor& sin, int64_t head_dim,
                   const OptionalTensor& q_norm, const OptionalTensor& k_norm, double eps,
                   double weight_offset) {
  outputs::QkRopeWriteKv(qkv, kv, positions, slots, cos, sin, head_dim, q_norm, k_norm, eps,
                         weight_offset);
  const kernels::KvPages layer = Layer(kv, head_dim);
  Check("qkv", qkv, qkv, {ScalarType::Float}, {kAny, kAny});
  const Rows rows = MutableRows("qkv", qkv, sizeof(float));
  const Tensor all_positions = torch::stable::contiguous(positions),
               all_slots = torch::stable::contiguous(slots);
  const Tensor cosines = torch::stable::contiguous(cos), sines = torch::stable::contiguous(sin);
  const int64_t q_heads = qkv.size(1) / head_dim - 2 * layer.kv_heads;
  std::optional<Rows> norms[2];
  if (q_norm) norms[0] = Floats("q_norm", *q_norm);
  if (k_norm) norms[1] = Floats("k_norm", *k_norm);
  ForWrittenRows(all_slots, [&](int64_t begin, int64_t end) {
    std::vector<kernels::RowStep> steps;
    float* x = rows.data<float>() + begin * rows.ld();
    for (const int part : {0, 1}) {  // q, k
      const int64_t heads = part == 0 ? q_heads : layer.kv_heads;
      if (heads == 0) continue;
      if (norms[part]) {
        steps.push_back(kernels::NormalizeArgs{.x = x,
                                               .ldx = rows.ld(),
                                               .y = x,
                                               .ldy = rows.ld(),
                                               .weight = FloatsOf(norms[part]),
                                               .weight_offset = static_cast<float>(weight_offset),
                                               .eps = static_cast<float>(eps),
                                               .m = end - begin,
                                               .groups = heads,
                                               .dim = head_dim});
      }
      steps.push_back(
          kernels::RopeArgs{.x = x,
                            .ld = rows.ld(),
                            .m = end - begin,
                            .heads = heads,
                            .head_dim = head_dim,
                            .rotary_dim = 2 * cos.size(1),
                            .positions = all_positions.const_data_ptr<int32_t>() + begin,
                            .cos = cosines.const_data_ptr<float>(),
                            .sin = sines.const_data_ptr<float>()});
      x += heads * head_dim;
    }
    steps.push_back(
        kernels::WriteKvStep{.kv = &layer,
                             .rows = {.k = x - layer.kv_heads * head_dim,
                                      .ldk = rows.ld(),
                                      .v = x,
                                      .ldv = rows.ld(),
                                      .m = end - begin,
                                      .slots = all_slots.const_data_ptr<int64_t>() + begin}});
    Run([&](const Cpu& cpu) { kernels::RunRows(cpu, steps); });
  });
}

void CopyPages(const Tensor& kv, const Tensor& pairs, int64_t head_dim) {
  outputs::CopyPages(kv, pairs, head_dim);
  const kernels::KvPages layer = Layer(kv, head_dim);
  const Tensor list = torch::stable::contiguous(pairs);
  const auto* pair = list.const_data_ptr<int32_t>();
  for (int64_t i = 0; i < list.size(0); ++i) {
    kernels::CopyPage(layer, pair[2 * i], pair[2 * i + 1]);
  }
}

// ---- Attention ----

void Attend(const Tensor& q, const Tensor& kv, const Tensor& block_tables,
            const std::vector<QuerySpan>& spans, const AttentionOptions& options, Tensor& out) {
  Check("q", q, q, {ScalarType::Float}, {kAny, kAny, kAny});
  CheckPages(block_tables, spans, options.window, kv.size(1));
  const Tensor tables = torch::stable::contiguous(block_tables);
  std::vector<kernels::AttentionSequence> sequences;
  for (const QuerySpan& span : spans) {
    sequences.push_back(
        {.row_begin = span.row_begin,
         .num_rows = span.num_rows,
         .first_position = span.first_position,
         .block_table = tables.const_data_ptr<int32_t>() + span.table * tables.size(1)});
  }
  const kernels::KvPages layer = Layer(kv, q.size(2));
  const Rows rows(torch::stable::flatten(q, 1), sizeof(float));
  Run([&](const Cpu& cpu) {
    const Tensor workspace = HostBytes(kernels::AttentionWorkspaceBytes(
        cpu.pool->num_threads(), q.size(1), layer.kv_heads, layer.head_dim));
    kernels::PagedAttention(cpu, layer,
                            {.q = rows.data<float>(),
                             .ldq = rows.ld(),
                             .out = out.mutable_data_ptr<float>(),
                             .ldo = rows.n(),
                             .q_heads = q.size(1),
                             .scale = options.Scale(layer.head_dim),
                             .soft_cap = static_cast<float>(options.soft_cap),
                             .window = options.window,
                             .sequences = sequences.data(),
                             .num_sequences = static_cast<int64_t>(sequences.size()),
                             .workspace = workspace.data_ptr()});
  });
}

Tensor PagedDecodeAttention(const Tensor& q, const Tensor& kv, const Tensor& block_tables,
                            const Tensor& lengths, std::optional<double> scale, double soft_cap,
                            int64_t window) {
  Tensor out = outputs::PagedDecodeAttention(q, kv, block_tables, lengths, scale, soft_cap, window);
  Attend(q, kv, block_tables, DecodeSpans(lengths), {scale, soft_cap, window}, out);
  return out;
}

Tensor PagedPrefillAttention(const Tensor& q, const Tensor& kv, const Tensor& block_tables,
                             const Tensor& lengths, const Tensor& query_starts,
                             std::optional<double> scale, double soft_cap, int64_t window) {
  Tensor out = outputs::PagedPrefillAttention(q, kv, block_tables, lengths, query_starts, scale,
                                              soft_cap, window);
  Attend(q, kv, block_tables, PrefillSpans(lengths, query_starts, q.size(0)),
         {scale, soft_cap, window}, out);
  return out;
}

}  // namespace
}  // namespace mlc_native::ops

MLC_NATIVE_OPS_IMPL(CPU, m) {
  namespace ops = mlc_native::ops;
  m.impl("read_kv", TORCH_BOX(&ops::ReadKv));
  m.impl("qk_rope_write_kv", TORCH_BOX(&ops::QkRopeWriteKv));
  m.impl("copy_pages_", TORCH_BOX(&ops::CopyPages));
  m.impl("paged_decode_attention", TORCH_BOX(&ops::PagedDecodeAttention));
  m.impl("paged_prefill_attention", TORCH_BOX(&ops::PagedPrefillAttention));
}
