#include "model_files/gguf_layer_sizes.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model_files/gguf_layer_keys.h"

namespace mlc_native {
namespace {

constexpr char kPattern[] = "attention.sliding_window_pattern";
constexpr char kHeadDim[] = "attention.key_length";
constexpr char kWindowHeadDim[] = "attention.key_length_swa";
constexpr char kKvHeads[] = "attention.head_count_kv";
constexpr char kFfn[] = "feed_forward_length";
constexpr char kRopeFactors[] = "rope_freqs.weight";

class LayerSizes : GgufLayerKeys {
 public:
  LayerSizes(const GgufParts& parts, std::string_view family, JsonWriter& json)
      : GgufLayerKeys(parts.first(), family), parts_(parts), file_(parts.first()), json_(json) {}

  void Write() {
    ReadKinds();
    WriteHeads();
    WriteSharing();
    WriteInputs();
    WriteRopes();
  }

 private:
  void ReadKinds() {
    Require("attention.sliding_window");
    Require(kPattern);
    if (!file_.IsList(Key(kPattern))) Fail(kPattern, "must be a list");
    has_window_ = OfLayers(kPattern);
    if (has_window_.back() != 0) {
      Fail(kPattern, "gives the last layer a window, which is not supported");
    }
  }

  // Layers without a window have heads of their own sizes.
  void WriteHeads() {
    const int64_t head_dim = Required(kHeadDim);
    const int64_t window_head_dim = Required(kWindowHeadDim);
    CheckSame("attention.value_length", head_dim, kHeadDim);
    CheckSame("attention.value_length_swa", window_head_dim, kWindowHeadDim);
    const std::vector<int64_t> kv_heads = OfLayers(kKvHeads);
    const auto first = [&](bool window) -> std::optional<int64_t> {
      for (size_t i = 0; i < kv_heads.size(); ++i) {
        if ((has_window_[i] != 0) == window) return kv_heads[i];
      }
      return std::nullopt;
    };
    const int64_t whole = first(false).value_or(0);  // of the last layer, if of no other
    const int64_t windowed = first(true).value_or(whole);
    json_.Add("head_dim", window_head_dim).Add("num_key_value_heads", windowed);
    json_.Name("per_layer_config").BeginObject();
    for (size_t i = 0; i < kv_heads.size(); ++i) {
      const bool window = has_window_[i] != 0;
      if (kv_heads[i] != (window ? windowed : whole)) {
        Fail(kKvHeads, "differs among layers " + std::string(window ? "with" : "without") +
                           " a window, which is not supported");
      }
      if (window) continue;
      json_.Name(std::to_string(i)).BeginObject().Add("head_dim", head_dim);
      json_.Add("num_key_value_heads", whole).EndObject();
    }
    json_.EndObject();
    json_.Add("attention_k_eq_v", KeysAreValues());
  }

  void CheckSame(std::string_view key, int64_t value, std::string_view as) const {
    const int64_t given = file_.Integer(Key(key)).value_or(value);
    if (given == value) return;
    Fail(key, "= " + std::to_string(given) + " must be " + Key(as) + " = " + std::to_string(value));
  }

  // Whether a layer without a window has a tensor of keys and none of values.
  bool KeysAreValues() const {
    for (size_t i = 0; i < has_window_.size(); ++i) {
      const std::string block = "blk." + std::to_string(i) + ".attn_";
      if (has_window_[i] == 0 && parts_.Has(block + "k.weight")) {
        return !parts_.Has(block + "v.weight");
      }
    }
    return false;
  }

  // The last layers may read the keys and values of others, and then may have wider blocks.
  void WriteSharing() {
    constexpr char kShared[] = "attention.shared_kv_layers";
    const auto layers = std::ssize(has_window_);
    const int64_t shared = file_.Integer(Key(kShared)).value_or(0);
    if (shared < 0 || shared >= layers) {
      Fail(kShared,
           "= " + std::to_string(shared) + " must be in [0, " + std::to_string(layers - 1) + "]");
    }
    const std::vector<int64_t> sizes = OfLayers(kFfn);
    const auto others = sizes.end() - shared;
    const bool same = std::ranges::adjacent_find(sizes, std::not_equal_to{}) == sizes.end();
    const bool wide = !same &&
                      std::count(sizes.begin(), others, sizes.front()) == layers - shared &&
                      std::count(others, sizes.end(), 2 * sizes.front()) == shared;
    if (!same && !wide) {
      Fail(kFfn, "may differ only where it is twice as much in the last layers, those of " +
                     Key(kShared));
    }
    json_.Add("num_kv_shared_layers", shared).Add("use_double_wide_mlp", wide);
    json_.Add("intermediate_size", sizes.front());
  }

  void WriteInputs() {
    json_.Add("hidden_size_per_layer_input", Required("embedding_length_per_layer_input"));
    const GgufParts::Place table = parts_.Find("per_layer_token_embd.weight");
    if (table.tensor == nullptr) return;
    json_.Add("vocab_size_per_layer_input", table.tensor->shape.front());
  }

  void WriteRopes() {
    CheckSame("rope.dimension_count", Required(kHeadDim), kHeadDim);
    CheckSame("rope.dimension_count_swa", Required(kWindowHeadDim), kWindowHeadDim);
    const std::string scaling = file_.String(Key("rope.scaling.type")).value_or("none");
    if (scaling != "none") {
      Fail("rope.scaling.type", "= \"" + scaling + "\" is not supported for this family");
    }
    const double base = file_.Number(Key("rope.freq_base")).value_or(10000.0);
    json_.Name("rope_parameters").BeginObject();
    json_.Name("full_attention").BeginObject().Add("rope_type", "proportional");
    json_.Add("partial_rotary_factor", RotatedPart()).Add("rope_theta", base).EndObject();
    json_.Name("sliding_attention").BeginObject().Add("rope_type", "default");
    json_.Add("rope_theta", file_.Number(Key("rope.freq_base_swa")).value_or(base)).EndObject();
    json_.EndObject();
  }

  // Of layers without a window, the part of the pairs of a head that are rotated: those in front,
  // whose wavelengths are multiplied by 1 and not by a number that leaves no rotation.
  double RotatedPart() const {
    constexpr double kNone = 1e29;  // the converter writes 1e30
    const GgufParts::Place place = parts_.Find(kRopeFactors);
    if (place.tensor == nullptr) file_.Fail(kRopeFactors, "is missing");
    const std::vector<double> factors = place.file->ReadFloats(*place.tensor);
    const int64_t pairs = Required(kHeadDim) / 2;
    if (std::ssize(factors) != pairs) {
      file_.Fail(kRopeFactors, "has " + std::to_string(factors.size()) + " entries for " +
                                   std::to_string(pairs) + " pairs of a head");
    }
    const auto rotated = std::ranges::find_if(factors, [](double factor) { return factor != 1; });
    if (std::any_of(rotated, factors.end(), [](double factor) { return !(factor >= kNone); })) {
      file_.Fail(kRopeFactors,
                 "must be 1 for the first pairs of a head and at least 1e29 for the "
                 "others: other wavelengths are not supported");
    }
    // The reader multiplies by the number of pairs and rounds down.
    const auto count = static_cast<double>(rotated - factors.begin());
    return rotated == factors.end() ? 1.0 : (count + 0.5) / static_cast<double>(pairs);
  }

  const GgufParts& parts_;
  const GgufFile& file_;  // the first, which has the metadata
  JsonWriter& json_;
  std::vector<int64_t> has_window_;  // of each layer
};

}  // namespace

void WriteGgufLayerSizes(const GgufParts& parts, std::string_view family, JsonWriter& json) {
  LayerSizes(parts, family, json).Write();
}

}  // namespace mlc_native
