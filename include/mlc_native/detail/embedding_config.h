// EmbeddingConfig: what becomes of the hidden states of a text that is embedded or classified
// rather than answered. Plain values with defaults; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "mlc_native/detail/export.h"
#include "mlc_native/detail/field.h"

namespace mlc_native {

class DenseLayers;  // checkpoint/dense_layers.h

// Which hidden states behind the final norm a text's embedding is made of: that of its last token,
// the mean over all tokens, or, of models that attend in both directions, that of the first token,
// which is [CLS] in those that were trained for it.
enum class Pooling { kLast, kMean, kCls };
template <>
MLC_NATIVE_HIDDEN inline constexpr auto kEnumNames<Pooling> = std::to_array<EnumName<Pooling>>(
    {{"last", Pooling::kLast}, {"mean", Pooling::kMean}, {"cls", Pooling::kCls}});

constexpr const char* ToString(Pooling pooling) { return NameOf(pooling); }
// Throws InvalidRequest for an unknown name.
MLC_NATIVE_API Pooling ParsePooling(const std::string& name);

// Of one request. What is not set is what the model folder says (EmbeddingDefaults).
struct EmbeddingConfig {
  std::optional<Pooling> pooling{};
  // Only so many of the first numbers, as models that were trained for it (Matryoshka) allow.
  std::optional<int64_t> dimensions{};
  std::optional<bool> normalize{};  // to length 1, after it is cut to `dimensions`
  // In place of an embedding the logits of the model's classes. The fields above are then not set.
  bool classify = false;
  // Where a second text begins, of models that tell two texts apart (BERT); others ignore it. 0:
  // there is one text.
  int64_t second_text = 0;
};

// What a model folder says of its embeddings: modules.json and what it names, as
// sentence-transformers writes them. A folder that says nothing has these defaults.
struct EmbeddingDefaults {
  Pooling pooling = Pooling::kLast;
  bool normalize = true;
  // Not empty: the folder asks for what is not supported, in words. A request then has to name its
  // pooling.
  std::string refusal{};
  // What the pooled state goes through before it is cut and normalized; null: nothing.
  std::shared_ptr<const DenseLayers> layers{};
  // From the pooled state to the logits of classes; null: the model has no classes.
  std::shared_ptr<const DenseLayers> classifier{};
  Pooling classifier_pooling = Pooling::kLast;
};

}  // namespace mlc_native
