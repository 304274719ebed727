#include "request/request.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "checkpoint/dense_layers.h"
#include "support/error.h"

namespace mlc_native {
namespace {

std::string InputName(size_t index) { return "inputs[" + std::to_string(index) + "]"; }

void CheckRows(const EmbeddingData& data, size_t index, int64_t input_size) {
  const auto refuse = [&](const std::string& what) {
    throw InvalidRequest("inputs", InputName(index) + what);
  };
  if (input_size == 0) {
    refuse(" is EmbeddingData, but the model takes token ids only");
  }
  const int64_t num_values = data.values != nullptr ? std::ssize(*data.values) : 0;
  if (data.num_rows < 1) refuse(" must have at least 1 row, got " + std::to_string(data.num_rows));
  if (num_values / input_size != data.num_rows || num_values % input_size != 0) {
    refuse(" must have " + std::to_string(input_size) +
           " numbers per row, the model's hidden size, got " + std::to_string(num_values) + " in " +
           std::to_string(data.num_rows) + " rows");
  }
  const auto wrong =
      std::ranges::find_if_not(*data.values, [](float x) { return std::isfinite(x); });
  if (wrong != data.values->end()) {
    refuse(" must be finite, row " + std::to_string((wrong - data.values->begin()) / input_size) +
           " is not");
  }
}

void CheckPositions(const EmbeddingData& data, size_t index, bool are_taken) {
  if (data.positions.empty() && data.advance == 0) return;
  const auto refuse = [&](const std::string& what) {
    throw InvalidRequest("inputs", InputName(index) + what);
  };
  if (!are_taken) refuse(" has positions, but those of this model are one number");
  if (std::ssize(data.positions) != data.num_rows) {
    refuse(" must have a position for each of " + std::to_string(data.num_rows) + " rows, got " +
           std::to_string(data.positions.size()));
  }
  const std::string range = std::to_string(data.num_rows);
  for (const RowPosition& position : data.positions) {
    for (const int32_t number : position) {
      if (number >= 0 && number < data.num_rows) continue;
      refuse(" must have positions in [0, " + range + "), got " + std::to_string(number));
    }
  }
  if (data.advance < 1 || data.advance > data.num_rows) {
    refuse(" must advance by a number in [1, " + range + "], got " + std::to_string(data.advance));
  }
}

// Those of texts go on from what is in front of them.
void PlaceRope(Request* request) {
  const auto has_own = [](const PromptRows& rows) { return !rows.positions.empty(); };
  if (std::ranges::none_of(request->prompt_rows, has_own)) return;
  std::vector<RowPosition>& places = request->rope_positions;
  places.reserve(request->prompt_token_ids.size());
  int32_t next = 0;
  const auto add_texts = [&](int64_t end) {
    for (; std::ssize(places) < end; ++next) places.push_back({next, next, next});
  };
  for (const PromptRows& rows : request->prompt_rows) {
    if (!has_own(rows)) continue;
    add_texts(rows.begin);
    for (const auto& [time, height, width] : rows.positions) {
      places.push_back({next + time, next + height, next + width});
    }
    next += static_cast<int32_t>(rows.advance);
  }
  add_texts(request->prompt_len());
  request->rope_shift = next - request->prompt_len();
}

void AppendInput(const Data& input, size_t index, const RequestLimits& limits, Request* request) {
  std::vector<int32_t>& token_ids = request->prompt_token_ids;
  if (const auto* tokens = std::get_if<TokenData>(&input)) {
    token_ids.insert(token_ids.end(), tokens->token_ids.begin(), tokens->token_ids.end());
  } else if (const auto* rows = std::get_if<EmbeddingData>(&input)) {
    CheckRows(*rows, index, limits.input_size);
    CheckPositions(*rows, index, limits.row_positions);
    request->prompt_rows.push_back({.begin = std::ssize(token_ids),
                                    .num_rows = rows->num_rows,
                                    .values = rows->values,
                                    .positions = rows->positions,
                                    .advance = rows->advance});
    token_ids.resize(token_ids.size() + static_cast<size_t>(rows->num_rows), kFirstInputRow);
  } else {
    throw InvalidRequest("inputs", InputName(index) +
                                       " is text; tokenize it first and pass TokenData (the "
                                       "engine serves token ids only)");
  }
}

// Keeps the last tokens. What is out of range is refused later.
// Of a text whose rows see each other, whose last token closes it: the first tokens and that one.
void TruncateText(int64_t max_tokens, Request* request) {
  std::vector<int32_t>& token_ids = request->prompt_token_ids;
  const auto end = max_tokens > 1 ? token_ids.end() - 1 : token_ids.end();
  token_ids.erase(token_ids.begin() + std::max<int64_t>(max_tokens - 1, 1), end);
}

void TruncatePrompt(int64_t input_size, Request* request) {
  const std::optional<int64_t>& max_tokens = request->generation_cfg.truncate_prompt_tokens;
  if (!max_tokens || *max_tokens < 1) return;
  std::vector<int32_t>& token_ids = request->prompt_token_ids;
  const int64_t num_dropped = std::ssize(token_ids) - *max_tokens;
  if (num_dropped <= 0) return;
  if (request->is_whole && request->prompt_rows.empty()) return TruncateText(*max_tokens, request);
  for (const PromptRows& rows : request->prompt_rows) {
    if (rows.positions.empty() && !request->is_whole) continue;
    throw InvalidRequest("truncate_prompt_tokens",
                         "\"truncate_prompt_tokens\" cannot shorten a prompt with positions of "
                         "images, or images in a text whose rows see each other; it has " +
                             std::to_string(token_ids.size()) + " tokens");
  }
  token_ids.erase(token_ids.begin(), token_ids.begin() + num_dropped);
  std::erase_if(request->prompt_rows,
                [&](const PromptRows& rows) { return rows.end() <= num_dropped; });
  for (PromptRows& rows : request->prompt_rows) {
    const int64_t num_cut = std::max<int64_t>(num_dropped - rows.begin, 0);
    rows.begin += num_cut - num_dropped;
    rows.num_rows -= num_cut;
    rows.first_value += num_cut * input_size;
  }
}

// What needs the tokens of the whole prompt.
void CheckUsesOfRows(const Request& request, const RequestLimits& limits) {
  if (request.prompt_rows.empty()) return;
  for (const PromptRows& rows : request.prompt_rows) {
    const int64_t most = limits.max_whole_rows.value_or(rows.num_rows);
    if (rows.num_rows <= most) continue;
    throw InvalidRequest("inputs",
                         "The rows of an image are computed in one step: of this model at most " +
                             std::to_string(most) + ", got " + std::to_string(rows.num_rows) +
                             "; a larger \"prefill_chunk_size\" allows more, up to the window of "
                             "its attention");
  }
  const auto refuse = [](const char* field) {
    throw InvalidRequest(field, "\"" + std::string(field) +
                                    "\" needs a prompt of tokens; this one has EmbeddingData");
  };
  if (request.generation_cfg.prompt_logprobs) refuse("prompt_logprobs");
  if (request.generation_cfg.debug_config.pinned_system_prompt) refuse("pinned_system_prompt");
}

// Refuses tokens outside the vocabulary. Rows have been checked.
void CheckTokens(const Request& request, int64_t vocab_size) {
  const std::vector<int32_t>& prompt = request.prompt_token_ids;
  auto rows = request.prompt_rows.begin();
  for (int64_t i = 0; i < std::ssize(prompt); ++i) {
    if (rows != request.prompt_rows.end() && i == rows->begin) {
      i = rows++->end() - 1;
      continue;
    }
    const int32_t id = prompt[static_cast<size_t>(i)];
    if (id >= 0 && id < vocab_size) continue;
    throw InvalidRequest("prompt", "Token " + std::to_string(i) + " of the prompt must be in [0, " +
                                       std::to_string(vocab_size) + "), got " + std::to_string(id));
  }
}

std::string Reason(const RequestLimits& limits) {
  return limits.length_reason.empty() ? "" : " (" + limits.length_reason + ')';
}

void CheckEmbedding(const EmbeddingConfig& embedding, int64_t prompt_len,
                    const RequestLimits& limits) {
  if (limits.embedding_size == 0) {
    throw InvalidRequest("model", "This model gives no hidden states, so there are no embeddings");
  }
  if (embedding.pooling == Pooling::kCls && !limits.whole_prompts) {
    throw InvalidRequest("pooling",
                         "\"pooling\" \"cls\" is of models that attend in both directions; the "
                         "first token of this one sees no other");
  }
  if (embedding.second_text < 0 || embedding.second_text > prompt_len) {
    throw InvalidRequest("second_text", OutOfRangeMessage("second_text", embedding.second_text,
                                                          "in [0, " + std::to_string(prompt_len) +
                                                              "], the length of the prompt"));
  }
  const int64_t dimensions = embedding.dimensions.value_or(limits.embedding_size);
  if (dimensions < 1 || dimensions > limits.embedding_size) {
    throw InvalidRequest("dimensions",
                         OutOfRangeMessage("dimensions", dimensions,
                                           "in [1, " + std::to_string(limits.embedding_size) +
                                               "], the size of the model's embeddings"));
  }
}

EmbeddingConfig ResolvedForClasses(const EmbeddingConfig& embedding, const RequestLimits& limits) {
  if (limits.num_classes == 0) {
    throw InvalidRequest(
        "model",
        "This model has no classes: it needs \"architectures\" that end in "
        "ForSequenceClassification, or the setting \"classifier_from_token\" of the engine");
  }
  const auto refuse = [](const char* field) {
    throw InvalidRequest(field, '"' + std::string(field) +
                                    "\" is of embeddings; a text that is classified has none");
  };
  if (embedding.pooling) refuse("pooling");
  if (embedding.dimensions) refuse("dimensions");
  if (embedding.normalize) refuse("normalize");
  return {.pooling = limits.embedding.classifier_pooling,
          .normalize = false,
          .classify = true,
          .second_text = embedding.second_text};
}

// With what the model's folder says where the request says nothing.
EmbeddingConfig Resolved(EmbeddingConfig embedding, const EmbeddingDefaults& defaults) {
  if (!embedding.pooling && !defaults.refusal.empty()) {
    throw InvalidRequest(
        "pooling", "The embeddings of this model need what is not supported: " + defaults.refusal +
                       ". Give \"pooling\" for an embedding without it");
  }
  if (!embedding.pooling) embedding.pooling = defaults.pooling;
  if (!embedding.normalize) embedding.normalize = defaults.normalize;
  return embedding;
}

// Leaves out tokens of this id at the end of the prompt, and keeps its first one.
void DropPadding(std::optional<int32_t> padding, Request* request) {
  std::vector<int32_t>& prompt = request->prompt_token_ids;
  while (padding && prompt.size() > 1 && prompt.back() == *padding) prompt.pop_back();
}

// What of the settings does not concern an answer.
GenerationConfig ServiceOf(const GenerationConfig& config) {
  GenerationConfig service;
  VisitServiceFields([&](const Field&, auto member) { service.*member = config.*member; });
  service.truncate_prompt_tokens = config.truncate_prompt_tokens;
  service.speculative = false;
  service.prediction.clear();
  service.seed = 0;
  return service;
}

// Flattens the inputs. The request is not checked yet.
std::shared_ptr<Request> NewRequest(std::string id, std::vector<Data> inputs,
                                    GenerationConfig generation_cfg, const RequestLimits& limits) {
  if (id.empty()) throw InvalidRequest("id", "The request id must not be empty");
  auto request = std::make_shared<Request>();
  request->id = std::move(id);
  for (size_t i = 0; i < inputs.size(); ++i) {
    AppendInput(inputs[i], i, limits, request.get());
  }
  request->inputs = std::move(inputs);
  request->generation_cfg = std::move(generation_cfg);
  request->has_whole_rows = limits.max_whole_rows.has_value();
  request->is_whole = limits.whole_prompts;
  TruncatePrompt(limits.input_size, request.get());
  return request;
}

int64_t RandomSeed() {
  std::random_device device;
  const uint64_t bits = (uint64_t{device()} << 32) | device();
  return static_cast<int64_t>(bits >> 1);  // non-negative
}

}  // namespace

int64_t Request::StepEnd(int64_t begin, int64_t end) const {
  if (is_whole && end < prompt_len()) return begin;
  if (!has_whole_rows) return end;
  for (const PromptRows& rows : prompt_rows) {
    if (rows.begin < end && end < rows.end()) return std::max(rows.begin, begin);
  }
  return end;
}

int64_t MaxAnswers(const RequestLimits& limits) {
  constexpr int64_t kMaxAnswers = 1024;  // each has a state of its own while the request lives
  return std::max(kMaxAnswers, limits.max_num_sequence);
}

void CheckPin(int64_t prompt_len, const RequestLimits& limits) {
  if (!limits.max_pinned_length) {
    throw InvalidRequest("prefix_cache_mode",
                         "Pins need \"prefix_cache_mode\" \"radix\", this engine has \"disable\"");
  }
  const int64_t room = *limits.max_pinned_length;
  if (prompt_len <= room) return;
  throw InvalidRequest("prompt", "A prompt of " + std::to_string(prompt_len) +
                                     " tokens cannot be pinned: there is room for " +
                                     std::to_string(room) +
                                     " (whole pages of \"max_total_sequence_length\" less "
                                     "\"max_single_sequence_length\")");
}

void CheckRequest(const Request& request, const RequestLimits& limits) {
  const std::vector<int32_t>& prompt = request.prompt_token_ids;
  if (prompt.empty()) {
    throw InvalidRequest("prompt", "The prompt must have at least 1 token, got 0");
  }
  if (request.prompt_len() > limits.max_sequence_length) {
    throw InvalidRequest("prompt", "Request prompt has " + std::to_string(request.prompt_len()) +
                                       " tokens in total, larger than the model input length "
                                       "limit " +
                                       std::to_string(limits.max_sequence_length) + Reason(limits) +
                                       ".");
  }
  CheckTokens(request, limits.vocab_size);
  request.generation_cfg.Validate(limits.vocab_size);
  CheckUsesOfRows(request, limits);
  if (request.embedding) {
    CheckEmbedding(*request.embedding, request.prompt_len(), limits);
  } else if (!limits.generates) {
    throw InvalidRequest(
        "model",
        std::string("This model ") +
            (limits.whole_prompts ? "attends in both directions, as its config.json says: it "
                                  : "has no head, as its \"architectures\" say: it ") +
            (limits.num_classes > 0 ? "classifies" : "embeds") + " texts and generates none");
  }
  if (request.generation_cfg.n > MaxAnswers(limits)) {
    throw InvalidRequest("n", "\"n\" must be in [1, " + std::to_string(MaxAnswers(limits)) +
                                  "], got " + std::to_string(request.generation_cfg.n));
  }
  if (request.generation_cfg.debug_config.pinned_system_prompt) {
    CheckPin(request.prompt_len(), limits);
  }
}

RequestPtr CreateRequest(std::string id, std::vector<Data> inputs, GenerationConfig generation_cfg,
                         const RequestLimits& limits, const CompleteRequest& complete,
                         bool begins_turn) {
  const auto request =
      NewRequest(std::move(id), std::move(inputs), std::move(generation_cfg), limits);
  request->begins_turn = begins_turn;
  CheckRequest(*request, limits);
  PlaceRope(request.get());
  if (!request->generation_cfg.seed) request->generation_cfg.seed = RandomSeed();
  if (complete) complete(request.get());
  return request;
}

RequestPtr CreateEmbeddingRequest(std::string id, std::vector<Data> inputs,
                                  const EmbeddingConfig& embedding, const GenerationConfig& service,
                                  const RequestLimits& limits, const CompleteRequest& complete) {
  const auto request = NewRequest(std::move(id), std::move(inputs), ServiceOf(service), limits);
  request->embedding = embedding.classify ? ResolvedForClasses(embedding, limits)
                                          : Resolved(embedding, limits.embedding);
  request->pooled_layers =
      embedding.classify ? limits.embedding.classifier : limits.embedding.layers;
  if (embedding.classify) DropPadding(request->pooled_layers->padding(), request.get());
  if (service.truncate_prompt_tokens) {
    int64_t& second = request->embedding->second_text;
    second = std::min(second, request->prompt_len());
  }
  CheckRequest(*request, limits);
  PlaceRope(request.get());
  if (complete) complete(request.get());
  return request;
}

int32_t CheckedTokenId(const char* field, int64_t value) {
  if (value < 0 || value > std::numeric_limits<int32_t>::max()) {
    throw InvalidRequest(field, OutOfRangeMessage(field, value, "token ids in [0, 2^31)"));
  }
  return static_cast<int32_t>(value);
}

}  // namespace mlc_native
