#include "c_api/response_format.h"

#include <algorithm>
#include <array>
#include <string>

#include "c_api/raw_json.h"

namespace mlc_native::c_api {
namespace {

constexpr const char* kField = "response_format";

// The members that each type has besides "type": one of the needed ones must be there.
struct FormatRow {
  const char* type;
  ResponseFormatType format;
  std::array<const char*, 2> needed;
  const char* optional = nullptr;
};
constexpr std::array kFormats = {
    FormatRow{"text", ResponseFormatType::kText, {}},
    FormatRow{"json_object", ResponseFormatType::kJsonObject, {}, "schema"},
    FormatRow{"json_schema", ResponseFormatType::kJsonSchema, {"json_schema"}},
    FormatRow{"regex", ResponseFormatType::kRegex, {"regex"}},
    FormatRow{"grammar", ResponseFormatType::kGrammar, {"grammar", "ebnf"}},
    FormatRow{"ebnf", ResponseFormatType::kGrammar, {"ebnf", "grammar"}},
    FormatRow{"choice", ResponseFormatType::kChoice, {"choice"}},
    FormatRow{
        "structural_tag", ResponseFormatType::kStructuralTag, {"format", "structures"}, "triggers"},
};

const FormatRow& RowOf(const ConfigFields& body, const ConfigFields& format) {
  const std::string type = format.String("type", "text");
  const auto row = std::ranges::find(kFormats, type, &FormatRow::type);
  if (row == kFormats.end()) {
    std::array<const char*, kFormats.size()> types;
    std::ranges::transform(kFormats, types.begin(), &FormatRow::type);
    body.Fail(kField, "has the type \"" + type + "\"; allowed are " + ListNames(types));
  }
  return *row;
}

// Refuses members of other types. Returns the name of the needed member that is there, or null.
const char* CheckMembers(const ConfigFields& body, const ConfigFields& format,
                         const FormatRow& row) {
  const char* needed = nullptr;
  const auto is = [](const char* name, const std::string& other) {
    return name != nullptr && other == name;
  };
  for (const char* name : row.needed) {
    if (needed == nullptr && name != nullptr && format.Has(name)) needed = name;
  }
  for (const std::string& name : format.Names()) {
    if (name == "type" || !format.Has(name.c_str()) || is(row.optional, name)) continue;
    if (is(row.needed[0], name) || is(row.needed[1], name)) continue;
    body.Fail(kField, "of type \"" + std::string(row.type) + "\" takes no \"" + name + '"');
  }
  if (row.needed[0] != nullptr && needed == nullptr) {
    body.Fail(kField, "of type \"" + std::string(row.type) + "\" needs \"" + row.needed[0] + '"');
  }
  return needed;
}

// A schema is an object or its JSON text.
std::string SchemaText(const JsonValue& schema, std::string_view raw) {
  return schema.is_string() ? schema.AsString() : std::string(raw);
}

}  // namespace

ResponseFormat ReadResponseFormat(const ConfigFields& body, std::string_view raw) {
  if (!body.Find(kField)->is_object()) body.FailValue(kField, "an object");
  const ConfigFields format = body.Object(kField);
  const RawMembers members = ReadRawMembers(raw);
  const FormatRow& row = RowOf(body, format);
  const char* needed = CheckMembers(body, format, row);
  ResponseFormat result;
  result.type = row.format;
  switch (row.format) {
    case ResponseFormatType::kText:
      break;
    case ResponseFormatType::kJsonObject:
      if (!format.Has("schema")) break;
      result.type = ResponseFormatType::kJsonSchema;
      result.text = SchemaText(*format.Find("schema"), FindRaw(members, "schema"));
      break;
    case ResponseFormatType::kJsonSchema: {
      if (!format.Find("json_schema")->is_object()) format.FailValue("json_schema", "an object");
      const ConfigFields object = format.Object("json_schema");
      if (!object.Has("schema")) body.Fail(kField, "of type \"json_schema\" needs a \"schema\"");
      const RawMembers of_object = ReadRawMembers(FindRaw(members, "json_schema"));
      result.text = SchemaText(*object.Find("schema"), FindRaw(of_object, "schema"));
      result.strict = object.Bool("strict", true);
      break;
    }
    case ResponseFormatType::kRegex:
    case ResponseFormatType::kGrammar:
      result.text = format.String(needed);
      break;
    case ResponseFormatType::kChoice:
      result.choices = format.Strings(needed);
      break;
    case ResponseFormatType::kStructuralTag:
      result.text = std::string(raw);
      break;
  }
  return result;
}

}  // namespace mlc_native::c_api
