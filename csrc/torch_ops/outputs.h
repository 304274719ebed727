// Checks the shapes and types of an op's arguments and allocates its outputs, without computing
// anything. The functions for all devices begin with it. It is also the implementation for torch's
// "meta" device, so shape inference and torch.compile use the code that runs. Arguments are those
// of the schemas in schema.cc. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>

#include "kernels/kernels.h"
#include "torch_ops/tensor.h"

namespace mlc_native::ops {

// Parses "float32", "bfloat16", "float16", "q8", "q4". Throws ValueError for other names.
kernels::WeightFormat ParseFormat(std::string_view format);
// "silu", "gelu_tanh"
kernels::Activation ParseActivation(std::string_view activation);

// Checks a weight [n, k], or [experts, n, k].
void CheckPackable(const Tensor& weight);

// KV pages are a tensor [2 (K, V), num_pages, kv_heads, 16, D]. The order of its elements depends
// on the device. D is head_dim rounded up to 16, and 4 more for the scales of int8.
int64_t KvRowSize(ScalarType dtype, int64_t head_dim);
int64_t NumKvSlots(const Tensor& kv);
inline int64_t KvHeads(const Tensor& kv) { return kv.size(2); }
// Checks that `kv` is such a tensor, for heads of head_dim.
void CheckKv(const Tensor& kv, const Tensor& like, int64_t head_dim);

namespace outputs {

Tensor Embedding(const Tensor& table, const Tensor& ids, double scale);
Tensor RmsNorm(const Tensor& x, const Tensor& weight, double eps, double weight_offset);
Tensor AddRmsNorm(const Tensor& residual, const Tensor& x, const Tensor& weight,
                  const OptionalTensor& post_weight, double eps, double weight_offset);
Tensor GatedActivation(const Tensor& x, std::string_view activation);
void SoftCap(const Tensor& x, double cap);

Tensor UnpackWeight(const Tensor& packed, std::string_view format, int64_t k);
Tensor Linear(const Tensor& x, const Tensor& packed, std::string_view format,
              const OptionalTensor& bias, bool float_output);

Tensor NewKvPages(const Tensor& like, int64_t num_pages, int64_t kv_heads, int64_t head_dim);
Tensor ReadKv(const Tensor& kv, const Tensor& slots, int64_t head_dim);
void QkRopeWriteKv(const Tensor& qkv, const Tensor& kv, const Tensor& positions,
                   const Tensor& slots, const Tensor& cos, const Tensor& sin, int64_t head_dim,
                   const OptionalTensor& q_norm, const OptionalTensor& k_norm, double eps,
                   double weight_offset);
void CopyPages(const Tensor& kv, const Tensor& pairs, int64_t head_dim);

Tensor PagedDecodeAttention(const Tensor& q, const Tensor& kv, const Tensor& block_tables,
                            const Tensor& lengths, std::optional<double> scale, double soft_cap,
                            int64_t window);
Tensor PagedPrefillAttention(const Tensor& q, const Tensor& kv, const Tensor& block_tables,
                             const Tensor& lengths, const Tensor& query_starts,
                             std::optional<double> scale, double soft_cap, int64_t window);

}  // namespace outputs
}  // namespace mlc_native::ops
