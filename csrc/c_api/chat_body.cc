#include "c_api/chat_body.h"

#include <algorithm>
#include <array>

#include "support/error.h"
#include "support/json.h"

namespace mlc_native::c_api {
namespace {

constexpr std::array kRoles = {"system", "developer", "user", "assistant", "tool"};
// Variables that a body has a field for.
constexpr std::array kOwnVariables = {"messages", "tools", "documents", "add_generation_prompt",
                                      "continue_final_message"};

[[noreturn]] void ThrowInMessage(size_t i, const std::string& message) {
  throw InvalidRequest("messages", "messages[" + std::to_string(i) + "]: " + message);
}

// The text of a message, whose content may be a list of texts.
std::string ContentText(const JsonValue& message, size_t i) {
  const JsonValue* content = message.Find("content");
  if (content == nullptr || content->is_null()) return "";
  if (content->is_string()) return content->AsString();
  if (!content->is_array()) {
    ThrowInMessage(i,
                   "\"content\" must be a text or a list of parts, got " + JsonExcerpt(*content));
  }
  std::string text;
  for (const JsonValue& part : content->AsArray()) {
    const JsonValue* type = part.Find("type");
    const JsonValue* piece = part.Find("text");
    if (type == nullptr || !type->is_string() || type->AsString() != "text" || piece == nullptr ||
        !piece->is_string()) {
      ThrowInMessage(i,
                     "a part of \"content\" must be {\"type\": \"text\", \"text\": ...}, since "
                     "this engine serves text; got " +
                         JsonExcerpt(part));
    }
    text += piece->AsString();
  }
  return text;
}

// A member that is a text, if it is there.
const std::string* TextMember(const JsonValue& object, const char* name, size_t i) {
  const JsonValue* value = object.Find(name);
  if (value == nullptr || value->is_null()) return nullptr;
  if (!value->is_string()) {
    ThrowInMessage(i, '"' + std::string(name) + "\" must be a text, got " + JsonExcerpt(*value));
  }
  return &value->AsString();
}

// The arguments of a call: an object, or a text that is one. A text that is no JSON remains a text.
void PutArguments(const RawMembers& function, const JsonValue* arguments, size_t max_depth,
                  JsonWriter* json) {
  if (arguments == nullptr || arguments->is_null()) {
    json->BeginObject().EndObject();
  } else if (!arguments->is_string()) {
    json->Raw(FindRaw(function, "arguments"));
  } else {
    const std::string& text = arguments->AsString();
    try {
      ParseJson(text, {.max_depth = max_depth});
      json->Raw(text);
    } catch (const JsonParseError& error) {
      if (error.kind == JsonParseError::Kind::kDepth) {
        throw InvalidRequest("messages", std::string("the arguments of a call: ") + error.what());
      }
      json->Put(text);
    }
  }
}

void PutCalls(const JsonValue& calls, std::string_view raw, size_t i, size_t max_depth,
              JsonWriter* json) {
  if (!calls.is_array()) ThrowInMessage(i, "\"tool_calls\" must be a list");
  const std::vector<std::string_view> raw_calls = ReadRawItems(raw);
  json->BeginArray();
  for (size_t j = 0; j < raw_calls.size(); ++j) {
    const JsonValue& call = calls.AsArray()[j];
    const JsonValue* function = call.Find("function");
    const JsonValue* name = function == nullptr ? nullptr : function->Find("name");
    if (name == nullptr || !name->is_string()) {
      ThrowInMessage(i, "a call of \"tool_calls\" must have a \"function\" with a \"name\"");
    }
    json->BeginObject();
    if (const std::string* id = TextMember(call, "id", i)) json->Add("id", *id);
    json->Add("type", "function").Name("function").BeginObject().Add("name", *name);
    json->Name("arguments");
    PutArguments(ReadRawMembers(FindRaw(ReadRawMembers(raw_calls[j]), "function")),
                 function->Find("arguments"), max_depth, json);
    json->EndObject().EndObject();
  }
  json->EndArray();
}

// The content of a message that is continued has a mark behind it.
void PutMessage(const JsonValue& message, std::string_view raw, size_t i, size_t max_depth,
                bool is_continued, JsonWriter* json) {
  if (!message.is_object()) ThrowInMessage(i, "must be an object, got " + JsonExcerpt(message));
  const std::string* role = TextMember(message, "role", i);
  if (role == nullptr || std::ranges::count(kRoles, *role) == 0) {
    ThrowInMessage(i, "\"role\" must be one of " + ListNames(kRoles));
  }
  json->BeginObject();
  json->Add("role", *role == "developer" ? "system" : *role);
  std::string content = ContentText(message, i);
  if (is_continued) content += kContinueMark;
  json->Add("content", content);
  for (const char* name : {"name", "reasoning_content", "tool_call_id"}) {
    if (const std::string* text = TextMember(message, name, i)) json->Add(name, *text);
  }
  const JsonValue* calls = message.Find("tool_calls");
  const bool has_calls =
      calls != nullptr && !calls->is_null() && !(calls->is_array() && calls->AsArray().empty());
  // Some templates read the reasoning by another name. That of gpt-oss refuses it with a call that
  // has content.
  const std::string* reasoning = TextMember(message, "reasoning_content", i);
  if (reasoning != nullptr && (!has_calls || content.empty())) json->Add("thinking", *reasoning);
  if (has_calls) {
    json->Name("tool_calls");
    PutCalls(*calls, FindRaw(ReadRawMembers(raw), "tool_calls"), i, max_depth, json);
  }
  json->EndObject();
}

void PutMessages(const ConfigFields& fields, const RawMembers& raw, const EngineConfig& config,
                 bool continues_final, JsonWriter* json) {
  const JsonValue* messages = fields.Find("messages");
  if (messages == nullptr || !messages->is_array() || messages->AsArray().empty()) {
    fields.FailValue("messages", "a list of at least one message");
  }
  const JsonArray& list = messages->AsArray();
  if (std::ssize(list) > config.max_messages) {
    fields.Fail("messages", "may have " + std::to_string(config.max_messages) +
                                " entries (\"max_messages\"), got " + std::to_string(list.size()));
  }
  const std::vector<std::string_view> raw_messages = ReadRawItems(FindRaw(raw, "messages"));
  json->Name("messages").BeginArray();
  for (size_t i = 0; i < list.size(); ++i) {
    PutMessage(list[i], raw_messages[i], i, static_cast<size_t>(config.max_json_depth),
               continues_final && i + 1 == list.size(), json);
  }
  json->EndArray();
}

void PutTool(const ConfigFields& fields, const JsonValue& tool, std::string_view raw,
             JsonWriter* json) {
  const JsonValue* type = tool.Find("type");
  const JsonValue* function = tool.Find("function");
  const JsonValue* name = function == nullptr ? nullptr : function->Find("name");
  if (type == nullptr || !type->is_string() || type->AsString() != "function" || name == nullptr ||
      !name->is_string()) {
    fields.Fail("tools",
                "must hold objects {\"type\": \"function\", \"function\": {\"name\": ...}}, "
                "got " +
                    JsonExcerpt(tool));
  }
  const JsonValue* strict = function->Find("strict");
  if (strict != nullptr && strict->is_bool() && strict->AsBool()) {
    fields.Fail("tools", "with \"strict\" are not constrained here: use response_format");
  }
  // In the order that templates see from Python.
  const RawMembers members = ReadRawMembers(FindRaw(ReadRawMembers(raw), "function"));
  json->BeginObject().Add("type", "function").Name("function").BeginObject();
  json->Add("name", *name);
  const JsonValue* description = function->Find("description");
  if (description != nullptr && !description->is_null()) {
    json->Name("description").Raw(FindRaw(members, "description"));
  }
  json->Name("parameters");
  const std::string_view parameters = FindRaw(members, "parameters");
  json->Raw(parameters == "null" ? "{}" : parameters);
  json->EndObject().EndObject();
}

void PutTools(const ConfigFields& fields, const RawMembers& raw, const EngineConfig& config,
              JsonWriter* json) {
  const std::string choice = fields.Has("tool_choice") && fields.Find("tool_choice")->is_string()
                                 ? fields.String("tool_choice")
                             : fields.Has("tool_choice") ? "a function"
                                                         : "auto";
  if (choice != "auto" && choice != "none") {
    fields.Fail("tool_choice",
                "must be \"auto\" or \"none\" here, because calls of tools are not "
                "enforced without Python; got " +
                    JsonExcerpt(*fields.Find("tool_choice")));
  }
  const JsonValue* tools = fields.Find("tools");
  json->Name("tools");
  if (tools != nullptr && !tools->is_array()) fields.FailValue("tools", "a list");
  if (tools == nullptr || tools->AsArray().empty() || choice == "none") {
    json->Null();
    return;
  }
  if (std::ssize(tools->AsArray()) > config.max_tools) {
    fields.Fail("tools", "may have " + std::to_string(config.max_tools) +
                             " entries (\"max_tools\"), got " +
                             std::to_string(tools->AsArray().size()));
  }
  const std::vector<std::string_view> raw_tools = ReadRawItems(FindRaw(raw, "tools"));
  json->BeginArray();
  for (size_t i = 0; i < raw_tools.size(); ++i) {
    PutTool(fields, tools->AsArray()[i], raw_tools[i], json);
  }
  json->EndArray();
}

}  // namespace

const std::vector<std::string>& ChatFields() {
  static const std::vector<std::string> fields = {"messages",
                                                  "tools",
                                                  "tool_choice",
                                                  "parallel_tool_calls",
                                                  "chat_template_kwargs",
                                                  "documents",
                                                  "add_generation_prompt",
                                                  "add_special_tokens",
                                                  "continue_final_message",
                                                  "allow_special_tokens_in_content"};
  return fields;
}

ChatInput ReadChatInput(const ConfigFields& fields, const RawMembers& raw,
                        const EngineConfig& config) {
  ChatInput input;
  input.is_trusted = fields.Bool("allow_special_tokens_in_content", false);
  input.continues_final = fields.Bool("continue_final_message", false);
  const bool adds_prompt = fields.Bool("add_generation_prompt", !input.continues_final);
  if (input.continues_final && adds_prompt) {
    fields.Fail("continue_final_message", "and \"add_generation_prompt\" exclude each other");
  }
  JsonWriter json;
  json.BeginObject();
  if (fields.Has("chat_template_kwargs")) {
    if (!fields.Find("chat_template_kwargs")->is_object()) {
      fields.FailValue("chat_template_kwargs", "an object");
    }
    for (const auto& [name, value] : ReadRawMembers(FindRaw(raw, "chat_template_kwargs"))) {
      if (std::ranges::count(kOwnVariables, name) > 0) {
        fields.Fail("chat_template_kwargs",
                    "has \"" + name + "\", which is a field of the request: give it there");
      }
      json.Name(name).Raw(value);
    }
  }
  PutMessages(fields, raw, config, input.continues_final, &json);
  PutTools(fields, raw, config, &json);
  json.Name("documents").Raw(FindRaw(raw, "documents"));
  json.Add("add_generation_prompt", adds_prompt);
  input.variables = json.EndObject().Take();
  return input;
}

}  // namespace mlc_native::c_api
