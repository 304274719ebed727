#include "weights/weight_plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "arch/draft_config.h"
#include "arch/draft_layout.h"
#include "kernels/packed_format.h"
#include "support/error.h"
#include "weights/budget_formats.h"
#include "weights/computed_weight.h"
#include "weights/decoder_map.h"
#include "weights/integer_weight.h"
#include "weights/part_of_weight.h"
#include "weights/plain_weight.h"
#include "weights/shared_weight.h"
#include "weights/unused_tensors.h"
#include "weights/weight_set.h"

namespace mlc_native {
namespace {

using kernels::WeightFormat;

constexpr uint64_t kComparedBytes = 1 << 20;  // in memory at a time

bool SameBytes(const Checkpoint::Entry& a, const Checkpoint::Entry& b) {
  const uint64_t bytes = a.tensor->bytes;
  if (bytes != b.tensor->bytes || a.tensor->dtype_name != b.tensor->dtype_name) return false;
  const TensorReader reader_a = a.Open(), reader_b = b.Open();
  std::vector<std::byte> part_a, part_b;
  for (uint64_t at = 0; at < bytes; at += kComparedBytes) {
    part_a.resize(std::min(kComparedBytes, bytes - at));
    part_b.resize(part_a.size());
    reader_a.Read(at, part_a);
    reader_b.Read(at, part_b);
    if (part_a != part_b) return false;
  }
  return true;
}

// True if both are stored as plain tensors with the same content.
bool SameTensor(const Checkpoint& checkpoint, const std::string& a, const std::string& b) {
  const Checkpoint::Entry* x = checkpoint.Find(a);
  const Checkpoint::Entry* y = checkpoint.Find(b);
  if (x == nullptr || y == nullptr) return false;
  return !checkpoint.reads_data() || SameBytes(*x, *y);
}

// The first of the names that is there with this ending, else the first of all.
std::string FirstThatIsThere(const WeightSet& weights, std::span<const std::string_view> names,
                             std::string_view ending) {
  const auto is_there = [&](std::string_view name) {
    return weights.Has(std::string(name) + std::string(ending));
  };
  const auto found = std::ranges::find_if(names, is_there);
  return std::string(found == names.end() ? names.front() : *found);
}

// The spelling of the experts of a layer, whose tensors begin with `layer`.
const ExpertSpelling* FindSpelling(const ModelConfig& config, const WeightSet& weights,
                                   const std::string& layer) {
  const ExpertRule& rule = config.arch->experts;
  const auto has_tensor = [&](const std::string& name) { return weights.Has(name); };
  const ExpertSpelling* found = FindExpertSpelling(rule, layer, has_tensor);
  return found == nullptr ? &rule.spellings.front() : found;
}

// Where a draft head has these matrices, they have the plain names.
WeightNames FindNamesOfDraftHead(const ModelConfig& config, const WeightSet& weights) {
  const DraftHeadConfig& head = *config.draft_head;
  WeightNames names;
  if (!config.layers.empty() && config.layers.front().has_experts) {
    names.experts = FindSpelling(config, weights, head.Name(head.layout->layer));
  }
  if (!head.layout->in_target.empty()) return names;
  if (weights.Has("lm_head.weight")) names.head = "lm_head.weight";
  if (weights.Has("embed_tokens.weight")) names.embeddings = "embed_tokens.weight";
  return names;
}

// Which of the family's names this checkpoint uses.
WeightNames FindNames(const ModelConfig& config, const WeightSet& weights) {
  if (config.draft_head) return FindNamesOfDraftHead(config, weights);
  const TensorNames& tensors = config.arch->names;
  WeightNames names;
  names.prefix = FirstThatIsThere(weights, tensors.prefixes, tensors.embeddings);
  const std::string head = FirstThatIsThere(weights, tensors.heads, "");
  const std::string embeddings = names.prefix + std::string(tensors.embeddings);
  // A head that is stored although it is tied counts only when it differs, as in transformers 5.
  const bool tied =
      config.tie_word_embeddings && (!config.has_head || !weights.Has(head) ||
                                     SameTensor(weights.checkpoint(), head, embeddings));
  if (!tied) names.head = head;
  names.head_bias = head.substr(0, head.rfind('.')) + ".bias";
  // Of the first layer that has some.
  const auto layer = std::ranges::find(config.layers, true, &LayerConfig::has_experts);
  if (layer == config.layers.end()) return names;
  const std::string number = std::to_string(layer - config.layers.begin());
  names.experts =
      FindSpelling(config, weights, names.prefix + std::string(tensors.layer) + number + '.');
  return names;
}

// Gives the slots of tensors that are not there the family's other names, if those are.
void UseOtherNames(const ModelConfig& config, const WeightSet& weights, WeightMap* map) {
  for (WeightSlot& slot : map->slots) {
    for (const OtherName& other : config.arch->other_names) {
      const size_t at = slot.name.find(other.part);
      if (at == slot.name.npos || weights.Has(slot.name)) continue;
      std::string name = slot.name;
      name.replace(at, other.part.size(), other.other);
      if (!weights.Has(name)) continue;
      slot.name = std::move(name);
      slot.beside.clear();
    }
  }
}

void CheckMissing(const ModelConfig& config, const WeightSet& weights, const WeightMap& map) {
  std::vector<std::string> missing;
  for (const WeightSlot& slot : map.slots) {
    if (slot.name.empty() || slot.part.first > 0) continue;  // of ones; named by its first part
    for (const WeightSlot& tensor : slot.Tensors()) {
      if (!weights.Has(tensor.name)) missing.push_back(tensor.name);
    }
  }
  if (missing.empty()) return;
  throw LoadError(missing[0], "the checkpoint lacks tensors of " + std::string(NameOf(config)) +
                                  ": " + JoinNames(missing));
}

int64_t CountParameters(const WeightMap& map) {
  int64_t count = 0;
  for (const WeightSlot& slot : map.slots) {
    if (slot.name.empty()) continue;
    const std::vector<int64_t> shape = slot.UnpaddedShape();
    count += std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies());
  }
  return count;
}

// "bfloat16", or the quantized formats "with bfloat16".
std::string DescribeFormats(const WeightPlan& plan) {
  std::string quantized;
  for (const std::string_view name :
       {"mxfp4", "nvfp4", "iq4", "iq3", "iq2", "q2", "q4", "q6", "q8", "fp8"}) {
    for (size_t i = 0; i < plan.formats.size(); ++i) {
      if (plan.map.parameters[i].form != ParameterForm::kPacked ||
          kernels::FormatName(plan.formats[i]) != name) {
        continue;
      }
      quantized.append(quantized.empty() ? "" : " and ").append(name);
      break;
    }
  }
  return (quantized.empty() ? "" : quantized + " with ") + std::string(DTypeName(plan.dtype));
}

DType ChooseDType(const ModelConfig& config, const WeightSources& sources,
                  const WeightOptions& options) {
  if (options.dtype) return *options.dtype;
  if (config.dtype) return *config.dtype;
  return sources.front()->dtype();
}

// The format that the options request for a parameter, regardless of the checkpoint.
WeightFormat AskedFormat(const WeightMap& map, size_t parameter, DType dtype,
                         WeightQuantization quantization) {
  if (map.parameters[parameter].in_float32) return WeightFormat::kFloat32;
  switch (quantization.kind()) {
    case WeightQuantization::kAuto:
    case WeightQuantization::kOff:
    case WeightQuantization::kBudget:  // asks for all parameters together
      break;
    case WeightQuantization::kQ6:
      return WeightFormat::kQ6;
    case WeightQuantization::kQ8:
      return WeightFormat::kQ8;
    case WeightQuantization::kQ4:
      return map.IsSensitive(parameter) ? WeightFormat::kQ8 : WeightFormat::kQ4;
  }
  return kernels::FormatOf(dtype);
}

std::vector<WeightFormat> AskedFormats(const WeightMap& map, DType dtype,
                                       const WeightOptions& options) {
  std::vector<WeightFormat> formats;
  formats.reserve(map.parameters.size());
  for (size_t i = 0; i < map.parameters.size(); ++i) {
    formats.push_back(AskedFormat(map, i, dtype, options.quantization));
  }
  if (options.quantization.kind() != WeightQuantization::kBudget) return formats;
  const std::vector<WeightFormat> within =
      FormatsWithin(map, options.quantization.millibits(), options.of_budget);
  for (size_t i = 0; i < formats.size(); ++i) {
    if (!map.parameters[i].in_float32) formats[i] = within[i];
  }
  return formats;
}

// Whether `rounded` may take what is stored in this form, and none of all others.
bool MayBeRounded(const CodeForm& form, WeightFormat rounded) {
  constexpr int kMostBits = 6;  // so that rounding to 8 bits changes little
  constexpr int64_t kGroups = 16;
  if (form.HeldBy(rounded)) return true;
  const bool has_few_values = form.table || form.bits <= kMostBits;
  return !form.is_mxfp4 && !form.is_float8 && has_few_values &&
         (form.num_groups == 1 || form.group % kGroups == 0);
}

// A parameter that the checkpoint holds in no more bits than requested stays as it is, or nearly.
std::vector<WeightFormat> FormatsFor(const WeightMap& map, const WeightSources& sources,
                                     DType dtype, const WeightOptions& options) {
  std::vector<WeightFormat> formats = AskedFormats(map, dtype, options);
  if (options.quantization == WeightQuantization::kOff) return formats;
  const bool has_own = dtype == DType::kFloat16 && options.codes_in_float16;
  const FormatsOfCodes& codes = has_own ? *options.codes_in_float16 : options.codes;
  // Where `fits` is true of all tensors that a parameter is made of, and of what it would have.
  const auto take = [&](WeightFormat format, const auto& fits) {
    std::vector<bool> taken(formats.size(), true);
    for (size_t i = 0; i < sources.size(); ++i) {
      const std::optional<CodeForm> form = sources[i]->code_form();
      const size_t parameter = map.slots[i].parameter;
      if (!form || !fits(*form, formats[parameter])) taken[parameter] = false;
    }
    for (size_t i = 0; i < formats.size(); ++i) {
      if (taken[i] && !map.parameters[i].in_float32) formats[i] = format;
    }
  };
  if (codes.rounded) {
    take(*codes.rounded, [&](const CodeForm& form, WeightFormat instead_of) {
      return MayBeRounded(form, *codes.rounded) && kernels::LayoutOf(instead_of).scale_bytes == 0;
    });
  }
  for (const WeightFormat format : codes.held) {
    take(format, [&](const CodeForm& form, WeightFormat instead_of) {
      return form.HeldBy(format) &&
             kernels::LayoutOf(format).code_bits <= kernels::LayoutOf(instead_of).code_bits;
    });
  }
  return formats;
}

// Those of which several slots are parts, by name.
using SharedTensors = std::map<std::string, std::shared_ptr<SharedWeight>>;

std::unique_ptr<WeightSource> OpenPart(const WeightSet& weights, const WeightSlot& slot,
                                       SharedTensors* shared) {
  const RowsOfTensor& part = slot.part;
  const int64_t rows = slot.shape[part.transposed ? 1 : 0];
  const std::vector<int64_t> shape = part.StoredShape(slot.shape);
  std::shared_ptr<SharedWeight>& tensor = (*shared)[slot.name];
  if (tensor == nullptr) {
    tensor = std::make_shared<SharedWeight>(weights.Open(slot.name, shape));
  }
  auto of_tensor = std::make_unique<PartOfWeight>(SharedWeight::View(tensor), part.num_rows,
                                                  shape.size() > 1 ? shape[1] : 1,
                                                  RangesOf(part, rows), std::vector<IndexRange>());
  if (!part.transposed) return of_tensor;
  return Transposed(std::move(of_tensor), slot.shape);
}

std::unique_ptr<WeightSource> OpenSideBySide(const WeightSet& weights, const WeightSlot& slot) {
  std::vector<SourceOfColumns> parts;
  for (const WeightSlot& tensor : slot.Tensors()) {
    parts.push_back({weights.Open(tensor.name, tensor.shape, tensor.joined), tensor.shape[1]});
  }
  return SideBySide(std::move(parts));
}

std::unique_ptr<WeightSource> OpenSlot(const WeightSet& weights, const WeightSlot& slot,
                                       SharedTensors* shared) {
  if (slot.name.empty()) return slot.scale == 1 ? Ones() : Multiplied(Ones(), 1, slot.scale);
  if (slot.num_integers > 0) {
    return OpenIntegers(*weights.checkpoint().Find(slot.name), slot.shape, slot.num_integers);
  }
  if (!slot.beside.empty()) return OpenSideBySide(weights, slot);
  std::unique_ptr<WeightSource> source =
      slot.part.num_rows > 0 ? OpenPart(weights, slot, shared)
                             : weights.Open(slot.name, slot.UnpaddedShape(), slot.joined);
  const int64_t columns = slot.shape.size() > 1 ? slot.shape[1] : 1;
  if (slot.padding.padded > 0) source = Padded(std::move(source), columns, slot.padding);
  if (slot.row_norm_eps != 0) {
    source = WithNormalizedRows(std::move(source), columns, slot.row_norm_eps);
  }
  if (slot.scale == 1) return source;
  return Multiplied(std::move(source), columns, slot.scale);
}

// Adds a table of embeddings for a quantized head that is tied to them.
void AddTable(const WeightSet& weights, WeightPlan* plan) {
  WeightMap& map = plan->map;
  if (map.embeddings != kAbsent || plan->formats[map.head] == kernels::FormatOf(plan->dtype)) {
    return;
  }
  const auto head = std::ranges::find(map.slots, map.head, &WeightSlot::parameter);
  WeightSlot slot = *head;
  slot.parameter = map.embeddings = map.parameters.size();
  map.parameters.push_back(map.parameters[map.head]);
  map.parameters.back().form = ParameterForm::kTable;
  plan->formats.push_back(kernels::FormatOf(plan->dtype));
  plan->sources.push_back(weights.Open(slot.name, slot.shape));
  map.slots.push_back(std::move(slot));
}

}  // namespace

void ChooseFormats(const ModelConfig& config, const WeightOptions& options, WeightPlan* plan) {
  plan->dtype = ChooseDType(config, plan->sources, options);
  plan->formats = FormatsFor(plan->map, plan->sources, plan->dtype, options);
  plan->description.weight_format = DescribeFormats(*plan);
}

WeightPlan PlanWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                       const WeightOptions& options) {
  const WeightSet weights(checkpoint, config.quantization);
  WeightPlan plan;
  plan.map = MakeWeightMap(config, FindNames(config, weights));
  UseOtherNames(config, weights, &plan.map);
  CheckMissing(config, weights, plan.map);
  SharedTensors shared;
  for (const WeightSlot& slot : plan.map.slots) {
    plan.sources.push_back(OpenSlot(weights, slot, &shared));
  }
  plan.description.unused_tensors = FindUnused(config, weights, plan.sources);
  if (options.strict && !plan.description.unused_tensors.empty()) {
    RefuseUnused(config, plan.description.unused_tensors);
  }
  NoteIgnored(config, weights, &plan.description.unused_tensors);
  plan.description.num_parameters = CountParameters(plan.map);
  ChooseFormats(config, options, &plan);
  if (options.table_of_floats) AddTable(weights, &plan);
  return plan;
}

}  // namespace mlc_native
