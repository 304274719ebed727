// HasGgufSampling and GgufGenerationConfigJson of gguf_config.h: how the authors sample.
//
// The chain of samplers, XTC, Mirostat and how far back a penalty looks are not read: they have no
// counterpart here.
#include <algorithm>

#include "model_files/gguf_config.h"
#include "support/json.h"

namespace mlc_native {
namespace {

struct SamplingKey {
  const char* key;
  const char* field;
};
constexpr SamplingKey kSampling[] = {
    {"general.sampling.temp", "temperature"},
    {"general.sampling.top_k", "top_k"},
    {"general.sampling.top_p", "top_p"},
    {"general.sampling.min_p", "min_p"},
    {"general.sampling.penalty_repeat", "repetition_penalty"},
};

}  // namespace

bool HasGgufSampling(const GgufFile& file) {
  return std::ranges::any_of(kSampling,
                             [&](const SamplingKey& each) { return file.Has(each.key); });
}

std::string GgufGenerationConfigJson(const GgufFile& file) {
  JsonWriter json;
  // A temperature of 0 or below it is greedy, as for llama.cpp.
  json.BeginObject().Add("do_sample", file.Number(kSampling[0].key).value_or(1.0) > 0);
  for (const auto& [key, field] : kSampling) {
    if (const std::optional<double> value = file.Number(key)) json.Add(field, *value);
  }
  json.EndObject();
  return json.Take();
}

}  // namespace mlc_native
