#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

#include "bindings/bindings.h"
#include "models/inspect.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlc_native::bindings {

void BindInspect(nb::module_& m) {
  m.def(
      "inspect_model",
      [](const std::string& folder) {
        const ReleasedGil release;
        return InspectModel(folder);
      },
      "folder"_a, "What a model folder holds, as JSON (models/inspect.h).");
}

}  // namespace mlc_native::bindings
