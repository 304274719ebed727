#include "tokenizer/logprob_json.h"

#include <charconv>
#include <cmath>
#include <string_view>

#include "tokenizer/text_streamer.h"

namespace mlc_native {
namespace {

template <typename Number>
void AppendNumber(Number value, std::string* out) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  out->append(buffer, end);
}

void AppendEscaped(std::string_view text, std::string* out) {
  constexpr char kHex[] = "0123456789abcdef";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      *out += '\\';
      *out += c;
    } else if (byte < 0x20) {
      *out += "\\u00";
      *out += kHex[byte >> 4];
      *out += kHex[byte & 15];
    } else {
      *out += c;
    }
  }
}

void AppendBytes(std::string_view bytes, std::string* out) {
  *out += '[';
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) *out += ',';
    AppendNumber(static_cast<int>(static_cast<unsigned char>(bytes[i])), out);
  }
  *out += ']';
}

// The members, without the braces.
void AppendToken(const TokenLogprob& token, const TokenTable* token_table, std::string* out) {
  const std::string_view bytes =
      token_table != nullptr ? token_table->bytes(token.token_id) : std::string_view();
  *out += "\"token\":\"";
  if (token_table != nullptr) {
    std::string text;
    TextStreamer streamer;
    streamer.Put(bytes, &text);
    streamer.Finish(&text);
    AppendEscaped(text, out);
  } else {
    *out += "token_id:";
    AppendNumber(token.token_id, out);
  }
  *out += "\",\"logprob\":";
  if (std::isfinite(token.logprob)) {
    AppendNumber(token.logprob, out);
  } else {
    *out += "-9999.0";
  }
  *out += ",\"token_id\":";
  AppendNumber(token.token_id, out);
  *out += ",\"bytes\":";
  AppendBytes(bytes, out);
}

}  // namespace

std::string LogprobJson(const SampleResult& result, const TokenTable* token_table) {
  std::string out = "{";
  AppendToken(result.token, token_table, &out);
  out += ",\"top_logprobs\":[";
  for (size_t i = 0; i < result.top_logprobs.size(); ++i) {
    out += i > 0 ? ",{" : "{";
    AppendToken(result.top_logprobs[i], token_table, &out);
    out += '}';
  }
  out += "]}";
  return out;
}

}  // namespace mlc_native
