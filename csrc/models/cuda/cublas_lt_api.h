// The part of cuBLASLt's C interface that products need. It is declared here because the compiler
// comes without its header; names and numbers are those of cublasLt.h in versions 11 to 13. The
// library is opened when a model is loaded. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cuda/runtime.h"

namespace mlc_native::cublas_lt {

using Handle = struct HandleTag*;
using Desc = struct DescTag*;
using Layout = struct LayoutTag*;
using Preference = struct PreferenceTag*;

inline constexpr int kSuccess = 0;

inline constexpr int kFloat32 = 0;  // cudaDataType
inline constexpr int kFloat16 = 2;
inline constexpr int kBFloat16 = 14;
inline constexpr int kComputeFloat32 = 68;

inline constexpr int32_t kTranspose = 1;  // cublasOperation_t
inline constexpr uint32_t kEpilogueBias = 4;
inline constexpr uint32_t kReductionNone = 0;

enum class DescAttribute : int { kTransA = 3, kEpilogue = 7, kBiasPointer = 8, kBiasType = 26 };
enum class PreferenceAttribute : int { kMaxWorkspaceBytes = 1, kReductionSchemeMask = 3 };

struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Heuristic) == 96);

struct Api {
  int (*create)(Handle*);
  int (*destroy)(Handle);
  int (*desc_create)(Desc*, int compute, int scale);
  int (*desc_destroy)(Desc);
  int (*desc_set)(Desc, DescAttribute, const void*, size_t);
  int (*layout_create)(Layout*, int type, uint64_t rows, uint64_t columns, int64_t ld);
  int (*layout_destroy)(Layout);
  int (*preference_create)(Preference*);
  int (*preference_destroy)(Preference);
  int (*preference_set)(Preference, PreferenceAttribute, const void*, size_t);
  int (*heuristic)(Handle, Desc, Layout a, Layout b, Layout c, Layout d, Preference, int asked,
                   Heuristic*, int* found);
  int (*matmul)(Handle, Desc, const void* alpha, const void* a, Layout, const void* b, Layout,
                const void* beta, const void* c, Layout, void* d, Layout, const Algorithm*,
                void* workspace, size_t workspace_bytes, CUstream_st*);
};

// Opens the library that MLC_NATIVE_CUBLASLT_LIB names; otherwise, if `for_gpu`, one that the
// process has loaded, that the linker finds, or that a package next to torch contains. It stays
// loaded. Returns false, with *reason, if there is none.
bool Open(bool for_gpu, Api* api, std::string* reason);

}  // namespace mlc_native::cublas_lt
