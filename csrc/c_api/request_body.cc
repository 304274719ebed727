#include "c_api/request_body.h"

#include <algorithm>
#include <string>
#include <utility>

#include "c_api/chat_body.h"
#include "c_api/raw_json.h"
#include "c_api/response_format.h"
#include "config/field_reader.h"
#include "support/error.h"
#include "support/hash64.h"

namespace mlc_native::c_api {
namespace {

// Settings that a body has in another form than a GenerationConfig.
const std::vector<std::string>& OwnForm() {
  static const std::vector<std::string> names = {"stop_strs", "response_format", "logprobs",
                                                 "bad_words", "prediction",      "cache_salt",
                                                 "max_tokens"};
  return names;
}
constexpr const char* kOtherFields[] = {
    "prompt",         "input",  "stop",  "ignore_eos", "best_of", "max_completion_tokens",
    "stream_options", "stream", "model", "user"};
// Settings of answers that a request for an embedding has, too.
constexpr std::string_view kServiceOfEmbeddings[] = {
    "truncate_prompt_tokens", "priority", "queue_timeout_s", "timeout_s", "cache_salt", "adapter"};
constexpr const char* kOtherFieldsOfEmbeddings[] = {"input", "add_special_tokens", "model", "user"};
constexpr int64_t kMaxBadWords = 4096;

class BodyReader {
 public:
  BodyReader(std::string_view body, const HostModel& model)
      : model_(model),
        fields_(ConfigFields::Parse(body, "The body", "body", ThrowFieldError<InvalidRequest>,
                                    static_cast<size_t>(model.config.max_json_depth))),
        raw_(ReadRawMembers(body)) {}

  RequestBody Read(std::optional<std::span<const int32_t>> tokens) const {
    if (fields_.Has("input")) return ReadEmbedding(tokens.has_value());
    RequestBody body;
    body.generation = model_.defaults;
    ReadGeneration(&body.generation);
    body.begins_turn = IsChat() && !tokens && !fields_.Bool("continue_final_message", false);
    if (IsChat()) AddChatStops(&body.generation);
    body.tokens = ReadPrompt(body.generation, tokens);
    return body;
  }

  RenderedPrompt Render() const {
    return model_.text->RenderChat(ReadChatInput(fields_, raw_, model_.config));
  }

 private:
  bool IsChat() const { return fields_.Has("messages"); }

  std::vector<int32_t> ReadPrompt(const GenerationConfig& generation,
                                  std::optional<std::span<const int32_t>> tokens) const {
    const int given = (tokens ? 1 : 0) + (IsChat() ? 1 : 0) + (fields_.Has("prompt") ? 1 : 0);
    if (given != 1) {
      fields_.Refuse("prompt",
                     "a request has exactly one of \"messages\", \"prompt\", \"input\" and the "
                     "tokens of the options; got " +
                         std::to_string(given));
    }
    if (tokens) return {tokens->begin(), tokens->end()};
    if (IsChat()) {
      const RenderedPrompt prompt = Render();
      CheckLength("messages", prompt.text, generation);
      return model_.text->EncodeChat(prompt, fields_.Bool("add_special_tokens", false));
    }
    const JsonValue& prompt = *fields_.Find("prompt");
    if (prompt.is_string()) {
      CheckLength("prompt", prompt.AsString(), generation);
      return model_.text->Encode(prompt.AsString(), fields_.Bool("add_special_tokens", true));
    }
    return TokenIds(prompt, "prompt", "a text or a list of token ids in [0, 2^31)");
  }

  std::vector<int32_t> TokenIds(const JsonValue& value, const char* field,
                                const char* allowed) const {
    const auto is_id = [](const JsonValue& id) { return id.IsIntegerIn(0, INT32_MAX); };
    if (!value.is_array() || !std::ranges::all_of(value.AsArray(), is_id)) {
      fields_.FailValue(field, allowed);
    }
    std::vector<int32_t> ids;
    for (const JsonValue& id : value.AsArray()) ids.push_back(static_cast<int32_t>(id.AsInteger()));
    return ids;
  }

  // Before the text is tokenized, which takes its time.
  void CheckLength(const char* field, std::string_view text,
                   const GenerationConfig& generation) const {
    const size_t most = model_.text->most_text_bytes();
    if (most == 0 || generation.truncate_prompt_tokens) return;
    const auto least = static_cast<int64_t>(text.size() / most);
    if (least <= model_.limits.max_sequence_length) return;
    fields_.Refuse(field, "Request prompt has at least " + std::to_string(least) +
                              " tokens in total, larger than the model input length limit " +
                              std::to_string(model_.limits.max_sequence_length) + " (" +
                              model_.limits.length_reason + ").");
  }

  // ---- settings

  void ReadGeneration(GenerationConfig* generation) const {
    FieldReader<GenerationConfig> read(fields_, generation, OwnForm());
    VisitGenerationFields(read);
    std::vector<std::string> known = read.known();
    known.insert(known.end(), std::begin(kOtherFields), std::end(kOtherFields));
    known.insert(known.end(), ChatFields().begin(), ChatFields().end());
    RefuseUnknownFields(fields_, known, "the body");
    ReadLengths(generation);
    ReadLogprobs(generation);
    ReadStop(generation);
    ReadBadWords(generation);
    if (fields_.Has("response_format")) {
      generation->response_format = ReadResponseFormat(fields_, FindRaw(raw_, "response_format"));
    }
    if (fields_.Has("prediction")) ReadPrediction(generation);
    ReadCacheSalt(generation);
    generation->debug_config.ignore_eos =
        fields_.Bool("ignore_eos", generation->debug_config.ignore_eos);
    CheckCount("logit_bias", std::ssize(generation->logit_bias), "max_logit_bias",
               model_.config.max_logit_bias);
    CheckCount("stop_token_ids", std::ssize(generation->stop_token_ids), "max_stop_token_ids",
               model_.config.max_stop_token_ids);
    fields_.Integer("best_of", 1, 1, 1);
  }

  void ReadCacheSalt(GenerationConfig* generation) const {
    if (!fields_.Has("cache_salt")) return;
    const std::string salt = fields_.String("cache_salt");
    if (salt.empty()) fields_.FailValue("cache_salt", "a text that is not empty");
    generation->cache_salt =
        static_cast<int64_t>(Hash64(std::as_bytes(std::span(salt.data(), salt.size())))) | 1;
  }

  void CheckCount(const char* field, int64_t count, const char* setting, int64_t limit) const {
    if (count <= limit) return;
    fields_.Fail(field, "may have " + std::to_string(limit) + " entries (\"" + setting +
                            "\"), got " + std::to_string(count));
  }

  void ReadLengths(GenerationConfig* generation) const {
    constexpr const char* kNames[] = {"max_tokens", "max_completion_tokens"};
    for (const char* name : kNames) {
      if (!fields_.Has(name)) continue;
      const int64_t length = fields_.Integer(name, std::nullopt, -1, INT64_MAX);
      if (name == kNames[1] && fields_.Has(kNames[0]) && length != generation->max_tokens) {
        fields_.Fail(name, "and \"max_tokens\" contradict each other");
      }
      generation->max_tokens = length;
    }
  }

  // A chat has a flag and a number of alternatives; a completion, the number.
  void ReadLogprobs(GenerationConfig* generation) const {
    if (!fields_.Has("logprobs")) return;
    constexpr int64_t kMostOfCompletions = 5;
    if (fields_.Find("logprobs")->is_bool()) {
      generation->logprobs = fields_.Bool("logprobs", false);
    } else {
      generation->logprobs = true;
      generation->top_logprobs =
          static_cast<int32_t>(fields_.Integer("logprobs", std::nullopt, 0, kMostOfCompletions));
    }
  }

  void ReadStop(GenerationConfig* generation) const {
    const JsonValue* stop = fields_.Find("stop");
    if (stop != nullptr && stop->is_string()) {
      generation->stop_strs = {stop->AsString()};
    } else if (stop != nullptr) {
      generation->stop_strs = fields_.Strings("stop");
    }
    CheckCount("stop", std::ssize(generation->stop_strs), "max_stop_strs",
               model_.config.max_stop_strs);
    for (const std::string& text : generation->stop_strs) {
      if (std::ssize(text) <= model_.config.max_stop_str_bytes) continue;
      fields_.Fail("stop", "may have texts of " + std::to_string(model_.config.max_stop_str_bytes) +
                               " bytes (\"max_stop_str_bytes\"), got one of " +
                               std::to_string(text.size()));
    }
  }

  void ReadBadWords(GenerationConfig* generation) const {
    const JsonValue* words = fields_.Find("bad_words");
    if (words == nullptr) return;
    constexpr const char* kAllowed =
        "a list of texts and of lists of token ids, none of them empty";
    if (!words->is_array()) fields_.FailValue("bad_words", kAllowed);
    if (std::ssize(words->AsArray()) > kMaxBadWords) {
      fields_.Fail("bad_words", "may have " + std::to_string(kMaxBadWords) + " words, got " +
                                    std::to_string(words->AsArray().size()));
    }
    for (const JsonValue& word : words->AsArray()) {
      if (!word.is_string()) {
        generation->bad_words.push_back(TokenIds(word, "bad_words", kAllowed));
        continue;
      }
      if (word.AsString().empty()) fields_.FailValue("bad_words", kAllowed);
      AddBadWord(word.AsString(), &generation->bad_words);
    }
  }

  // As it is spelled at the beginning of a text, and behind a space.
  void AddBadWord(const std::string& word, std::vector<std::vector<int32_t>>* sequences) const {
    const size_t begin = word.find_first_not_of(" \t\r\n");
    const std::string text = begin == word.npos ? word : word.substr(begin);
    std::vector<int32_t> plain = model_.text->Encode(text, false);
    std::vector<int32_t> spaced = model_.text->Encode(' ' + text, false);
    const bool differs = !plain.empty() && spaced.size() == plain.size() && spaced[0] != plain[0];
    sequences->push_back(std::move(plain));
    if (differs) sequences->push_back(std::move(spaced));
  }

  void ReadPrediction(GenerationConfig* generation) const {
    constexpr const char* kAllowed =
        "{\"type\": \"content\", \"content\": a text, or a list of {\"type\": \"text\", \"text\": "
        "...}}";
    const JsonValue* content = fields_.Find("prediction")->Find("content");
    std::string text;
    if (content != nullptr && content->is_string()) {
      text = content->AsString();
    } else if (content != nullptr && content->is_array()) {
      for (const JsonValue& part : content->AsArray()) {
        const JsonValue* piece = part.Find("text");
        if (piece == nullptr || !piece->is_string()) fields_.FailValue("prediction", kAllowed);
        text += piece->AsString();
      }
    } else {
      fields_.FailValue("prediction", kAllowed);
    }
    constexpr size_t kMaxBytes = size_t{1} << 20;
    if (text.size() > kMaxBytes) {
      fields_.Fail("prediction", "may have " + std::to_string(kMaxBytes) + " bytes, got " +
                                     std::to_string(text.size()));
    }
    generation->prediction = model_.text->Encode(text, false);
  }

  // The template's end of a turn, unless the request says that nothing but its own tokens ends it.
  void AddChatStops(GenerationConfig* generation) const {
    const bool none = fields_.Has("stop_token_ids") && generation->stop_token_ids.empty();
    if (none || generation->debug_config.ignore_eos) return;
    const std::vector<int32_t>& stops = model_.text->chat_stop_tokens();
    generation->stop_token_ids.insert(generation->stop_token_ids.end(), stops.begin(), stops.end());
  }

  // ---- embeddings

  RequestBody ReadEmbedding(bool has_tokens) const {
    if (has_tokens) {
      fields_.Refuse("tokens",
                     "a request with \"input\" takes no \"tokens\" of the options: give the token "
                     "ids as \"input\"");
    }
    RequestBody body;
    FieldReader<EmbeddingConfig> read(fields_, &body.embedding.emplace());
    read(Field{"pooling", ""}, &EmbeddingConfig::pooling);
    read(Field{"dimensions", ""}, &EmbeddingConfig::dimensions);
    read(Field{"normalize", ""}, &EmbeddingConfig::normalize);
    read(Field{"classify", ""}, &EmbeddingConfig::classify);
    read(Field{"second_text", ""}, &EmbeddingConfig::second_text);
    FieldReader<GenerationConfig> read_service(fields_, &body.generation, OwnForm());
    VisitGenerationFields([&](const Field& field, auto member) {
      if (std::ranges::count(kServiceOfEmbeddings, field.name) > 0) read_service(field, member);
    });
    std::vector<std::string> known = read.known();
    const std::vector<std::string>& service = read_service.known();
    known.insert(known.end(), service.begin(), service.end());
    known.insert(known.end(), std::begin(kOtherFieldsOfEmbeddings),
                 std::end(kOtherFieldsOfEmbeddings));
    RefuseUnknownFields(fields_, known, "a body with \"input\", which asks for an embedding");
    ReadCacheSalt(&body.generation);
    body.tokens = WithErrorsAboutInput([&] { return ReadInput(body.generation); });
    return body;
  }

  std::vector<int32_t> ReadInput(const GenerationConfig& service) const {
    const bool add_special_tokens = fields_.Bool("add_special_tokens", true);
    const JsonValue& input = *fields_.Find("input");
    if (input.is_string()) {
      CheckLength("input", input.AsString(), service);
      return model_.text->Encode(input.AsString(), add_special_tokens);
    }
    return TokenIds(input, "input",
                    "one text or one list of token ids in [0, 2^31), since each of several inputs "
                    "is a request of its own");
  }

  const HostModel& model_;
  const ConfigFields fields_;
  const RawMembers raw_;
};

}  // namespace

RequestBody ReadRequestBody(std::string_view body, const HostModel& model,
                            std::optional<std::span<const int32_t>> tokens) {
  return BodyReader(body, model).Read(tokens);
}

RenderedPrompt RenderChatBody(std::string_view body, const HostModel& model) {
  return BodyReader(body, model).Render();
}

}  // namespace mlc_native::c_api
