#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "weights/adapter_weights.h"

namespace mlc_native {
namespace {

constexpr std::string_view kWeightEnding = ".weight";

// The name of the module that has a tensor.
std::string ModuleOf(const std::string& tensor) {
  return tensor.ends_with(kWeightEnding) ? tensor.substr(0, tensor.size() - kWeightEnding.size())
                                         : tensor;
}

// Whether vectors of distances are made with the weight (DistanceRows), too.
bool MakesDistances(const ModelConfig& config, LinearRole role, const WeightSlot& slot) {
  return config.distances.rows.exists() && role == LinearRole::kQkv &&
         slot.row_offset < config.q_size() + config.kv_size();
}

std::string RefusalOf(const ModelConfig& config, LinearRole role, const WeightSlot& slot) {
  if (MakesDistances(config, role, slot)) {
    return "it makes the vectors of distances, too, which adapters cannot change";
  }
  if (IsOfHeads(role) || slot.part.transposed) {
    return "its rows and columns become matrices of heads, which adapters cannot change";
  }
  if (!TakesAdapters(role)) return "adapters of what chooses keys are not supported";
  if (!slot.beside.empty() || slot.row_norm_eps != 0) {
    return "its values are computed from what is stored, which adapters cannot change";
  }
  return "";
}

}  // namespace

AdapterTargets::AdapterTargets(const ModelConfig& config, const WeightMap& map) {
  for (const std::string_view prefix : config.arch->names.prefixes) prefixes_.emplace_back(prefix);
  prefixes_.emplace_back();
  std::ranges::sort(prefixes_, std::greater(), &std::string::size);
  // Of each parameter that is a matrix of a layer, which.
  struct Place {
    size_t layer = 0;
    const LinearParameters* linear = nullptr;
  };
  std::vector<Place> places(map.parameters.size());
  for (size_t layer = 0; layer < map.layers.size(); ++layer) {
    for (const LinearParameters& linear : map.layers[layer].linears) {
      places[linear.matrix] = {layer, &linear};
    }
  }
  for (const WeightSlot& slot : map.slots) {
    const Place& place = places[slot.parameter];
    if (place.linear == nullptr || slot.name.empty()) continue;
    const LinearRole role = place.linear->key.role;
    if (IsOfExperts(role)) continue;  // there may be tens of thousands
    targets_[WithoutPrefix(ModuleOf(slot.name))].push_back(
        {.layer = place.layer,
         .role = role,
         .linear_rows = map.parameters[slot.parameter].rows,
         .slot = slot,
         .refusal = RefusalOf(config, role, slot)});
  }
}

std::string AdapterTargets::WithoutPrefix(const std::string& name) const {
  for (const std::string& prefix : prefixes_) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

const std::vector<AdapterTargets::Target>* AdapterTargets::Find(const std::string& module) const {
  for (const std::string& prefix : prefixes_) {
    if (!module.starts_with(prefix)) continue;
    const auto found = targets_.find(module.substr(prefix.size()));
    if (found != targets_.end()) return &found->second;
  }
  return nullptr;
}

}  // namespace mlc_native
