// Normalizer changes a text before it is split into words: the "normalizer" of tokenizer.json.
// Immutable after building; any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tokenizer/normal_forms.h"
#include "tokenizer/precompiled_map.h"
#include "tokenizer/text_regex.h"

namespace mlc_native {

namespace normalizer_step {

struct Prepend {  // in front of a text that is not empty
  std::string text;
};
struct Replace {  // every match
  std::shared_ptr<const TextRegex> pattern;
  std::string content;
};
struct Lowercase {};
struct StripAccents {};  // removes combining marks
struct Strip {           // removes spaces
  bool left = false;
  bool right = false;
};

}  // namespace normalizer_step

class Normalizer {
 public:
  using Step = std::variant<NormalForm, normalizer_step::Prepend, normalizer_step::Replace,
                            normalizer_step::Lowercase, normalizer_step::StripAccents,
                            normalizer_step::Strip, std::shared_ptr<const PrecompiledMap>>;
  // A text, and whether its first character is (of) the first one of the text before.
  struct Text {
    std::string text;
    bool keeps_start;
  };

  void Add(Step step) { steps_.push_back(std::move(step)); }
  bool empty() const { return steps_.empty(); }
  // Throws TextTooCostly. Requires: the text is valid UTF-8.
  Text Apply(std::string_view text) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace mlc_native
