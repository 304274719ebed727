// mlc_native_schemas answers what the grammar of a JSON schema accepts, without a model: one JSON
// object a line on stdin, one on stdout. tests/python/test_schema_suite.py compares the answers
// with a validator.
//
//   {"schema": TEXT, "strict": BOOL, "texts": [TEXT], "samples": NUMBER, "seed": NUMBER}
//   -> {"refused": MESSAGE} or {"accepts": [BOOL], "samples": [TEXT]}
//
// A sample is drawn byte by byte from what the grammar allows, with other weights for each sample,
// and has at most kMaxBytes bytes; one that does not end by then is left out.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "mlc_native/grammar.h"
#include "support/error.h"
#include "support/json.h"

namespace mlc_native {
namespace {

constexpr int kNumBytes = 256;
constexpr int32_t kStop = kNumBytes;
constexpr size_t kMaxBytes = 400;
constexpr size_t kNumMaskWords = kNumBytes / 32 + 1;

GrammarVocab Bytes() {
  GrammarVocab vocab;
  for (int byte = 0; byte < kNumBytes; ++byte) {
    vocab.token_bytes.emplace_back(1, static_cast<char>(byte));
  }
  vocab.token_bytes.emplace_back();
  vocab.stop_token_ids = {kStop};
  vocab.vocab_size = kNumBytes + 1;
  return vocab;
}

bool Accepts(const CompiledGrammar& grammar, const std::string& text) {
  const std::unique_ptr<GrammarMatcher> matcher = grammar.NewMatcher(0);
  return std::ranges::all_of(
             text,
             [&](char byte) { return matcher->AcceptToken(static_cast<unsigned char>(byte)); }) &&
         matcher->AcceptToken(kStop);
}

// Weights that differ by powers of ten, so that each sample prefers other characters. The end, and
// what ends a string or list, become likelier with the length.
std::optional<std::string> Sample(const CompiledGrammar& grammar, std::mt19937_64* random) {
  std::vector<double> weights(kNumBytes + 1);
  std::uniform_real_distribution<double> exponent(-2, 2);
  for (double& weight : weights) weight = std::pow(10.0, exponent(*random));
  const std::unique_ptr<GrammarMatcher> matcher = grammar.NewMatcher(0);
  std::string text;
  std::vector<int32_t> mask(kNumMaskWords);
  while (text.size() < kMaxBytes) {
    std::ranges::fill(mask, -1);
    matcher->FillMask(mask);
    std::vector<double> allowed(kNumBytes + 1, 0.0);
    const double hurry = 1.0 + static_cast<double>(text.size() * text.size()) / 50.0;
    for (int token = 0; token <= kStop; ++token) {
      const bool is_allowed = (static_cast<uint32_t>(mask[token / 32]) >> (token % 32) & 1) != 0;
      const bool ends = token == kStop || token == '"' || token == ']' || token == '}';
      if (is_allowed) allowed[token] = weights[token] * (ends ? hurry : 1.0);
    }
    const int token = std::discrete_distribution<int>(allowed.begin(), allowed.end())(*random);
    if (!matcher->AcceptToken(token)) throw std::runtime_error("the mask allows too much");
    if (token == kStop) return text;
    text += static_cast<char>(token);
  }
  return std::nullopt;
}

std::string Answer(GrammarCompiler& compiler, const JsonValue& question) {
  JsonWriter answer;
  answer.BeginObject();
  try {
    const auto grammar =
        compiler.Compile({GrammarKind::kJsonSchema, question.At("schema").AsString(),
                          question.At("strict").AsBool()});
    answer.Name("accepts").BeginArray();
    for (const JsonValue& text : question.At("texts").AsArray()) {
      answer.Put(Accepts(*grammar, text.AsString()));
    }
    answer.EndArray().Name("samples").BeginArray();
    std::mt19937_64 random(static_cast<uint64_t>(question.At("seed").AsInteger()));
    for (int64_t i = 0; i < question.At("samples").AsInteger(); ++i) {
      if (const std::optional<std::string> text = Sample(*grammar, &random)) answer.Put(*text);
    }
    answer.EndArray();
  } catch (const InvalidRequest& error) {
    answer.Add("refused", std::string(error.what()));
  }
  return answer.EndObject().Take();
}

}  // namespace
}  // namespace mlc_native

int main() {
  using namespace mlc_native;
  try {
    const auto compiler = CreateGrammarCompiler(Bytes(), {});
    for (std::string line; std::getline(std::cin, line);) {
      std::cout << Answer(*compiler, ParseJson(line)) << std::endl;
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
