#include "model_files/gguf_streams.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "model_files/gguf_layer_keys.h"

namespace mlc_native {
namespace {

class Streams : GgufLayerKeys {
 public:
  Streams(const GgufParts& parts, std::string_view family, JsonWriter& json)
      : GgufLayerKeys(parts.first(), family), parts_(parts), file_(parts.first()), json_(json) {}

  void Write() {
    Require("attention.sliding_window");
    Require("attention.head_count_kv");
    Require("rope.freq_base");
    json_.Add("altup_num_inputs", Required("altup.num_inputs"))
        .Add("altup_active_idx", Required("altup.active_idx"))
        .Add("num_kv_shared_layers", Required("attention.shared_kv_layers"))
        .Add("hidden_size_per_layer_input", Required("embedding_length_per_layer_input"));
    AddRowsOf("per_layer_token_embd.weight", "vocab_size_per_layer_input");
    AddRowsOf("blk.0.laurel_l.weight", "laurel_rank");
    json_.Name("intermediate_size").BeginArray();
    for (const int64_t size : OfLayers("feed_forward_length")) json_.Put(size);
    json_.EndArray();
    WriteGateCuts();
  }

 private:
  void AddRowsOf(const char* tensor, const char* field) {
    const GgufParts::Place place = parts_.Find(tensor);
    if (place.tensor != nullptr) json_.Add(field, place.tensor->shape.front());
  }

  // How many standard deviations above the mean of the gates they are cut; minus infinity: not.
  void WriteGateCuts() {
    constexpr char kScale[] = "activation_sparsity_scale";
    constexpr double kNot = -1e30;  // which JSON has
    Require(kScale);
    json_.Name("activation_sparsity_deviations").BeginArray();
    for (const double scale : file_.Numbers(Key(kScale), /*may_be_infinite=*/true)) {
      if (std::isinf(scale) && scale > 0) Fail(kScale, "has an infinity, which cuts all gates");
      json_.Put(std::max(scale, kNot));
    }
    json_.EndArray();
  }

  const GgufParts& parts_;
  const GgufFile& file_;  // the first, which has the metadata
  JsonWriter& json_;
};

}  // namespace

void WriteGgufStreams(const GgufParts& parts, std::string_view family, JsonWriter& json) {
  Streams(parts, family, json).Write();
}

}  // namespace mlc_native
