// Which JSON schemas are refused, by the pointer of the keyword that no grammar enforces, and what
// the grammars of the others accept.
#include "grammar/schema_rewrite.h"

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
    RewriteSchema(schema, strict);
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
    // Keywords of which no grammar is made.
    {"/uniqueItems", R"({"type": "array", "items": {"type": "null"}, "uniqueItems": true})"},
    {"/contains", R"({"type": "array", "items": {}, "contains": {"const": 1}})"},
    {"/$recursiveRef", R"({"$recursiveRef": "#"})"},
    {"/multipleOf", R"({"type": "number", "multipleOf": 0.5})"},
    {"/multipleOf", R"({"type": "integer", "multipleOf": 1.5})"},
    {"/multipleOf", R"({"type": "integer", "multipleOf": 2000})"},
    {"/multipleOf", R"({"type": "integer", "multipleOf": 3, "minimum": 0})"},
    {"/multipleOf", R"({"type": "integer", "multipleOf": 3, "minimum": 0, "maximum": 99999})"},
    // Texts with several limits.
    {"/minLength", R"({"type": "string", "pattern": "(ab)*", "minLength": 3})"},
    {"/maxLength", R"({"type": "string", "pattern": "(ab)*", "maxLength": 3})"},
    {"/maxLength", R"({"type": "string", "format": "uri", "maxLength": 20})"},
    {"/minLength", R"({"type": "string", "format": "date", "minLength": 11})"},
    {"/pattern", R"({"type": "string", "format": "email", "pattern": "a"})"},
    {"/allOf/1/pattern", R"({"allOf": [{"type": "string", "pattern": "a"}, {"pattern": "b"}]})"},
    {"/pattern", R"_({"type": "string", "pattern": "a(?=b)"})_"},
    {"/pattern", R"({"type": "string", "pattern": "^(?!x)a"})"},
    {"/pattern", R"({"type": "string", "pattern": "b^a"})"},
    {"/pattern", R"({"type": "string", "pattern": "^\"$"})"},
    {"/pattern", R"({"type": "string", "pattern": "^\\n$"})"},
    {"/patternProperties", R"_({"type": "object", "patternProperties": {"^a(?!b)": {}}})_"},
    // Names that several patterns match.
    {"/propertyNames", R"({"properties": {"a": {}}, "propertyNames": {"maxLength": 1}})"},
    {"/propertyNames", R"({"type": "object", "propertyNames": {"minLength": 4294967297}})"},
    {"/propertyNames", R"({"type": "object", "propertyNames": {"minLength": 1e20}})"},
    {"/patternProperties", R"({"properties": {"ab": {"type": "null"}},
                               "patternProperties": {"^a": {"type": "string"}}})"},
    {"/patternProperties", R"({"type": "object", "patternProperties": {"^a": {}, "^ab": {}}})"},
    {"/patternProperties", R"({"properties": {"b": {}}, "additionalProperties": true,
                               "patternProperties": {"^a": {"type": "string"}}})"},
    {"/minProperties", R"({"additionalProperties": true, "minProperties": 2})"},
    // References.
    {"/$ref", R"({"$ref": "#anchor", "$defs": {"a": {"$anchor": "other"}}})"},
    {"/$ref", R"({"$ref": "https://example.com/schema.json"})"},
    {"/$ref", R"({"$ref": "#/$defs/none"})"},
    {"/$dynamicRef", R"({"$dynamicRef": "#node"})"},
    {"", R"({"$ref": "#"})"},
    {"/$defs/a", R"({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}})"},
    // What no value satisfies, or no list.
    {"", "false"},
    {"", R"({"oneOf": [{"type": "null"}, {"type": "null"}]})"},
    {"", R"({"allOf": [{"type": "string"}, {"type": "null"}]})"},
    {"", R"({"const": 7, "maximum": 6})"},
    {"/allOf", R"({"allOf": []})"},
    {"/anyOf", R"({"anyOf": []})"},
    {"/type", R"({"type": ["string", "text"]})"},
    // Numbers that the library rounds.
    {"/maximum", R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1e-7})"},
    {"/minimum", R"({"type": "number", "minimum": 9007199254740993})"},
    {"/enum/1", R"({"enum": [1, 12345678901234567890]})"},
    // Complements that are none of the library's schemas.
    {"/not/pattern", R"({"type": "string", "not": {"pattern": "a"}})"},
    {"/not/type", R"({"type": "number", "not": {"type": "integer"}})"},
    {"/not/const", R"({"not": {"const": [1]}})"},
    {"/not/uniqueItems", R"({"not": {"uniqueItems": true}})"},
    {"/oneOf/1/pattern", R"({"oneOf": [{"type": "string"}, {"pattern": "a"}]})"},
    // Deeper.
    {"/properties/a~1b/items/anyOf/0/contains",
     R"({"properties": {"a/b": {"items": {"anyOf": [{"contains": {}}]}}}})"},
    {"/$defs/x/contains", R"({"items": {"$ref": "#/$defs/x"}, "$defs": {"x": {"contains": {}}}})"},
    {"/additionalProperties/uniqueItems", R"({"type": "object", "additionalProperties": {
        "type": "array", "items": {}, "uniqueItems": true}})"},
};

TEST(SchemaRewriteTest, RefusesByPointer) {
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

TEST(SchemaRewriteTest, AcceptsWhatIsEnforced) {
  for (const char* schema : kAccepted) EXPECT_EQ(Check(schema), "") << schema;
}

TEST(SchemaRewriteTest, StructuralTagsNameTheirSchemas) {
  const auto check = [](const std::string& tag) -> std::string {
    try {
      RewriteTag(tag);
    } catch (const GrammarError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(check(R"({"format": {"type": "sequence", "elements": [
                        {"type": "json_schema", "json_schema": {"contains": {}}}]}})"),
              HasSubstr("\"/format/elements/0/json_schema/contains\""));
  EXPECT_THAT(check(R"({"triggers": ["<"], "structures": [{"begin": "<", "end": ">",
                        "schema": {"$ref": "#/$defs/a", "$defs": {"a": {"contains": 1}}}}]})"),
              HasSubstr("\"/structures/0/schema/$defs/a/contains\""));
  EXPECT_EQ(check(R"({"format": {"type": "json_schema", "json_schema": {"type": "null"}}})"), "");
}

TEST(SchemaRewriteTest, LargeSchemasAreQuick) {
  std::string properties, defs;
  for (int i = 0; i < 3000; ++i) {
    const std::string n = std::to_string(i);
    properties += (i > 0 ? ", \"p" : "\"p") + n + R"(": {"$ref": "#/$defs/d)" + n + "\"}";
    defs += (i > 0 ? ", \"d" : "\"d") + n + R"(": {"type": "array", "items": {"$ref": "#/$defs/d)" +
            std::to_string((i + 1) % 3000) + "\"}}";
  }
  const std::string start = R"({"type": "object", "properties": {)" + properties;
  EXPECT_EQ(Check(start + "}, \"$defs\": {" + defs + "}}"), "");
}

struct Enforced {
  const char* schema;
  std::vector<const char*> valid;
  std::vector<const char*> invalid;
};

// Each of the invalid texts was accepted before schemas were rewritten, or the schema was refused.
const std::vector<Enforced> kEnforced = {
    {R"({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]},
                   {"properties": {"b": {"const": 1}, "a": {"minimum": 3}}}]})",
     {R"({"a": 3})", R"({"a": 4, "b": 1})"},
     {"{}", R"({"a": 2})", R"({"a": 3, "b": 2})"}},
    {R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}},
         "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
     {R"({"a": null})", R"({"b": null})"},
     {"{}", R"({"a": 1})"}},
    {R"({"$ref": "#/$defs/a", "minLength": 2, "$defs": {"a": {"type": "string"}}})",
     {R"("ab")"},
     {R"("a")"}},
    {R"({"type": "string", "enum": ["a", 1]})", {R"("a")"}, {"1"}},
    {R"({"enum": ["a", "bcd", 3], "minLength": 2})", {R"("bcd")", "3"}, {R"("a")"}},
    {R"({"enum": ["a", "b"], "pattern": "a"})", {R"("a")"}, {R"("b")"}},
    {R"({"type": ["string", "null"], "not": {"const": "ab"}})",
     {"null", R"("a")", R"("abc")", R"("")", R"("中")"},
     {R"("ab")", R"("\u0061b")"}},
    {R"({"type": "integer", "not": {"enum": [2, 4]}})", {"1", "3", "5"}, {"2", "4"}},
    {R"({"type": "object", "properties": {"k": {"enum": ["x", "y"]}, "v": {"type": "integer"}},
         "required": ["k"], "if": {"properties": {"k": {"const": "x"}}},
         "then": {"required": ["v"]}})",
     {R"({"k": "y"})", R"({"k": "x", "v": 1})"},
     {R"({"k": "x"})"}},
    {R"({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 1}},
         "dependentRequired": {"a": ["b"]}})",
     {"{}", R"({"b": 1})", R"({"a": 1, "b": 1})"},
     {R"({"a": 1})"}},
    {R"({"oneOf": [{"type": "integer", "maximum": 2}, {"type": "integer", "minimum": 2}]})",
     {"1", "3"},
     {"2"}},
    {R"({"type": "object", "required": ["a"]})", {R"({"a": 1})"}, {"{}", R"({"b": 1})"}},
    {R"({"minLength": 3})", {"1", R"("abc")"}, {R"("ab")"}},
    {R"({"type": "string", "pattern": "^[a-z]+$", "maxLength": 2})", {R"("ab")"}, {R"("abc")"}},
    {R"({"type": "string", "pattern": "^a$|^b$"})", {R"("a")", R"("b")"}, {R"("ab")"}},
    {R"({"allOf": [{"$ref": "#/$defs/base"}], "properties": {"b": {"const": 1}},
         "unevaluatedProperties": false, "$defs": {"base": {"properties": {"a": {"const": 1}}}}})",
     {R"({"b": 1})", R"({"b": 1, "a": 1})"},
     {R"({"c": 1})"}},
    // What the library made of schemas that it seemed to accept.
    {R"({"prefixItems": [{"properties": {"title": {"type": "null"}}, "required": ["title"]},
                         {"properties": {"title": {"type": "integer"}}, "required": ["title"]}]})",
     {R"([{"title": null}, {"title": 1}])"},
     {R"([{"title": null}, {"title": null}])"}},
    {R"({"prefixItems": [{"const": {"title": 1}}, {"const": {"title": 2}}], "items": false})",
     {R"([{"title":1}, {"title":2}])"},
     {R"([{"title":1}, {"title":1}])"}},
    {R"({"properties": {"a": {"const": 1}}, "additionalProperties": true})",
     {R"({"a": 1, "b": 2})", R"({"aa": 2})"},
     {R"({"a": 1, "\u0061": 2})", R"({"a": 2})"}},
    {R"({"type": "string", "format": "json-pointer"})", {R"("/a/b")"}, {R"("/"")", R"("a")"}},
    {R"({"type": "string", "pattern": "^é.$"})", {R"("éa")"}, {R"("é"")", R"("é\")"}},
    {R"({"type": "string", "pattern": "^\\S$"})", {R"("a")"}, {R"("　")"}},
    {R"({"type": "object", "propertyNames": {"maxLength": 4294967298}})", {R"({"abc": 1})"}, {"1"}},
    {R"({"type": "object", "propertyNames": {"type": "string"}})",
     {R"({"a": 1})", "{}"},
     {"{1: 2}"}},
};

class SchemaEnforcementTest : public GrammarTest {};

TEST_F(SchemaEnforcementTest, EverythingIsEnforced) {
  for (const auto& [schema, valid, invalid] : kEnforced) {
    ASSERT_EQ(Check(schema), "") << schema;
    const auto grammar = Compile(GrammarKind::kJsonSchema, schema);
    for (const char* text : valid) EXPECT_TRUE(Matches(*grammar, text)) << schema << ": " << text;
    for (const char* text : invalid)
      EXPECT_FALSE(Matches(*grammar, text)) << schema << ": " << text;
  }
}

TEST_F(SchemaEnforcementTest, AWarningOfTheLibraryIsAnError) {
  EXPECT_THAT(Refusal(*compiler_, {GrammarKind::kRegex, "a\\yb"}), HasSubstr("does not enforce"));
  EXPECT_EQ(Refusal(*compiler_, {GrammarKind::kRegex, "ab"}),
            "");  // the next one is another matter
}

// An anchor in the middle of a regex is ignored by the library, which is right at the ends.
TEST_F(SchemaEnforcementTest, AnchorsOfARegex) {
  const auto grammar = Compile(GrammarKind::kRegex, "^a\"$|^b$");
  EXPECT_TRUE(Matches(*grammar, "a\""));
  EXPECT_TRUE(Matches(*grammar, "b"));
  EXPECT_FALSE(Matches(*grammar, "ab"));
  EXPECT_THAT(Refusal(*compiler_, {GrammarKind::kRegex, "b^a"}), HasSubstr("does not enforce"));
}

// The library lets "." be the end of a line, and any class the bytes of surrogates.
TEST_F(SchemaEnforcementTest, CharactersOfARegex) {
  for (const char* regex : {".*", ".*[^,]"}) {
    const auto grammar = Compile(GrammarKind::kRegex, regex);
    EXPECT_TRUE(Matches(*grammar, "a \u00E9\u65E5\U0001F338")) << regex;
    EXPECT_FALSE(Matches(*grammar, "a\nb")) << regex;
    EXPECT_FALSE(AcceptText(*grammar->NewMatcher(0), "a\xED\xA0")) << regex;
  }
  EXPECT_TRUE(Matches(*Compile(GrammarKind::kRegex, R"([\s\S]*)"), "a\nb"));
}

TEST_F(SchemaEnforcementTest, WithoutStrictnessMembersAreFree) {
  const std::string schema = R"({"type": "object", "properties": {"a": {"const": 1}},
                                 "not": {"required": ["c"]}})";
  const auto grammar = Compile(GrammarKind::kJsonSchema, schema, /*strict=*/false);
  EXPECT_TRUE(Matches(*grammar, R"({"a": 1, "b": 2})"));
  EXPECT_FALSE(Matches(*grammar, R"({"a": 1, "c": 2})"));
  EXPECT_FALSE(Matches(*Compile(GrammarKind::kJsonSchema, schema), R"({"a": 1, "b": 2})"));
}

TEST(SchemaRewriteTest, TheSizeIsBounded) {
  std::string all;
  for (int i = 0; i < 12; ++i) {
    const std::string n = std::to_string(i);
    all += (i > 0 ? ", " : "") + (R"({"anyOf": [{"required": ["a)" + n) +
           R"("]}, {"required": ["b)" + n + "\"]}]}";
  }
  EXPECT_THAT(Check(R"({"type": "object", "allOf": [)" + all + "]}"),
              HasSubstr("more than 128 alternatives"));
}

// Two to the power of forty schemas apply to the same value.
TEST(SchemaRewriteTest, TheWorkIsBounded) {
  for (const char* keyword : {"allOf", "anyOf"}) {
    for (const char* around : {R"({"$ref": "#/$defs/d0")", R"({"not": {"$ref": "#/$defs/d0"})"}) {
      std::string schema = std::string(around) + R"(, "$defs": {)";
      for (int i = 0; i < 40; ++i) {
        const std::string next = R"({"$ref": "#/$defs/d)" + std::to_string(i + 1) + "\"}";
        schema +=
            "\"d" + std::to_string(i) + "\": {\"" + keyword + "\": [" + next + ", " + next + "]}, ";
      }
      EXPECT_NE(Check(schema + R"("d40": {"type": "string", "minLength": 1}}})"), "") << keyword;
    }
  }
}

TEST(SchemaRewriteTest, PropertiesKeepTheirOrder) {
  const std::string text = RewriteSchema(
      R"({"allOf": [{"properties": {"z": {}, "y": {}}}, {"properties": {"b": {}, "a": {}}}]})",
      true);
  EXPECT_THAT(text, HasSubstr(R"("properties":{"z":{},"y":{},"b":{},"a":{}})"));
}

TEST_F(SchemaEnforcementTest, TheCompilerRefuses) {
  EXPECT_THAT(Refusal(*compiler_, {GrammarKind::kJsonSchema, R"({"contains": {"type": "null"}})"}),
              HasSubstr("\"/contains\" of the JSON schema cannot be enforced"));
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
