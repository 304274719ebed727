// The built-in loader of builds without libtorch.
#include "models/loader.h"
#include "support/error.h"

namespace mlc_native {

std::unique_ptr<Model> LoadBuiltinModel(const ModelSource& source) {
  throw LoadError("model_lib", source.path +
                                   ": this build has no model families (it was made without "
                                   "libtorch); \"model_lib\" must name a plug-in library");
}

}  // namespace mlc_native
