// What kernels/cuda/kernels.h declares, in builds without CUDA.
#include "kernels/cuda/kernels.h"
#include "support/error.h"

namespace mlc_native::kernels::cuda {
namespace {

[[noreturn]] void Refuse() {
  throw InvalidConfig("device", "this build has no CUDA kernels: it was made without nvcc");
}

}  // namespace

void Embed(const EmbedArgs&, Stream) { Refuse(); }
void GatherRows(const void*, const int32_t*, int64_t, int64_t, void*, Stream) { Refuse(); }
void AddNorm(const AddNormArgs&, Stream) { Refuse(); }
void Normalize(const NormalizeArgs&, Stream) { Refuse(); }
void QkRopeWriteKv(const KvPages&, const QkRopeWriteKvArgs&, Stream) { Refuse(); }
void Activate(const ActivateArgs&, Stream) { Refuse(); }
void SoftCap(float*, int64_t, float, Stream) { Refuse(); }
void CopyPages(const CopyPagesArgs&, Stream) { Refuse(); }
size_t DecodeWorkspaceBytes(int64_t, int64_t, int64_t, int64_t) { Refuse(); }
size_t ZeroedDecodeBytes(int64_t) { Refuse(); }
void DecodeAttention(const KvPages&, const AttentionArgs&, const DecodeRows&, Stream) { Refuse(); }
int64_t PrefillTileRows(int64_t, int64_t) { Refuse(); }
void PrefillAttention(const KvPages&, const AttentionArgs&, const PrefillTile*, int64_t, Stream) {
  Refuse();
}
void Gemv(const GemvArgs&, Stream) { Refuse(); }
size_t GemvWeightBytes(WeightFormat, int64_t, int64_t) { Refuse(); }
void PackGemvWeights(WeightFormat, int64_t, int64_t, const QuantizedRows&, void*) { Refuse(); }
size_t SampleWorkspaceBytes(int64_t, int64_t) { Refuse(); }
void SampleTokens(const SampleArgs&, Stream) { Refuse(); }
void AdvanceDecode(const AdvanceArgs&, Stream) { Refuse(); }

}  // namespace mlc_native::kernels::cuda
