#include "tokenizer/token_decoder.h"

#include <charconv>
#include <optional>
#include <utility>

#include "support/utf8.h"

namespace mlc_native {
namespace {

constexpr size_t kStepWork = 32;  // of a step, whatever the token

std::string ReplaceAll(const std::string& text, const std::string& pattern,
                       const std::string& content) {
  std::string result;
  const auto append = [&](std::string_view part) {
    if (part.size() > kMaxTokenBytes - result.size()) throw TokenTooLong();
    result += part;
  };
  size_t begin = 0;
  for (size_t at; (at = text.find(pattern, begin)) != std::string::npos;
       begin = at + pattern.size()) {
    append(std::string_view(text).substr(begin, at - begin));
    append(content);
  }
  append(std::string_view(text).substr(begin));
  return result;
}

std::optional<std::string> DecodeByteLevel(const ByteLevelAlphabet& alphabet,
                                           const std::string& token) {
  const std::optional<std::u32string> code_points = DecodeUtf8(token);
  if (!code_points) return std::nullopt;
  std::string bytes;
  for (char32_t code_point : *code_points) {
    const int byte = alphabet.ByteOf(code_point);
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

std::string DecodeByteFallback(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return token;
  uint8_t byte = 0;
  const char* end = token.data() + 5;
  const auto [rest, error] = std::from_chars(token.data() + 3, end, byte, 16);
  if (error != std::errc() || rest != end) return token;
  return std::string(1, static_cast<char>(byte));
}

std::string DecodeStrip(const decoder_step::Strip& step, std::string_view token) {
  for (int64_t i = 0; i < step.start && token.starts_with(step.content); ++i) {
    token.remove_prefix(step.content.size());
  }
  for (int64_t i = 0; i < step.stop && token.ends_with(step.content); ++i) {
    token.remove_suffix(step.content.size());
  }
  return std::string(token);
}

std::string DecodeWordPiece(const decoder_step::WordPiece& step, const std::string& token) {
  if (!step.prefix.empty() && token.starts_with(step.prefix)) {
    return token.substr(step.prefix.size());
  }
  std::string word = " " + token;
  if (!step.cleanup) return word;
  // The list of huggingface/tokenizers, decoders/wordpiece.rs. On a single token most of them
  // cannot match; the list is complete for comparison.
  static constexpr std::pair<const char*, const char*> kCleanups[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& [pattern, content] : kCleanups) word = ReplaceAll(word, pattern, content);
  return word;
}

struct StepRunner {
  std::string token;
  bool is_added;

  std::string operator()(const decoder_step::ByteLevel& step) {
    if (is_added) return token;
    return DecodeByteLevel(step.alphabet, token).value_or(token);
  }
  std::string operator()(const decoder_step::ByteFallback&) { return DecodeByteFallback(token); }
  std::string operator()(const decoder_step::Replace& step) {
    return ReplaceAll(token, step.pattern, step.content);
  }
  std::string operator()(const decoder_step::Strip& step) { return DecodeStrip(step, token); }
  std::string operator()(const decoder_step::WordPiece& step) {
    return DecodeWordPiece(step, token);
  }
};

}  // namespace

TokenTooLong::TokenTooLong()
    : std::runtime_error("has a token that decodes to more than " + std::to_string(kMaxTokenBytes) +
                         " bytes, which is the limit") {}

std::string TokenDecoder::Decode(const std::string& token, bool is_added, size_t* work) const {
  if (token.size() > kMaxTokenBytes) throw TokenTooLong();
  std::string bytes = token;
  for (const Step& step : steps) {
    const auto* replace = std::get_if<decoder_step::Replace>(&step);
    *work += bytes.size() * (replace == nullptr ? 1 : replace->pattern.size());
    bytes = std::visit(StepRunner{std::move(bytes), is_added}, step);
    *work += bytes.size() + kStepWork;
  }
  return bytes;
}

}  // namespace mlc_native
