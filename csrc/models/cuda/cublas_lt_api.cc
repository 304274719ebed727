#include "models/cuda/cublas_lt_api.h"

#include <dlfcn.h>

#include <type_traits>

#include "support/companion.h"

namespace mlc_native::cublas_lt {
namespace {

constexpr const char* kNames[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
// Relative to site-packages/mlc_native/lib.
constexpr const char* kPackages[] = {"../../nvidia/cu13/lib/libcublasLt.so.13",
                                     "../../nvidia/cublas/lib/libcublasLt.so.12"};

// Returns null if there is none.
void* OpenLibrary(bool for_gpu) {
  constexpr int kMode = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  if (const auto path = EnvironmentValue("MLC_NATIVE_CUBLASLT_LIB")) {
    return dlopen(path->c_str(), kMode);
  }
  if (!for_gpu) return nullptr;
  for (const int only_loaded : {RTLD_NOLOAD, 0}) {
    for (const char* name : kNames) {
      if (void* library = dlopen(name, kMode | only_loaded)) return library;
    }
  }
  for (const char* package : kPackages) {
    if (void* library = dlopen(CompanionPath(package).c_str(), kMode)) return library;
  }
  return nullptr;
}

}  // namespace

bool Open(bool for_gpu, Api* api, std::string* reason) {
  void* library = OpenLibrary(for_gpu);
  if (library == nullptr) {
    *reason = std::string("there is no ") + kNames[0] + " or " + kNames[1];
    return false;
  }
  bool found = true;
  const auto find = [&](auto* function, const char* name) {
    void* symbol = dlsym(library, name);
    if (symbol == nullptr && found) *reason = std::string("it has no ") + name;
    found = found && symbol != nullptr;
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(symbol);
  };
  find(&api->create, "cublasLtCreate");
  find(&api->destroy, "cublasLtDestroy");
  find(&api->desc_create, "cublasLtMatmulDescCreate");
  find(&api->desc_destroy, "cublasLtMatmulDescDestroy");
  find(&api->desc_set, "cublasLtMatmulDescSetAttribute");
  find(&api->layout_create, "cublasLtMatrixLayoutCreate");
  find(&api->layout_destroy, "cublasLtMatrixLayoutDestroy");
  find(&api->preference_create, "cublasLtMatmulPreferenceCreate");
  find(&api->preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(&api->preference_set, "cublasLtMatmulPreferenceSetAttribute");
  find(&api->heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(&api->matmul, "cublasLtMatmul");
  return found;
}

}  // namespace mlc_native::cublas_lt
