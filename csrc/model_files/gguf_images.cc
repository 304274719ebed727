#include "model_files/gguf_images.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace mlc_native {
namespace {

constexpr int64_t kMostSections = 1 << 16;  // above what a head or a model has

std::string ImageKey(const GgufFamily& family, std::string_view name) {
  return std::string(family.name) + "." + std::string(name);
}

// The Gemma 3 that read no images are told by their number of layers.
bool SeesImages(const GgufFile& file, const GgufFamily& family) {
  constexpr std::array<int64_t, 2> kLayersOfTextModels = {18, 26};
  const int64_t layers = file.Integer(ImageKey(family, "block_count")).value_or(0);
  return std::ranges::find(kLayersOfTextModels, layers) == kLayersOfTextModels.end();
}

void CheckImageNumber(const GgufFile& file, const std::string& key, int64_t number) {
  if (number >= 0 && number <= kMostSections) return;
  file.Fail(key, "has " + std::to_string(number) + ", which must be in [0, " +
                     std::to_string(kMostSections) + "]");
}

}  // namespace

void WriteGgufImages(const GgufFile& file, const GgufFamily& family, JsonWriter& json) {
  if (family.image_rows == GgufImageRows::kInOneStep && SeesImages(file, family)) {
    json.Add("rows_see_each_other", true);
  }
  if (family.image_rows != GgufImageRows::kInTurns) return;
  const std::string key = ImageKey(family, "n_deepstack_layers");
  const int64_t added = file.Integer(key).value_or(0);
  CheckImageNumber(file, key, added);
  if (added == 0) return;
  json.Name("vision_config").BeginObject().Name("deepstack_visual_indexes").BeginArray();
  for (int64_t i = 0; i < added; ++i) json.Put(i);
  json.EndArray().EndObject();
}

void WriteGgufImagePositions(const GgufFile& file, const GgufFamily& family, JsonWriter& json) {
  const bool in_turns = family.image_rows == GgufImageRows::kInTurns;
  if (!in_turns && family.image_rows != GgufImageRows::kSections) return;
  const std::string key = ImageKey(family, "rope.dimension_sections");
  if (!file.Has(key)) return;
  const std::vector<int64_t> sections = file.Integers(key);  // and perhaps a fourth, which is 0
  constexpr size_t kNumbers = 3;
  if (sections.size() < kNumbers) file.Fail(key, "must have 3 numbers");
  json.Name("mrope_section").BeginArray();
  for (size_t i = 0; i < kNumbers; ++i) {
    CheckImageNumber(file, key, sections[i]);
    json.Put(sections[i]);
  }
  json.EndArray().Add("mrope_interleaved", in_turns);
}

}  // namespace mlc_native
