// What each op makes of its arguments: their shapes and types are checked, the outputs allocated,
// nothing is computed. All devices begin with it, and for those that return something it is the
// implementation of torch's "meta" device, so shape inference and torch.compile see what runs.
// Arguments are those of the schemas in schema.cc.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>

#include "kernels/kernels.h"

namespace mlc_native::ops {

using OptionalTensor = std::optional<at::Tensor>;

// "float32", "bfloat16", "float16", "q8", "q4"; ValueError for others.
kernels::WeightFormat ParseFormat(std::string_view format);
// "silu", "gelu_tanh"
kernels::Activation ParseActivation(std::string_view activation);

// KV pages are a tensor [2 (K, V), num_pages, kv_heads, 16, D], whose elements each device orders
// as it likes. D is head_dim rounded up to 16, and 4 more for the scales of int8.
int64_t KvRowSize(at::ScalarType dtype, int64_t head_dim);
int64_t NumKvSlots(const at::Tensor& kv);
inline int64_t KvHeads(const at::Tensor& kv) { return kv.size(2); }
// `kv` is such a tensor, for heads of head_dim.
void CheckKv(const at::Tensor& kv, const at::Tensor& like, int64_t head_dim);

namespace outputs {

at::Tensor Embedding(const at::Tensor& table, const at::Tensor& ids, double scale);
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps, double weight_offset);
at::Tensor AddRmsNorm(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& weight,
                      const OptionalTensor& post_weight, double eps, double weight_offset);
at::Tensor GatedActivation(const at::Tensor& x, std::string_view activation);
void SoftCap(const at::Tensor& x, double cap);

at::Tensor UnpackWeight(const at::Tensor& packed, std::string_view format, int64_t k);
at::Tensor Linear(const at::Tensor& x, const at::Tensor& packed, std::string_view format,
                  const OptionalTensor& bias, bool float_output);

at::Tensor NewKvPages(const at::Tensor& like, int64_t num_pages, int64_t kv_heads,
                      int64_t head_dim);
at::Tensor ReadKv(const at::Tensor& kv, const at::Tensor& slots, int64_t head_dim, double k_scale,
                  double v_scale);
void QkRopeWriteKv(const at::Tensor& qkv, const at::Tensor& kv, const at::Tensor& positions,
                   const at::Tensor& slots, const at::Tensor& cos, const at::Tensor& sin,
                   int64_t head_dim, const OptionalTensor& q_norm, const OptionalTensor& k_norm,
                   double eps, double weight_offset, double k_scale, double v_scale);
void CopyPages(const at::Tensor& kv, const at::Tensor& pairs, int64_t head_dim);

at::Tensor PagedDecodeAttention(const at::Tensor& q, const at::Tensor& kv,
                                const at::Tensor& block_tables, const at::Tensor& lengths,
                                std::optional<double> scale, double soft_cap, int64_t window,
                                double k_scale, double v_scale);
at::Tensor PagedPrefillAttention(const at::Tensor& q, const at::Tensor& kv,
                                 const at::Tensor& block_tables, const at::Tensor& lengths,
                                 const at::Tensor& query_starts, std::optional<double> scale,
                                 double soft_cap, int64_t window, double k_scale, double v_scale);

}  // namespace outputs
}  // namespace mlc_native::ops
