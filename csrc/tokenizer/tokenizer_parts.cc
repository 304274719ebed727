// The normalizers and pre-tokenizers of a tokenizer.json.
#include "tokenizer/tokenizer_parts.h"

#include <array>
#include <optional>
#include <utility>

#include "support/error.h"
#include "support/utf8.h"

namespace mlc_native {
namespace {

constexpr size_t kMaxPartSteps = 32;
// Bytes that become one: of the Kelvin sign, or of a character and its marks.
constexpr size_t kMostComposed = 4;

std::shared_ptr<const TextRegex> ReadRegex(const std::string& pattern) {
  return std::make_shared<const TextRegex>(pattern);
}

// {"String": ...} or {"Regex": ...}, of the part that `what` names.
std::shared_ptr<const TextRegex> ReadPattern(const ConfigFields& step, const std::string& what) {
  const ConfigFields pattern = step.Object("pattern");
  try {
    if (pattern.Has("Regex")) return ReadRegex(pattern.String("Regex"));
    return std::make_shared<const TextRegex>(TextRegex::OfText(pattern.String("String")));
  } catch (const UnsupportedPattern& unsupported) {
    throw UnsupportedPart(what + " by " + unsupported.what());
  }
}

class NormalizerReader {
 public:
  explicit NormalizerReader(TokenizerParts* parts) : parts_(*parts) {}

  void Read(const ConfigFields& step) {
    if (++num_steps_ > kMaxPartSteps) throw UnsupportedPart("more than 32 normalizers");
    const std::string type = step.String("type");
    if (type == "Sequence") {
      for (const ConfigFields& inner : step.Objects("normalizers")) Read(inner);
      return;
    }
    std::optional<Normalizer::Step> made = StepOf(type, step);
    if (!made) throw UnsupportedPart("normalizer \"" + type + '"');
    parts_.most_shrinking *= ShrinkingOf(type, step);
    if (type == "Replace") {
      const bool is_space = step.Object("pattern").String("String", "") == " ";
      if (is_space) {
        parts_.spelling.Add(*made);
      } else {
        NoteChange("normalizer \"Replace\" of what is no space");
      }
    } else if (type != "Prepend" && type != "NFC") {
      NoteChange("normalizer \"" + type + '"');
    }
    parts_.normalizer.Add(std::move(*made));
  }

 private:
  void NoteChange(const std::string& what) {
    if (parts_.changes_texts.empty()) parts_.changes_texts = what;
  }

  static size_t ShrinkingOf(const std::string& type, const ConfigFields& step) {
    if (type == "Prepend") return 1;
    if (type == "NFC" || type == "NFD") return kMostComposed;
    if (type != "Replace") return 0;
    const std::string from = step.Object("pattern").String("String", "");
    return !from.empty() && from.size() <= step.String("content").size() ? 1 : 0;
  }

  static std::optional<Normalizer::Step> StepOf(const std::string& type, const ConfigFields& step) {
    using namespace normalizer_step;
    if (type == "NFC") return NormalForm::kNfc;
    if (type == "NFD") return NormalForm::kNfd;
    if (type == "NFKC") return NormalForm::kNfkc;
    if (type == "NFKD") return NormalForm::kNfkd;
    if (type == "Lowercase") return Lowercase{};
    if (type == "StripAccents") return StripAccents{};
    if (type == "Strip") {
      return Strip{step.Bool("strip_left", false), step.Bool("strip_right", false)};
    }
    if (type == "Prepend") return Prepend{step.String("prepend")};
    if (type == "Replace") {
      return Replace{ReadPattern(step, "normalizer \"Replace\""), step.String("content")};
    }
    if (type == "Precompiled") {
      return std::make_shared<const PrecompiledMap>(step.String("precompiled_charsmap"));
    }
    return std::nullopt;
  }

  TokenizerParts& parts_;
  size_t num_steps_ = 0;
};

SplitBehavior ReadBehavior(const ConfigFields& step, const char* absent) {
  static constexpr std::pair<const char*, SplitBehavior> kBehaviors[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  };
  const std::string name =
      absent == nullptr ? step.String("behavior") : step.String("behavior", absent);
  for (const auto& [known, behavior] : kBehaviors) {
    if (name == known) return behavior;
  }
  throw UnsupportedPart("a split behavior \"" + name + '"');
}

class PreTokenizerReader {
 public:
  explicit PreTokenizerReader(TokenizerParts* parts) : parts_(*parts) {}

  void Read(const ConfigFields& step) {
    if (++num_steps_ > kMaxPartSteps) throw UnsupportedPart("more than 32 pre-tokenizers");
    const std::string type = step.String("type");
    if (type == "Sequence") {
      for (const ConfigFields& inner : step.Objects("pretokenizers")) Read(inner);
      return;
    }
    // Words would no longer be bytes, but characters of its alphabet.
    if (byte_level_) throw UnsupportedPart("pre-tokenizer \"" + type + "\" behind \"ByteLevel\"");
    if (type == "ByteLevel") {
      ReadByteLevel(step);
    } else if (type == "Split") {
      ReadSplit(step);
    } else if (type == "Metaspace") {
      ReadMetaspace(step);
    } else {
      ReadCharacters(type, step);
    }
  }

  bool byte_level() const { return byte_level_; }

 private:
  void ReadByteLevel(const ConfigFields& step) {
    byte_level_ = true;
    if (step.Bool("add_prefix_space", true)) Add(pre_tokenizer_step::PrefixSpace{});
    if (step.Bool("use_regex", true)) {
      Add(pre_tokenizer_step::Split{.pattern = ReadRegex(std::string(kGpt2Words))});
    }
  }

  void ReadSplit(const ConfigFields& step) {
    const SplitBehavior behavior = ReadBehavior(step, nullptr);
    const bool invert = step.Bool("invert", false);
    if (behavior == SplitBehavior::kRemoved) NoteRemoval("pre-tokenizer \"Split\" that removes");
    Add(pre_tokenizer_step::Split{ReadPattern(step, "pre-tokenizer \"Split\""), behavior, invert});
  }

  void ReadMetaspace(const ConfigFields& step) {
    using Prepend = pre_tokenizer_step::Metaspace::Prepend;
    pre_tokenizer_step::Metaspace metaspace{.replacement = step.String("replacement"),
                                            .split = step.Bool("split", true)};
    const std::string& replacement = metaspace.replacement;
    const bool is_character =
        !replacement.empty() && ReadUtf8(replacement).length == replacement.size();
    if (!is_character) step.FailValue("replacement", "one character");
    const std::string scheme =
        step.String("prepend_scheme", step.Bool("add_prefix_space", true) ? "always" : "never");
    if (scheme == "first") {
      metaspace.prepend = Prepend::kFirst;
    } else if (scheme == "never") {
      metaspace.prepend = Prepend::kNever;
    } else if (scheme != "always") {
      step.FailValue("prepend_scheme", "\"always\", \"first\" or \"never\"");
    }
    Add(std::move(metaspace));
  }

  void ReadCharacters(const std::string& type, const ConfigFields& step) {
    if (type == "Digits") {
      Add(pre_tokenizer_step::SplitChars{&unicode::Numerics(), step.Bool("individual_digits", false)
                                                                   ? SplitBehavior::kIsolated
                                                                   : SplitBehavior::kContiguous});
    } else if (type == "Punctuation") {
      const SplitBehavior behavior = ReadBehavior(step, "Isolated");
      if (behavior == SplitBehavior::kRemoved) NoteRemoval("pre-tokenizer \"Punctuation\"");
      Add(pre_tokenizer_step::SplitChars{&unicode::Punctuation(), behavior});
    } else if (type == "WhitespaceSplit") {
      NoteRemoval("pre-tokenizer \"WhitespaceSplit\"");
      Add(pre_tokenizer_step::SplitChars{&unicode::Spaces(), SplitBehavior::kRemoved});
    } else if (type == "Whitespace") {
      NoteRemoval("pre-tokenizer \"Whitespace\"");
      Add(pre_tokenizer_step::Words{});
    } else {
      throw UnsupportedPart("pre-tokenizer \"" + type + '"');
    }
  }

  void Add(PreTokenizer::Step step) { parts_.pre_tokenizer.Add(std::move(step)); }
  void NoteRemoval(const std::string& what) {
    parts_.most_shrinking = 0;
    if (parts_.changes_texts.empty()) parts_.changes_texts = what;
  }

  TokenizerParts& parts_;
  size_t num_steps_ = 0;
  bool byte_level_ = false;
};

}  // namespace

void ReadNormalizer(const ConfigFields& normalizer, TokenizerParts* parts) {
  NormalizerReader(parts).Read(normalizer);
}

bool ReadPreTokenizer(const ConfigFields& pre_tokenizer, TokenizerParts* parts) {
  PreTokenizerReader reader(parts);
  reader.Read(pre_tokenizer);
  return reader.byte_level();
}

}  // namespace mlc_native
