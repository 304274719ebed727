#include "testing/tiny_checkpoint.h"

#include <cstring>
#include <fstream>
#include <random>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "arch/arch_spec.h"
#include "arch/draft_config.h"
#include "arch/mamba_fields.h"
#include "arch/model_config.h"
#include "weights/decoder_map.h"
#include "weights/weight_map.h"

namespace mlc_native::testing {
namespace {

void WriteTensors(const TempFolder& folder, const WeightMap& map, const EditTensor& edit = {}) {
  std::minstd_rand random(1);
  nlohmann::json header;
  std::string data;
  std::vector<WeightSlot> slots;
  for (const WeightSlot& slot : map.slots) {
    const std::vector<WeightSlot> tensors = slot.Tensors();
    slots.insert(slots.end(), tensors.begin(), tensors.end());
  }
  for (const WeightSlot& slot : slots) {
    if (slot.name.empty()) continue;                                    // of ones
    if (slot.joined.index > 0 || header.contains(slot.name)) continue;  // written with the first
    const size_t begin = data.size();
    std::vector<int64_t> shape = slot.joined.StoredShape(slot.UnpaddedShape());
    if (slot.part.num_rows > 0) shape = slot.part.StoredShape(slot.shape);
    int64_t elements = 1;
    for (int64_t size : shape) elements *= size;
    const float centre = slot.shape.size() == 1 ? 1.0f : 0.0f;
    std::uniform_real_distribution<float> uniform(centre - 0.2f, centre + 0.2f);
    std::vector<float> values(static_cast<size_t>(elements));
    for (float& value : values) value = uniform(random);
    if (edit) edit(slot.name, &values);
    if (slot.num_integers > 0) {
      for (int64_t i = 0; i < elements; ++i) {
        const int64_t value = i % slot.num_integers;
        data.append(reinterpret_cast<const char*>(&value), sizeof(value));
      }
    } else {
      data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    }
    header[slot.name] = {{"dtype", slot.num_integers > 0 ? "I64" : "F32"},
                         {"shape", shape},
                         {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  std::string prefix(8, '\0');
  std::memcpy(prefix.data(), &length, 8);
  folder.Write("model.safetensors", prefix + text + data);
}

}  // namespace

std::string TinyConfig(const std::string& architecture, const std::string& given) {
  std::string fields = given;
  const auto add = [&fields](std::string_view name, const std::string& value) {
    const std::string key = '"' + std::string(name) + "\": ";
    if (fields.find(key) == std::string::npos) fields += (fields.empty() ? "" : ", ") + key + value;
  };
  const ArchSpec* const arch = FindArchitecture(architecture);
  if (arch != nullptr) {
    if (arch->ffn_size_field != "intermediate_size") add(arch->ffn_size_field, "48");
    const ExpertRule& experts = arch->experts;
    const bool has_experts = !experts.num_experts.empty();
    if (has_experts && experts.absent.num_experts == 0) add(experts.num_experts, "8");
    if (has_experts && experts.absent.num_chosen == 0) add(experts.num_chosen, "2");
    if (arch->defaults.num_kv_shared_layers > 0) add("num_kv_shared_layers", "1");
    if (arch->reads_layer_inputs) {
      add("hidden_size_per_layer_input", "8");
      add("vocab_size_per_layer_input", "50");
    }
    if (arch->has_residual_streams) {
      add("altup_active_idx", "1");
      add("activation_sparsity_pattern", "[0.9, 0]");
    }
    if (arch->has_delta_layers) {
      add("full_attention_interval", "2");
      add("head_dim", "16");
      add("linear_num_key_heads", "2");
      add("linear_num_value_heads", "4");
      add("linear_key_head_dim", "16");
      add("linear_value_head_dim", "24");
    }
    if (arch->decays_channels) {
      add("linear_num_heads", "4");
      add("linear_head_dim", "16");
    }
    if (arch->has_compressed_attention) {
      for (const char* field : {"num_key_value_heads", "n_shared_experts"}) add(field, "1");
      for (const char* field : {"head_dim", "q_lora_rank", "index_head_dim"}) add(field, "16");
      for (const char* field : {"o_groups", "num_experts_per_tok", "index_topk"}) add(field, "2");
      for (const char* field : {"o_lora_rank", "n_routed_experts", "index_n_heads"})
        add(field, "8");
      add("compress_rate_hca", "6");
      add("layer_types", R"(["heavily_compressed_attention", "compressed_sparse_attention"])");
      add("mlp_layer_types", R"(["hash_moe", "moe"])");
    }
    if (arch->distance_rule == DistanceRule::kVectors) {
      add("pos_att_type", R"(["c2p", "p2c"])");
      add("norm_rel_ebd", R"("layer_norm")");
      add("position_buckets", "8");
    }
    if (!arch->layer_heads_field.empty()) add(arch->layer_heads_field, "[4, 8]");
    if (arch->mamba != nullptr) {
      add(arch->mamba->num_heads, "4");
      add(arch->mamba->state_dim, "24");
    }
    if (arch->attends_beside_mamba) add(arch->mamba->size, "48");
    if (arch->scan != nullptr) {
      add(arch->scan->state_dim, "12");
      add(arch->scan->rank, "8");
    }
    if (arch->scan != nullptr && arch->scan->attn_period != nullptr) {
      add(arch->scan->attn_period, "2");
      add(arch->scan->attn_offset, "1");
    }
    if (arch->has_single_blocks && arch->mamba != nullptr) {
      add(arch->mamba->head_dim, arch->has_mamba_alone ? "16" : "12");
      add(arch->mamba->num_groups, "2");
      add("head_dim", "16");
      add(experts.ffn_size, "24");
      add(experts.shared_size, "40");
    }
    for (const Requirement& each : arch->requirements) {
      const std::string value(each.values.front());
      const bool is_number = value.find_first_not_of("0123456789") == std::string::npos;
      add(each.field, is_number ? value : '"' + value + '"');
    }
  }
  add("num_key_value_heads", arch != nullptr && arch->latent.exists ? "4" : "2");
  return R"({"architectures": [")" + architecture + R"("], "vocab_size": 50, "hidden_size": 32,
    "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 256)" +
         (fields.empty() ? "" : ", " + fields) + "}";
}

WeightMap TinyMap(const ModelConfig& config) {
  const TensorNames& names = config.arch->names;
  return MakeWeightMap(
      config, {.prefix = std::string(names.prefixes.front()),
               .head = config.tie_word_embeddings ? "" : std::string(names.heads.front()),
               .head_bias = "lm_head.bias",
               .experts = config.experts ? &config.arch->experts.spellings.front() : nullptr});
}

void WriteTinyCheckpoint(const TempFolder& folder, const std::string& config,
                         const EditTensor& edit) {
  folder.Write("config.json", config);
  WriteTensors(folder, TinyMap(ReadModelConfig(folder.path())), edit);
}

void WriteTinyDraftHead(const TempFolder& folder, const std::string& target_folder,
                        const std::string& layer, const std::string& fields) {
  folder.Write("config.json", R"({"vocab_size": 50, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 256, "eagle_aux_hidden_state_layer_ids": [0, 1, 2])" +
                                  (fields.empty() ? "" : ", " + fields) + "}");
  const auto has_tensor = [&](const std::string& name) {
    return name == "fc.weight" || name == layer + "self_attn.o_proj.weight" ||
           (layer == "midlayer." && name == layer + "hidden_norm.weight");
  };
  const ModelConfig target = ReadModelConfig(target_folder);
  WriteTensors(folder, MakeWeightMap(ReadDraftHeadConfig(folder.path(), target, has_tensor), {}));
}

}  // namespace mlc_native::testing
