#include "grammar/schema_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/backend.h"
#include "grammar/schema_facts.h"
#include "grammar/schema_keywords.h"

namespace mlc_native {
namespace {

// The keywords that decide alone, in the order in which the library looks for them.
constexpr std::string_view kDeciding[] = {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};

// What the library makes of "multipleOf" beyond these is nothing.
constexpr double kMaxMultipleOf = 1024;
constexpr double kMaxMultiplesWidth = 10000;

constexpr char kLookAround[] = "a pattern has a lookahead or lookbehind";

std::string Escaped(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

std::string Below(const std::string& pointer, std::string_view name) {
  return pointer + '/' + Escaped(name);
}

[[noreturn]] void Refuse(const std::string& pointer, std::string_view keyword,
                         const std::string& reason) {
  throw GrammarError("\"" + Below(pointer, keyword) +
                     "\" of the JSON schema cannot be enforced: " + reason);
}

// The characters that every match of a pattern starts with; empty if they are not plain.
std::string_view LiteralStart(std::string_view pattern) {
  if (!pattern.starts_with('^')) return {};
  pattern.remove_prefix(1);
  if (pattern.find('|') != std::string_view::npos) return {};
  const size_t end = std::min(pattern.find_first_of("\\.[](){}*+?$^"), pattern.size());
  // A quantifier is about the character before it.
  const bool quantified =
      end < pattern.size() && std::string_view("{*?").find(pattern[end]) != std::string_view::npos;
  return pattern.substr(0, quantified && end > 0 ? end - 1 : end);
}

// One walk over the schemas that the library reads: from the root along what they contain and refer
// to. Unused definitions are not looked at.
class SchemaWalk {
 public:
  SchemaWalk(const JsonValue& root, bool strict, std::string pointer)
      : root_(root), strict_(strict), root_pointer_(std::move(pointer)) {
    Add(root, root_pointer_, kAnyJson);
  }

  void Run() {
    while (!pending_.empty()) {
      const Pending next = std::move(pending_.back());
      pending_.pop_back();
      Check(*next.schema, next.pointer, next.types);
    }
  }

 private:
  struct Pending {
    const JsonValue* schema;
    std::string pointer;
    JsonTypes types;
  };

  // `types`: those that a schema without "type" is read as.
  void Add(const JsonValue& schema, std::string pointer, JsonTypes types) {
    if (schema.is_object() && seen_.insert({&schema, types}).second) {
      pending_.push_back({&schema, std::move(pointer), types});
    }
  }

  void AddMember(const JsonValue& schema, const std::string& pointer, std::string_view name) {
    if (const JsonValue* value = schema.Find(name)) Add(*value, Below(pointer, name), kAnyJson);
  }

  void AddList(const JsonValue& schema, const std::string& pointer, std::string_view name) {
    const JsonValue* list = schema.Find(name);
    if (list == nullptr || !list->is_array()) return;
    for (size_t i = 0; i < list->AsArray().size(); ++i) {
      Add(list->AsArray()[i], Below(pointer, name) + '/' + std::to_string(i), kAnyJson);
    }
  }

  void AddMap(const JsonValue& schema, const std::string& pointer, std::string_view name) {
    const JsonValue* map = schema.Find(name);
    if (map == nullptr || !map->is_object()) return;
    for (const auto& [key, value] : map->AsObject()) {
      Add(value, Below(Below(pointer, name), key), kAnyJson);
    }
  }

  void Check(const JsonValue& schema, const std::string& pointer, JsonTypes types_without) {
    for (const std::string_view keyword : kDeciding) {
      if (schema.Find(keyword) == nullptr) continue;
      CheckSiblings(schema, pointer, keyword);
      return CheckDeciding(schema, pointer, keyword);
    }
    CheckTyped(schema, pointer, TypesRead(schema, types_without));
  }

  // The types that the library makes, as it reads the schema; none: any value.
  static JsonTypes TypesRead(const JsonValue& schema, JsonTypes types_without) {
    if (schema.Find("type") != nullptr) return TypesAllowed(schema);
    if (types_without != kAnyJson) return types_without;
    for (const char* name : {"properties", "additionalProperties", "unevaluatedProperties"}) {
      if (schema.Find(name) != nullptr) return kJsonObject;
    }
    for (const char* name : {"items", "prefixItems", "unevaluatedItems"}) {
      if (schema.Find(name) != nullptr) return kJsonArray;
    }
    return 0;
  }

  // Calls visit(keyword, value) for each keyword that matters to values of these types.
  template <typename Visit>
  static void ForEachKeyword(const JsonValue& schema, JsonTypes types, const Visit& visit) {
    for (const auto& [keyword, concerned] : AssertionKeywords()) {
      const JsonValue* value = (concerned & types) != 0 ? schema.Find(keyword) : nullptr;
      if (value != nullptr && !AllowsAll(schema, keyword, *value)) visit(keyword, *value);
    }
  }

  void CheckSiblings(const JsonValue& schema, const std::string& pointer,
                     std::string_view deciding) {
    const auto values = ListedValues(schema);
    const bool is_list = deciding == "const" || deciding == "enum";
    ForEachKeyword(schema, kAnyJson, [&](std::string_view keyword, const JsonValue& limit) {
      if (keyword == deciding) return;
      if (keyword == "type" && !is_list && OptionsHaveType(schema, deciding)) return;
      if (is_list && values && AllSatisfy(*values, keyword, limit)) return;
      Refuse(pointer, keyword, "it stands next to \"" + std::string(deciding) + '"');
    });
  }

  // Whether each option of "anyOf" and the like, or what "$ref" names, has a "type" within that of
  // the schema itself.
  bool OptionsHaveType(const JsonValue& schema, std::string_view deciding) const {
    const auto has_type = [&, types = TypesAllowed(schema)](const JsonValue& option) {
      const JsonValue* resolved = Resolve(root_, option);
      return resolved != nullptr && (TypesAllowed(*resolved) & ~types) == 0;
    };
    const JsonValue& options = *schema.Find(deciding);
    if (!options.is_array()) return has_type(schema);
    return std::all_of(options.AsArray().begin(), options.AsArray().end(), has_type);
  }

  void CheckDeciding(const JsonValue& schema, const std::string& pointer,
                     std::string_view keyword) {
    const JsonValue& value = *schema.Find(keyword);
    if (keyword == "$ref") return CheckRef(value, pointer);
    if (keyword == "const" || keyword == "enum") return;
    if (keyword == "allOf" && value.is_array() && value.AsArray().size() != 1) {
      Refuse(pointer, keyword, "only a list of one schema is; write its schemas as one");
    }
    if (keyword == "oneOf" && value.is_array() &&
        !ExcludeEachOther(root_, value.AsArray(), strict_)) {
      Refuse(pointer, keyword,
             "a value may match two of its schemas; use \"anyOf\", or require a property that has "
             "another \"const\" in each");
    }
    AddList(schema, pointer, keyword);
  }

  void CheckRef(const JsonValue& uri, const std::string& pointer) {
    if (!uri.is_string()) return;  // the library says so
    const JsonValue* target = ResolveRef(root_, uri.AsString());
    if (target == nullptr) {
      Refuse(pointer, "$ref", "\"" + uri.AsString() + "\" is no place in this schema");
    }
    Add(*target, root_pointer_ + uri.AsString().substr(1), kAnyJson);
  }

  void CheckTyped(const JsonValue& schema, const std::string& pointer, JsonTypes types) {
    for (const char* name : {"$dynamicRef", "$recursiveRef", "not", "if"}) {
      const JsonValue* value = schema.Find(name);
      if (value != nullptr && !AllowsAll(schema, name, *value)) {
        Refuse(pointer, name, "the keyword is not supported");
      }
    }
    if (types == 0) {
      ForEachKeyword(schema, kAnyJson, [&](std::string_view keyword, const JsonValue&) {
        if (keyword != "type") Refuse(pointer, keyword, "the schema needs a \"type\"");
      });
    }
    if ((types & kJsonObject) != 0) CheckObject(schema, pointer);
    if ((types & kJsonArray) != 0) CheckArray(schema, pointer);
    if ((types & kJsonString) != 0) CheckString(schema, pointer);
    if ((types & kJsonNumber) != 0) CheckNumber(schema, pointer, types);
  }

  void CheckObject(const JsonValue& schema, const std::string& pointer) {
    for (const char* name : {"dependentRequired", "dependentSchemas", "dependencies"}) {
      const JsonValue* value = schema.Find(name);
      if (value != nullptr && !AllowsAll(schema, name, *value)) {
        Refuse(pointer, name, "the keyword is not supported");
      }
    }
    const JsonValue* properties = schema.Find("properties");
    if (const JsonValue* required = schema.Find("required"); required && required->is_array()) {
      for (const JsonValue& name : required->AsArray()) {
        if (!name.is_string()) continue;
        if (properties == nullptr || properties->Find(name.AsString()) == nullptr) {
          Refuse(pointer, "required", '"' + name.AsString() + "\" is not among \"properties\"");
        }
      }
    }
    const JsonValue* unevaluated = schema.Find("unevaluatedProperties");
    if (unevaluated != nullptr && IsBool(*unevaluated, false) && !strict_ &&
        schema.Find("additionalProperties") == nullptr) {
      Refuse(pointer, "unevaluatedProperties",
             "use \"additionalProperties\", or \"strict\" of the response_format");
    }
    CheckNames(schema, pointer);
    CheckPatterns(schema, pointer);
    AddMap(schema, pointer, "properties");
    AddMap(schema, pointer, "patternProperties");
    AddMember(schema, pointer, "additionalProperties");
    AddMember(schema, pointer, "unevaluatedProperties");
  }

  void CheckNames(const JsonValue& schema, const std::string& pointer) {
    const JsonValue* names = schema.Find("propertyNames");
    if (names == nullptr || IsBool(*names, true)) return;
    for (const char* name :
         {"properties", "patternProperties", "additionalProperties", "unevaluatedProperties"}) {
      const JsonValue* value = schema.Find(name);
      if (value == nullptr || AllowsAll(schema, name, *value)) continue;
      Refuse(pointer, "propertyNames", "it stands next to \"" + std::string(name) + '"');
    }
    Add(*names, Below(pointer, "propertyNames"), kJsonString);
  }

  // A property's value has the schema of every pattern that matches its name, but the library gives
  // it that of one. So the patterns must not overlap.
  void CheckPatterns(const JsonValue& schema, const std::string& pointer) {
    const JsonValue* patterns = schema.Find("patternProperties");
    if (patterns == nullptr || !patterns->is_object() || patterns->AsObject().empty()) return;
    std::vector<std::string_view> starts;
    for (const JsonMember& pattern : patterns->AsObject()) {
      if (LooksAround(pattern.name)) Refuse(pointer, "patternProperties", kLookAround);
      starts.push_back(LiteralStart(pattern.name));
    }
    const auto overlap = [&](const std::string& with) {
      Refuse(pointer, "patternProperties",
             "its patterns and " + with +
                 " may match the same name; let them start with different "
                 "letters (\"^a\", \"^b\")");
    };
    for (size_t i = 0; i < starts.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (starts[i].starts_with(starts[j]) || starts[j].starts_with(starts[i])) {
          overlap("its other patterns");
        }
      }
    }
    const JsonValue* properties = schema.Find("properties");
    if (properties == nullptr || !properties->is_object() || properties->AsObject().empty()) return;
    if (!IsClosed(schema, strict_)) overlap("\"additionalProperties\"");
    for (const JsonMember& property : properties->AsObject()) {
      for (const std::string_view start : starts) {
        if (property.name.starts_with(start)) overlap("\"properties\"");
      }
    }
  }

  void CheckArray(const JsonValue& schema, const std::string& pointer) {
    if (const JsonValue* unique = schema.Find("uniqueItems")) {
      if (!IsBool(*unique, false) && NumberOf(schema, "maxItems", kNoJsonLimit) > 1) {
        Refuse(pointer, "uniqueItems", "the keyword is not supported");
      }
    }
    if (schema.Find("contains") != nullptr) {
      Refuse(pointer, "contains", "the keyword is not supported");
    }
    AddList(schema, pointer, "prefixItems");
    AddMember(schema, pointer, "items");
    AddMember(schema, pointer, "unevaluatedItems");
  }

  static void CheckString(const JsonValue& schema, const std::string& pointer) {
    const double min_length = NumberOf(schema, "minLength", 0);
    const double max_length = NumberOf(schema, "maxLength", kNoJsonLimit);
    const JsonValue* format = schema.Find("format");
    const JsonValue* pattern = schema.Find("pattern");
    if (pattern != nullptr && pattern->is_string() && LooksAround(pattern->AsString())) {
      Refuse(pointer, "pattern", kLookAround);
    }
    const JsonFormat* known = format == nullptr ? nullptr : FindJsonFormat(*format);
    if (known != nullptr) {
      const std::string next_to = "it stands next to \"format\" = \"" + format->AsString() + '"';
      if (pattern != nullptr) Refuse(pointer, "pattern", next_to);
      if (min_length > known->min_length) Refuse(pointer, "minLength", next_to);
      if (max_length < known->max_length) Refuse(pointer, "maxLength", next_to);
      return;
    }
    if (pattern == nullptr) return;
    if (min_length > 0) Refuse(pointer, "minLength", "it stands next to \"pattern\"");
    if (max_length < kNoJsonLimit) Refuse(pointer, "maxLength", "it stands next to \"pattern\"");
  }

  static void CheckNumber(const JsonValue& schema, const std::string& pointer, JsonTypes types) {
    const JsonValue* multiple = schema.Find("multipleOf");
    if (multiple == nullptr || !multiple->is_number()) return;
    const double step = multiple->AsNumber();
    if ((types & kJsonFraction) != 0) {
      Refuse(pointer, "multipleOf", "it is for integers only; \"type\" must be \"integer\"");
    }
    if (step != std::floor(step) || step > kMaxMultipleOf) {
      Refuse(pointer, "multipleOf", "it must be an integer, at most 1024");
    }
    const double low = std::max(NumberOf(schema, "minimum", -kNoJsonLimit),
                                NumberOf(schema, "exclusiveMinimum", -kNoJsonLimit));
    const double high = std::min(NumberOf(schema, "maximum", kNoJsonLimit),
                                 NumberOf(schema, "exclusiveMaximum", kNoJsonLimit));
    if ((low > -kNoJsonLimit || high < kNoJsonLimit) && high - low >= kMaxMultiplesWidth) {
      Refuse(pointer, "multipleOf",
             "next to \"minimum\" or \"maximum\" it needs both, less than 10000 apart");
    }
  }

  const JsonValue& root_;
  const bool strict_;
  const std::string root_pointer_;
  std::vector<Pending> pending_;
  std::set<std::pair<const JsonValue*, JsonTypes>> seen_;
};

}  // namespace

void CheckSchemaIsEnforced(const JsonValue& schema, bool strict) {
  SchemaWalk(schema, strict, "").Run();
}

void CheckTagIsEnforced(const JsonValue& tag) {
  struct Part {
    const JsonValue* value;
    std::string pointer;
  };
  std::vector<Part> parts = {{&tag, ""}};
  while (!parts.empty()) {
    const Part part = std::move(parts.back());
    parts.pop_back();
    if (part.value->is_array()) {
      for (size_t i = 0; i < part.value->AsArray().size(); ++i) {
        parts.push_back({&part.value->AsArray()[i], part.pointer + '/' + std::to_string(i)});
      }
    } else if (part.value->is_object()) {
      for (const auto& [name, value] : part.value->AsObject()) {
        const std::string pointer = Below(part.pointer, name);
        if (name == "json_schema" || name == "schema") {
          SchemaWalk(value, /*strict=*/true, pointer).Run();
        } else {
          parts.push_back({&value, pointer});
        }
      }
    }
  }
}

}  // namespace mlc_native
