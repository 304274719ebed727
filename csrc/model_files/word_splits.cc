// The names of pre-tokenizers that converters write, and the expressions of the tokenizer.json that
// each was taken from.
#include "model_files/word_splits.h"

#include <algorithm>
#include <iterator>

namespace mlc_native {
namespace {

constexpr std::string_view kLlama3Words[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view kQwen2Words[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
// Marks belong to the letters in front of them.
constexpr std::string_view kQwen35Words[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view kTekkenWords[] = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view kGpt4oWords[] = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// Chinese characters are words of their own.
constexpr std::string_view kKimiWords[] = {
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view kSeedWords[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)"};
// One after the other, each within what the one before has left whole.
constexpr std::string_view kDeepSeekV3Words[] = {
    R"(\p{N}{1,3})", R"([一-龥぀-ゟ゠-ヿ]+)",
    R"delimiter([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)delimiter"};

// Of DeepSeek V2 and what came before it.
constexpr std::string_view kDeepSeekWords[] = {
    R"([\r\n])",
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)",
    R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)",
    R"(\s+$)",
    R"([一-龥ࠀ-一가-퟿]+)",
    R"(\p{N}+)"};

constexpr std::string_view kDeepSeekCoderWords[] = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
                                                    R"([一-龥ࠀ-一가-퟿]+)", R"(\p{N})"};

// What llama.cpp does where a file does not say how, as the first ones.
constexpr std::string_view kUnnamedWords[] = {
    R"([\p{P}$+<=>^~|]+)",
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", R"(\p{N}+)",
    R"([0-9][0-9][0-9])"};

// Punctuation, the words of GPT-2, and digits in threes. Falcon's tokenizer.json has kinds of its
// own for them, and cuts in front of digits, too, across which no merge goes.
constexpr std::string_view kFalconWords[] = {
    R"([\p{P}$+<=>^~|`]+)",
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"([0-9][0-9][0-9])"};

constexpr WordSplit kGpt2{};
// Of GPT-NeoX and what is made from it.
constexpr WordSplit kGptNeoX{.composes = true};
constexpr WordSplit kGpt2Digits{.single_digits = true};
constexpr WordSplit kCommandR{.single_digits = true, .composes = true};
constexpr WordSplit kLlama3{.regexes = kLlama3Words, .ignore_merges = true, .adds_bos = true};
constexpr WordSplit kLlama3Spelled{.regexes = kLlama3Words};
constexpr WordSplit kLlama3Whole{.regexes = kLlama3Words, .ignore_merges = true};
constexpr WordSplit kQwen2{.regexes = kQwen2Words, .composes = true};
constexpr WordSplit kQwen35{.regexes = kQwen35Words, .composes = true};
constexpr WordSplit kStableLm2{.regexes = kQwen2Words};
constexpr WordSplit kTekken{.regexes = kTekkenWords, .ignore_merges = true, .adds_bos = true};
constexpr WordSplit kGpt4o{.regexes = kGpt4oWords};
constexpr WordSplit kKimi{.regexes = kKimiWords};
constexpr WordSplit kSeed{.regexes = kSeedWords};
constexpr WordSplit kFalcon{.regexes = kFalconWords};
constexpr WordSplit kDeepSeek{.regexes = kDeepSeekWords};
constexpr WordSplit kDeepSeekCoder{.regexes = kDeepSeekCoderWords};
constexpr WordSplit kUnnamed{.regexes = kUnnamedWords};
constexpr WordSplit kDeepSeekV3{.regexes = kDeepSeekV3Words};

struct Named {
  std::string_view name;
  const WordSplit& words;
};
constexpr Named kNamed[] = {
    {"gpt-2", kGpt2},
    {"phi-2", kGpt2},
    {"roberta-bpe", kGpt2},
    {"modern-bert", kGptNeoX},
    {"mpt", kGptNeoX},
    {"olmo", kGptNeoX},
    {"exaone4", kGpt2},
    {"granite-docling", kGpt2},
    {"falcon", kFalcon},
    {"smollm", kGpt2Digits},
    {"starcoder", kGpt2Digits},
    {"refact", kGpt2Digits},
    {"command-r", kCommandR},
    {"codeshell", kGpt2Digits},
    {"exaone", kGpt2Digits},
    {"llama-bpe", kLlama3},
    {"llama3", kLlama3},
    {"llama-v3", kLlama3},
    {"falcon3", kLlama3},
    {"pixtral", kLlama3},
    {"lfm2", kLlama3},
    {"dbrx", kLlama3Spelled},
    {"smaug-bpe", kLlama3Spelled},
    {"chatglm-bpe", kLlama3Spelled},
    {"glm4", kLlama3Whole},
    {"qwen2", kQwen2},
    {"deepseek-r1-qwen", kQwen2},
    {"qwen35", kQwen35},
    {"stablelm2", kStableLm2},
    {"tekken", kTekken},
    {"gpt-4o", kGpt4o},
    {"minimax-m2", kGpt4o},
    {"kimi-k2", kKimi},
    {"seed-coder", kSeed},
    {"deepseek-llm", kDeepSeek},
    {"deepseek-coder", kDeepSeekCoder},
    {"default", kUnnamed},
    {"deepseek-v3", kDeepSeekV3},
    {"hunyuan-dense", kDeepSeekV3},
};

}  // namespace

const WordSplit* FindWordSplit(std::string_view name) {
  const auto* found = std::ranges::find(kNamed, name, &Named::name);
  return found == std::end(kNamed) ? nullptr : &found->words;
}

std::string WordSplitList() {
  std::string list;
  for (const Named& named : kNamed) {
    list += (list.empty() ? "" : ", ") + std::string(named.name);
  }
  return list;
}

}  // namespace mlc_native
