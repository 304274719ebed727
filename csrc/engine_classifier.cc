#include "engine_classifier.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arch/model_config.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/embedding_defaults.h"
#include "model_files/model_files.h"
#include "support/error.h"
#include "support/json.h"
#include "weights/gguf_blocks.h"
#include "weights/weight_set.h"

namespace mlc_native {
namespace {

constexpr char kTokensField[] = "classifier_from_token";
constexpr size_t kMaxClassTokens = 64;

// Tokens of the head, and whether the only class is the second one less the first.
struct ClassTokens {
  std::vector<int32_t> ids;
  bool is_difference = false;
};

[[noreturn]] void RefuseTokens(bool is_setting, const std::string& what) {
  const std::string message = '"' + std::string(kTokensField) + "\" " + what;
  if (is_setting) throw InvalidConfig(kTokensField, message);
  throw LoadError(kTokensField, "config.json: " + message);
}

int32_t IdOfText(const TokenTable& tokens, const std::string& text, bool is_setting) {
  for (int32_t id = 0; id < tokens.size(); ++id) {
    if (!text.empty() && tokens.bytes(id) == text) return id;
  }
  RefuseTokens(is_setting, "must be tokens of the vocabulary, got " + JsonExcerpt(JsonValue(text)) +
                               ", which is none");
}

std::vector<int32_t> IdsOfTexts(const std::vector<std::string>& texts, const TokenTable* tokens,
                                bool is_setting) {
  if (texts.size() > kMaxClassTokens) {
    RefuseTokens(is_setting, "must be 1 to " + std::to_string(kMaxClassTokens) + " tokens, got " +
                                 std::to_string(texts.size()));
  }
  if (tokens == nullptr) RefuseTokens(is_setting, "needs a tokenizer.json, which is not there");
  std::vector<int32_t> ids;
  ids.reserve(texts.size());
  for (const std::string& text : texts) ids.push_back(IdOfText(*tokens, text, is_setting));
  return ids;
}

// What config.json says becomes of two tokens; as in vLLM.
bool IsDifference(const ConfigFields& root, size_t num_tokens) {
  constexpr char kMethod[] = "method";
  if (num_tokens != 2 || !root.Has(kMethod)) return num_tokens == 2;
  const std::string method = root.String(kMethod);
  if (method != "from_2_way_softmax" && method != "no_post_processing") {
    root.FailValue(kMethod, R"("from_2_way_softmax" or "no_post_processing")");
  }
  return method == "from_2_way_softmax";
}

// The family of config.json, if it is one of encoders.
const ArchSpec* EncoderOf(const ConfigFields& root) {
  for (const std::string& name : root.Strings("architectures")) {
    for (const ArchSpec* arch :
         {FindArchitecture(name), FindDecoder(name), FindClassifier(name, false)}) {
      if (arch != nullptr) return arch->is_encoder ? arch : nullptr;
    }
  }
  return nullptr;
}

// Empty: nothing says that tokens classify.
ClassTokens FindClassTokens(const EngineConfig& config, const TokenTable* tokens,
                            const ConfigFields* root) {
  const std::vector<std::string>& given = config.classifier_from_token;
  std::vector<std::string> texts = given;
  if (texts.empty() && root != nullptr) texts = root->Strings(kTokensField);
  if (!texts.empty()) {
    if (const ArchSpec* const encoder = root != nullptr ? EncoderOf(*root) : nullptr) {
      RefuseTokens(!given.empty(), "is of models that generate; " +
                                       std::string(encoder->architecture) + " is an encoder");
    }
    ClassTokens found{.ids = IdsOfTexts(texts, tokens, !given.empty())};
    const size_t count = found.ids.size();
    found.is_difference = root == nullptr ? count == 2 : IsDifference(*root, count);
    return found;
  }
  ClassTokens found{.ids = ReadScoredTokens(config.model)};
  found.is_difference = found.ids.size() == 2;
  return found;
}

bool IsClassifier(const ConfigFields& root) {
  return std::ranges::any_of(root.Strings("architectures"), [](const std::string& name) {
    return name.ends_with("ForSequenceClassification");
  });
}

// Of the matrix or the vector, if there is one; what the checkpoint stores may be quantized.
class HeadRows {
 public:
  HeadRows(const WeightSet& weights, const std::string& name, std::span<const int64_t> shape)
      : columns_(shape.size() > 1 ? shape[1] : 1), source_(weights.Open(name, shape)) {
    source_->Load();
  }

  std::vector<float> Row(int32_t id) const {
    std::vector<float> row(static_cast<size_t>(columns_));
    source_->Decode(id, id + 1, row.data());
    return row;
  }
  void Finish() { source_->Drop(); }

 private:
  int64_t columns_;
  std::unique_ptr<WeightSource> source_;
};

// The first of the family's names of its head that is there, or of its embeddings.
std::string NameOfHead(const ModelConfig& model, const WeightSet& weights) {
  const TensorNames& names = model.arch->names;
  for (const std::string_view name : names.heads) {
    if (weights.Has(std::string(name))) return std::string(name);
  }
  for (const std::string_view prefix : names.prefixes) {
    const std::string name = std::string(prefix) + std::string(names.embeddings);
    if (weights.Has(name)) return name;
  }
  return std::string(names.heads.front());
}

// The rows of the classes behind one another.
DenseLayer LayerOfTokens(const std::string& folder, const ClassTokens& tokens, bool is_setting) {
  const ModelConfig model = ReadModelConfig(folder);
  if (model.final_soft_cap > 0) {
    RefuseTokens(is_setting, "is not there for models with final_logit_softcapping");
  }
  const Checkpoint checkpoint(folder);
  const WeightSet weights(checkpoint, model.quantization);
  const std::string name = NameOfHead(model, weights);
  HeadRows rows(weights, name, std::array{model.vocab_size, model.hidden_size});
  DenseLayer layer{.input_size = model.hidden_size};
  for (const int32_t id : tokens.ids) {
    if (id >= model.vocab_size) {
      RefuseTokens(is_setting, "must be tokens of the vocabulary, got the id " +
                                   std::to_string(id) + " of " + std::to_string(model.vocab_size));
    }
    const std::vector<float> row = rows.Row(id);
    layer.weight.insert(layer.weight.end(), row.begin(), row.end());
  }
  rows.Finish();
  if (model.head_bias) {
    const std::string bias = name.substr(0, name.rfind('.')) + ".bias";
    HeadRows biases(weights, bias, std::array{model.vocab_size});
    for (const int32_t id : tokens.ids) layer.bias.push_back(biases.Row(id).front());
    biases.Finish();
  }
  for (float& weight : layer.weight) weight *= model.final_norm_scale;
  return layer;
}

void BecomeDifference(std::vector<float>* rows) {
  const size_t half = rows->size() / 2;
  for (size_t i = 0; i < half; ++i) (*rows)[i] = (*rows)[half + i] - (*rows)[i];
  rows->resize(half);
}

// Of a GGUF file.
std::vector<float> MatrixOfBlocks(const Checkpoint& checkpoint, const std::string& name,
                                  std::span<const int64_t> shape) {
  const WeightSet weights(checkpoint, std::nullopt);
  HeadRows rows(weights, name, shape);
  std::vector<float> matrix;
  matrix.reserve(static_cast<size_t>(shape[0] * shape[1]));
  for (int32_t i = 0; i < shape[0]; ++i) {
    const std::vector<float> row = rows.Row(i);
    if (!std::ranges::all_of(row, [](float x) { return std::isfinite(x); })) {
      throw LoadError(name, "tensor \"" + name + "\" has numbers that are not finite");
    }
    matrix.insert(matrix.end(), row.begin(), row.end());
  }
  rows.Finish();
  return matrix;
}

// The matrix with this name, of [classes, hidden_size], and its bias if it has one.
DenseLayer LayerOfClasses(const Checkpoint& checkpoint, const std::string& name) {
  const std::string weight = name + ".weight";
  const std::string bias = name + ".bias";
  const Checkpoint::Entry* const entry = checkpoint.Find(weight);
  if (entry == nullptr || entry->tensor->shape.size() != 2) {
    throw LoadError(weight, "the checkpoint of a classifier needs a matrix \"" + weight +
                                "\" of [classes, hidden_size], or config.json has to name "
                                "\"classifier_from_token\"");
  }
  const std::vector<int64_t>& shape = entry->tensor->shape;
  DenseLayer layer{.input_size = shape[1]};
  if (IsGgufBlockType(entry->tensor->dtype_name)) {
    layer.weight = MatrixOfBlocks(checkpoint, weight, shape);
  } else {
    layer.weight = ReadDenseMatrix(checkpoint, weight, shape[0], shape[1]);
  }
  if (checkpoint.Find(bias) != nullptr) layer.bias = ReadDenseVector(checkpoint, bias, shape[0]);
  return layer;
}

DenseLayer LayerOfScores(const std::string& folder) {
  return LayerOfClasses(Checkpoint(folder), "score");
}

DenseActivation ActivationOfEncoder(const ConfigFields& root, const ClassifierNames& names) {
  if (names.activation_field.empty()) {
    constexpr char kOwn[] = "pooler_activation";  // of GGUF files of DistilBERT, with BERT's names
    const auto found = FindDenseActivation(root.String(kOwn, std::string(names.activation)));
    if (!found) root.FailValue(kOwn, "the name of an activation of torch, such as Tanh or ReLU");
    return *found;
  }
  const std::string field(names.activation_field);
  const std::string name = root.String(field.c_str(), "gelu");
  if (name == "gelu") return DenseActivation::kGelu;
  if (name == "silu" || name == "swish") return DenseActivation::kSilu;
  if (name == "relu") return DenseActivation::kRelu;
  if (name == "tanh") return DenseActivation::kTanh;
  root.FailValue(field.c_str(), "one of gelu, silu, swish, relu, tanh");
}

std::vector<DenseLayer> LayersOfEncoder(const std::string& folder, const ConfigFields& root,
                                        const ArchSpec& encoder) {
  const ClassifierNames& names = encoder.classifier;
  const Checkpoint checkpoint(folder);
  std::vector<DenseLayer> layers;
  if (!names.dense.empty()) {
    DenseLayer& dense = layers.emplace_back(LayerOfClasses(checkpoint, std::string(names.dense)));
    dense.activation = ActivationOfEncoder(root, names);
    if (!names.norm.empty()) {
      dense.norm =
          ReadDenseVector(checkpoint, std::string(names.norm) + ".weight", dense.output_size());
      dense.norm_eps = ReadModelConfig(folder).norm_eps;
    }
  }
  const std::string classes(names.classes);
  DenseLayer last = LayerOfClasses(checkpoint, classes);
  if (!layers.empty() && layers.back().output_size() != last.input_size) {
    throw LoadError(classes + ".weight", '"' + classes + ".weight\" takes " +
                                             std::to_string(last.input_size) + " numbers; \"" +
                                             std::string(names.dense) + ".weight\" gives " +
                                             std::to_string(layers.back().output_size()));
  }
  layers.push_back(std::move(last));
  return layers;
}

Pooling PoolingOfEncoder(const ConfigFields& root, const ClassifierNames& names) {
  if (names.pooling_field.empty()) return Pooling::kCls;
  const std::string field(names.pooling_field);
  const std::string name = root.String(field.c_str(), std::string(names.absent_pooling));
  if (name == "cls" || name == "bos") return Pooling::kCls;
  if (name == "mean") return Pooling::kMean;
  root.FailValue(field.c_str(), "\"cls\", \"bos\" or \"mean\"");
}

// The pad_token_id of the text model. Some files have -1 for none.
std::optional<int32_t> PaddingOf(const ConfigFields& root) {
  constexpr char kPad[] = "pad_token_id";
  const bool is_nested = root.HasObject("text_config") && !root.Has(kPad);
  const ConfigFields fields = is_nested ? root.Object("text_config") : root;
  const int64_t id = fields.Integer(kPad, -1, -1, std::numeric_limits<int32_t>::max());
  return id < 0 ? std::nullopt : std::optional(static_cast<int32_t>(id));
}

}  // namespace

void LoadClassifier(const EngineConfig& config, const TokenTable* tokens,
                    EmbeddingDefaults* defaults) {
  const std::string path = config.model + "/config.json";
  std::optional<ConfigFields> root;
  if (!config.model.empty() && HasModelFile(path)) root = ReadModelFile(path);
  if (root && EncoderOf(*root) != nullptr && !SaysPooling(config.model)) {
    defaults->pooling = Pooling::kCls;
    defaults->refusal.clear();
  }
  const ClassTokens found = FindClassTokens(config, tokens, root ? &*root : nullptr);
  std::vector<DenseLayer> layers;
  std::optional<int32_t> padding;
  if (!found.ids.empty()) {
    DenseLayer& layer = layers.emplace_back(
        LayerOfTokens(config.model, found, !config.classifier_from_token.empty()));
    if (found.is_difference) {
      BecomeDifference(&layer.weight);
      BecomeDifference(&layer.bias);
    }
  } else if (root && IsClassifier(*root)) {
    if (const ArchSpec* const encoder = EncoderOf(*root)) {
      layers = LayersOfEncoder(config.model, *root, *encoder);
      defaults->classifier_pooling = PoolingOfEncoder(*root, encoder->classifier);
    } else {
      layers.push_back(LayerOfScores(config.model));
      padding = PaddingOf(*root);
    }
  } else {
    return;
  }
  defaults->classifier = std::make_shared<const DenseLayers>(std::move(layers), padding);
}

void CheckPooledLayers(const EmbeddingDefaults& defaults, const ModelMetadata& model) {
  if (model.hidden_size == 0) return;  // and no texts are pooled
  const auto check = [&](const DenseLayers* layers, const char* field) {
    if (layers == nullptr || layers->input_size() == model.hidden_size) return;
    throw LoadError(field, std::string(field) + " takes " + std::to_string(layers->input_size()) +
                               " numbers; the hidden states of the model have " +
                               std::to_string(model.hidden_size));
  };
  check(defaults.layers.get(), "modules.json");
  check(defaults.classifier.get(), "score.weight");
}

}  // namespace mlc_native
