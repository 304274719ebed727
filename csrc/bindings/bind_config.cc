#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>

#include "bindings/bindings.h"
#include "config/config.h"
#include "config/device.h"
#include "request/request.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlc_native::bindings {
namespace {

std::map<int64_t, double> GetLogitBias(const GenerationConfig& config) {
  return {config.logit_bias.begin(), config.logit_bias.end()};
}

void SetLogitBias(GenerationConfig& config, const std::map<int64_t, double>& bias) {
  config.logit_bias.clear();
  for (const auto& [token_id, value] : bias) {
    config.logit_bias.emplace_back(CheckedTokenId("logit_bias", token_id), value);
  }
}

std::vector<int64_t> GetStopTokenIds(const GenerationConfig& config) {
  return {config.stop_token_ids.begin(), config.stop_token_ids.end()};
}

void SetStopTokenIds(GenerationConfig& config, const std::vector<int64_t>& token_ids) {
  config.stop_token_ids.clear();
  for (int64_t id : token_ids)
    config.stop_token_ids.push_back(CheckedTokenId("stop_token_ids", id));
}

ResponseFormat MakeResponseFormat(const std::string& type, std::string text,
                                  std::vector<std::string> choices, bool strict) {
  return {ParseResponseFormatType(type), std::move(text), std::move(choices), strict};
}

void BindResponseFormat(nb::module_& m) {
  nb::class_<ResponseFormat>(m, "ResponseFormat", "What an answer must look like.")
      .def(nb::new_(&MakeResponseFormat), "type"_a, "text"_a = "",
           "choices"_a = std::vector<std::string>(), "strict"_a = true,
           "Raises InvalidRequest for an unknown type.")
      .def_prop_ro("type", [](const ResponseFormat& self) { return ToString(self.type); })
      .def_ro("text", &ResponseFormat::text)
      .def_ro("choices", &ResponseFormat::choices)
      .def_ro("strict", &ResponseFormat::strict);
}

// What this installation and this machine can run on; device.h.
void BindDevices(nb::module_& m) {
  nb::class_<CudaDevice>(m, "CudaDevice", "A GPU as its driver describes it.")
      .def_ro("index", &CudaDevice::index)
      .def_ro("name", &CudaDevice::name)
      .def_ro("compute_capability", &CudaDevice::compute_capability, "90 is 9.0.");
  m.def("available_devices", &AvailableDevices);
  m.def("cuda_library_path", &CudaLibraryPath,
        "The library that runs models on GPUs; \"\" when there is none.");
  m.def("find_gpu", &FindGpu, "device"_a,
        "The GPU that \"cuda[:i]\" or \"auto\" means, whether or not there is a library for it. "
        "Raises InvalidConfig for a GPU that is not there.");
  m.def("resolve_device", nb::overload_cast<const std::string&, const std::string&>(&ResolveDevice),
        "device"_a, "model_lib"_a = "",
        "\"auto\" is the best there is. Raises InvalidConfig for a device that is not there.");
}

}  // namespace

void BindConfig(nb::module_& m) {
  BindResponseFormat(m);
  nb::class_<GenerationConfig>(m, "GenerationConfig",
                               "How one request is generated. Checked when the request is created.")
      .def(nb::init<>())
      .def_rw("n", &GenerationConfig::n)
      .def_rw("max_tokens", &GenerationConfig::max_tokens)
      .def_rw("stop_strs", &GenerationConfig::stop_strs)
      .def_prop_rw("stop_token_ids", &GetStopTokenIds, &SetStopTokenIds)
      .def_rw("temperature", &GenerationConfig::temperature)
      .def_rw("top_p", &GenerationConfig::top_p)
      .def_rw("top_k", &GenerationConfig::top_k)
      .def_rw("min_p", &GenerationConfig::min_p)
      .def_rw("frequency_penalty", &GenerationConfig::frequency_penalty)
      .def_rw("presence_penalty", &GenerationConfig::presence_penalty)
      .def_rw("repetition_penalty", &GenerationConfig::repetition_penalty)
      .def_prop_rw("logit_bias", &GetLogitBias, &SetLogitBias)
      .def_rw("seed", &GenerationConfig::seed, nb::arg().none())
      .def_rw("logprobs", &GenerationConfig::logprobs)
      .def_rw("top_logprobs", &GenerationConfig::top_logprobs)
      .def_prop_rw(
          "priority",
          [](const GenerationConfig& self) { return std::string(NameOf(self.priority)); },
          [](GenerationConfig& self, const std::string& name) {
            self.priority = ParsePriority(name);
          },
          "\"high\", \"normal\" or \"low\".")
      .def_rw("queue_timeout_s", &GenerationConfig::queue_timeout_s, nb::arg().none())
      .def_rw("timeout_s", &GenerationConfig::timeout_s, nb::arg().none())
      .def_rw("response_format", &GenerationConfig::response_format)
      .def_prop_rw(
          "ignore_eos", [](const GenerationConfig& self) { return self.debug_config.ignore_eos; },
          [](GenerationConfig& self, bool value) { self.debug_config.ignore_eos = value; })
      .def_prop_rw(
          "pinned_system_prompt",
          [](const GenerationConfig& self) { return self.debug_config.pinned_system_prompt; },
          [](GenerationConfig& self, bool value) {
            self.debug_config.pinned_system_prompt = value;
          })
      .def_prop_rw(
          "special_request",
          [](const GenerationConfig& self) { return self.debug_config.special_request; },
          [](GenerationConfig& self, std::string value) {
            self.debug_config.special_request = std::move(value);
          })
      .def_prop_rw(
          "grammar_execution_mode",
          [](const GenerationConfig& self) { return self.debug_config.grammar_execution_mode; },
          [](GenerationConfig& self, std::string value) {
            self.debug_config.grammar_execution_mode = std::move(value);
          })
      .def("validate", &GenerationConfig::Validate, "vocab_size"_a,
           "Raises InvalidRequest that names the field, the value and the allowed range.")
      .def("as_json", &GenerationConfig::AsJSONString)
      .def("copy", [](const GenerationConfig& self) { return self; });

  nb::class_<RequestLimits>(m, "RequestLimits", "What a loaded engine can serve.")
      .def_ro("vocab_size", &RequestLimits::vocab_size)
      .def_ro("max_num_sequence", &RequestLimits::max_num_sequence)
      .def_ro("max_sequence_length", &RequestLimits::max_sequence_length);

  m.def(
      "check_engine_config",
      [](const std::string& json) { return EngineConfig::FromJSONString(json).AsJSONString(); },
      "json"_a,
      "Reads an engine config and returns it in full. Raises InvalidConfig that names the wrong "
      "field.");
  BindDevices(m);
}

}  // namespace mlc_native::bindings
