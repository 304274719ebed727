#include "torch_ops/outputs.h"

#include "kernels/kv_format.h"
#include "torch_ops/arguments.h"

namespace mlc_native::ops {

kernels::WeightFormat ParseFormat(std::string_view format) {
  if (const auto dtype = ParseDType(format)) return kernels::FormatOf(*dtype);
  if (format == "q8") return kernels::WeightFormat::kQ8;
  CheckValue(format == "q4", "format must be one of float32, bfloat16, float16, q8, q4, got '",
             format, "'");
  return kernels::WeightFormat::kQ4;
}

kernels::Activation ParseActivation(std::string_view activation) {
  if (activation == "silu") return kernels::Activation::kSilu;
  CheckValue(activation == "gelu_tanh", "activation must be 'silu' or 'gelu_tanh', got '",
             activation, "'");
  return kernels::Activation::kGeluTanh;
}

void CheckPackable(const Tensor& weight) {
  CheckActivations("weight", weight);
  CheckValue(weight.dim() == 2 || weight.dim() == 3,
             "weight must have 2 dimensions, or 3 of experts, got shape ", weight.sizes());
  CheckValue(weight.size(-2) > 0, "weight must have rows, got shape ", weight.sizes());
}

int64_t KvRowSize(ScalarType dtype, int64_t head_dim) {
  const bool has_scale = dtype == ScalarType::Char || dtype == ScalarType::Float8_e4m3fn;
  return kernels::KvRow(head_dim) + (has_scale ? 4 : 0);  // a float
}

int64_t NumKvSlots(const Tensor& kv) { return kv.size(1) * kernels::kPageSize; }

void CheckKv(const Tensor& kv, const Tensor& like, int64_t head_dim) {
  CheckValue(head_dim > 0, "head_dim must be positive, got ", head_dim);
  Check("kv", kv, like,
        {ScalarType::Float, ScalarType::BFloat16, ScalarType::Half, ScalarType::Char,
         ScalarType::Float8_e4m3fn},
        {2, kAny, kAny, kernels::kPageSize, KvRowSize(kv.scalar_type(), head_dim)});
  CheckValue(kv.is_contiguous() && kv.size(2) > 0,
             "kv must be what new_kv_pages made, got strides ", kv.strides());
}

namespace outputs {
namespace {

// Returns the sizes of x with another last one.
Tensor EmptyRows(const Tensor& x, int64_t last, ScalarType dtype) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = last;
  return Empty(sizes, x, dtype);
}

void CheckPacked(const Tensor& packed, const Tensor& like) {
  Check("packed", packed, like, {ScalarType::Byte}, {kAny, kAny});
  CheckValue(packed.size(0) > 0, "packed must have rows, got shape ", packed.sizes());
}

void CheckAttention(const Tensor& q, const Tensor& kv, const Tensor& block_tables, double soft_cap,
                    int64_t window) {
  CheckActivations("q", q);
  Check("q", q, q, {}, {kAny, kAny, kAny});
  CheckKv(kv, q, q.size(2));
  CheckValue(q.size(1) > 0 && q.size(1) % KvHeads(kv) == 0, "q must have a multiple of kv's ",
             KvHeads(kv), " heads, got ", q.size(1));
  Check("block_tables", block_tables, q, {ScalarType::Int}, {kAny, kAny});
  CheckValue(soft_cap >= 0, "soft_cap must not be negative, got ", soft_cap);
  CheckValue(window >= 0, "window must not be negative, got ", window);
}

}  // namespace

Tensor Embedding(const Tensor& table, const Tensor& ids, double) {
  CheckActivations("table", table);
  Check("table", table, table, {}, {kAny, kAny});
  Check("ids", ids, table, {ScalarType::Int}, {kAny});
  return Empty({ids.size(0), table.size(1)}, table, ScalarType::Float);
}

Tensor RmsNorm(const Tensor& x, const Tensor& weight, double, double) {
  CheckActivations("x", x);
  Check("weight", weight, x, {x.scalar_type()}, {x.size(-1)});
  return Empty(x.sizes(), x, x.scalar_type());
}

Tensor AddRmsNorm(const Tensor& residual, const Tensor& x, const Tensor& weight,
                  const OptionalTensor& post_weight, double, double) {
  CheckActivations("x", x);
  Check("x", x, x, {}, {kAny, kAny});
  Check("residual", residual, x, {ScalarType::Float}, {x.size(0), x.size(1)});
  CheckValue(residual.is_contiguous(), "residual must be contiguous, got strides ",
             residual.strides());
  Check("weight", weight, x, {x.scalar_type()}, {x.size(1)});
  if (post_weight) Check("post_weight", *post_weight, x, {x.scalar_type()}, {x.size(1)});
  return Empty(x.sizes(), x, x.scalar_type());
}

Tensor GatedActivation(const Tensor& x, std::string_view activation) {
  ParseActivation(activation);
  CheckActivations("x", x);
  CheckValue(x.size(-1) % 2 == 0, "x must have an even last dimension, got shape ", x.sizes());
  return EmptyRows(x, x.size(-1) / 2, x.scalar_type());
}

void SoftCap(const Tensor& x, double cap) {
  Check("x", x, x, {ScalarType::Float}, {kAny, kAny});
  CheckValue(x.is_contiguous(), "x must be contiguous, got strides ", x.strides());
  CheckValue(cap > 0, "cap must be positive, got ", cap);
}

Tensor UnpackWeight(const Tensor& packed, std::string_view format, int64_t k) {
  ParseFormat(format);
  CheckPacked(packed, packed);
  CheckValue(k > 0, "k must be positive, got ", k);
  return Empty({packed.size(0), k}, packed, ScalarType::Float);
}

Tensor Linear(const Tensor& x, const Tensor& packed, std::string_view format,
              const OptionalTensor& bias, bool float_output) {
  ParseFormat(format);
  CheckActivations("x", x);
  CheckPacked(packed, x);
  if (bias) Check("bias", *bias, x, {x.scalar_type()}, {packed.size(0)});
  return EmptyRows(x, packed.size(0), float_output ? ScalarType::Float : x.scalar_type());
}

Tensor NewKvPages(const Tensor& like, int64_t num_pages, int64_t kv_heads, int64_t head_dim) {
  CheckValue(num_pages >= 0 && kv_heads > 0 && head_dim > 0,
             "num_pages, kv_heads and head_dim must be positive, got ", num_pages, ", ", kv_heads,
             ", ", head_dim);
  const ScalarType dtype = like.scalar_type();
  return Empty({2, num_pages, kv_heads, kernels::kPageSize, KvRowSize(dtype, head_dim)}, like,
               dtype);
}

Tensor ReadKv(const Tensor& kv, const Tensor& slots, int64_t head_dim) {
  CheckKv(kv, kv, head_dim);
  Check("slots", slots, kv, {ScalarType::Long}, {kAny});
  CheckRange("slots", slots, NumKvSlots(kv));
  return Empty({2, slots.size(0), KvHeads(kv), head_dim}, kv, ScalarType::Float);
}

void QkRopeWriteKv(const Tensor& qkv, const Tensor& kv, const Tensor& positions,
                   const Tensor& slots, const Tensor& cos, const Tensor& sin, int64_t head_dim,
                   const OptionalTensor& q_norm, const OptionalTensor& k_norm, double, double) {
  CheckActivations("qkv", qkv);
  CheckKv(kv, qkv, head_dim);
  Check("qkv", qkv, qkv, {}, {kAny, kAny});
  CheckValue(qkv.size(1) % head_dim == 0 && qkv.size(1) / head_dim >= 2 * KvHeads(kv),
             "qkv must have rows of (q_heads + 2 * ", KvHeads(kv), ") * ", head_dim,
             " elements, got shape ", qkv.sizes());
  Check("positions", positions, qkv, {ScalarType::Int}, {qkv.size(0)});
  Check("slots", slots, qkv, {ScalarType::Long}, {qkv.size(0)});
  Check("cos", cos, qkv, {ScalarType::Float}, {kAny, kAny});
  Check("sin", sin, qkv, {ScalarType::Float}, {cos.size(0), cos.size(1)});
  CheckValue(2 * cos.size(1) <= head_dim, "cos must have at most head_dim / 2 = ", head_dim / 2,
             " columns, got shape ", cos.sizes());
  CheckValue(q_norm.has_value() == k_norm.has_value(),
             "q_norm and k_norm must be given both or not at all");
  if (q_norm) Check("q_norm", *q_norm, qkv, {qkv.scalar_type()}, {head_dim});
  if (k_norm) Check("k_norm", *k_norm, qkv, {qkv.scalar_type()}, {head_dim});
  if (2 * cos.size(1) > 0) CheckRange("positions", positions, cos.size(0));
  CheckRange("slots", slots, NumKvSlots(kv), INT64_MIN);
}

void CopyPages(const Tensor& kv, const Tensor& pairs, int64_t head_dim) {
  CheckKv(kv, kv, head_dim);
  Check("pairs", pairs, kv, {ScalarType::Int}, {kAny, 2});
  CheckRange("pairs", pairs, kv.size(1));
}

Tensor PagedDecodeAttention(const Tensor& q, const Tensor& kv, const Tensor& block_tables,
                            const Tensor& lengths, std::optional<double>, double soft_cap,
                            int64_t window) {
  CheckAttention(q, kv, block_tables, soft_cap, window);
  Check("block_tables", block_tables, q, {}, {q.size(0), kAny});
  Check("lengths", lengths, q, {ScalarType::Int}, {q.size(0)});
  CheckRange("lengths", lengths, block_tables.size(1) * kernels::kPageSize + 1);
  return Empty(q.sizes(), q, q.scalar_type());
}

Tensor PagedPrefillAttention(const Tensor& q, const Tensor& kv, const Tensor& block_tables,
                             const Tensor& lengths, const Tensor& query_starts,
                             std::optional<double>, double soft_cap, int64_t window) {
  CheckAttention(q, kv, block_tables, soft_cap, window);
  Check("lengths", lengths, lengths, {ScalarType::Int}, {block_tables.size(0)});
  Check("query_starts", query_starts, query_starts, {ScalarType::Int}, {block_tables.size(0) + 1});
  CheckRange("lengths", lengths, block_tables.size(1) * kernels::kPageSize + 1);
  return Empty(q.sizes(), q, q.scalar_type());
}

}  // namespace outputs
}  // namespace mlc_native::ops
