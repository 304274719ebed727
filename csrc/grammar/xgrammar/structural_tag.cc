#include "grammar/xgrammar/structural_tag.h"

#include "grammar/backend.h"
#include "support/json.h"

namespace mlc_native {
namespace {

constexpr int kMaxWhitespace = 2;  // characters in one place

void WriteTriggeredTags(const JsonValue& tag, JsonWriter* json) {
  json->BeginObject().Add("type", "triggered_tags").Add("triggers", tag.At("triggers"));
  json->Name("tags").BeginArray();
  for (const JsonValue& structure : tag.At("structures").AsArray()) {
    json->BeginObject()
        .Add("type", "tag")
        .Add("begin", structure.At("begin"))
        .Add("end", structure.At("end"));
    json->Name("content").BeginObject();
    json->Add("type", "json_schema").Add("json_schema", structure.At("schema"));
    json->Add("max_whitespace_cnt", kMaxWhitespace).EndObject().EndObject();
  }
  json->EndArray().EndObject();
}

// `format` with a limit of white space everywhere in it, except inside of schemas. Its depth is
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
      has_schema ? void(json->Put(below)) : WriteLimited(below, json);
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
