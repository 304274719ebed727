// The weights of an adapter (LoRA) as floats, read from a folder of PEFT, and which tensors of a
// decoder's checkpoint an adapter may change.
//
// An adapter adds up[rows, rank] * (down[rank, columns] * x) to what a linear gives. A linear that
// several tensors fill has one such pair for all of them: `down` has the rows of one tensor's
// update behind those of another's, and `up` has zeros where a row's tensor has no part in a
// column. The targets are immutable; any thread. Devices pack what is read in forms of their own.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "mlc_native/detail/export.h"
#include "weights/weight_map.h"

namespace mlc_native {

// The most that the update of a tensor has, and those of a linear's tensors together.
inline constexpr int64_t kMaxAdapterRank = 1024;
inline constexpr int64_t kMaxLinearRank = 4096;

// Whether an adapter may change linears of this role: those that each layer has once.
constexpr bool TakesAdapters(LinearRole role) {
  return !IsOfExperts(role) && !IsOfHeads(role) && !IsOfKeyChoice(role);
}

// What tensors of a decoder's layers an adapter may change, and which rows of a linear each fills.
class AdapterTargets {
 public:
  struct Target {
    size_t layer = 0;
    LinearRole role = LinearRole::kQkv;
    int64_t linear_rows = 0;
    WeightSlot slot;
    std::string refusal;  // why an adapter cannot change it; empty: it can
  };

  AdapterTargets() = default;  // none
  MLC_NATIVE_PRIVATE_API AdapterTargets(const ModelConfig& config, const WeightMap& map);

  // The targets of a module of the model; null if the layers have none of this name, which may
  // begin with any prefix that checkpoints of the family have.
  const std::vector<Target>* Find(const std::string& module) const;

 private:
  std::string WithoutPrefix(const std::string& name) const;

  std::vector<std::string> prefixes_;                   // longest first
  std::map<std::string, std::vector<Target>> targets_;  // by name without prefix
};

struct AdapterLinear {
  size_t layer = 0;
  LinearRole role = LinearRole::kQkv;
  int64_t rank = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<float> down;  // [rank, columns]
  // Where `up` is not zero: rows [row, row + rows) and columns [column, column + rank), times the
  // adapter's scale. Parts have no rows in common.
  struct Up {
    int64_t row = 0;
    int64_t rows = 0;
    int64_t column = 0;
    int64_t rank = 0;
    std::vector<float> values;  // [rows, rank]
  };
  std::vector<Up> ups;
};

struct AdapterWeights {
  std::vector<AdapterLinear> linears;  // each (layer, role) once
  int64_t max_rank = 0;                // of a tensor
};

// Reads adapter_config.json and adapter_model.safetensors. Throws LoadError, which names the file
// and the field or tensor, for what is missing, damaged or not supported.
MLC_NATIVE_PRIVATE_API AdapterWeights ReadAdapter(const std::string& folder,
                                                  const AdapterTargets& targets);

}  // namespace mlc_native
