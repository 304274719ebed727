#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/load_progress.h"
#include "mlc_native/config.h"
#include "mlc_native/model.h"
#include "models/calibration.h"
#include "models/inspect.h"
#include "models/loader.h"
#include "support/error.h"
#include "support/float_environment.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlc_native::bindings {
namespace {

std::string Inspect(const std::string& path, const std::optional<std::string>& quantization) {
  std::optional<WeightQuantization> asked = WeightQuantization();
  if (quantization) asked = WeightQuantization::Parse(*quantization);
  if (!asked) {
    throw InvalidConfig("quantization", OutOfRangeMessage("quantization", '"' + *quantization + '"',
                                                          WeightQuantization::Allowed()));
  }
  const ReleasedGil release;
  return InspectModel(path, *asked);
}

// `engine_config_json` names the model, the folder of packed weights and the formats.
PackedFile Pack(const std::string& engine_config_json, nb::object progress, nb::object log,
                const std::optional<std::vector<int32_t>>& calibration) {
  const EngineConfig config = EngineConfig::FromJSONString(engine_config_json);
  ModelSource source{.path = config.model,
                     .dtype = config.dtype,
                     .quantization = config.quantization,
                     .num_threads = config.num_threads.value_or(1),
                     .progress = WrapLoadProgress(std::move(progress)),
                     .log = WrapLog(std::move(log)),
                     .weight_cache_dir = config.weight_cache_dir,
                     .weight_cache_bytes = config.weight_cache_bytes,
                     .strict_weights = config.strict_weights};
  const ReleasedGil release;
  const DefaultFloatEnvironment floats;
  return calibration ? PackCalibratedModel(source, *calibration) : PackBuiltinModel(source);
}

}  // namespace

void BindCheckpoint(nb::module_& m) {
  m.def("inspect_model", &Inspect, "path"_a, "quantization"_a = nb::none(),
        "What a model folder holds and whether it loads, as JSON (csrc/models/inspect.h). Raises "
        "LoadError if it is no model folder, InvalidConfig.");
  nb::class_<PackedFile>(m, "PackedFile", "The packed weights of a model on disk.")
      .def_ro("path", &PackedFile::path)
      .def_ro("bytes", &PackedFile::bytes, "Of the weights.")
      .def_ro("was_there", &PackedFile::was_there, "It was valid and is the same as before.")
      .def_prop_ro("weight_format",
                   [](const PackedFile& self) { return self.description.weight_format; })
      .def_prop_ro("num_parameters",
                   [](const PackedFile& self) { return self.description.num_parameters; })
      .def_ro("num_calibration_tokens", &PackedFile::num_calibration_tokens,
              "That were computed; 0: there is no calibration.")
      .def_ro("num_not_reached", &PackedFile::num_not_reached,
              "Matrices that no such token has reached, in a new file.");
  m.def("pack_model", &Pack, "engine_config_json"_a, "progress"_a = nb::none(),
        "log"_a = nb::none(), "calibration"_a = nb::none(),
        "Writes the packed weights of a model to its weight_cache_dir, rounded for the tokens of "
        "`calibration` if they are given (csrc/models/calibration.h). Raises LoadError, "
        "InvalidConfig.");
}

}  // namespace mlc_native::bindings
