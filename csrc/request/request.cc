#include "request/request.h"

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <utility>

#include "support/error.h"

namespace mlc_native {
namespace {

void AppendInput(const Data& input, size_t index, std::vector<int32_t>* token_ids) {
  const auto* tokens = std::get_if<TokenData>(&input);
  if (tokens == nullptr) {
    throw InvalidRequest("inputs", "inputs[" + std::to_string(index) +
                                       "] is text; tokenize it first and pass TokenData (the "
                                       "engine serves token ids only)");
  }
  token_ids->insert(token_ids->end(), tokens->token_ids.begin(), tokens->token_ids.end());
}

// Keeps the last tokens. What is out of range is refused later.
void TruncatePrompt(const std::optional<int64_t>& max_tokens, std::vector<int32_t>* token_ids) {
  if (!max_tokens || *max_tokens < 1) return;
  const int64_t num_dropped = std::ssize(*token_ids) - *max_tokens;
  if (num_dropped > 0) token_ids->erase(token_ids->begin(), token_ids->begin() + num_dropped);
}

std::string Reason(const RequestLimits& limits) {
  return limits.length_reason.empty() ? "" : " (" + limits.length_reason + ')';
}

void CheckEmbedding(const EmbeddingConfig& embedding, const RequestLimits& limits) {
  if (limits.embedding_size == 0) {
    throw InvalidRequest("model", "This model gives no hidden states, so there are no embeddings");
  }
  const int64_t dimensions = embedding.dimensions.value_or(limits.embedding_size);
  if (dimensions < 1 || dimensions > limits.embedding_size) {
    throw InvalidRequest("dimensions",
                         OutOfRangeMessage("dimensions", dimensions,
                                           "in [1, " + std::to_string(limits.embedding_size) +
                                               "], the size of the model's hidden states"));
  }
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
                                    GenerationConfig generation_cfg) {
  if (id.empty()) throw InvalidRequest("id", "The request id must not be empty");
  auto request = std::make_shared<Request>();
  request->id = std::move(id);
  for (size_t i = 0; i < inputs.size(); ++i) {
    AppendInput(inputs[i], i, &request->prompt_token_ids);
  }
  request->inputs = std::move(inputs);
  request->generation_cfg = std::move(generation_cfg);
  TruncatePrompt(request->generation_cfg.truncate_prompt_tokens, &request->prompt_token_ids);
  return request;
}

int64_t RandomSeed() {
  std::random_device device;
  const uint64_t bits = (uint64_t{device()} << 32) | device();
  return static_cast<int64_t>(bits >> 1);  // non-negative
}

}  // namespace

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
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] >= 0 && prompt[i] < limits.vocab_size) continue;
    throw InvalidRequest("prompt", "Token " + std::to_string(i) + " of the prompt must be in [0, " +
                                       std::to_string(limits.vocab_size) + "), got " +
                                       std::to_string(prompt[i]));
  }
  request.generation_cfg.Validate(limits.vocab_size);
  if (request.embedding) {
    CheckEmbedding(*request.embedding, limits);
  } else if (!limits.generates) {
    throw InvalidRequest(
        "model",
        "This model has no head, as its \"architectures\" say: it embeds texts and "
        "generates none");
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
  const auto request = NewRequest(std::move(id), std::move(inputs), std::move(generation_cfg));
  request->begins_turn = begins_turn;
  CheckRequest(*request, limits);
  if (!request->generation_cfg.seed) request->generation_cfg.seed = RandomSeed();
  if (complete) complete(request.get());
  return request;
}

RequestPtr CreateEmbeddingRequest(std::string id, std::vector<Data> inputs,
                                  const EmbeddingConfig& embedding, const GenerationConfig& service,
                                  const RequestLimits& limits, const CompleteRequest& complete) {
  const auto request = NewRequest(std::move(id), std::move(inputs), ServiceOf(service));
  request->embedding = Resolved(embedding, limits.embedding);
  CheckRequest(*request, limits);
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
