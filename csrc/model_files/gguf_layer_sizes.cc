#include "model_files/gguf_layer_sizes.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace mlc_native {
namespace {

constexpr char kPattern[] = "attention.sliding_window_pattern";
constexpr char kHeadDim[] = "attention.key_length";
constexpr char kWindowHeadDim[] = "attention.key_length_swa";
constexpr char kKvHeads[] = "attention.head_count_kv";
constexpr char kFfn[] = "feed_forward_length";
constexpr char kRopeFactors[] = "rope_freqs.weight";

class LayerSizes {
 public:
  LayerSizes(const GgufParts& parts, std::string_view family, JsonWriter& json)
      : parts_(parts), file_(parts.first()), family_(family), json_(json) {}

  void Write() {
    ReadKinds();
    WriteHeads();
    WriteSharing();
    WriteInputs();
    WriteRopes();
  }

  void WriteConvolutions() {
    WriteKindsByKvHeads("conv", "full_attention");
    json_.Add("conv_L_cache", Required("shortconv.l_cache"));
    json_.Add("block_auto_adjust_ff_dim", false);
    if (const auto eps = file_.Number(Key("attention.layer_norm_rms_epsilon"))) {
      json_.Add("norm_eps", *eps);
    }
    constexpr char kWindow[] = "attention.sliding_window";
    if (file_.Integer(Key(kWindow)).value_or(0) != 0) {
      Fail(kWindow, "is not supported for this family");
    }
  }

  void WriteMamba() {
    const std::vector<int64_t> kv_heads = WriteKindsByKvHeads("mamba", "attention");
    const auto has = [&](const auto& layer, const char* tensor) {
      return parts_.Has("blk." + std::to_string(layer - kv_heads.begin()) + tensor);
    };
    const auto mamba = std::ranges::find(kv_heads, 0);
    const auto attending = std::ranges::find_if(kv_heads, std::identity());
    json_.Add("attention_bias", has(attending, ".attn_q.bias"));
    json_.Add("mamba_conv_bias", has(mamba, ".ssm_conv1d.bias"));
    const int64_t inner = Required("ssm.inner_size"), heads = Required("ssm.time_step_rank");
    const int64_t hidden = Required("embedding_length");
    if (heads < 1 || inner % heads != 0) NotAMultiple(inner, "ssm.time_step_rank", heads);
    if (hidden < 1 || inner % hidden != 0) NotAMultiple(inner, "embedding_length", hidden);
    json_.Add("mamba_n_heads", heads).Add("mamba_d_head", inner / heads);
    json_.Add("mamba_expand", inner / hidden).Add("mamba_n_groups", Required("ssm.group_count"));
    json_.Add("mamba_d_state", Required("ssm.state_size"));
    json_.Add("mamba_d_conv", Required("ssm.conv_kernel"));
    json_.Add("has_split_projections", true);
    if (!file_.Has(Key("expert_count"))) json_.Add("num_local_experts", 0);
    if (!file_.Has(Key("expert_shared_feed_forward_length"))) {
      json_.Add("shared_intermediate_size", Required("feed_forward_length"));
    }
  }

 private:
  std::string Key(std::string_view name) const { return family_ + "." + std::string(name); }

  [[noreturn]] void NotAMultiple(int64_t inner, std::string_view key, int64_t divisor) const {
    Fail("ssm.inner_size", "= " + std::to_string(inner) + " must be a multiple of " + Key(key) +
                               " = " + std::to_string(divisor));
  }

  // Layers without KV heads are of another kind. Returns the KV heads of all.
  std::vector<int64_t> WriteKindsByKvHeads(const char* without, const char* with) {
    ReadNumLayers();
    const std::vector<int64_t> kv_heads = OfLayers(kKvHeads);
    const auto first = std::ranges::find_if(kv_heads, [](int64_t heads) { return heads != 0; });
    if (first == kv_heads.end()) Fail(kKvHeads, "has no layer with attention");
    json_.Add("num_key_value_heads", *first).Name("layer_types").BeginArray();
    for (int64_t heads : kv_heads) {
      if (heads != 0 && heads != *first) {
        Fail(kKvHeads, "differs among layers with attention, which is not supported");
      }
      json_.Put(heads == 0 ? without : with);
    }
    json_.EndArray();
    return kv_heads;
  }

  [[noreturn]] void Fail(std::string_view key, const std::string& what) const {
    file_.Fail(Key(key), what);
  }

  void Require(std::string_view key) const {
    if (!file_.Has(Key(key))) Fail(key, "is missing");
  }
  int64_t Required(std::string_view key) const {
    Require(key);
    return file_.Integer(Key(key)).value_or(0);
  }

  // A number of each layer, of which the file may have one for all.
  std::vector<int64_t> OfLayers(std::string_view key) const {
    Require(key);
    if (!file_.IsList(Key(key))) {
      return std::vector<int64_t>(has_window_.size(), file_.Integer(Key(key)).value_or(0));
    }
    std::vector<int64_t> values = file_.Integers(Key(key));
    if (values.size() != has_window_.size()) {
      Fail(key, "has " + std::to_string(values.size()) + " entries for " +
                    std::to_string(has_window_.size()) + " layers");
    }
    return values;
  }

  void ReadNumLayers() {
    constexpr int64_t kMaxLayers = 1 << 16;  // above what the reader of the configuration allows
    const int64_t layers = Required("block_count");
    if (layers < 1 || layers > kMaxLayers) {
      Fail("block_count",
           "= " + std::to_string(layers) + " must be in [1, " + std::to_string(kMaxLayers) + "]");
    }
    has_window_.resize(static_cast<size_t>(layers));
  }

  void ReadKinds() {
    Require("attention.sliding_window");
    ReadNumLayers();
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
  const std::string family_;
  JsonWriter& json_;
  std::vector<int64_t> has_window_;  // of each layer
};

}  // namespace

void WriteGgufLayerSizes(const GgufParts& parts, std::string_view family, JsonWriter& json) {
  LayerSizes(parts, family, json).Write();
}

void WriteGgufConvolutions(const GgufParts& parts, std::string_view family, JsonWriter& json) {
  LayerSizes(parts, family, json).WriteConvolutions();
}

void WriteGgufMamba(const GgufParts& parts, std::string_view family, JsonWriter& json) {
  LayerSizes(parts, family, json).WriteMamba();
}

}  // namespace mlc_native
