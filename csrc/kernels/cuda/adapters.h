// What adapters (LoRA) add to a linear on CUDA, for rows that each have an adapter or none. What
// holds for all kernels is in kernels.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/stream.h"
#include "mlc_native/detail/basic_types.h"

namespace mlc_native::kernels::cuda {

// What an adapter has for one linear of k columns and n rows: two row-major matrices of the
// decoder's type, of which rows begin at multiples of 16 bytes.
struct AdapterMatrices {
  const void* down = nullptr;  // [rank, k]
  const void* up = nullptr;    // [n, rank]
  // A multiple of 8, at most kMaxDeviceRank; 0: the adapter does not change the linear.
  int64_t rank = 0;
};
inline constexpr int64_t kMaxDeviceRank = 4096;

// y[i, 0:n] += up (down x[i]), with the matrices that the adapter of row i has for the linear. The
// inner product is float32, and the sum is rounded once, to the type of y. What a row gets depends
// on its x, y and adapter alone, bit by bit. A row without an adapter is neither read nor written.
// The launches depend on the sizes of the linear and on m alone.
struct AddAdaptersArgs {
  DType dtype = DType::kBFloat16;  // of x and the matrices, and of y without float_output
  // That of row i is adapters[i] or, with rows, adapters[rows[i]]: the matrices of its linears on
  // the device. Null: it has none.
  const AdapterMatrices* const* adapters = nullptr;
  const int32_t* rows = nullptr;
  int64_t linear = 0;  // index of the matrices
  const void* x = nullptr;
  int64_t ldx = 0;
  int64_t k = 0;  // a multiple of 8
  void* y = nullptr;
  int64_t ldy = 0;
  int64_t n = 0;
  bool float_output = false;
  int64_t m = 0;
  float* workspace = nullptr;  // AdapterWorkspaceFloats(m)
};
void AddAdapters(const AddAdaptersArgs& args, Stream stream);

// Of batches of at most so many rows.
int64_t AdapterWorkspaceFloats(int64_t max_rows);

}  // namespace mlc_native::kernels::cuda
