#include "testing/tiny_adapter.h"

#include <cstring>
#include <random>

#include <nlohmann/json.hpp>

namespace mlc_native::testing {
namespace {

constexpr std::string_view kEnding = ".weight";

std::vector<float> Random(std::minstd_rand* random, int64_t count) {
  std::uniform_real_distribution<float> uniform(-0.2f, 0.2f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = uniform(*random);
  return values;
}

}  // namespace

TinyAdapter::TinyAdapter(const std::string& config, int64_t rank, unsigned seed) : rank_(rank) {
  const TempFolder folder;
  folder.Write("config.json", config);
  const ModelConfig parsed = ReadModelConfig(folder.path());
  const WeightMap map = TinyMap(parsed);
  const AdapterTargets targets(parsed, map);
  std::minstd_rand random(seed);
  for (const WeightSlot& slot : map.slots) {
    if (!slot.name.ends_with(kEnding)) continue;
    const std::string module = slot.name.substr(0, slot.name.size() - kEnding.size());
    const auto* const found = targets.Find(module);
    if (found == nullptr || !found->front().refusal.empty() || modules_.contains(module)) continue;
    const std::vector<int64_t> shape = slot.UnpaddedShape();
    Module& made = modules_[module];
    made.rows = slot.part.num_rows > 0 ? slot.part.num_rows : shape[0];
    made.columns = shape[1];
    made.is_transposed = slot.joined.transposed;
    made.down = Random(&random, rank * made.columns);
    made.up = Random(&random, made.rows * rank);
  }
}

void TinyAdapter::KeepOnly(const std::string& ending) {
  std::erase_if(modules_, [&](const auto& module) { return !module.first.ends_with(ending); });
}

void TinyAdapter::Write(const TempFolder& folder) const {
  folder.Write("adapter_config.json", nlohmann::json({{"peft_type", "LORA"},
                                                      {"r", rank_},
                                                      {"lora_alpha", alpha_},
                                                      {"target_modules", {"all"}},
                                                      {"bias", "none"}})
                                          .dump());
  nlohmann::json header;
  std::string data;
  const auto add = [&](const std::string& name, const std::vector<float>& values, int64_t rows) {
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    header["base_model.model." + name] = {
        {"dtype", "F32"},
        {"shape", {rows, static_cast<int64_t>(values.size()) / rows}},
        {"data_offsets", {begin, data.size()}}};
  };
  for (const auto& [name, module] : modules_) {
    add(name + ".lora_A.weight", module.down, rank_);
    add(name + ".lora_B.weight", module.up, module.rows);
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  std::string prefix(8, '\0');
  std::memcpy(prefix.data(), &length, 8);
  folder.Write("adapter_model.safetensors", prefix + text + data);
}

EditTensor TinyAdapter::Merge() const {
  return [this](const std::string& name, std::vector<float>* values) {
    if (!name.ends_with(kEnding)) return;
    const auto found = modules_.find(name.substr(0, name.size() - kEnding.size()));
    if (found == modules_.end()) return;
    const Module& module = found->second;
    for (int64_t row = 0; row < module.rows; ++row) {
      for (int64_t column = 0; column < module.columns; ++column) {
        double sum = 0;
        for (int64_t i = 0; i < rank_; ++i) {
          sum += double{module.up[row * rank_ + i]} * module.down[i * module.columns + column];
        }
        const int64_t at =
            module.is_transposed ? column * module.rows + row : row * module.columns + column;
        (*values)[at] += static_cast<float>(sum * scale());
      }
    }
  };
}

}  // namespace mlc_native::testing
