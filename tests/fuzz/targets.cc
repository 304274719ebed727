#include "targets.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "arch/draft_config.h"
#include "arch/model_config.h"
#include "c_api/request_body.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_defaults.h"
#include "grammar/big_stack.h"
#include "grammar/regex.h"
#include "grammar/spec_check.h"
#include "mlc_native/config.h"
#include "mlc_native/errors.h"
#include "mlc_native/grammar.h"
#include "mlc_native/tokenizer.h"
#include "model_files/model_files.h"
#include "support/json.h"
#include "support/utf8.h"
#include "template/chat_template.h"
#include "testing/temp_folder.h"
#include "tokenizer/token_decoder.h"

namespace mlc_native::fuzz {
namespace {

// The folder of this process.
const testing::TempFolder& Folder() {
  static const testing::TempFolder folder;
  return folder;
}

std::string Write(const std::string& name, std::string_view content) {
  Folder().Write(name, std::string(content));
  return Folder().file(name);
}

void ReadTensors(const Checkpoint& checkpoint) {
  std::vector<std::byte> data;
  for (const Checkpoint::Entry& entry : checkpoint.entries()) {
    data.resize(entry.tensor->bytes);
    entry.Open().Read(0, data);
  }
}

// A folder of one kind of file at a time.
void Safetensors(Bytes input) {
  Write("safetensors/model.safetensors", TextOf(input));
  ReadTensors(Checkpoint(Folder().file("safetensors")));
}

// An index with a shard that holds one tensor, "a" of two floats.
void SafetensorsIndex(Bytes input) {
  std::string shard = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  shard = std::string{static_cast<char>(shard.size())} + std::string(7, '\0') + shard + "12345678";
  Write("index/shard.safetensors", shard);
  Write("index/model.safetensors.index.json", TextOf(input));
  ReadTensors(Checkpoint(Folder().file("index")));
}

void TensorCache(Bytes input) {
  Write("mlc/mlc-chat-config.json", "{}");
  Write("mlc/params_shard_0.bin", std::string(64, 'x'));
  Write("mlc/tensor-cache.json", TextOf(input));
  ReadTensors(Checkpoint(Folder().file("mlc")));
}

// What loading reads of a GGUF file.
void Gguf(Bytes input) {
  const std::string path = Write("x.gguf", TextOf(input));
  ReadModelDefaults(path);
  ReadModelConfig(path);
  ReadTensors(Checkpoint(path));
  for (const char* name : {"/tokenizer.json", "/tokenizer_config.json"}) MadeText(path + name);
}

void TokenizerJson(Bytes input) {
  const std::string path = Write("tokenizer.json", TextOf(input));
  const auto table = TokenTable::FromTokenizerJson(path);
  std::string reason;
  const auto encoder = TextEncoder::FromTokenizerJson(path, *table, &reason);
  std::vector<int32_t> ids;
  constexpr std::string_view kText = "Hello, 12 w\xC3\xB6rlds!\n";
  if (encoder != nullptr) encoder->Encode(kText, &ids);
  const auto tokenizer = Tokenizer::FromTokenizerJson(path, &reason);
  if (tokenizer != nullptr) tokenizer->Decode(tokenizer->Encode(kText), false);
}

// Folders without tokenizer.json: the first byte chooses the form, and a file of it is the rest.
void TokenizerFiles(Bytes input) {
  struct Form {
    std::string folder, file, family;
  };
  static const std::vector<Form> forms = {
      {"spm", "tokenizer.model", R"({"model_type": "llama"})"},
      {"xlmr", "sentencepiece.bpe.model", R"({"model_type": "xlm-roberta"})"},
      {"ranks", "qwen.tiktoken", R"({"model_type": "qwen"})"},
      {"tekken", "tekken.json", "{}"},
      {"words", "vocab.txt", R"({"model_type": "bert"})"},
      {"merges", "merges.txt", R"({"model_type": "gpt2"})"},
      {"settings", "tokenizer_config.json", R"({"model_type": "bert"})"},
  };
  if (input.empty()) return;
  const Form& form = forms[input[0] % forms.size()];
  Write(form.folder + "/config.json", form.family);
  if (form.folder == "merges") {
    Write("merges/vocab.json", R"({"a": 0, "b": 1, "ab": 2, "aba": 3, "<|endoftext|>": 4})");
  } else if (form.folder == "settings") {
    Write("settings/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n##b\n");
  }
  Write(form.folder + '/' + form.file, TextOf(input).substr(1));
  const std::string path = Folder().file(form.folder + "/tokenizer.json");
  TokenTable::FromTokenizerJson(path);
  std::string reason;
  const auto tokenizer = Tokenizer::FromTokenizerJson(path, &reason);
  if (tokenizer != nullptr) tokenizer->Encode("Hello, 12 w\xC3\xB6rlds!\n");
}

// The tokens of "<s>" and of all bytes, and of some pairs.
std::string BytesTokenizer(const std::string& normalizer, const std::string& words) {
  JsonWriter vocab;
  vocab.BeginObject();
  int id = 0;
  const ByteLevelAlphabet alphabet;
  for (char32_t c = 0; c < 0x144; ++c) {
    std::string text;
    AppendCodePoint(c, &text);
    if (alphabet.ByteOf(c) >= 0) vocab.Add(text, id++);
  }
  for (const char* text : {"th", "he", "the", "\xC4\xA0t"}) vocab.Add(text, id++);
  vocab.EndObject();
  return R"({"added_tokens": [{"id": 260, "content": "<s>", "special": true, "rstrip": true},
             {"id": 261, "content": "<t>", "lstrip": true, "single_word": true}],
             "normalizer": )" +
         normalizer + R"(, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [)" + words +
         R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}]},
             "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": )" +
         vocab.Take() + R"(, "merges": ["t h", "h e", "th e", "\u0120 t"]}})";
}

// The first byte chooses a tokenizer and the template's part of a text, which is the rest.
void EncodeText(Bytes input) {
  static const std::vector<std::shared_ptr<const Tokenizer>> tokenizers = [] {
    std::vector<std::shared_ptr<const Tokenizer>> made;
    for (const std::string& json :
         {BytesTokenizer("null", ""), BytesTokenizer(R"({"type": "NFC"})", ""),
          BytesTokenizer(R"({"type": "NFKD"})",
                         R"({"type": "Metaspace", "replacement": "_", "split": true},)"),
          std::string(R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["?", 0],
              ["a", -1], ["ab", -1.5], ["b", -2], ["\u2581", -1], ["\u2581a", -3]]},
              "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581"}})")}) {
      std::string reason;
      made.push_back(Tokenizer::FromTokenizerJson(Write("encoder.json", json), &reason));
      if (made.back() == nullptr) throw std::logic_error(reason);
    }
    return made;
  }();
  const int choice = TakeChoice(input, 32);
  const std::string_view text = TextOf(input);
  const TextSpan own{0, text.size() * static_cast<size_t>(choice / 4) / 7};
  const Tokenizer& tokenizer = *tokenizers[static_cast<size_t>(choice % 4)];
  const std::string decoded = tokenizer.Decode(tokenizer.Encode(text, {&own, 1}), false);
  // A tokenizer of bytes without a normalizer only takes spaces around added tokens.
  const bool has_added =
      text.find("<s>") != std::string_view::npos || text.find("<t>") != std::string_view::npos;
  if (choice % 4 == 0 && !has_added && decoded != text) throw std::logic_error("another text");
}

// The body of a request of the C API, for a model with a chat template.
void RequestBodyJson(Bytes input) {
  static const c_api::HostModel model = [] {
    constexpr std::string_view kTemplate =
        "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in "
        "m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endfor %}{{ tools | tojson "
        "}}{% if add_generation_prompt %}<a>{% endif %}";
    Write("served/tokenizer.json", BytesTokenizer("null", ""));
    Write("served/tokenizer_config.json",
          JsonWriter().BeginObject().Add("chat_template", kTemplate).EndObject().Take());
    EngineConfig config;
    config.model = Folder().file("served");
    return c_api::HostModel{
        .name = "served",
        .device = "cpu",
        .text = c_api::ModelText::Load(config),
        .config = config,
        .limits = {.vocab_size = 262, .max_num_sequence = 4, .max_sequence_length = 4096},
        .defaults = {}};
  }();
  const std::string_view body = TextOf(input);
  try {
    c_api::RenderChatBody(body, model);
  } catch (const CallerError&) {
  }
  c_api::ReadRequestBody(body, model, std::nullopt);
}

void ModelConfigJson(Bytes input) {
  static constexpr std::array<const char*, 3> kFiles{"config.json", "mlc-chat-config.json",
                                                     "generation_config.json"};
  const int choice = TakeChoice(input, 3);
  const std::string folder = "config" + std::to_string(choice);
  if (choice == 2) Write(folder + "/config.json", R"({"eos_token_id": 2})");
  Write(folder + "/" + kFiles[static_cast<size_t>(choice)], TextOf(input));
  const std::string path = Folder().file(folder);
  ReadModelDefaults(path);
  if (choice != 2) ReadModelConfig(path);
}

// The config.json of a folder with draft heads. The first byte chooses their layout by the names of
// the tensors that the folder has: all that begin with these.
void DraftConfig(Bytes input) {
  struct Prefixes {
    std::string_view first, second;
  };
  static constexpr std::array<Prefixes, 7> kLayouts{{{"midlayer.", "fc"},
                                                     {"layers.0.", "fc"},
                                                     {"model.mtp_layers.", "lm_head"},
                                                     {"model.layers.2.", "lm_head"},
                                                     {"mtp.", "lm_head"},
                                                     {"0.", "1."},
                                                     {"blocks.", "lm_heads."}}};
  static constexpr char kTarget[] =
      R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
          "num_hidden_layers": 8, "num_attention_heads": 4, "vocab_size": 512})";
  static const ModelConfig target = [] {
    Write("target/config.json", kTarget);
    return ReadModelConfig(Folder().file("target"));
  }();
  const Prefixes& names = kLayouts[static_cast<size_t>(TakeChoice(input, kLayouts.size()))];
  Write("draft/config.json", TextOf(input));
  ReadDraftHeadConfig(Folder().file("draft"), target, [&names](const std::string& name) {
    return name.starts_with(names.first) || name.starts_with(names.second);
  });
}

void EngineJson(Bytes input) {
  const EngineConfig config = EngineConfig::FromJSONString(std::string(TextOf(input)));
  EngineConfig::FromJSONString(config.AsJSONString());
}

// What the helper process does before it calls the grammar library, on a stack like its own.
void Grammar(GrammarKind kind, Bytes input) {
  const bool strict = TakeChoice(input, 2) == 1;
  const GrammarSpec spec{.kind = kind, .text = std::string(TextOf(input)), .strict = strict};
  CheckGrammarText(spec, GrammarLimits());
  RunOnBigStack(kCompileStackBytes, [&] { RewriteGrammar(spec); });
}

void Schema(Bytes input) { Grammar(GrammarKind::kJsonSchema, input); }

// A pattern of a schema, and what follows in another line is a text that it may match.
void Pattern(Bytes input) {
  const std::string_view all = TextOf(input);
  const size_t end = std::min(all.find('\n'), all.size());
  const std::optional<Regex> regex = Regex::Parse(all.substr(0, end));
  if (!regex) return;
  const auto [least, most] = regex->lengths();
  regex->WithLengths(least, most < 0 ? least + 2 : most);
  regex->ForLibrary(Regex::Place::kText);
  regex->ForLibrary(Regex::Place::kJsonString);
  regex->IsFoundIn(ToValidUtf8(all.substr(end)));
}

void GrammarText(Bytes input) {
  static constexpr std::array kKinds{GrammarKind::kRegex, GrammarKind::kEbnf,
                                     GrammarKind::kStructuralTag, GrammarKind::kJsonObject};
  Grammar(kKinds[static_cast<size_t>(TakeChoice(input, 4))], input);
}

// A template, and what follows a line of "----" are its variables.
void Template(Bytes input) {
  constexpr std::string_view kLine = "\n----\n";
  const std::string_view all = TextOf(input);
  const size_t end = std::min(all.find(kLine), all.size());
  const std::string_view variables = all.substr(std::min(end + kLine.size(), all.size()));
  const auto chat_template = ChatTemplate::Compile(ToValidUtf8(all.substr(0, end)));
  constexpr RenderLimits kLimits{.seconds = 10, .steps = 100'000, .memory_bytes = 4 << 20};
  chat_template->Render(variables.empty() ? "{}" : variables, "{}", kLimits);
}

}  // namespace

std::span<const Target> Targets() {
  static constexpr Target kTargets[] = {
      {"safetensors", Safetensors},
      {"safetensors_index", SafetensorsIndex},
      {"tensor_cache", TensorCache},
      {"gguf", Gguf},
      {"tokenizer_json", TokenizerJson},
      {"tokenizer_files", TokenizerFiles},
      {"model_config", ModelConfigJson},
      {"engine_json", EngineJson},
      {"schema", Schema},
      {"grammar", GrammarText},
      {"pattern", Pattern},
      {"draft_config", DraftConfig},
      {"encoder", EncodeText},
      {"template", Template},
      {"request_body", RequestBodyJson},
  };
  return kTargets;
}

}  // namespace mlc_native::fuzz
