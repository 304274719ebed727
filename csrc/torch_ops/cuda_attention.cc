// The ops on CUDA around paged keys and values.

#include <algorithm>

#include "torch_ops/cuda.h"
#include "torch_ops/outputs.h"
#include "torch_ops/query_spans.h"

namespace mlc_native::ops {
namespace {

namespace cuda = kernels::cuda;
using kernels::KvFormat;

KvFormat FormatOf(const Tensor& kv) {
  CheckValue(kv.scalar_type() != ScalarType::Char,
             "kv must be of type float32, bfloat16, float16 or float8_e4m3fn, got int8");
  if (kv.scalar_type() == ScalarType::Float8_e4m3fn) return KvFormat::kFloat8;
  return kernels::KvFormatOf(DTypeOf(kv));
}

cuda::KvPages Pages(const Tensor& kv, int64_t head_dim) {
  CheckRowSize("kv", head_dim, cuda::kMaxHeadDim);
  auto* pages = static_cast<char*>(kv.data_ptr());
  return {.format = FormatOf(kv),
          .kv_heads = KvHeads(kv),
          .head_dim = head_dim,
          .num_pages = kv.size(1),
          .k = pages,
          .v = pages + kv.numel() * static_cast<int64_t>(kv.element_size()) / 2};
}

// Checks that `kv` has the type of the activations `x`, or 8 bits with 16-bit activations.
void CheckKvFormat(const Tensor& kv, const Tensor& x) {
  CheckValue(
      kv.scalar_type() == x.scalar_type() ||
          (kv.scalar_type() == ScalarType::Float8_e4m3fn && x.scalar_type() != ScalarType::Float),
      "kv must be of type ", x.scalar_type(),
      x.scalar_type() == ScalarType::Float ? "" : " or Float8_e4m3fn",
      ", like the activations, got ", kv.scalar_type());
}

Tensor ReadKv(const Tensor& kv, const Tensor& slots, int64_t head_dim) {
  Tensor out = outputs::ReadKv(kv, slots, head_dim);
  const cuda::KvPages pages = Pages(kv, head_dim);
  // K and V are [num_pages, kv_heads, head_bytes], as kernels.h says, with bytes unused behind all.
  const int64_t rows = kKvPageSize * head_dim * static_cast<int64_t>(kv.element_size());
  const std::vector<int64_t> heads{pages.num_pages, pages.kv_heads, pages.head_bytes()};
  const auto of_slots = [&](const Tensor& by_page) {  // [num_pages, kv_heads, 16, ...]
    const Tensor by_slot = torch::stable::reshape(torch::stable::transpose(by_page, 1, 2),
                                                  {heads[0] * kKvPageSize, heads[1], -1});
    return CallTorch("aten::index_select", "", by_slot, int64_t{0}, slots);
  };
  for (const int part : {0, 1}) {
    const Tensor bytes =
        ViewAs(torch::stable::flatten(torch::stable::select(kv, 0, part)), ScalarType::Byte);
    const Tensor all =
        torch::stable::view(Narrow(bytes, 0, 0, heads[0] * heads[1] * heads[2]), heads);
    const Tensor elements = torch::stable::contiguous(Narrow(all, 2, 0, rows));
    Tensor to = torch::stable::select(out, 0, part);
    torch::stable::copy_(
        to, ViewAs(of_slots(torch::stable::view(elements, {heads[0], heads[1], kKvPageSize, -1})),
                   kv.scalar_type()));
    if (pages.format != KvFormat::kFloat8) continue;
    const Tensor scales = torch::stable::contiguous(Narrow(all, 2, rows, heads[2] - rows));
    CallTorch("aten::mul_", "Tensor", to,
              of_slots(torch::stable::view(ViewAs(scales, ScalarType::Float),
                                           {heads[0], heads[1], kKvPageSize, 1})));
  }
  return out;
}

void QkRopeWriteKv(const Tensor& qkv, const Tensor& kv, const Tensor& positions,
                   const Tensor& slots, const Tensor& cos, const Tensor& sin, int64_t head_dim,
                   const OptionalTensor& q_norm, const OptionalTensor& k_norm, double eps,
                   double weight_offset) {
  outputs::QkRopeWriteKv(qkv, kv, positions, slots, cos, sin, head_dim, q_norm, k_norm, eps,
                         weight_offset);
  CheckKvFormat(kv, qkv);
  const cuda::KvPages pages = Pages(kv, head_dim);
  const Rows rows = MutableRows("qkv", qkv, kCudaAlignment);
  const Tensor all_positions = torch::stable::contiguous(positions),
               all_slots = torch::stable::contiguous(slots);
  const Tensor cosines = torch::stable::contiguous(cos), sines = torch::stable::contiguous(sin);
  std::optional<Rows> norms[2];
  if (q_norm) norms[0] = Dense(torch::stable::unsqueeze(*q_norm, 0));
  if (k_norm) norms[1] = Dense(torch::stable::unsqueeze(*k_norm, 0));
  OnDevice(qkv, [&](cuda::Stream stream) {
    cuda::QkRopeWriteKv(pages,
                        {.dtype = DTypeOf(qkv),
                         .qkv = rows.data(),
                         .ld = rows.ld(),
                         .m = rows.m(),
                         .q_heads = rows.n() / head_dim - 2 * pages.kv_heads,
                         .q_norm = norms[0] ? norms[0]->data() : nullptr,
                         .k_norm = norms[1] ? norms[1]->data() : nullptr,
                         .weight_offset = static_cast<float>(weight_offset),
                         .eps = static_cast<float>(eps),
                         .rotary_dim = 2 * cos.size(1),
                         .positions = all_positions.const_data_ptr<int32_t>(),
                         .slots = all_slots.const_data_ptr<int64_t>(),
                         .cos = cosines.const_data_ptr<float>(),
                         .sin = sines.const_data_ptr<float>()},
                        stream);
  });
}

void CopyPages(const Tensor& kv, const Tensor& pairs, int64_t head_dim) {
  outputs::CopyPages(kv, pairs, head_dim);
  const Tensor list = torch::stable::contiguous(pairs);
  OnDevice(kv, [&](cuda::Stream stream) {
    cuda::CopyPages({.first = Pages(kv, head_dim),
                     .num_layers = 1,
                     .copies = static_cast<const PageCopy*>(list.const_data_ptr()),
                     .num_copies = list.size(0)},
                    stream);
  });
}

// ---- Attention ----

// One call's arguments: `out` is written.
class Attention {
 public:
  Attention(const Tensor& q, const Tensor& kv, const Tensor& block_tables,
            const AttentionOptions& options, const Tensor& out)
      : q_(torch::stable::flatten(q, 1), kCudaAlignment),
        tables_(torch::stable::contiguous(block_tables)),
        pages_(Pages(kv, q.size(2))),
        args_{.dtype = DTypeOf(q),
              .q = q_.data(),
              .ldq = q_.ld(),
              .out = out.mutable_data_ptr(),
              .ldo = q_.n(),
              .q_heads = q.size(1),
              .scale = options.Scale(q.size(2)),
              .soft_cap = static_cast<float>(options.soft_cap),
              .window = options.window,
              .block_tables = tables_.const_data_ptr<int32_t>(),
              .ld_block_tables = tables_.size(1)} {
    CheckKvFormat(kv, q);
  }

  // Row i sees the first lengths[i] keys of table tables[i]; without tables, of table i.
  void Decode(const Tensor& lengths, const OptionalTensor& tables) {
    const int64_t max_rows = std::min(q_.m(), cuda::kMaxDecodeRows);
    const int64_t max_splits = max_rows * cuda::MaxDecodeSplits(tables_.size(1) * kKvPageSize);
    const Tensor workspace = DeviceBytes(
        cuda::DecodeWorkspaceBytes(max_splits, args_.q_heads, pages_.head_dim), q_.tensor());
    const Tensor splits = DeviceBytes(cuda::DecodeSplitsBytes(max_splits), q_.tensor());
    const auto zeros = static_cast<int64_t>(cuda::ZeroedDecodeBytes(args_.q_heads));
    Tensor zeroed = Narrow(workspace, 0, 0, zeros);
    torch::stable::zero_(zeroed);
    OnDevice(q_.tensor(), [&](cuda::Stream stream) {
      for (int64_t begin = 0; begin < q_.m(); begin += max_rows) {
        const cuda::DecodeRows rows{
            .lengths = lengths.const_data_ptr<int32_t>() + begin,
            .tables = tables ? tables->const_data_ptr<int32_t>() + begin : nullptr,
            .m = std::min(max_rows, q_.m() - begin),
            .max_splits = max_splits,
            .workspace = workspace.data_ptr(),
            .splits = splits.data_ptr()};
        cuda::ListSplits(rows, args_.window, stream);
        cuda::DecodeAttention(pages_, ArgsFrom(begin, !tables.has_value()), rows, stream);
      }
    });
  }

  void Prefill(const std::vector<QuerySpan>& spans) {
    const bool has_tensor_cores =
        args_.dtype != DType::kFloat32 && pages_.head_dim % 16 == 0 && TileRows() > 0;
    if (!has_tensor_cores) return PrefillByRows(spans);
    std::vector<cuda::PrefillTile> tiles;
    for (const QuerySpan& span : spans) {
      for (int64_t row = 0; row < span.num_rows; row += TileRows()) {
        tiles.push_back(
            {.row_begin = static_cast<int32_t>(span.row_begin + row),
             .num_rows = static_cast<int32_t>(std::min(TileRows(), span.num_rows - row)),
             .first_position = static_cast<int32_t>(span.first_position + row),
             .table = static_cast<int32_t>(span.table)});
      }
    }
    std::ranges::stable_sort(tiles, std::greater(), &cuda::PrefillTile::first_position);
    const Tensor uploaded = Upload(tiles, q_.tensor());
    OnDevice(q_.tensor(), [&](cuda::Stream stream) {
      cuda::PrefillAttention(pages_, args_,
                             static_cast<const cuda::PrefillTile*>(uploaded.const_data_ptr()),
                             static_cast<int64_t>(tiles.size()), stream);
    });
  }

 private:
  int64_t TileRows() const {
    return cuda::PrefillTileRows(args_.q_heads, pages_.kv_heads, pages_.head_dim);
  }

  // For the rows from `begin` on, which have the tables from there on, or all tables.
  cuda::AttentionArgs ArgsFrom(int64_t begin, bool has_table_per_row) const {
    const auto size = static_cast<int64_t>(q_.tensor().element_size());
    cuda::AttentionArgs args = args_;
    args.q = static_cast<const char*>(args.q) + begin * args.ldq * size;
    args.out = static_cast<char*>(args.out) + begin * args.ldo * size;
    if (has_table_per_row) args.block_tables += begin * args.ld_block_tables;
    return args;
  }

  void PrefillByRows(const std::vector<QuerySpan>& spans) {
    std::vector<int32_t> lengths, tables;
    for (const QuerySpan& span : spans) {
      for (int64_t row = 0; row < span.num_rows; ++row) {
        lengths.push_back(static_cast<int32_t>(span.first_position + row + 1));
        tables.push_back(static_cast<int32_t>(span.table));
      }
    }
    Decode(ViewAs(Upload(lengths, q_.tensor()), ScalarType::Int),
           ViewAs(Upload(tables, q_.tensor()), ScalarType::Int));
  }

  const Rows q_;
  const Tensor tables_;
  const cuda::KvPages pages_;
  const cuda::AttentionArgs args_;
};

Tensor PagedDecodeAttention(const Tensor& q, const Tensor& kv, const Tensor& block_tables,
                            const Tensor& lengths, std::optional<double> scale, double soft_cap,
                            int64_t window) {
  Tensor out = outputs::PagedDecodeAttention(q, kv, block_tables, lengths, scale, soft_cap, window);
  if (lengths.is_cpu()) CheckPages(block_tables, DecodeSpans(lengths), window, kv.size(1));
  Attention(q, kv, block_tables, {scale, soft_cap, window}, out)
      .Decode(torch::stable::contiguous(lengths), std::nullopt);
  return out;
}

Tensor PagedPrefillAttention(const Tensor& q, const Tensor& kv, const Tensor& block_tables,
                             const Tensor& lengths, const Tensor& query_starts,
                             std::optional<double> scale, double soft_cap, int64_t window) {
  Tensor out = outputs::PagedPrefillAttention(q, kv, block_tables, lengths, query_starts, scale,
                                              soft_cap, window);
  const std::vector<QuerySpan> spans = PrefillSpans(lengths, query_starts, q.size(0));
  CheckPages(block_tables, spans, window, kv.size(1));
  Attention(q, kv, block_tables, {scale, soft_cap, window}, out).Prefill(spans);
  return out;
}

}  // namespace
}  // namespace mlc_native::ops

MLC_NATIVE_OPS_IMPL(MLC_NATIVE_OPS_CUDA_KEY, m) {
  namespace ops = mlc_native::ops;
  m.impl("read_kv", TORCH_BOX(&ops::ReadKv));
  m.impl("qk_rope_write_kv", TORCH_BOX(&ops::QkRopeWriteKv));
  m.impl("copy_pages_", TORCH_BOX(&ops::CopyPages));
  m.impl("paged_decode_attention", TORCH_BOX(&ops::PagedDecodeAttention));
  m.impl("paged_prefill_attention", TORCH_BOX(&ops::PagedPrefillAttention));
}
