#include "models/inspect.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "arch/model_config.h"
#include "checkpoint/checkpoint.h"
#include "kernels/packed_format.h"
#include "model_files/gguf_file.h"
#include "model_files/model_files.h"
#include "models/kv_storage.h"
#include "models/loader.h"
#include "models/recurrent_storage.h"
#include "models/transformer.h"
#include "support/json.h"
#include "weights/panel_form.h"
#include "weights/weight_layout.h"
#include "weights/weight_plan.h"

namespace mlc_native {
namespace {

// "model.layers.12.mlp.up_proj.weight" -> "model.layers.*.mlp.up_proj.weight"
std::string KindOf(std::string_view name) {
  std::string kind;
  while (!name.empty()) {
    const size_t end = std::min(name.find('.'), name.size());
    const std::string_view part = name.substr(0, end);
    const bool is_number = part.find_first_not_of("0123456789") == std::string_view::npos;
    kind += !part.empty() && is_number ? "*" : std::string(part);
    if (end < name.size()) kind += '.';
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return kind;
}

// Tensors with names of one kind, of one shape and one form.
struct Kind {
  std::string name;
  std::vector<int64_t> shape;
  std::string stored;
  std::string loads_as;  // "" if the folder does not load

  auto operator<=>(const Kind&) const = default;
};

// Counts kinds, in the order in which they were seen first.
class Kinds {
 public:
  void Add(Kind kind) {
    const auto [found, is_new] = positions_.emplace(std::move(kind), counts_.size());
    if (is_new) counts_.emplace_back(&found->first, 0);
    ++counts_[found->second].second;
  }
  void Write(JsonWriter* json) const {
    json->Name("matrices").BeginArray();
    for (const auto& [kind, count] : counts_) {
      json->BeginObject().Add("name", kind->name).Add("count", count);
      json->Name("shape").BeginArray();
      for (int64_t size : kind->shape) json->Put(size);
      json->EndArray().Add("stored", kind->stored);
      if (!kind->loads_as.empty()) json->Add("loads_as", kind->loads_as);
      json->EndObject();
    }
    json->EndArray();
  }

 private:
  std::map<Kind, size_t> positions_;
  std::vector<std::pair<const Kind*, int64_t>> counts_;
};

// "BF16", or the types of all tensors that a quantized matrix is made of: "I32 + F16".
std::string StoredForm(const WeightSource& source) {
  std::string form;
  std::set<std::string> seen;
  for (const Checkpoint::Entry* part : source.parts()) {
    const std::string& type = part->tensor->dtype_name;
    if (seen.insert(type).second) form += (form.empty() ? "" : " + ") + type;
  }
  const std::optional<CodeForm> codes = source.code_form();
  if (!codes) return form;
  if (codes->is_mxfp4) return form + ", MXFP4";
  const int bits = codes->table ? 4 : codes->bits;
  return form + ", " + std::to_string(bits) + " bits in groups of " + std::to_string(codes->group);
}

std::string LoadedForm(const WeightPlan& plan, size_t parameter) {
  switch (plan.map.parameters[parameter].form) {
    case ParameterForm::kPacked:
      return std::string(kernels::FormatName(plan.formats[parameter]));
    case ParameterForm::kTable:
      return std::string(DTypeName(plan.dtype));
    case ParameterForm::kVector:
      return std::string(DTypeName(DType::kFloat32));
  }
  return "";
}

// Matrices that are stored as MXFP4 are not transposed.
std::vector<int64_t> ShapeInFile(const WeightSlot& slot, const WeightSource& source) {
  if (slot.part.num_rows > 0) return slot.part.StoredShape(slot.shape);
  const std::optional<CodeForm> codes = source.code_form();
  JoinedPlace place = slot.joined;
  if (codes && codes->is_mxfp4) place.transposed = false;
  return place.StoredShape(slot.UnpaddedShape());
}

Kinds KindsOf(const WeightPlan& plan) {
  Kinds kinds;
  for (size_t i = 0; i < plan.map.slots.size(); ++i) {
    const WeightSlot& slot = plan.map.slots[i];
    if (slot.name.empty()) continue;
    if (slot.joined.index > 0 || slot.part.first > 0) continue;  // the tensor has been counted
    const WeightSource& source = *plan.sources[i];
    for (const WeightSlot& tensor : slot.Tensors()) {
      kinds.Add({KindOf(tensor.name), ShapeInFile(tensor, source), StoredForm(source),
                 LoadedForm(plan, slot.parameter)});
    }
  }
  return kinds;
}

Kinds KindsOf(const Checkpoint& checkpoint) {
  Kinds kinds;
  for (const Checkpoint::Entry& entry : checkpoint.entries()) {
    const TensorInfo& tensor = *entry.tensor;
    kinds.Add({KindOf(tensor.name), tensor.shape, tensor.dtype_name, ""});
  }
  return kinds;
}

int64_t CountElements(const Checkpoint& checkpoint) {
  int64_t count = 0;
  for (const Checkpoint::Entry& entry : checkpoint.entries()) {
    int64_t elements = 1;
    for (int64_t size : entry.tensor->shape) elements *= size;
    count += elements;
  }
  return count;
}

// What layers have of their own.
void WriteOwnNumbers(const ModelConfig& config, JsonWriter* json) {
  const auto own = std::ranges::find_if(config.layers, [](const LayerConfig& layer) {
    return layer.own_head_dim != 0 || layer.own_kv_heads != 0;
  });
  if (own != config.layers.end()) {  // those without a window
    json->Add("num_kv_heads_without_window", config.kv_heads_of(*own))
        .Add("head_dim_without_window", config.head_dim_of(*own));
  }
  if (config.most_heads() > config.num_heads) json->Add("most_heads", config.most_heads());
  const auto num_sharing = std::ranges::count_if(config.layers, &LayerConfig::reads_other_kv);
  if (num_sharing > 0) json->Add("layers_that_share_keys", num_sharing);
  if (config.layer_inputs) json->Add("layer_input_size", config.layer_inputs->size);
  if (config.residual_streams) json->Add("residual_streams", config.residual_streams->count);
}

void WriteNumbers(const ModelConfig& config, JsonWriter* json) {
  int64_t num_windows = 0;
  kernels::AttentionWindow window;
  for (const LayerConfig& layer : config.layers) {
    if (layer.window.size == 0) continue;
    ++num_windows;
    window = layer.window;
  }
  json->Name("decoder").BeginObject();
  json->Add("num_layers", std::ssize(config.layers))
      .Add("hidden_size", config.hidden_size)
      .Add("ffn_size", config.ffn_size)
      .Add("num_heads", config.num_heads)
      .Add("num_kv_heads", config.num_kv_heads)
      .Add("head_dim", config.head_dim)
      .Add("vocab_size", config.vocab_size)
      .Add("max_positions", config.max_positions)
      .Add("layers_with_window", num_windows);
  if (window.size > 0) json->Add(window.is_chunk ? "chunk" : "window", window.size);
  if (config.sight == RowSight::kAll) json->Add("attends_in_both_directions", true);
  WriteOwnNumbers(config, json);
  if (config.experts) {
    json->Add("layers_with_experts",
              std::ranges::count(config.layers, true, &LayerConfig::has_experts))
        .Add("num_experts", config.experts->router.num_experts)
        .Add("experts_per_token", config.experts->router.num_chosen)
        .Add("expert_ffn_size", config.experts->ffn_size);
  }
  json->EndObject();
}

void WriteMemory(const ModelConfig& config, WeightPlan* plan, JsonWriter* json) {
  struct Choice {
    const char* name;
    std::optional<DType> dtype;
    WeightQuantization quantization;
  };
  static constexpr Choice kChoices[] = {{"auto", {}, WeightQuantization::kAuto},
                                        {"float32", DType::kFloat32, WeightQuantization::kOff},
                                        {"bfloat16", DType::kBFloat16, WeightQuantization::kOff},
                                        {"q8", {}, WeightQuantization::kQ8},
                                        {"q6", {}, WeightQuantization::kQ6},
                                        {"q4", {}, WeightQuantization::kQ4}};
  const PanelForm form(kernels::SelectCpuKernels());
  json->Name("memory").BeginObject();
  for (const Choice& choice : kChoices) {
    WeightOptions options;
    options.dtype = choice.dtype;
    options.quantization = choice.quantization;
    ChooseFormats(config, options, plan);
    json->Add(choice.name,
              WeightLayout(*plan, form).bytes() + Transformer::DistanceVectorBytes(config));
  }
  json->EndObject();
}

// Of all parameters in memory.
double BitsPerWeight(const WeightPlan& plan) {
  const PanelForm form(kernels::SelectCpuKernels());
  const WeightLayout layout(plan, form);
  return 8 * static_cast<double>(layout.bytes()) /
         static_cast<double>(plan.description.num_parameters);
}

// What is found out step by step: a problem ends the steps that need what it concerns.
class Inspection {
 public:
  Inspection(std::string path, WeightQuantization quantization) : path_(std::move(path)) {
    Try([&] { config_ = ReadModelConfig(path_); });
    Try([&] { checkpoint_.emplace(path_, Checkpoint::Access::kHeaders); });
    if (config_ && checkpoint_) {
      WeightOptions options;
      options.quantization = quantization;
      Try([&] { plan_ = PlanWeights(*config_, *checkpoint_, options); });
    }
  }

  std::string AsJson() {
    JsonWriter json;
    json.BeginObject().Add("path", path_).Add("architecture", Architecture());
    json.Add("loads", plan_.has_value()).Name("problems").BeginArray();
    for (const std::string& problem : problems_) json.Put(problem);
    json.EndArray();
    if (config_) WriteNumbers(*config_, &json);
    if (checkpoint_) WriteFiles(&json);
    if (plan_) WritePlan(&json);
    return json.EndObject().Take();
  }

 private:
  template <typename Step>
  void Try(const Step& step) {
    try {
      step();
    } catch (const LoadError& error) {
      // Several steps may need what is wrong.
      if (std::ranges::count(problems_, error.what()) == 0) problems_.emplace_back(error.what());
    }
  }

  std::string Architecture() const {
    if (config_) return std::string(config_->architecture());
    try {
      const std::string gguf = GgufOf(path_);
      if (!gguf.empty()) return GgufFile(gguf).String("general.architecture").value_or("");
      const std::vector<std::string> names = ReadConfigJson(path_).Strings("architectures");
      return names.empty() ? "" : names[0];
    } catch (const LoadError&) {
      return "";
    }
  }

  void WriteFiles(JsonWriter* json) const {
    uint64_t bytes = 0;
    for (const TensorFile& file : checkpoint_->files()) bytes += file.stamp.size;
    json->Add("files", std::ssize(checkpoint_->files()))
        .Add("file_bytes", bytes)
        .Add("num_tensors", std::ssize(checkpoint_->entries()));
    if (plan_) return;
    json->Add("num_parameters", CountElements(*checkpoint_));
    KindsOf(*checkpoint_).Write(json);
  }

  void WritePlan(JsonWriter* json) {
    json->Add("num_parameters", plan_->description.num_parameters)
        .Add("weight_format", plan_->description.weight_format)
        .Add("bits_per_weight", BitsPerWeight(*plan_));
    const kernels::KvFormat kv_format = KvFormatFor(KvCacheDType::kAuto, plan_->dtype);
    json->Add("kv_bytes_per_token", KvStorage::BytesPerToken(*config_, kv_format))
        .Add("recurrent_bytes_per_slot", RecurrentStorage::BytesPerSlot(*config_));
    KindsOf(*plan_).Write(json);
    json->Name("unused").BeginArray();
    for (const std::string& name : plan_->description.unused_tensors) json->Put(name);
    json->EndArray();
    WriteMemory(*config_, &*plan_, json);  // which changes the plan
  }

  const std::string path_;
  std::vector<std::string> problems_;
  std::optional<ModelConfig> config_;
  std::optional<Checkpoint> checkpoint_;
  std::optional<WeightPlan> plan_;
};

}  // namespace

std::string InspectModel(const std::string& path, WeightQuantization quantization) {
  // Only what is no model at all is an error.
  const std::string gguf = GgufOf(path);
  if (!gguf.empty()) {
    const GgufFile readable(gguf);
  } else if (!IsMlcFolder(path)) {
    ReadConfigJson(path);
  }
  return Inspection(path, quantization).AsJson();
}

}  // namespace mlc_native
