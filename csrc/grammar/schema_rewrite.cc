#include "grammar/schema_rewrite.h"

#include <utility>

#include "grammar/backend.h"
#include "grammar/schema_source.h"
#include "grammar/schema_write.h"
#include "support/json.h"
#include "support/json_in_order.h"

namespace mlc_native {
namespace {

std::string Rewrite(const JsonValue& schema, const JsonValue& in_order, bool strict,
                    std::string pointer) {
  try {
    const SchemaSource source(schema, in_order, std::move(pointer));
    return SchemaWriter(source, strict).Write();
  } catch (const JsonError& error) {  // a keyword of the wrong type
    throw GrammarError(std::string("the JSON schema is not valid: ") + error.what());
  }
}

// Writes a part of a tag, and the schemas in it anew. `part` is sorted by name, `in_order` is not.
void WriteTag(const JsonValue& part, const JsonValue& in_order, const std::string& pointer,
              JsonWriter* json) {
  if (part.is_array()) {
    json->BeginArray();
    for (size_t i = 0; i < part.AsArray().size(); ++i) {
      WriteTag(part.AsArray()[i], in_order.AsArray()[i], pointer + '/' + std::to_string(i), json);
    }
    json->EndArray();
  } else if (part.is_object()) {
    json->BeginObject();
    for (const JsonMember& member : in_order.AsObject()) {
      const JsonValue& below = part.At(member.name);
      const std::string place = pointer + PointerStep(member.name);
      json->Name(member.name);
      if (member.name == "json_schema" || member.name == "schema") {
        json->Raw(Rewrite(below, member.value, /*strict=*/true, place));
      } else {
        WriteTag(below, member.value, place, json);
      }
    }
    json->EndObject();
  } else {
    json->Put(part);
  }
}

}  // namespace

std::string RewriteSchema(const std::string& schema, bool strict) {
  return Rewrite(ParseJson(schema), ReadOrder(schema), strict, "");
}

std::string RewriteTag(const std::string& tag) {
  JsonWriter json;
  WriteTag(ParseJson(tag), ReadOrder(tag), "", &json);
  return json.Take();
}

}  // namespace mlc_native
