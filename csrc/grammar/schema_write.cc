#include "grammar/schema_write.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace mlc_native {
namespace {

constexpr long double kExactInDouble = 9007199254740992.0L;
constexpr long double kMaxInteger = 9223372036854775807.0L;
// What the library makes of "multipleOf" beyond these is nothing.
constexpr double kMaxMultipleOf = 1024;
constexpr long double kMaxMultiplesWidth = 10000;
constexpr long double kGrid = 1000000;  // the library writes six digits after the point
constexpr char kDefinitions[] = "$defs";

// Formats whose regex of the library allows characters that end a JSON string.
constexpr std::pair<std::string_view, std::string_view> kFormatPatterns[] = {
    {"json-pointer", "^(/([^~/]|~[01])*)*$"},
    {"relative-json-pointer", "^(0|[1-9][0-9]*)(#|(/([^~/]|~[01])*)*)$"},
};

bool IsLeaf(const SchemaForm& form) {
  return std::ranges::all_of(form, [](const Alternative& a) {
    return a.values || (a.types & (kJsonArray | kJsonObject)) == 0 || IsWholeType(a);
  });
}

const char* NameOf(JsonTypes types) {
  for (const char* name : {"null", "boolean", "object", "array", "string", "number"}) {
    if (TypesNamed(name) == types) return name;
  }
  return "integer";
}

// Whether the library's numbers have it, and read it as the same.
bool IsExact(const JsonValue& value) {
  if (value.is_array()) return std::ranges::all_of(value.AsArray(), IsExact);
  if (value.is_object()) {
    return std::ranges::all_of(value.AsObject(), [](const auto& m) { return IsExact(m.value); });
  }
  if (!value.is_number() || std::holds_alternative<int64_t>(value.data())) return true;
  return std::abs(value.AsNumber()) <= kExactInDouble;
}

bool HasObject(const JsonValue& value) {
  return value.is_object() || (value.is_array() && std::ranges::any_of(value.AsArray(), HasObject));
}

// Whether a number with six digits after the point is within the limits.
bool HasGridPoint(const NumberLimits& limits) {
  if (std::isinf(limits.low) || std::isinf(limits.high)) return true;
  long double first = std::ceil(limits.low * kGrid), last = std::floor(limits.high * kGrid);
  if (limits.is_low_open && first == limits.low * kGrid) ++first;
  if (limits.is_high_open && last == limits.high * kGrid) --last;
  return first <= last;
}

}  // namespace

std::string SchemaWriter::Write() {
  const Conjunction root = ConjunctionOf(source_.root());
  const SchemaForm form = normalizer_.FormOf(root);
  if (form.empty()) RefusePart(source_.PointerTo(source_.root()), "no value satisfies it");
  json_.BeginObject();
  Form(form);
  if (!pending_.empty()) {
    json_.Name(kDefinitions).BeginObject();
    for (size_t i = 0; i < pending_.size(); ++i) {
      json_.Name("s" + std::to_string(i)).BeginObject();
      Form(normalizer_.FormOf(*pending_[i]));
      json_.EndObject();
    }
    json_.EndObject();
  }
  return json_.EndObject().Take();
}

// Writes the members of a schema. Requires: not empty.
void SchemaWriter::Form(const SchemaForm& form) {
  std::vector<const Alternative*> parts;
  std::vector<const char*> whole;
  JsonTypes types = 0;
  for (const Alternative& alternative : form) {
    if (!IsWholeType(alternative) || alternative.types == kJsonFraction) {
      parts.push_back(&alternative);
    } else if ((alternative.types & ~types) != 0) {
      whole.push_back(NameOf(alternative.types));
      types |= alternative.types;
    }
  }
  if (types == kAnyJson) return;
  if (whole.empty() && parts.size() == 1) return Keywords(*parts[0]);
  const auto put_types = [&] {
    json_.Name("type");
    if (whole.size() == 1) return void(json_.Put(whole[0]));
    json_.BeginArray();
    for (const char* name : whole) json_.Put(name);
    json_.EndArray();
  };
  if (parts.empty()) return put_types();
  json_.Name("anyOf").BeginArray();
  for (const Alternative* part : parts) {
    json_.BeginObject();
    Keywords(*part);
    json_.EndObject();
  }
  if (!whole.empty()) {
    json_.BeginObject();
    put_types();
    json_.EndObject();
  }
  json_.EndArray();
}

void SchemaWriter::Below(const Conjunction& schemas) {
  json_.BeginObject();
  if (!schemas.empty()) {
    const SchemaForm& form = normalizer_.FormOf(schemas);
    if (form.empty()) RefusePart(source_.PointerTo(*schemas[0].schema), "no value satisfies it");
    if (IsLeaf(form)) {
      Form(form);
    } else {
      const auto [place, is_new] = numbers_.try_emplace(schemas, numbers_.size());
      if (is_new) pending_.push_back(&place->first);
      json_.Add("$ref", std::string("#/") + kDefinitions + "/s" + std::to_string(place->second));
    }
  }
  json_.EndObject();
}

void SchemaWriter::Keywords(const Alternative& alternative) {
  if (++num_schemas_ > kMaxSchemas) {
    RefusePart(source_.PointerTo(source_.root()), "written for a grammar it has more than " +
                                                      std::to_string(kMaxSchemas) + " schemas");
  }
  if (alternative.values) return Values(alternative);
  if (alternative.is(kJsonNumber)) return Number(alternative);
  if (alternative.is(kJsonString)) return Text(alternative);
  if (IsWholeType(alternative)) return void(json_.Add("type", NameOf(alternative.types)));
  if (alternative.is(kJsonBoolean)) return void(json_.Add("const", alternative.allows_true));
  if (alternative.is(kJsonArray)) return Array(alternative);
  Object(alternative);
}

void SchemaWriter::Values(const Alternative& alternative) {
  const std::vector<const JsonValue*>& values = *alternative.values;
  for (const JsonValue* value : values) {
    if (!IsExact(*value)) {
      RefusePart(source_.PointerTo(*value), "a number beyond 64 bits, or 2^53 with a fraction");
    }
  }
  if (values.size() == 1) {
    json_.Add("const", *values[0]);
  } else {
    json_.Name("enum").BeginArray();
    for (const JsonValue* value : values) json_.Put(*value);
    json_.EndArray();
  }
  // The library takes two values for equal that differ in a member called "title" or the like. An
  // unknown keyword that no other schema has keeps them apart.
  if (std::ranges::any_of(values, [](const JsonValue* v) { return HasObject(*v); })) {
    json_.Add("~schema", num_schemas_);
  }
}

void SchemaWriter::Number(const Alternative& alternative) {
  const NumberLimits& limits = alternative.number;
  const bool is_whole_step = limits.step != 0 && limits.step == std::floor(limits.step);
  if ((alternative.types & kJsonFraction) == 0 || is_whole_step) return Integer(alternative);
  if (limits.step != 0) Refuse(alternative, "multipleOf", "it must be an integer");
  if (alternative.types == kJsonFraction) {
    Refuse(alternative, "type", "numbers that are no integers cannot be told apart");
  }
  const auto is_exact = [](long double bound) {
    return std::isinf(bound) || std::abs(bound) <= kExactInDouble;
  };
  if (!is_exact(limits.low)) Refuse(alternative, "minimum", "it is beyond 2^53");
  if (!is_exact(limits.high)) Refuse(alternative, "maximum", "it is beyond 2^53");
  if (!HasGridPoint(limits)) {
    Refuse(alternative, "maximum",
           "no number with six digits after the point is within the bounds");
  }
  json_.Add("type", "number");
  const auto put = [&](const char* name, long double bound) {
    if (!std::isinf(bound)) json_.Add(name, static_cast<double>(bound));
  };
  put(limits.is_low_open ? "exclusiveMinimum" : "minimum", limits.low);
  put(limits.is_high_open ? "exclusiveMaximum" : "maximum", limits.high);
}

void SchemaWriter::Integer(const Alternative& alternative) {
  const NumberLimits& limits = alternative.number;
  long double low = std::ceil(limits.low), high = std::floor(limits.high);
  if (limits.is_low_open && low == limits.low) ++low;
  if (limits.is_high_open && high == limits.high) --high;
  if (!std::isinf(low) && std::abs(low) > kMaxInteger) {
    Refuse(alternative, "minimum", "it is beyond 64 bits");
  }
  if (!std::isinf(high) && std::abs(high) > kMaxInteger) {
    Refuse(alternative, "maximum", "it is beyond 64 bits");
  }
  json_.Add("type", "integer");
  if (!std::isinf(low)) json_.Add("minimum", static_cast<int64_t>(low));
  if (!std::isinf(high)) json_.Add("maximum", static_cast<int64_t>(high));
  if (limits.step == 0 || limits.step == 1) return;
  if (limits.step != std::floor(limits.step) || limits.step > kMaxMultipleOf) {
    Refuse(alternative, "multipleOf", "it must be an integer, at most 1024");
  }
  if ((!std::isinf(low) || !std::isinf(high)) && high - low >= kMaxMultiplesWidth) {
    Refuse(alternative, "multipleOf",
           "next to \"minimum\" or \"maximum\" it needs both, less than 10000 apart");
  }
  json_.Add("multipleOf", static_cast<int64_t>(limits.step));
}

void SchemaWriter::Lengths(const char* least_name, double least, const char* most_name,
                           double most) {
  if (least > 0) json_.Add(least_name, static_cast<int64_t>(std::ceil(least)));
  if (most < kMaxLibraryCount) json_.Add(most_name, static_cast<int64_t>(std::floor(most)));
}

std::optional<Regex> SchemaWriter::WithLengthsOf(const Regex& regex, const TextLimits& text) {
  return regex.WithLengths(
      static_cast<int64_t>(std::ceil(text.least)),
      text.most >= kMaxLibraryCount ? -1 : static_cast<int64_t>(std::floor(text.most)));
}

std::string SchemaWriter::LibraryPattern(const Alternative& alternative, const char* keyword,
                                         const Regex& regex) const {
  const std::optional<std::string> text = regex.ForLibrary(Regex::Place::kJsonString);
  if (!text) {
    Refuse(alternative, keyword,
           "a regex has an anchor in the middle, or needs characters that JSON escapes");
  }
  return *text;
}

void SchemaWriter::Text(const Alternative& alternative) {
  const TextLimits& text = alternative.text;
  if (text.least > kMaxLibraryCount) Refuse(alternative, "minLength", "it is above 10^9");
  std::vector<std::string> excluded;
  for (const std::string& other : text.excluded) {
    TextLimits limits = text;
    limits.excluded.clear();
    Alternative without = AnyOfType(kJsonString);
    without.text = limits;
    without.origins = alternative.origins;
    if (normalizer_.Accepts(without, JsonValue(JsonValue::Data(other)))) excluded.push_back(other);
  }
  json_.Add("type", "string");
  const bool has_lengths = text.least > 0 || text.most < kMaxLibraryCount;
  if (!excluded.empty()) {
    const std::optional<std::string> pattern = PatternOfOthers(excluded);
    if (!pattern || has_lengths || !text.patterns.empty() || !text.formats.empty()) {
      Refuse(alternative, "not",
             "it excludes long texts, or stands next to other limits of a text");
    }
    return void(json_.Add("pattern", *pattern));
  }
  if (text.formats.size() > 1) Refuse(alternative, "format", "it stands next to another one");
  if (text.formats.size() == 1) return TextOfFormat(alternative, *text.formats.begin());
  if (text.patterns.size() > 1) Refuse(alternative, "pattern", "it stands next to another one");
  if (text.patterns.empty()) {
    return Lengths("minLength", text.least, "maxLength", text.most);
  }
  const std::optional<Regex> regex = Regex::Parse(*text.patterns.begin());
  if (!regex) {
    Refuse(alternative, "pattern",
           "the regex has a part that is not supported (a lookahead or lookbehind, perhaps)");
  }
  const std::optional<Regex> limited = WithLengthsOf(*regex, text);
  if (!limited) {
    const bool is_least = static_cast<double>(regex->lengths().least) < text.least;
    Refuse(alternative, is_least ? "minLength" : "maxLength", "it stands next to \"pattern\"");
  }
  json_.Add("pattern", LibraryPattern(alternative, "pattern", *limited));
}

void SchemaWriter::TextOfFormat(const Alternative& alternative, const std::string& format) {
  const TextLimits& text = alternative.text;
  const JsonFormat& known = *FindJsonFormat(JsonValue(JsonValue::Data(format)));
  const std::string next_to = "it stands next to \"format\" = \"" + format + '"';
  if (!text.patterns.empty()) Refuse(alternative, "pattern", next_to);
  if (text.least > known.min_length) Refuse(alternative, "minLength", next_to);
  if (text.most < known.max_length) Refuse(alternative, "maxLength", next_to);
  for (const auto& [name, pattern] : kFormatPatterns) {
    if (name != format) continue;
    return void(
        json_.Add("pattern", *Regex::Parse(pattern)->ForLibrary(Regex::Place::kJsonString)));
  }
  json_.Add("format", format);
}

void SchemaWriter::Array(const Alternative& alternative) {
  const ItemLimits& items = alternative.items;
  const double num_prefix = std::min(static_cast<double>(items.prefix.size()), items.most);
  const bool is_closed = items.rest ? normalizer_.IsEmpty(*items.rest) : strict_;
  const bool has_rest = !is_closed && items.most > num_prefix;
  if (items.is_unique && (has_rest || num_prefix > 1) && items.most > 1) {
    Refuse(alternative, "uniqueItems", "the keyword is not supported");
  }
  if (items.has_contains) Refuse(alternative, "contains", "the keyword is not supported");
  if (items.least > kMaxLibraryCount) Refuse(alternative, "minItems", "it is above 10^9");
  if (!has_rest && items.least > num_prefix) {
    Refuse(alternative, "minItems", "the items are not described");
  }
  json_.Add("type", "array");
  if (num_prefix > 0) {
    json_.Name("prefixItems").BeginArray();
    for (size_t i = 0; i < static_cast<size_t>(num_prefix); ++i) Below(items.prefix[i]);
    json_.EndArray();
  }
  json_.Name("items");
  if (has_rest) {
    Below(items.rest.value_or(Conjunction()));
  } else {
    json_.Put(false);
  }
  Lengths("minItems", items.least, "maxItems", has_rest ? items.most : kNoJsonLimit);
}

}  // namespace mlc_native
