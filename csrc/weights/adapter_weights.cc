#include "weights/adapter_weights.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "checkpoint/safetensors.h"
#include "support/config_fields.h"
#include "support/error.h"
#include "support/message.h"
#include "weights/computed_weight.h"
#include "weights/part_of_weight.h"
#include "weights/plain_weight.h"

namespace mlc_native {
namespace {

constexpr char kConfigFile[] = "adapter_config.json";
constexpr char kTensorFile[] = "adapter_model.safetensors";
constexpr std::string_view kPrefix = "base_model.model.";

// ---- adapter_config.json ----

// The ranks and the scales of an adapter's updates.
class AdapterConfig {
 public:
  explicit AdapterConfig(const std::string& path) : fields_(ConfigFields::ReadFile(path)) {
    CheckKind();
    ReadRanks();
    alpha_ = fields_.Number("lora_alpha", std::nullopt);
    uses_root_ = fields_.Bool("use_rslora", false);
    const ConfigFields patterns = fields_.Object("alpha_pattern");
    for (const std::string& name : patterns.Names()) {
      const bool whole = name.starts_with('^');
      const std::string module = name.substr(whole ? 1 : 0);
      if (module.find_first_of("\\*+?|()[]{}$^") != module.npos) {
        fields_.Fail("alpha_pattern", "has the pattern \"" + name +
                                          "\"; names of modules or their endings are supported");
      }
      alphas_.push_back({module, whole, patterns.Number(name.c_str(), std::nullopt)});
    }
  }

  // Whether a module may have matrices of this rank. The scales are those of the ranks in the file.
  bool Allows(int64_t rank) const { return ranks_.empty() || ranks_.contains(rank); }

  // What the product of the two matrices of a module is multiplied with.
  float ScaleOf(const std::string& module, int64_t rank) const {
    const auto fits = [&](const Alpha& alpha) {
      if (module == alpha.module) return true;
      return !alpha.whole && module.ends_with("." + alpha.module);
    };
    const auto own = std::ranges::find_if(alphas_, fits);
    const double alpha = own != alphas_.end() ? own->alpha : alpha_;
    const auto size = static_cast<double>(rank);
    const double scale = alpha / (uses_root_ ? std::sqrt(size) : size);
    if (std::abs(scale) > std::numeric_limits<float>::max()) {
      fields_.Fail(own != alphas_.end() ? "alpha_pattern" : "lora_alpha",
                   "is too large for a scale of the module \"" + module + "\"");
    }
    return static_cast<float>(scale);
  }

 private:
  struct Alpha {
    std::string module;
    bool whole;  // it is the whole name, not its ending
    double alpha;
  };

  void CheckKind() const {
    if (const std::string kind = fields_.String("peft_type", "LORA"); kind != "LORA") {
      fields_.FailValue("peft_type", "\"LORA\"");
    }
    if (fields_.String("bias", "none") != "none") fields_.FailValue("bias", "\"none\"");
    for (const char* name : {"use_dora", "lora_bias", "use_qalora"}) {
      if (fields_.Bool(name, false)) fields_.FailValue(name, "false");
    }
    for (const char* name : {"modules_to_save", "trainable_token_indices", "target_parameters",
                             "layer_replication", "alora_invocation_tokens", "megatron_config"}) {
      CheckEmpty(name);
    }
    // These begin with other weights of the model than it has.
    const JsonValue* start = fields_.Find("init_lora_weights");
    if (start == nullptr || !start->is_string()) return;
    for (const std::string_view kind : {"pissa", "olora", "corda", "loftq"}) {
      if (start->AsString().starts_with(kind)) {
        fields_.FailValue("init_lora_weights",
                          "true, false, \"gaussian\", \"eva\" or \"orthogonal\" (others change the "
                          "model's own weights)");
      }
    }
  }

  // Which modules the names of "rank_pattern" stand for is not looked at: their tensors tell.
  void ReadRanks() {
    if (!fields_.Has("r")) return;
    ranks_.insert(fields_.Integer("r", std::nullopt, 1, kMaxAdapterRank));
    const ConfigFields patterns = fields_.Object("rank_pattern");
    for (const std::string& name : patterns.Names()) {
      ranks_.insert(patterns.Integer(name.c_str(), std::nullopt, 1, kMaxAdapterRank));
    }
  }

  void CheckEmpty(const char* name) const {
    const JsonValue* value = fields_.Find(name);
    if (value == nullptr) return;
    const bool is_empty = (value->is_array() && value->AsArray().empty()) ||
                          (value->is_object() && value->AsObject().empty());
    if (!is_empty) fields_.FailValue(name, "null");
  }

  ConfigFields fields_;
  std::set<int64_t> ranks_;  // empty: any
  double alpha_ = 0;
  bool uses_root_ = false;
  std::vector<Alpha> alphas_;
};

// ---- adapter_model.safetensors ----

// The two matrices of a module.
struct Update {
  Checkpoint::Entry down{};  // [rank, columns]
  Checkpoint::Entry up{};    // [rows, rank]

  int64_t rank() const { return down.tensor->shape[0]; }
};

using Updates = std::map<std::string, Update>;  // by module

// Adds a tensor to the update of its module.
void AddTensor(const TensorFile& file, const TensorInfo& tensor, Updates* updates) {
  std::string_view name = tensor.name;
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  for (const bool is_down : {true, false}) {
    const std::string_view mark = is_down ? ".lora_A." : ".lora_B.";
    const size_t at = name.rfind(mark);
    if (at == name.npos) continue;
    // The name of the adapter may follow the mark.
    const std::string_view ending = name.substr(at + mark.size());
    if (ending != "weight" && ending != "default.weight") continue;
    Update& update = (*updates)[std::string(name.substr(0, at))];
    Checkpoint::Entry& of_module = is_down ? update.down : update.up;
    if (of_module.tensor != nullptr) {
      FailTensor(file.path, tensor.name, "its module has another one");
    }
    if (!tensor.dtype) FailTensor(file.path, tensor.name, "has the type " + tensor.dtype_name);
    if (tensor.shape.size() != 2) {
      FailTensor(file.path, tensor.name, "has the shape " + ShapeString(tensor.shape));
    }
    of_module = {&tensor, &file};
    return;
  }
  FailTensor(file.path, tensor.name,
             "is not supported; an adapter has \"<module>.lora_A.weight\" and "
             "\"<module>.lora_B.weight\" for modules of layers");
}

Updates UpdatesIn(const TensorFile& file) {
  Updates updates;
  for (const TensorInfo& tensor : file.tensors) AddTensor(file, tensor, &updates);
  if (updates.empty()) throw LoadError(file.path, file.path + ": there are no tensors");
  for (const auto& [module, update] : updates) {
    const TensorInfo* const down = update.down.tensor;
    if (down == nullptr || update.up.tensor == nullptr) {
      FailTensor(file.path, down != nullptr ? down->name : update.up.tensor->name,
                 "its module lacks the other of the two matrices");
    }
    if (update.rank() < 1 || update.rank() > kMaxAdapterRank) {
      FailTensor(file.path, down->name,
                 OutOfRangeMessage("rank", update.rank(),
                                   "in [1, " + std::to_string(kMaxAdapterRank) + "]"));
    }
  }
  return updates;
}

// ---- The linears ----

std::unique_ptr<WeightSource> Open(const Checkpoint::Entry& entry) {
  return OpenPlain(entry, entry.tensor->shape, 0);
}

// The values of all rows.
std::vector<float> Decoded(std::unique_ptr<WeightSource> source, int64_t rows, int64_t columns) {
  std::vector<float> values(static_cast<size_t>(rows * columns));
  source->Load();
  source->Decode(0, rows, values.data());
  source->Drop();
  return values;
}

class AdapterReader {
 public:
  AdapterReader(const AdapterTargets& targets, const AdapterConfig& config, std::string path)
      : targets_(targets), config_(config), path_(std::move(path)) {}

  AdapterWeights Read(const Updates& updates) {
    AdapterWeights weights;
    for (const auto& [module, update] : updates) {
      for (const AdapterTargets::Target& target : TargetsOf(module, update)) {
        parts_[{target.layer, target.role}].push_back({&module, &update, &target});
      }
      weights.max_rank = std::max(weights.max_rank, update.rank());
    }
    for (const auto& [place, parts] : parts_) weights.linears.push_back(Join(parts));
    return weights;
  }

 private:
  // Rows of a linear that a module's update changes.
  struct Part {
    const std::string* module;
    const Update* update;
    const AdapterTargets::Target* target;
  };

  const std::vector<AdapterTargets::Target>& TargetsOf(const std::string& module,
                                                       const Update& update) const {
    const std::vector<AdapterTargets::Target>* const targets = targets_.Find(module);
    if (targets == nullptr) {
      FailTensor(path_, update.down.tensor->name,
                 "the model's layers have no linear \"" + module + "\" that adapters can change");
    }
    if (!config_.Allows(update.rank())) {
      FailTensor(path_, update.down.tensor->name,
                 "has the rank " + std::to_string(update.rank()) +
                     ", which is neither \"r\" nor in \"rank_pattern\" of " + kConfigFile);
    }
    for (const AdapterTargets::Target& target : *targets) {
      if (!target.refusal.empty()) FailTensor(path_, update.down.tensor->name, target.refusal);
      RequireShape(*update.down.tensor, {update.rank(), StoredColumns(target.slot)});
      RequireShape(*update.up.tensor, {StoredRows(target.slot), update.rank()});
    }
    return *targets;
  }

  void RequireShape(const TensorInfo& tensor, const std::vector<int64_t>& shape) const {
    if (tensor.shape == shape) return;
    FailTensor(
        path_, tensor.name,
        "has the shape " + ShapeString(tensor.shape) + "; the model needs " + ShapeString(shape));
  }

  // Of the tensor that the slot takes rows of.
  static int64_t StoredRows(const WeightSlot& slot) {
    return slot.part.num_rows > 0 ? slot.part.num_rows : slot.UnpaddedShape()[0];
  }
  static int64_t StoredColumns(const WeightSlot& slot) { return slot.UnpaddedShape()[1]; }

  // [rank, columns]
  std::vector<float> DownOf(const Part& part) const {
    const WeightSlot& slot = part.target->slot;
    std::unique_ptr<WeightSource> source = Open(part.update->down);
    if (slot.padding.padded > 0 && slot.padding.in_columns) {
      source = Padded(std::move(source), slot.shape[1], slot.padding);
    }
    return Decoded(std::move(source), part.update->rank(), slot.shape[1]);
  }

  // [rows of the slot, rank]
  std::vector<float> UpOf(const Part& part) const {
    const WeightSlot& slot = part.target->slot;
    const int64_t rank = part.update->rank();
    std::unique_ptr<WeightSource> source = Open(part.update->up);
    if (slot.part.num_rows > 0) {
      source = std::make_unique<PartOfWeight>(std::move(source), slot.part.num_rows, rank,
                                              RangesOf(slot.part, slot.rows()),
                                              std::vector<IndexRange>());
    }
    if (slot.padding.padded > 0 && !slot.padding.in_columns) {
      source = Padded(std::move(source), rank, slot.padding);
    }
    std::vector<float> up = Decoded(std::move(source), slot.rows(), rank);
    const float scale = config_.ScaleOf(*part.module, rank) * slot.scale;
    for (float& value : up) value *= scale;
    return up;
  }

  // The two matrices of a linear from those of all modules that fill rows of it.
  AdapterLinear Join(const std::vector<Part>& parts) const {
    const AdapterTargets::Target& first = *parts.front().target;
    AdapterLinear linear{.layer = first.layer,
                         .role = first.role,
                         .rows = first.linear_rows,
                         .columns = first.slot.shape[1],
                         .down = {},
                         .ups = {}};
    std::map<const Update*, int64_t> columns;  // where those of a module begin in `up`
    for (const Part& part : parts) {
      if (!columns.try_emplace(part.update, linear.rank).second) continue;
      linear.rank += part.update->rank();
      const std::vector<float> down = DownOf(part);
      linear.down.insert(linear.down.end(), down.begin(), down.end());
    }
    if (linear.rank > kMaxLinearRank) {
      FailTensor(path_, parts.front().update->down.tensor->name,
                 OutOfRangeMessage("the sum of the ranks of its linear", linear.rank,
                                   "at most " + std::to_string(kMaxLinearRank)));
    }
    for (const Part& part : parts) {
      linear.ups.push_back({.row = part.target->slot.row_offset,
                            .rows = part.target->slot.rows(),
                            .column = columns.at(part.update),
                            .rank = part.update->rank(),
                            .values = UpOf(part)});
    }
    return linear;
  }

  const AdapterTargets& targets_;
  const AdapterConfig& config_;
  const std::string path_;
  std::map<std::pair<size_t, LinearRole>, std::vector<Part>> parts_;
};

}  // namespace

AdapterWeights ReadAdapter(const std::string& folder, const AdapterTargets& targets) {
  const AdapterConfig config(folder + "/" + kConfigFile);
  const std::string path = folder + "/" + kTensorFile;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored) &&
      std::filesystem::exists(folder + "/adapter_model.bin", ignored)) {
    throw LoadError(path, path +
                              " is missing; adapter_model.bin is not read, because reading it may "
                              "run code");
  }
  const TensorFile file = ReadSafetensors(path);
  return AdapterReader(targets, config, file.path).Read(UpdatesIn(file));
}

}  // namespace mlc_native
