// The part of NCCL's C interface that tensor parallelism needs. It is declared here because the
// compiler comes without its header; names and numbers are those of nccl.h in version 2. The
// library is opened when a model for several GPUs is loaded. Any thread.
#pragma once

#include <cstddef>
#include <string>

#include "kernels/cuda/runtime.h"

namespace mlc_native::nccl {

using Comm = struct CommTag*;

inline constexpr int kSuccess = 0;

inline constexpr int kInt32 = 2;  // ncclDataType_t
inline constexpr int kFloat16 = 6;
inline constexpr int kFloat32 = 7;
inline constexpr int kBFloat16 = 9;

inline constexpr int kSum = 0;  // ncclRedOp_t

struct Api {
  int (*init_all)(Comm*, int num_devices, const int* devices);
  int (*destroy)(Comm);
  int (*abort)(Comm);
  int (*all_reduce)(const void* from, void* to, size_t count, int type, int op, Comm, CUstream_st*);
  int (*broadcast)(const void* from, void* to, size_t count, int type, int root, Comm,
                   CUstream_st*);
  // What a thread sends and receives between the two is one operation.
  int (*group_start)();
  int (*group_end)();
  int (*send)(const void* from, size_t count, int type, int peer, Comm, CUstream_st*);
  int (*receive)(void* to, size_t count, int type, int peer, Comm, CUstream_st*);
  const char* (*error_string)(int);
};

// Opens the library that MLC_NATIVE_NCCL_LIB names; otherwise, if `for_gpu`, one that the process
// has loaded, that the linker finds, or that a package next to torch contains. It stays loaded.
// Returns false, with *reason, if there is none.
bool Open(bool for_gpu, Api* api, std::string* reason);

}  // namespace mlc_native::nccl
