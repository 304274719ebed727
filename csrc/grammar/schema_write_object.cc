#include <algorithm>

#include "grammar/schema_write.h"

// How objects are written. Names that are not listed come from a pattern that excludes the listed
// ones: with "additionalProperties" the library would write "a" once more, as "\u0061".
namespace mlc_native {

struct SchemaWriter::Members {
  MemberLimits limits;
  std::vector<std::string> names{};  // that members which are not listed must not have
  std::vector<std::pair<std::string, Conjunction>> patterns{};
  bool is_closed = false;       // except for `patterns`
  bool has_free_names = false;  // which may come twice
};

// "propertyNames": what is listed there becomes optional properties, a pattern one of
// "patternProperties".
void SchemaWriter::ListNames(const Alternative& alternative, Members* members) {
  MemberLimits& limits = members->limits;
  if (limits.names.empty()) return;
  SchemaForm form = normalizer_.FormOf(limits.names);
  std::erase_if(form, [](const Alternative& a) { return !a.values && !a.is(kJsonString); });
  if (std::ranges::any_of(
          form, [](const Alternative& a) { return a.is(kJsonString) && IsWholeType(a); })) {
    members->is_closed &= limits.others.has_value();
    return;
  }
  std::erase_if(limits.listed, [&](const MemberLimits::Property& property) {
    return !normalizer_.Accepts(limits.names, JsonValue(JsonValue::Data(property.name)));
  });
  const bool is_listed =
      std::ranges::all_of(form, [](const Alternative& a) { return a.values.has_value(); });
  if (is_listed) {
    const bool is_open = !limits.others || !normalizer_.IsEmpty(*limits.others);
    for (const Alternative& some : form) {
      for (const JsonValue* name : *some.values) {
        if (!name->is_string() || limits.Find(name->AsString()) != nullptr) continue;
        const bool is_matched =
            std::ranges::any_of(limits.patterns, [&](const MemberLimits::Pattern& pattern) {
              return pattern.regex.IsFoundIn(name->AsString());
            });
        if (!is_open && !is_matched) continue;
        limits.listed.push_back({name->AsString(), limits.OfUnlisted(name->AsString())});
      }
    }
    limits.patterns.clear();
    members->is_closed = true;
    return;
  }
  if (members->is_closed && limits.others && limits.patterns.empty()) return;
  const TextLimits& text = form[0].text;
  const auto matches = [&](const Regex& regex) {
    return std::ranges::any_of(limits.listed,
                               [&](const auto& p) { return regex.IsFoundIn(p.name); });
  };
  std::optional<Regex> regex;
  if (form.size() == 1 && text.excluded.empty() && text.formats.empty() &&
      text.patterns.size() <= 1 && limits.patterns.empty()) {
    regex = Regex::Parse(text.patterns.empty() ? "^[^\\x00]*$" : *text.patterns.begin());
    if (text.least > kMaxLibraryCount) {
      Refuse(alternative, "propertyNames", "its \"minLength\" is above 10^9");
    }
    if (regex) regex = WithLengthsOf(*regex, text);
  }
  if (!regex || matches(*regex)) {
    Refuse(alternative, "propertyNames", "it has other limits next to it, or several parts");
  }
  members->patterns.emplace_back(LibraryPattern(alternative, "propertyNames", *regex),
                                 limits.others.value_or(Conjunction()));
  members->is_closed = true;
}

void SchemaWriter::AddPatterns(const Alternative& alternative, Members* members) {
  const std::vector<MemberLimits::Pattern>& patterns = members->limits.patterns;
  const auto overlap = [&](const char* with) {
    Refuse(alternative, "patternProperties",
           std::string("its patterns and ") + with +
               " may match the same name; let them start with different letters (\"^a\", \"^b\")");
  };
  for (size_t i = 0; i < patterns.size(); ++i) {
    const std::string_view start = LiteralStart(patterns[i].text);
    for (size_t j = 0; j < i; ++j) {
      const std::string_view other = LiteralStart(patterns[j].text);
      if (start.starts_with(other) || other.starts_with(start)) overlap("its other patterns");
    }
    for (const std::string& name : members->names) {
      if (patterns[i].regex.IsFoundIn(name)) overlap("\"properties\"");
    }
    if (normalizer_.IsEmpty(patterns[i].schema)) continue;
    members->patterns.emplace_back(
        LibraryPattern(alternative, "patternProperties", patterns[i].regex), patterns[i].schema);
  }
  if (patterns.empty()) return;
  if (!members->is_closed && members->limits.others && !members->names.empty()) {
    overlap("\"additionalProperties\"");
  }
  members->is_closed = true;
}

void SchemaWriter::AddOthers(const Alternative& alternative, Members* members) {
  if (members->is_closed || members->names.empty()) return;
  const std::optional<std::string> pattern = PatternOfOthers(members->names);
  if (!pattern) {
    Refuse(alternative, "properties",
           "next to other members that are allowed, their names make a pattern of more than " +
               std::to_string(kMaxRegexSize) + " characters");
  }
  members->patterns.emplace_back(*pattern, members->limits.others.value_or(Conjunction()));
  members->is_closed = true;
}

void SchemaWriter::Object(const Alternative& alternative) {
  Members members{.limits = alternative.members};
  MemberLimits& limits = members.limits;
  members.is_closed = limits.others ? normalizer_.IsEmpty(*limits.others) : strict_;
  ListNames(alternative, &members);
  for (const MemberLimits::Property& property : limits.listed)
    members.names.push_back(property.name);
  std::erase_if(limits.listed, [&](const auto& p) { return normalizer_.IsEmpty(p.schema); });
  AddPatterns(alternative, &members);
  AddOthers(alternative, &members);
  members.has_free_names = !members.is_closed || !members.patterns.empty();

  json_.Add("type", "object");
  double num_required = 0;
  if (!limits.listed.empty()) {
    json_.Name("properties").BeginObject();
    for (const MemberLimits::Property& property : limits.listed) {
      json_.Name(property.name);
      Below(property.schema);
      num_required += property.is_required ? 1 : 0;
    }
    json_.EndObject();
  }
  if (num_required > 0) {
    json_.Name("required").BeginArray();
    for (const MemberLimits::Property& property : limits.listed) {
      if (property.is_required) json_.Put(property.name);
    }
    json_.EndArray();
  }
  if (!members.patterns.empty()) {
    json_.Name("patternProperties").BeginObject();
    for (const auto& [pattern, schema] : members.patterns) {
      json_.Name(pattern);
      Below(schema);
    }
    json_.EndObject();
  }
  json_.Name("additionalProperties");
  if (members.is_closed) {
    json_.Put(false);
  } else {
    Below(limits.others.value_or(Conjunction()));
  }
  // A name that is free may come twice, and then counts once.
  const double num_distinct =
      members.has_free_names ? num_required + 1 : static_cast<double>(limits.listed.size());
  if (limits.least > num_distinct) {
    Refuse(alternative, "minProperties", "the same name could be counted twice");
  }
  Lengths("minProperties", limits.least > num_required ? limits.least : 0, "maxProperties",
          limits.most);
  json_.Add("~schema", num_schemas_);  // schema_write.cc says why
}

}  // namespace mlc_native
