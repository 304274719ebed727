#include "models/plugin.h"

#include <dlfcn.h>

#include <string>

#include "config/device.h"
#include "models/draft_loader.h"
#include "models/loader.h"
#include "support/error.h"

namespace mlc_native {
namespace {

constexpr char kCreateSymbol[] = "mlc_native_create_model";
constexpr char kAbiSymbol[] = "mlc_native_plugin_abi";

LoadError PluginError(const ModelSource& source, const std::string& what) {
  return LoadError("model_lib", "\"model_lib\" = " + source.model_lib + ": " + what);
}

std::string LastDlError() {
  const char* error = dlerror();
  return error != nullptr ? error : "unknown error of the dynamic linker";
}

template <typename Function>
Function* Symbol(const ModelSource& source, void* library, const char* name) {
  void* symbol = dlsym(library, name);
  if (symbol == nullptr) {
    throw PluginError(source, std::string("is no plug-in, it does not export ") + name);
  }
  return reinterpret_cast<Function*>(symbol);
}

}  // namespace

std::unique_ptr<Model> LoadPluginModel(const ModelSource& source) {
  // Never closed, see the header. RTLD_NODELETE also keeps it loaded when others close it.
  void* library = dlopen(source.model_lib.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) throw PluginError(source, "cannot be opened: " + LastDlError());
  const int abi = Symbol<int()>(source, library, kAbiSymbol)();
  if (abi != kModelPluginAbi) {
    throw PluginError(source, "has plug-in ABI " + std::to_string(abi) + ", this build needs " +
                                  std::to_string(kModelPluginAbi));
  }
  auto* create = Symbol<Model*(const ModelSource*)>(source, library, kCreateSymbol);
  std::unique_ptr<Model> model(create(&source));
  if (model == nullptr) throw PluginError(source, std::string(kCreateSymbol) + " returned null");
  const int64_t num_shards = model->metadata().num_shards;
  if (num_shards != source.tensor_parallel_shards) {
    throw InvalidConfig(
        "tensor_parallel_shards",
        OutOfRangeMessage("tensor_parallel_shards", source.tensor_parallel_shards,
                          std::to_string(num_shards) + " for the model of " + source.model_lib));
  }
  return model;
}

namespace {

std::unique_ptr<Model> LoadFrom(const ModelSource& source) {
  if (!source.model_lib.empty()) return LoadPluginModel(source);
  if (source.device == "cpu") {
    if (source.tensor_parallel_shards != 1) {
      throw InvalidConfig("tensor_parallel_shards",
                          OutOfRangeMessage("tensor_parallel_shards", source.tensor_parallel_shards,
                                            "1 on the CPU"));
    }
    return source.target != nullptr ? LoadDraftHead(source) : LoadBuiltinModel(source);
  }
  ModelSource from_library = source;
  from_library.model_lib = CudaLibraryPath();
  if (from_library.model_lib.empty()) {
    throw InvalidConfig("device", OutOfRangeMessage("device", '"' + source.device + '"',
                                                    "\"cpu\" where there is no CUDA library"));
  }
  return LoadPluginModel(from_library);
}

}  // namespace

std::unique_ptr<Model> LoadModel(const ModelSource& source) {
  if (source.target == nullptr) return LoadFrom(source);
  std::unique_ptr<Model> head;
  if (source.target->metadata().hidden_size > 0) head = LoadFrom(source);
  if (head != nullptr && head->metadata().draft_head) return head;
  throw InvalidConfig("speculative_mode",
                      "\"speculative_mode\": a draft head needs a model that gives hidden states, "
                      "which are the built-in decoders");
}

}  // namespace mlc_native
