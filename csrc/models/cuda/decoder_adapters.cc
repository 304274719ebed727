// CudaDecoder: what adapters add to the linears of its layers.
#include "models/cuda/decoder_ops.h"
#include "weights/adapter_weights.h"

namespace mlc_native {

void CudaDecoder::Ops::AddAdapters(const LayerProduct& product) const {
  if (!HasAdapters() || !TakesAdapters(product.role)) return;
  const kernels::cuda::GemvArgs& args = product.args;
  kernels::cuda::AddAdapters(
      {.dtype = args.dtype,
       .adapters = batch_.adapters,
       .rows = has_kept_rows() ? batch_.logits_rows : nullptr,
       .linear = static_cast<int64_t>(CudaBatch::LinearIndex(product.layer, product.role)),
       .x = args.x,
       .ldx = args.ldx,
       .k = args.k,
       .y = args.y,
       .ldy = args.ldy,
       .n = args.n,
       .float_output = args.float_output,
       .m = args.m,
       .workspace = buffers_.adapters},
      stream_);
}

}  // namespace mlc_native
