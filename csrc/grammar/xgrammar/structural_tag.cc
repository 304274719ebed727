#include "grammar/xgrammar/structural_tag.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "grammar/backend.h"
#include "support/json.h"

namespace mlc_native {
namespace {

constexpr int kMaxWhitespace = 2;           // characters in one place
constexpr int64_t kMaxPatternLength = 256;  // the library takes seconds for a pattern of 1,000

// A character of text, apart from control characters, which JSON does not allow; what else it does
// not allow is escaped by the library. One class for each length in UTF-8, because the library lets
// a class of several lengths have bytes that are no UTF-8.
constexpr char kStringCharacter[] =
    R"(([ -~]|[\u0080-\u07FF]|[\u0800-\u0FFF]|[\u1000-\uCFFF]|[\uD000-\uD7FF]|[\uE000-\uFFFF]|)"
    R"([\u{10000}-\u{3FFFF}]|[\u{40000}-\u{FFFFF}]|[\u{100000}-\u{10FFFF}]))";

bool IsOneOf(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool IsString(const JsonValue* type) {
  if (type == nullptr) return false;
  if (type->is_string()) return type->AsString() == "string";
  return type->is_array() && std::any_of(type->AsArray().begin(), type->AsArray().end(),
                                         [](const JsonValue& each) { return IsString(&each); });
}

// The limits of the length of a string as a pattern; empty if the schema has none, or if other
// keywords decide. Within a structural tag the library lets a string with such limits have control
// characters, which are not JSON. (It knows no tokens with them in a schema that is alone.) Longer
// limits stay, and compile.cc corrects the library's rule.
std::string LengthPattern(const JsonValue& schema) {
  if (!IsString(schema.Find("type"))) return {};
  for (const char* name : {"pattern", "format", "enum", "const", "$ref", "anyOf", "oneOf"}) {
    if (schema.Find(name) != nullptr) return {};
  }
  const JsonValue* low = schema.Find("minLength");
  const JsonValue* high = schema.Find("maxLength");
  if (low == nullptr && high == nullptr) return {};
  for (const JsonValue* limit : {low, high}) {
    if (limit == nullptr) continue;
    if (!limit->is_integer() || limit->AsInteger() > kMaxPatternLength) return {};
  }
  return std::string("^") + kStringCharacter + '{' +
         std::to_string(low == nullptr ? 0 : low->AsInteger()) + ',' +
         (high == nullptr ? "" : std::to_string(high->AsInteger())) + "}$";
}

// A schema with limits of lengths as patterns.
void WriteSchema(const JsonValue& schema, JsonWriter* json) {
  if (schema.is_array()) {
    json->BeginArray();
    for (const JsonValue& below : schema.AsArray()) WriteSchema(below, json);
    json->EndArray();
    return;
  }
  if (!schema.is_object()) return void(json->Put(schema));
  const std::string pattern = LengthPattern(schema);
  json->BeginObject();
  for (const auto& [name, below] : schema.AsObject()) {
    if (!pattern.empty() && IsOneOf(name, {"minLength", "maxLength"})) continue;
    json->Name(name);
    if (IsOneOf(name, {"const", "enum", "default", "examples"})) {
      json->Put(below);
    } else if (below.is_object() &&
               IsOneOf(name, {"properties", "patternProperties", "$defs", "definitions"})) {
      json->BeginObject();
      for (const auto& [key, of_key] : below.AsObject()) {
        json->Name(key);
        WriteSchema(of_key, json);
      }
      json->EndObject();
    } else {
      WriteSchema(below, json);
    }
  }
  if (!pattern.empty()) json->Add("pattern", pattern);
  json->EndObject();
}

void WriteTriggeredTags(const JsonValue& tag, JsonWriter* json) {
  json->BeginObject().Add("type", "triggered_tags").Add("triggers", tag.At("triggers"));
  json->Name("tags").BeginArray();
  for (const JsonValue& structure : tag.At("structures").AsArray()) {
    json->BeginObject()
        .Add("type", "tag")
        .Add("begin", structure.At("begin"))
        .Add("end", structure.At("end"));
    json->Name("content").BeginObject();
    json->Add("type", "json_schema").Name("json_schema");
    WriteSchema(structure.At("schema"), json);
    json->Add("max_whitespace_cnt", kMaxWhitespace).EndObject().EndObject();
  }
  json->EndArray().EndObject();
}

// `format` with a limit of white space everywhere in it, except inside of schemas. Their depth is
// bounded by GrammarLimits.
void WriteLimited(const JsonValue& format, JsonWriter* json) {
  if (format.is_array()) {
    json->BeginArray();
    for (const JsonValue& below : format.AsArray()) WriteLimited(below, json);
    json->EndArray();
  } else if (!format.is_object()) {
    json->Put(format);
  } else {
    const bool has_schema = format.Find("json_schema") != nullptr;
    json->BeginObject();
    for (const auto& [name, below] : format.AsObject()) {
      json->Name(name);
      has_schema ? WriteSchema(below, json) : WriteLimited(below, json);
    }
    if (has_schema && format.Find("max_whitespace_cnt") == nullptr) {
      json->Add("max_whitespace_cnt", kMaxWhitespace);
    }
    json->EndObject();
  }
}

}  // namespace

std::string PrepareStructuralTag(const std::string& text) {
  try {
    const JsonValue tag = ParseJson(text);
    JsonWriter json;
    json.BeginObject().Add("type", "structural_tag").Name("format");
    tag.Find("structures") != nullptr ? WriteTriggeredTags(tag, &json)
                                      : WriteLimited(tag.At("format"), &json);
    return json.EndObject().Take();
  } catch (const JsonError& error) {
    throw GrammarError(std::string("no structural tag: ") + error.what());
  }
}

}  // namespace mlc_native
