#include "torch_ops/outputs.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "kernels/kv_format.h"
#include "torch_ops/arguments.h"

namespace mlc_native::ops {

kernels::WeightFormat ParseFormat(std::string_view format) {
  if (const auto dtype = ParseDType(format)) return kernels::FormatOf(*dtype);
  if (format == "q8") return kernels::WeightFormat::kQ8;
  TORCH_CHECK_VALUE(format == "q4",
                    "format must be one of float32, bfloat16, float16, q8, q4, got '", format, "'");
  return kernels::WeightFormat::kQ4;
}

kernels::Activation ParseActivation(std::string_view activation) {
  if (activation == "silu") return kernels::Activation::kSilu;
  TORCH_CHECK_VALUE(activation == "gelu_tanh", "activation must be 'silu' or 'gelu_tanh', got '",
                    activation, "'");
  return kernels::Activation::kGeluTanh;
}

int64_t KvRowSize(at::ScalarType dtype, int64_t head_dim) {
  return kernels::KvRow(head_dim) + (dtype == at::kChar ? 4 : 0);
}

int64_t NumKvSlots(const at::Tensor& kv) { return kv.size(1) * kernels::kPageSize; }

void CheckKv(const at::Tensor& kv, const at::Tensor& like, int64_t head_dim) {
  TORCH_CHECK_VALUE(head_dim > 0, "head_dim must be positive, got ", head_dim);
  Check("kv", kv, like, {at::kFloat, at::kBFloat16, at::kHalf, at::kChar, at::kFloat8_e4m3fn},
        {2, kAny, kAny, kernels::kPageSize, KvRowSize(kv.scalar_type(), head_dim)});
  TORCH_CHECK_VALUE(kv.is_contiguous() && kv.size(2) > 0,
                    "kv must be what new_kv_pages made, got strides ", kv.strides());
}

namespace outputs {
namespace {

at::Tensor Empty(at::IntArrayRef sizes, const at::Tensor& like, at::ScalarType dtype) {
  return at::empty(sizes, like.options().dtype(dtype));
}

// The sizes of x with another last one.
at::Tensor EmptyRows(const at::Tensor& x, int64_t last, at::ScalarType dtype) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = last;
  return Empty(sizes, x, dtype);
}

void CheckAttention(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& block_tables) {
  CheckActivations("q", q);
  Check("q", q, q, {}, {kAny, kAny, kAny});
  CheckKv(kv, q, q.size(2));
  TORCH_CHECK_VALUE(q.size(1) > 0 && q.size(1) % KvHeads(kv) == 0,
                    "q must have a multiple of kv's ", KvHeads(kv), " heads, got ", q.size(1));
  Check("block_tables", block_tables, q, {at::kInt}, {kAny, kAny});
}

}  // namespace

at::Tensor Embedding(const at::Tensor& table, const at::Tensor& ids, double) {
  CheckActivations("table", table);
  Check("table", table, table, {}, {kAny, kAny});
  Check("ids", ids, table, {at::kInt}, {kAny});
  return Empty({ids.size(0), table.size(1)}, table, at::kFloat);
}

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double, double) {
  CheckActivations("x", x);
  Check("weight", weight, x, {x.scalar_type()}, {x.size(-1)});
  return Empty(x.sizes(), x, x.scalar_type());
}

at::Tensor AddRmsNorm(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& weight,
                      const OptionalTensor& post_weight, double, double) {
  CheckActivations("x", x);
  Check("x", x, x, {}, {kAny, kAny});
  Check("residual", residual, x, {at::kFloat}, {x.size(0), x.size(1)});
  TORCH_CHECK_VALUE(residual.is_contiguous(), "residual must be contiguous, got strides ",
                    residual.strides());
  Check("weight", weight, x, {x.scalar_type()}, {x.size(1)});
  if (post_weight) Check("post_weight", *post_weight, x, {x.scalar_type()}, {x.size(1)});
  return Empty(x.sizes(), x, x.scalar_type());
}

at::Tensor GatedActivation(const at::Tensor& x, std::string_view activation) {
  ParseActivation(activation);
  CheckActivations("x", x);
  TORCH_CHECK_VALUE(x.size(-1) % 2 == 0, "x must have an even last dimension, got shape ",
                    x.sizes());
  return EmptyRows(x, x.size(-1) / 2, x.scalar_type());
}

void SoftCap(const at::Tensor& x, double cap) {
  Check("x", x, x, {at::kFloat}, {kAny, kAny});
  TORCH_CHECK_VALUE(x.is_contiguous(), "x must be contiguous, got strides ", x.strides());
  TORCH_CHECK_VALUE(cap > 0, "cap must be positive, got ", cap);
}

at::Tensor UnpackWeight(const at::Tensor& packed, std::string_view format, int64_t k) {
  ParseFormat(format);
  Check("packed", packed, packed, {at::kByte}, {kAny, kAny});
  TORCH_CHECK_VALUE(k > 0, "k must be positive, got ", k);
  return Empty({packed.size(0), k}, packed, at::kFloat);
}

at::Tensor Linear(const at::Tensor& x, const at::Tensor& packed, std::string_view format,
                  const OptionalTensor& bias, bool float_output) {
  ParseFormat(format);
  CheckActivations("x", x);
  Check("packed", packed, x, {at::kByte}, {kAny, kAny});
  if (bias) Check("bias", *bias, x, {x.scalar_type()}, {packed.size(0)});
  return EmptyRows(x, packed.size(0), float_output ? at::kFloat : x.scalar_type());
}

at::Tensor NewKvPages(const at::Tensor& like, int64_t num_pages, int64_t kv_heads,
                      int64_t head_dim) {
  TORCH_CHECK_VALUE(num_pages >= 0 && kv_heads > 0 && head_dim > 0,
                    "num_pages, kv_heads and head_dim must be positive, got ", num_pages, ", ",
                    kv_heads, ", ", head_dim);
  const at::ScalarType dtype = like.scalar_type();
  return Empty({2, num_pages, kv_heads, kernels::kPageSize, KvRowSize(dtype, head_dim)}, like,
               dtype);
}

at::Tensor ReadKv(const at::Tensor& kv, const at::Tensor& slots, int64_t head_dim, double, double) {
  CheckKv(kv, kv, head_dim);
  Check("slots", slots, kv, {at::kLong}, {kAny});
  CheckRange("slots", slots, NumKvSlots(kv));
  return Empty({2, slots.size(0), KvHeads(kv), head_dim}, kv, at::kFloat);
}

void QkRopeWriteKv(const at::Tensor& qkv, const at::Tensor& kv, const at::Tensor& positions,
                   const at::Tensor& slots, const at::Tensor& cos, const at::Tensor& sin,
                   int64_t head_dim, const OptionalTensor& q_norm, const OptionalTensor& k_norm,
                   double, double, double, double) {
  CheckActivations("qkv", qkv);
  CheckKv(kv, qkv, head_dim);
  Check("qkv", qkv, qkv, {}, {kAny, kAny});
  TORCH_CHECK_VALUE(qkv.size(1) % head_dim == 0 && qkv.size(1) / head_dim >= 2 * KvHeads(kv),
                    "qkv must have rows of (q_heads + 2 * ", KvHeads(kv), ") * ", head_dim,
                    " elements, got shape ", qkv.sizes());
  Check("positions", positions, qkv, {at::kInt}, {qkv.size(0)});
  Check("slots", slots, qkv, {at::kLong}, {qkv.size(0)});
  Check("cos", cos, qkv, {at::kFloat}, {kAny, kAny});
  Check("sin", sin, qkv, {at::kFloat}, {cos.size(0), cos.size(1)});
  TORCH_CHECK_VALUE(2 * cos.size(1) <= head_dim,
                    "cos must have at most head_dim / 2 = ", head_dim / 2, " columns, got shape ",
                    cos.sizes());
  TORCH_CHECK_VALUE(q_norm.has_value() == k_norm.has_value(),
                    "q_norm and k_norm must be given both or not at all");
  if (q_norm) Check("q_norm", *q_norm, qkv, {qkv.scalar_type()}, {head_dim});
  if (k_norm) Check("k_norm", *k_norm, qkv, {qkv.scalar_type()}, {head_dim});
  if (2 * cos.size(1) > 0) CheckRange("positions", positions, cos.size(0));
  CheckRange("slots", slots, NumKvSlots(kv), INT64_MIN);
}

void CopyPages(const at::Tensor& kv, const at::Tensor& pairs, int64_t head_dim) {
  CheckKv(kv, kv, head_dim);
  Check("pairs", pairs, kv, {at::kInt}, {kAny, 2});
  CheckRange("pairs", pairs, kv.size(1));
}

at::Tensor PagedDecodeAttention(const at::Tensor& q, const at::Tensor& kv,
                                const at::Tensor& block_tables, const at::Tensor& lengths,
                                std::optional<double>, double, int64_t, double, double) {
  CheckAttention(q, kv, block_tables);
  Check("block_tables", block_tables, q, {}, {q.size(0), kAny});
  Check("lengths", lengths, q, {at::kInt}, {q.size(0)});
  CheckRange("lengths", lengths, block_tables.size(1) * kernels::kPageSize + 1);
  return Empty(q.sizes(), q, q.scalar_type());
}

at::Tensor PagedPrefillAttention(const at::Tensor& q, const at::Tensor& kv,
                                 const at::Tensor& block_tables, const at::Tensor& lengths,
                                 const at::Tensor& query_starts, std::optional<double>, double,
                                 int64_t, double, double) {
  CheckAttention(q, kv, block_tables);
  Check("lengths", lengths, lengths, {at::kInt}, {block_tables.size(0)});
  Check("query_starts", query_starts, query_starts, {at::kInt}, {block_tables.size(0) + 1});
  CheckRange("lengths", lengths, block_tables.size(1) * kernels::kPageSize + 1);
  return Empty(q.sizes(), q, q.scalar_type());
}

}  // namespace outputs
}  // namespace mlc_native::ops
