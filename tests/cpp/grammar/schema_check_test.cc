// Which JSON schemas are refused, by the pointer of the keyword that the library would drop.
#include "grammar/schema_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grammar/backend.h"
#include "grammar/real_grammar.h"
#include "grammar/spec_check.h"

namespace mlc_native {
namespace {

using ::testing::HasSubstr;

// The message; empty if the schema is accepted.
std::string Check(const std::string& schema, bool strict = true) {
  try {
    CheckSchemaIsEnforced(ParseJson(schema), strict);
  } catch (const GrammarError& error) {
    return error.what();
  }
  return "";
}

struct Refused {
  const char* pointer;
  const char* schema;
};

const std::vector<Refused> kRefused = {
    // One keyword decides, and the others are dropped.
    {"/allOf", R"({"allOf": [{"type": "string"}, {"maxLength": 3}]})"},
    {"/allOf", R"({"allOf": []})"},
    {"/properties", R"({"type": "object", "properties": {"a": {"type": "null"}},
                        "anyOf": [{"type": "object"}]})"},
    {"/properties", R"({"properties": {"a": {"type": "null"}}, "oneOf": [{"type": "object"}]})"},
    {"/type", R"({"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})"},
    {"/anyOf", R"({"enum": [1, 2], "anyOf": [{"type": "integer"}]})"},
    {"/minLength", R"({"$ref": "#/$defs/a", "minLength": 2, "$defs": {"a": {"type": "string"}}})"},
    {"/type", R"({"type": "string", "enum": ["a", 1]})"},
    {"/type", R"({"type": ["string", "null"], "const": 1})"},
    {"/minLength", R"({"enum": ["a", "bcd"], "minLength": 2})"},
    {"/maximum", R"({"const": 7, "maximum": 6})"},
    {"/pattern", R"({"enum": ["a", "b"], "pattern": "a"})"},
    // Keywords that the library does not know.
    {"/not", R"({"not": {"type": "string"}})"},
    {"/not", R"({"type": "object", "not": {"required": ["a"]}})"},
    {"/if", R"({"type": "object", "if": {"required": ["a"]}, "then": {"required": ["b"]}})"},
    {"/$dynamicRef", R"({"$dynamicRef": "#node"})"},
    {"/uniqueItems", R"({"type": "array", "items": {"type": "null"}, "uniqueItems": true})"},
    {"/contains", R"({"type": "array", "items": {}, "contains": {"const": 1}})"},
    {"/dependentRequired", R"({"type": "object", "dependentRequired": {"a": ["b"]}})"},
    {"/dependentSchemas",
     R"({"properties": {"a": {}}, "dependentSchemas": {"a": {"type": "null"}}})"},
    {"/dependencies", R"({"type": "object", "dependencies": {"a": ["b"]}})"},
    // Parts that it leaves out.
    {"/multipleOf", R"({"type": "number", "multipleOf": 0.5})"},
    {"/multipleOf", R"({"type": "integer", "multipleOf": 1.5})"},
    {"/multipleOf", R"({"type": "integer", "multipleOf": 2000})"},
    {"/multipleOf", R"({"type": "integer", "multipleOf": 3, "minimum": 0})"},
    {"/multipleOf", R"({"type": "integer", "multipleOf": 3, "minimum": 0, "maximum": 99999})"},
    {"/minLength", R"({"type": "string", "pattern": "a*", "minLength": 3})"},
    {"/maxLength", R"({"type": "string", "pattern": "a*", "maxLength": 3})"},
    {"/maxLength", R"({"type": "string", "format": "uri", "maxLength": 20})"},
    {"/minLength", R"({"type": "string", "format": "date", "minLength": 11})"},
    {"/pattern", R"({"type": "string", "format": "email", "pattern": "a"})"},
    {"/pattern", R"_({"type": "string", "pattern": "a(?=b)"})_"},
    {"/pattern", R"({"type": "string", "pattern": "^(?!x)a"})"},
    {"/patternProperties", R"_({"type": "object", "patternProperties": {"^a(?!b)": {}}})_"},
    {"/required", R"({"type": "object", "required": ["a"]})"},
    {"/required", R"({"properties": {"a": {}}, "required": ["a", "b"]})"},
    {"/propertyNames", R"({"properties": {"a": {}}, "propertyNames": {"maxLength": 1}})"},
    {"/propertyNames", R"({"type": "object", "propertyNames": {"maxLength": 1},
                           "additionalProperties": {"type": "null"}})"},
    {"/patternProperties", R"({"properties": {"ab": {"type": "null"}},
                               "patternProperties": {"^a": {"type": "string"}}})"},
    {"/patternProperties", R"({"type": "object", "patternProperties": {"^a": {}, "^ab": {}}})"},
    {"/patternProperties", R"({"properties": {"b": {}}, "additionalProperties": true,
                               "patternProperties": {"^a": {"type": "string"}}})"},
    {"/$ref", R"({"$ref": "#anchor", "$defs": {"a": {"$anchor": "anchor"}}})"},
    {"/$ref", R"({"$ref": "https://example.com/schema.json"})"},
    {"/$ref", R"({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {}}})"},
    {"/$ref", R"({"$ref": "#/$defs/none"})"},
    // A schema of no type accepts any value.
    {"/minLength", R"({"minLength": 3})"},
    {"/minimum", R"({"minimum": 3})"},
    {"/required", R"({"required": ["a"]})"},
    // Branches that may both match.
    {"/oneOf", R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})"},
    {"/oneOf", R"({"oneOf": [{"type": "string", "maxLength": 4}, {"type": "string"}]})"},
    {"/oneOf", R"({"oneOf": [{"const": 1}, {"enum": [2, 1.0]}]})"},
    {"/oneOf", R"({"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}],
                   "$defs": {"a": {"type": "null"}}})"},
    {"/oneOf", R"({"oneOf": [{"properties": {"k": {"const": 1}}, "type": "object"},
                             {"properties": {"k": {"const": 2}}, "type": "object"}]})"},
    // Deeper.
    {"/properties/a~1b/items/anyOf/0/not",
     R"({"properties": {"a/b": {"items": {"anyOf": [{"not": {}}]}}}})"},
    {"/$defs/x/not", R"({"items": {"$ref": "#/$defs/x"}, "$defs": {"x": {"not": {}}}})"},
    {"/additionalProperties/uniqueItems",
     R"({"type": "object", "additionalProperties": {"type": "array", "uniqueItems": true}})"},
    {"/prefixItems/1/minLength", R"({"prefixItems": [{}, {"minLength": 1}]})"},
    {"/propertyNames/minLength",
     R"({"type": "object", "propertyNames": {"pattern": "a*", "minLength": 2}})"},
};

TEST(SchemaCheckTest, RefusesByPointer) {
  for (const auto& [pointer, schema] : kRefused) {
    EXPECT_THAT(Check(schema), HasSubstr('"' + std::string(pointer) + "\" of the JSON schema"))
        << schema;
  }
}

const std::vector<const char*> kAccepted = {
    "true",
    "{}",
    R"({"$schema": "x", "$id": "y", "title": "t", "description": "d", "default": 1, "examples": []})",
    R"({"type": "string", "x-unknown": {"not": {}}, "contentEncoding": "base64"})",
    R"({"type": "string", "format": "binary", "minLength": 3, "maxLength": 9})",
    R"({"type": "string", "format": "uuid", "minLength": 36, "maxLength": 40})",
    R"({"format": "date"})",
    // Keywords of other types.
    R"({"type": "string", "minimum": 3, "required": ["a"], "uniqueItems": true})",
    R"({"type": "null", "minLength": 3})",
    R"({"const": "abc", "minimum": 3})",
    // What is satisfied anyway.
    R"({"type": "string", "const": "a", "title": "t"})",
    R"({"type": "integer", "enum": [1, 2.0], "minimum": 1})",
    R"({"enum": ["ä", "bc"], "minLength": 1, "maxLength": 2})",
    R"({"type": ["string", "null"], "enum": ["a", null]})",
    R"({"type": "array", "items": {}, "uniqueItems": false, "minItems": 1})",
    R"({"type": "array", "items": {}, "uniqueItems": true, "maxItems": 1})",
    R"({"if": {"type": "null"}})",
    R"({"type": "object", "required": [], "additionalProperties": true})",
    R"({"type": "object", "anyOf": [{"type": "object"}, {"$ref": "#/$defs/a"}],
        "$defs": {"a": {"type": "object"}}})",
    R"({"allOf": [{"$ref": "#/$defs/a"}], "default": null, "$defs": {"a": {"type": "object"}}})",
    R"({"type": "integer", "multipleOf": 7})",
    R"_({"type": "string", "pattern": "[(?=)]\\(=(?:a)"})_",
    R"({"type": "integer", "multipleOf": 7, "minimum": -50, "exclusiveMaximum": 50})",
    R"({"type": "array", "prefixItems": [{"type": "null"}], "items": false, "minItems": 1})",
    R"({"type": ["integer", "null"], "minimum": 3})",
    R"({"type": "object", "patternProperties": {"[a-z]+": {"type": "null"}}})",
    R"({"properties": {"id": {}}, "patternProperties": {"^x-": {"type": "null"}, "^y": {}}})",
    R"({"type": "object", "propertyNames": {"enum": ["a", "b"]}})",
    // Definitions that are not used.
    R"({"type": "null", "$defs": {"a": {"not": {}}}})",
    // A property of that name.
    R"({"properties": {"not": {"type": "null"}, "$ref": {"type": "null"}}})",
    // Branches that exclude each other.
    R"({"oneOf": [{"type": "string"}, {"type": ["integer", "null"]}]})",
    R"({"oneOf": [{"const": 1}, {"enum": [2, "a"]}, {"type": "boolean"}]})",
    R"({"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}],
        "discriminator": {"propertyName": "k"},
        "$defs": {"cat": {"properties": {"k": {"const": "cat", "type": "string"}},
                          "required": ["k"], "type": "object"},
                  "dog": {"properties": {"k": {"enum": ["dog", "wolf"], "type": "string"}},
                          "required": ["k"], "type": "object"}}})",
    R"({"oneOf": [{"type": "object", "properties": {"a": {}}, "required": ["a"]},
                  {"type": "object", "properties": {"b": {}}, "required": ["b"]}]})",
    R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {
        "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}}}})",
};

TEST(SchemaCheckTest, AcceptsWhatIsEnforced) {
  for (const char* schema : kAccepted) EXPECT_EQ(Check(schema), "") << schema;
}

// With `strict`, objects are closed.
TEST(SchemaCheckTest, StrictnessCloses) {
  const std::string either = R"({"oneOf": [
      {"type": "object", "properties": {"a": {}}, "required": ["a"]},
      {"type": "object", "properties": {"b": {}}, "required": ["b"]}]})";
  EXPECT_EQ(Check(either), "");
  EXPECT_THAT(Check(either, /*strict=*/false), HasSubstr("\"/oneOf\""));
  const std::string unevaluated = R"({"properties": {"a": {}}, "unevaluatedProperties": false})";
  EXPECT_EQ(Check(unevaluated), "");
  EXPECT_THAT(Check(unevaluated, /*strict=*/false), HasSubstr("\"/unevaluatedProperties\""));
}

TEST(SchemaCheckTest, StructuralTagsNameTheirSchemas) {
  const auto check = [](const std::string& tag) -> std::string {
    try {
      CheckTagIsEnforced(ParseJson(tag));
    } catch (const GrammarError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(check(R"({"format": {"type": "sequence", "elements": [
                        {"type": "json_schema", "json_schema": {"not": {}}}]}})"),
              HasSubstr("\"/format/elements/0/json_schema/not\""));
  EXPECT_THAT(check(R"({"triggers": ["<"], "structures": [{"begin": "<", "end": ">",
                        "schema": {"$ref": "#/$defs/a", "$defs": {"a": {"minimum": 1}}}}]})"),
              HasSubstr("\"/structures/0/schema/$defs/a/minimum\""));
  EXPECT_EQ(check(R"({"format": {"type": "json_schema", "json_schema": {"type": "null"}}})"), "");
}

TEST(SchemaCheckTest, LargeSchemasAreQuick) {
  std::string properties, defs;
  for (int i = 0; i < 3000; ++i) {
    const std::string n = std::to_string(i);
    properties += (i > 0 ? ", \"p" : "\"p") + n + R"(": {"$ref": "#/$defs/d)" + n + "\"}";
    defs += (i > 0 ? ", \"d" : "\"d") + n + R"(": {"$ref": "#/$defs/d)" +
            std::to_string((i + 1) % 3000) + "\"}";
  }
  const std::string start = R"({"type": "object", "properties": {)" + properties;
  EXPECT_EQ(Check(start + "}, \"$defs\": {" + defs + "}}"), "");
}

class SchemaEnforcementTest : public GrammarTest {};

TEST_F(SchemaEnforcementTest, TheCompilerRefuses) {
  EXPECT_THAT(Refusal(*compiler_, {GrammarKind::kJsonSchema, R"({"not": {"type": "null"}})"}),
              HasSubstr("\"/not\" of the JSON schema cannot be enforced"));
  EXPECT_THAT(
      Refusal(*compiler_, {GrammarKind::kJsonSchema, R"({"type": "null", "type": "null"})"}),
      HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal(*compiler_, {GrammarKind::kRegex, "a(?=b)"}), HasSubstr("lookahead"));
  for (const char* schema : kAccepted) {
    EXPECT_EQ(Refusal(*compiler_, {GrammarKind::kJsonSchema, schema}), "") << schema;
  }
}

}  // namespace
}  // namespace mlc_native
