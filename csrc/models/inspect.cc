#include "models/inspect.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "arch/model_config.h"
#include "checkpoint/checkpoint.h"
#include "mlc_native/errors.h"
#include "models/kv_storage.h"
#include "support/json.h"
#include "weights/panel_form.h"
#include "weights/weight_layout.h"
#include "weights/weight_plan.h"

namespace mlc_native {
namespace {

constexpr std::pair<WeightQuantization, std::string_view> kQuantizations[] = {
    {WeightQuantization::kAuto, "auto"},
    {WeightQuantization::kOff, "off"},
    {WeightQuantization::kQ8, "q8"},
    {WeightQuantization::kQ4, "q4"},
};
constexpr kernels::KvFormat kKvFormats[] = {kernels::KvFormat::kFloat32,
                                            kernels::KvFormat::kBFloat16, kernels::KvFormat::kInt8};

std::string_view KindOf(LinearRole role) {
  switch (role) {
    case LinearRole::kQkv:
      return "attention.qkv";
    case LinearRole::kOut:
      return "attention.out";
    case LinearRole::kGateUp:
      return "mlp.gate_up";
    case LinearRole::kDown:
      return "mlp.down";
  }
  return "linear";
}

// The kind of each parameter of a decoder.
std::vector<std::string_view> KindsOf(const WeightMap& map) {
  std::vector<std::string_view> kinds(map.parameters.size(), "vectors");  // norms and biases
  const auto put = [&](size_t parameter, std::string_view kind) {
    if (parameter != kAbsent) kinds[parameter] = kind;
  };
  for (const LayerParameters& layer : map.layers) {
    for (const LinearParameters& linear : layer.linears) {
      put(linear.matrix, KindOf(linear.key.role));
    }
  }
  put(map.head, "head");
  put(map.embeddings, "embeddings");
  return kinds;
}

// What is known of one kind.
struct Part {
  int64_t tensors = 0;
  int64_t parameters = 0;
  int64_t stored_bytes = 0;
  std::map<std::string, int64_t> stored_as;
  std::array<std::string, std::size(kQuantizations)> loads_as;  // as kQuantizations
};

void AddName(std::string_view name, std::string* names) {
  if (names->find(name) == std::string::npos)
    names->append(names->empty() ? "" : ", ").append(name);
}

class Inspection {
 public:
  explicit Inspection(const std::string& folder) : folder_(folder) {}

  std::string Run() {
    Try([this] { config_ = ReadModelConfig(folder_); });
    Try([this] { checkpoint_.emplace(folder_); });
    if (config_ && checkpoint_) {
      for (size_t i = 0; i < std::size(kQuantizations) && errors_.empty(); ++i) {
        Try([this, i] { Plan(i); });
      }
    }
    return Write();
  }

 private:
  struct Error {
    std::string_view code;
    std::string field;
    std::string message;
  };

  template <typename Function>
  void Try(const Function& function) {
    try {
      function();
    } catch (const LoadError& error) {
      errors_.push_back({"load_error", error.field(), error.what()});
    } catch (const InvalidConfig& error) {
      errors_.push_back({"invalid_config", error.field(), error.what()});
    }
  }

  void Plan(size_t quantization) {
    WeightOptions options;
    options.quantization = kQuantizations[quantization].first;
    const WeightPlan plan = PlanWeights(*config_, *checkpoint_, options);
    const PanelForm form(kernels::SelectCpuKernels());
    weight_bytes_.emplace_back(WeightLayout(plan, form).bytes());
    const std::vector<std::string_view> kinds = KindsOf(plan.map);
    if (parts_.empty()) {
      dtype_ = plan.dtype;
      num_parameters_ = plan.description.num_parameters;
      unused_tensors_ = plan.description.unused_tensors;
      AddStored(plan, kinds);
    }
    for (size_t i = 0; i < plan.map.parameters.size(); ++i) {
      const bool is_packed = plan.map.parameters[i].form == ParameterForm::kPacked;
      AddName(is_packed ? kernels::FormatName(plan.formats[i]) : DTypeName(plan.dtype),
              &parts_[kinds[i]].loads_as[quantization]);
    }
  }

  void AddStored(const WeightPlan& plan, const std::vector<std::string_view>& kinds) {
    for (size_t i = 0; i < plan.map.parameters.size(); ++i) {
      const Parameter& parameter = plan.map.parameters[i];
      parts_[kinds[i]].parameters += parameter.rows * parameter.columns;
    }
    for (size_t i = 0; i < plan.map.slots.size(); ++i) {
      Part& part = parts_[kinds[plan.map.slots[i].parameter]];
      part.stored_bytes += plan.sources[i]->stored_bytes();
      for (const Checkpoint::Entry* entry : plan.sources[i]->parts()) {
        ++part.tensors;
        ++part.stored_as[entry->tensor->dtype_name];
      }
    }
  }

  std::string Write() {
    json_.BeginObject().Add("path", folder_);
    WriteConfig();
    WriteStored();
    WriteParts();
    json_.Name("weight_bytes").BeginObject();
    for (size_t i = 0; i < weight_bytes_.size(); ++i) {
      json_.Add(kQuantizations[i].second, weight_bytes_[i]);
    }
    json_.EndObject().Name("kv_bytes_per_token").BeginObject();
    for (const kernels::KvFormat format : kKvFormats) {
      if (!config_) break;
      json_.Add(kernels::KvFormatName(format), KvStorage::BytesPerToken(*config_, format));
    }
    json_.EndObject().Name("unused_tensors").BeginArray();
    for (const std::string& name : unused_tensors_) json_.Put(name);
    json_.EndArray().Name("errors").BeginArray();
    for (const Error& error : errors_) {
      json_.BeginObject()
          .Add("code", error.code)
          .Add("field", error.field)
          .Add("message", error.message)
          .EndObject();
    }
    return json_.EndArray().EndObject().Take();
  }

  void WriteConfig() {
    const auto add = [this](std::string_view name, const auto& value) {
      json_.Name(name);
      value ? json_.Put(*value) : json_.Null();
    };
    using Number = std::optional<int64_t>;
    const auto of_config = [this](int64_t ModelConfig::* member) {
      return config_ ? Number((*config_).*member) : std::nullopt;
    };
    add("architecture", config_ ? std::optional(config_->arch->architecture) : std::nullopt);
    add("dtype", dtype_ ? std::optional(DTypeName(*dtype_)) : std::nullopt);
    add("num_layers", config_ ? Number(std::ssize(config_->layers)) : std::nullopt);
    add("hidden_size", of_config(&ModelConfig::hidden_size));
    add("num_heads", of_config(&ModelConfig::num_heads));
    add("num_kv_heads", of_config(&ModelConfig::num_kv_heads));
    add("head_dim", of_config(&ModelConfig::head_dim));
    add("vocab_size", of_config(&ModelConfig::vocab_size));
    add("context_window_size", of_config(&ModelConfig::max_positions));
    add("num_parameters", num_parameters_);
  }

  void WriteStored() {
    int64_t num_tensors = 0;
    uint64_t bytes = 0;
    if (checkpoint_) {
      for (const Checkpoint::Entry& entry : checkpoint_->entries()) bytes += entry.tensor->bytes;
      num_tensors = std::ssize(checkpoint_->entries());
    }
    json_.Name("stored")
        .BeginObject()
        .Add("files", checkpoint_ ? checkpoint_->files().size() : 0)
        .Add("tensors", num_tensors)
        .Add("bytes", bytes)
        .EndObject();
  }

  void WriteParts() {
    json_.Name("parts").BeginArray();
    for (const auto& [kind, part] : parts_) {
      json_.BeginObject()
          .Add("kind", kind)
          .Add("tensors", part.tensors)
          .Add("parameters", part.parameters)
          .Name("stored_as")
          .BeginObject();
      for (const auto& [type, count] : part.stored_as) json_.Add(type, count);
      json_.EndObject().Add("stored_bytes", part.stored_bytes).Name("loads_as").BeginObject();
      for (size_t i = 0; i < weight_bytes_.size(); ++i) {
        json_.Add(kQuantizations[i].second, part.loads_as[i]);
      }
      json_.EndObject().EndObject();
    }
    json_.EndArray();
  }

  const std::string& folder_;
  std::optional<ModelConfig> config_;
  std::optional<Checkpoint> checkpoint_;
  std::optional<DType> dtype_;
  std::optional<int64_t> num_parameters_;
  std::map<std::string_view, Part> parts_;  // by kind
  std::vector<size_t> weight_bytes_;        // as kQuantizations
  std::vector<std::string> unused_tensors_;
  std::vector<Error> errors_;
  JsonWriter json_;
};

}  // namespace

std::string InspectModel(const std::string& folder) { return Inspection(folder).Run(); }

}  // namespace mlc_native
