#include "model_files/gguf_encoders.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model_files/gguf_encoder_names.h"

namespace mlc_native {
namespace {

constexpr std::string_view kDense = "cls.weight";
constexpr std::string_view kClasses = "cls.output.weight";
constexpr std::string_view kDenseNorm = "cls.norm.weight";
constexpr std::string_view kTextTypes = "token_types.weight";

class EncoderWriter {
 public:
  EncoderWriter(const GgufParts& parts, const GgufFamily& family, JsonWriter& json)
      : parts_(parts), file_(parts.first()), family_(family), json_(json) {}

  void Write() {
    const std::string causal = Key("attention.causal");
    if (file_.Bool(causal).value_or(false)) {
      file_.Fail(causal, "= true is not supported for this family");
    }
    const bool is_bert = family_.name == kGgufBertName;
    if (is_bert || family_.name == kGgufNomicBertName) WriteTextTypes();
    if (family_.name == kGgufModernBertName) WriteWindows();
    if (!HasGgufClasses(parts_)) return;
    if (family_.variant.empty()) {
      file_.Fail(kClasses, "is not supported for this family: its classifiers are not read");
    }
    WriteClasses(is_bert);
  }

 private:
  std::string Key(std::string_view name) const {
    return std::string(family_.name) + '.' + std::string(name);
  }

  // A table of one row may be stored as a vector. Those of DistilBERT have none.
  void WriteTextTypes() {
    const GgufTensor* const table = parts_.Find(kTextTypes).tensor;
    json_.Add("has_text_types", table != nullptr);
    if (table == nullptr) return;
    json_.Add("type_vocab_size", table->shape.size() == 1 ? 1 : table->shape.front());
  }

  // Layers 0, n, 2 n, ... see all; as for llama.cpp, n is 3 where the file does not say it.
  void WriteWindows() {
    const std::string pattern = Key("attention.sliding_window_pattern");
    if (!file_.IsList(pattern)) {
      json_.Add("global_attn_every_n_layers", file_.Integer(pattern).value_or(3));
    }
    const std::string base = Key("rope.freq_base");
    const std::optional<double> theta = file_.Number(base);
    if (!theta) file_.Fail(base, "is missing");
    json_.Add("global_rope_theta", *theta);
    json_.Add("local_rope_theta", file_.Number(Key("rope.freq_base_swa")).value_or(*theta));
    if (const auto name = file_.String(Key("hidden_activation"))) {
      json_.Add("hidden_activation", *name);
    }
  }

  void WriteClasses(bool is_bert) {
    for (const std::string_view name : {kDense, kClasses, kDenseNorm}) {
      if (parts_.Has(name) || (is_bert && name == kDenseNorm)) continue;
      file_.Fail(name,
                 "is missing: without it, what the converter left of the classifier gives other "
                 "scores than the model");
    }
    if (!is_bert) WritePooling();
    if (is_bert && !parts_.Has(kTextTypes)) json_.Add("pooler_activation", "ReLU");  // DistilBERT
    json_.Name("id2label").BeginObject();
    const std::vector<std::string_view> labels = file_.Strings(Key("classifier.output_labels"));
    for (size_t i = 0; i < labels.size(); ++i) json_.Add(std::to_string(i), labels[i]);
    json_.EndObject();
  }

  // As for llama.cpp, it is the mean where the file does not say it.
  void WritePooling() {
    constexpr int64_t kMean = 1, kFirst = 2;
    const std::string key = Key("classifier.pooling_type");
    const int64_t type = file_.Integer(key).value_or(kMean);
    if (type != kMean && type != kFirst) {
      file_.Fail(key, "= " + std::to_string(type) + " must be 1 (mean) or 2 (first token)");
    }
    json_.Add("classifier_pooling", type == kMean ? "mean" : "cls");
  }

  const GgufParts& parts_;
  const GgufFile& file_;  // the first, which has the metadata
  const GgufFamily& family_;
  JsonWriter& json_;
};

}  // namespace

bool IsGgufEncoder(const GgufFile& file) {
  const std::string name = file.String("general.architecture").value_or("");
  return name == kGgufBertName || name == kGgufModernBertName || name == kGgufEuroBertName ||
         name == kGgufNomicBertName;
}

// What fills the masks of a ModernBERT has a norm, too, but no classes.
bool HasGgufClasses(const GgufParts& parts) {
  return parts.Has(kClasses) || (parts.Has(kDense) && !parts.Has(kDenseNorm));
}

void WriteGgufEncoder(const GgufParts& parts, const GgufFamily& family, JsonWriter& json) {
  EncoderWriter(parts, family, json).Write();
}

}  // namespace mlc_native
