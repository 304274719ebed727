#include "grammar/xgrammar/structural_tag.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "grammar/backend.h"
#include "support/json.h"
#include "support/json_in_order.h"

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

// A part of a tag, whose members are sorted by name, and the same part in the order of the text
// (json_in_order.h), which decides the order of properties in an answer.
struct Part {
  const JsonValue& value;
  const JsonValue& in_order;

  Part operator[](size_t i) const { return {value.AsArray()[i], in_order.AsArray()[i]}; }
  size_t size() const { return value.AsArray().size(); }
  Part Of(const JsonMember& member) const { return {value.At(member.name), member.value}; }
  Part At(const char* name) const {
    const JsonValue& named = value.At(name);
    return {named, std::ranges::find(members(), name, &JsonMember::name)->value};
  }
  // In the order of the text; their values have the shape only.
  const JsonObject& members() const { return in_order.AsObject(); }
};

// A schema with limits of lengths as patterns.
void WriteSchema(const Part& schema, JsonWriter* json) {
  if (schema.value.is_array()) {
    json->BeginArray();
    for (size_t i = 0; i < schema.size(); ++i) WriteSchema(schema[i], json);
    json->EndArray();
    return;
  }
  if (!schema.value.is_object()) return void(json->Put(schema.value));
  const std::string pattern = LengthPattern(schema.value);
  json->BeginObject();
  for (const JsonMember& member : schema.members()) {
    const std::string& name = member.name;
    if (!pattern.empty() && IsOneOf(name, {"minLength", "maxLength"})) continue;
    const Part below = schema.Of(member);
    json->Name(name);
    if (IsOneOf(name, {"const", "enum", "default", "examples"})) {
      json->Put(below.value);
    } else if (below.value.is_object() &&
               IsOneOf(name, {"properties", "patternProperties", "$defs", "definitions"})) {
      json->BeginObject();
      for (const JsonMember& key : below.members()) {
        json->Name(key.name);
        WriteSchema(below.Of(key), json);
      }
      json->EndObject();
    } else {
      WriteSchema(below, json);
    }
  }
  if (!pattern.empty()) json->Add("pattern", pattern);
  json->EndObject();
}

void WriteTriggeredTags(const Part& tag, JsonWriter* json) {
  json->BeginObject().Add("type", "triggered_tags").Add("triggers", tag.value.At("triggers"));
  json->Name("tags").BeginArray();
  const Part structures = tag.At("structures");
  for (size_t i = 0; i < structures.size(); ++i) {
    const Part structure = structures[i];
    json->BeginObject()
        .Add("type", "tag")
        .Add("begin", structure.value.At("begin"))
        .Add("end", structure.value.At("end"));
    json->Name("content").BeginObject();
    json->Add("type", "json_schema").Name("json_schema");
    WriteSchema(structure.At("schema"), json);
    json->Add("max_whitespace_cnt", kMaxWhitespace).EndObject().EndObject();
  }
  json->EndArray().EndObject();
}

// `format` with a limit of white space everywhere in it, except inside of schemas. Their depth is
// bounded by GrammarLimits.
void WriteLimited(const Part& format, JsonWriter* json) {
  if (format.value.is_array()) {
    json->BeginArray();
    for (size_t i = 0; i < format.size(); ++i) WriteLimited(format[i], json);
    json->EndArray();
  } else if (!format.value.is_object()) {
    json->Put(format.value);
  } else {
    const bool has_schema = format.value.Find("json_schema") != nullptr;
    json->BeginObject();
    for (const JsonMember& member : format.members()) {
      const Part below = format.Of(member);
      json->Name(member.name);
      has_schema ? WriteSchema(below, json) : WriteLimited(below, json);
    }
    if (has_schema && format.value.Find("max_whitespace_cnt") == nullptr) {
      json->Add("max_whitespace_cnt", kMaxWhitespace);
    }
    json->EndObject();
  }
}

}  // namespace

std::string PrepareStructuralTag(const std::string& text) {
  try {
    const JsonValue value = ParseJson(text), in_order = ReadOrder(text);
    const Part tag{value, in_order};
    JsonWriter json;
    json.BeginObject().Add("type", "structural_tag").Name("format");
    value.Find("structures") != nullptr ? WriteTriggeredTags(tag, &json)
                                        : WriteLimited(tag.At("format"), &json);
    return json.EndObject().Take();
  } catch (const JsonError& error) {
    throw GrammarError(std::string("no structural tag: ") + error.what());
  }
}

}  // namespace mlc_native
