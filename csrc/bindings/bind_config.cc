#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>

#include "bindings/bindings.h"
#include "config/device.h"
#include "mlc_native/config.h"
#include "model_files/model_files.h"
#include "request/request.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlc_native::bindings {
namespace {

// ---- properties of GenerationConfig and DebugConfig, by the type of the member

// Token ids and biases take any integer, so that what no vocabulary holds is an InvalidRequest.
template <typename T>
struct PropertyType {
  using Type = T;
  static const T& Get(const T& value) { return value; }
  static T Set(const Field&, T value) { return value; }
};

template <>
struct PropertyType<std::vector<int32_t>> {
  using Type = std::vector<int64_t>;
  static Type Get(const std::vector<int32_t>& ids) { return {ids.begin(), ids.end()}; }
  static std::vector<int32_t> Set(const Field& field, const Type& values) {
    return CheckedTokenIds(field.name, values);
  }
};

template <>
struct PropertyType<std::vector<std::vector<int32_t>>> {
  using Type = std::vector<std::vector<int64_t>>;
  static Type Get(const std::vector<std::vector<int32_t>>& sequences) {
    Type result;
    for (const auto& ids : sequences) result.emplace_back(ids.begin(), ids.end());
    return result;
  }
  static std::vector<std::vector<int32_t>> Set(const Field& field, const Type& sequences) {
    std::vector<std::vector<int32_t>> result;
    for (const auto& ids : sequences) result.push_back(CheckedTokenIds(field.name, ids));
    return result;
  }
};

template <>
struct PropertyType<LogitBias> {
  using Type = std::map<int64_t, double>;
  static Type Get(const LogitBias& bias) { return {bias.begin(), bias.end()}; }
  static LogitBias Set(const Field& field, const Type& values) {
    LogitBias bias;
    for (const auto& [id, value] : values) bias.emplace_back(CheckedTokenId(field.name, id), value);
    return bias;
  }
};

template <>
struct PropertyType<RequestPriority> {
  using Type = std::string;
  static Type Get(RequestPriority priority) { return NameOf(priority); }
  static RequestPriority Set(const Field&, const Type& name) { return ParsePriority(name); }
};

// Adds a property for each field to a class whose `Config` is found by `get`.
template <typename Config, typename Class, typename Get>
class PropertyBinder {
 public:
  PropertyBinder(Class* cls, Get get) : cls_(cls), get_(get) {}

  template <typename T>
  void operator()(const Field& field, T Config::* member) const {
    using Property = PropertyType<T>;
    using Type = typename Property::Type;
    constexpr bool kMayBeNone =
        !std::is_same_v<T, ResponseFormat> && std::is_constructible_v<T, std::nullopt_t>;
    const auto getter = [member, get = get_](GenerationConfig& self) -> Type {
      return Property::Get(get(self).*member);
    };
    const auto setter = [member, field, get = get_](GenerationConfig& self, Type value) {
      get(self).*member = Property::Set(field, std::move(value));
    };
    if constexpr (kMayBeNone) {
      cls_->def_prop_rw(field.name, getter, setter, nb::for_setter(nb::arg("value").none()),
                        nb::lock_self(), field.doc);
    } else {
      cls_->def_prop_rw(field.name, getter, setter, nb::lock_self(), field.doc);
    }
  }
  // Its fields become properties of the whole.
  void operator()(const Field&, DebugConfig GenerationConfig::* member) const {
    const auto get = [member](GenerationConfig& self) -> DebugConfig& { return self.*member; };
    VisitDebugFields(PropertyBinder<DebugConfig, Class, decltype(get)>(cls_, get));
  }

 private:
  Class* cls_;
  Get get_;
};

// ---- what Python knows of the fields of EngineConfig

template <typename T>
struct TypeName {
  static constexpr const char* kName = "str";  // enums, too
};
template <>
struct TypeName<bool> {
  static constexpr const char* kName = "bool";
};
template <>
struct TypeName<int64_t> {
  static constexpr const char* kName = "int";
};
template <>
struct TypeName<double> {
  static constexpr const char* kName = "float";
};
template <>
struct TypeName<std::vector<std::string>> {
  static constexpr const char* kName = "list[str]";
};
template <typename T>
struct TypeName<std::optional<T>> : TypeName<T> {};

// {"name", "type", "default", "choices", "doc"} of each field.
nb::list DescribeEngineFields() {
  nb::list fields;
  VisitEngineFields([&]<typename T>(const Field& field, T EngineConfig::* member) {
    const T value = EngineConfig().*member;
    nb::dict entry;
    entry["name"] = field.name;
    entry["type"] = TypeName<T>::kName;
    entry["doc"] = field.doc;
    nb::list choices;
    if constexpr (std::is_enum_v<T>) {
      for (const auto& [name, constant] : kEnumNames<T>) choices.append(name);
      entry["default"] = NameOf(value) == nullptr ? nb::object(nb::none()) : nb::str(NameOf(value));
    } else if constexpr (std::is_same_v<T, WeightQuantization>) {
      entry["default"] = nb::none();
    } else {
      for (const char* choice : field.choices) choices.append(choice);
      entry["default"] = value;
    }
    entry["choices"] = choices;
    fields.append(entry);
  });
  return fields;
}

// {name: documentation} of each field of GenerationConfig.
nb::dict GenerationFieldDocs() {
  nb::dict docs;
  VisitGenerationFields(
      [&](const Field& field, auto /*member*/) { docs[field.name] = nb::str(field.doc); });
  return docs;
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
  nb::class_<GenerationConfig> generation(
      m, "GenerationConfig", "How one request is generated. Checked when the request is created.");
  const auto self = [](GenerationConfig& config) -> GenerationConfig& { return config; };
  VisitGenerationFields(
      PropertyBinder<GenerationConfig, nb::class_<GenerationConfig>, decltype(self)>(&generation,
                                                                                     self));
  generation.def(nb::init<>())
      .def("validate", &GenerationConfig::Validate, "vocab_size"_a, nb::lock_self(),
           "Raises InvalidRequest that names the field, the value and the allowed range.")
      .def("as_json", &GenerationConfig::AsJSONString, nb::lock_self())
      .def("copy", [](const GenerationConfig& self) { return self; }, nb::lock_self());

  nb::class_<AdapterInfo>(m, "AdapterInfo", "An adapter (LoRA) that is loaded beside a model.")
      .def_ro("name", &AdapterInfo::name)
      .def_ro("path", &AdapterInfo::path, "Its folder.")
      .def_ro("rank", &AdapterInfo::rank, "The most that one of its matrices has.")
      .def_ro("num_bytes", &AdapterInfo::num_bytes, "Of its weights in memory.")
      .def("__repr__", [](const AdapterInfo& self) {
        return nb::str("AdapterInfo(name={!r}, path={!r}, rank={}, num_bytes={})")
            .format(self.name, self.path, self.rank, self.num_bytes);
      });
  nb::class_<RequestLimits>(m, "RequestLimits", "What a loaded engine can serve.")
      .def_ro("vocab_size", &RequestLimits::vocab_size)
      .def_ro("max_num_sequence", &RequestLimits::max_num_sequence)
      .def_ro("max_sequence_length", &RequestLimits::max_sequence_length)
      .def_ro("length_reason", &RequestLimits::length_reason)
      .def_ro("generates", &RequestLimits::generates,
              "False: the model embeds texts only: it has no head, or attends in both directions.")
      .def_ro("embedding_size", &RequestLimits::embedding_size,
              "Numbers of an embedding; 0: the model gives none.")
      .def_ro("num_classes", &RequestLimits::num_classes,
              "Of texts that are classified; 0: the model has none.")
      .def_ro("input_size", &RequestLimits::input_size,
              "Numbers of a row in place of a token; 0: the model takes tokens only.")
      .def_ro("row_positions", &RequestLimits::row_positions,
              "Whether rows may have positions of three numbers.")
      .def_ro("max_whole_rows", &RequestLimits::max_whole_rows,
              "The most rows of one piece, if all are computed at once; None: any number.")
      .def_ro("whole_prompts", &RequestLimits::whole_prompts,
              "Whether a prompt is computed in one step: the model attends in both directions.")
      .def_prop_ro(
          "pooling", [](const RequestLimits& self) { return ToString(self.embedding.pooling); },
          "Of embeddings whose requests name none.")
      .def_prop_ro(
          "normalizes", [](const RequestLimits& self) { return self.embedding.normalize; },
          "Whether they have length 1.")
      .def_prop_ro(
          "embedding_refusal", [](const RequestLimits& self) { return self.embedding.refusal; },
          "What the model folder asks for and is not supported; \"\" if nothing.");

  m.def(
      "check_engine_config",
      [](const std::string& json) { return EngineConfig::FromJSONString(json).AsJSONString(); },
      "json"_a,
      "Reads an engine config and returns it in full. Raises InvalidConfig that names the wrong "
      "field.");
  m.def("generation_field_docs", &GenerationFieldDocs,
        nb::sig("def generation_field_docs() -> dict[str, str]"),
        "The documentation of each field of a generation config.");
  m.def(
      "describe_engine_fields", &DescribeEngineFields,
      nb::sig("def describe_engine_fields() -> list[dict[str, typing.Any]]"),
      "{\"name\", \"type\", \"default\", \"choices\", \"doc\"} of each field of an engine config.");
  BindDevices(m);
  m.def("has_model_file", &HasModelFile, "path"_a, ReleaseGil(),
        "Whether there is such a file, or a text of this path that is made of other files.");
  m.def(
      "made_text", [](const std::string& path) { return MadeText(path); }, "path"_a, ReleaseGil(),
      "The text of a file that is not there, such as x.gguf/config.json, made of a GGUF file's "
      "metadata or of a folder's tokenizer in another form. None for the path of a file, and for "
      "what does not exist. Raises LoadError.");
}

}  // namespace mlc_native::bindings
