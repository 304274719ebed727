#include "models/cuda/nccl_api.h"

#include <dlfcn.h>

#include <type_traits>

#include "support/companion.h"

namespace mlc_native::nccl {
namespace {

constexpr const char* kName = "libnccl.so.2";
// Relative to site-packages/mlc_native/lib.
constexpr const char* kPackage = "../../nvidia/nccl/lib/libnccl.so.2";

// Returns null, with *reason, if there is none.
void* OpenLibrary(bool for_gpu, std::string* reason) {
  constexpr int kMode = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  if (const auto path = EnvironmentValue("MLC_NATIVE_NCCL_LIB")) {
    void* library = dlopen(path->c_str(), kMode);
    if (library == nullptr) *reason = "MLC_NATIVE_NCCL_LIB names " + *path + ", which is none";
    return library;
  }
  *reason = std::string("there is no ") + kName;
  if (!for_gpu) return nullptr;
  for (const int only_loaded : {RTLD_NOLOAD, 0}) {
    if (void* library = dlopen(kName, kMode | only_loaded)) return library;
  }
  return dlopen(CompanionPath(kPackage).c_str(), kMode);
}

}  // namespace

bool Open(bool for_gpu, Api* api, std::string* reason) {
  void* library = OpenLibrary(for_gpu, reason);
  if (library == nullptr) return false;
  bool found = true;
  const auto find = [&](auto* function, const char* name) {
    void* symbol = dlsym(library, name);
    if (symbol == nullptr && found) *reason = std::string("it has no ") + name;
    found = found && symbol != nullptr;
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(symbol);
  };
  find(&api->init_all, "ncclCommInitAll");
  find(&api->destroy, "ncclCommDestroy");
  find(&api->abort, "ncclCommAbort");
  find(&api->all_reduce, "ncclAllReduce");
  find(&api->broadcast, "ncclBroadcast");
  find(&api->group_start, "ncclGroupStart");
  find(&api->group_end, "ncclGroupEnd");
  find(&api->send, "ncclSend");
  find(&api->receive, "ncclRecv");
  find(&api->error_string, "ncclGetErrorString");
  return found;
}

}  // namespace mlc_native::nccl
