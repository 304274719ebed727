#include <algorithm>
#include <cmath>
#include <string>

#include "grammar/schema_normal.h"

// The complement of a schema: what breaks one of its keywords at least. Each keyword gives the
// alternatives of the values that break it.
namespace mlc_native {
namespace {

// Values of other types satisfy the keyword, so only those of `types` can break it.
SchemaForm Only(Alternative alternative) {
  SchemaForm form;
  form.push_back(std::move(alternative));
  return form;
}

}  // namespace

SchemaForm SchemaNormalizer::Negate(const JsonValue& schema) {
  Count(1);
  if (schema.is_bool()) return schema.AsBool() ? SchemaForm() : AnyForm();
  if (!schema.is_object()) RefusePart(source_.PointerTo(schema), "it is no schema");
  if (std::ranges::find(open_, &schema) != open_.end()) {
    RefusePart(source_.PointerTo(schema), "it refers to itself without an end");
  }
  open_.push_back(&schema);
  SchemaForm form;
  for (const auto& [keyword, concerned] : AssertionKeywords()) {
    const JsonValue* value = schema.Find(keyword);
    if (value == nullptr || AllowsAll(schema, keyword, *value)) continue;
    SchemaForm broken = NegateKeyword(schema, keyword, *value);
    // What applies inside of "not" says nothing about the members.
    for (Alternative& alternative : broken) {
      for (auto& property : alternative.members.listed) property.is_evaluated = false;
      const bool says =
          alternative.members.others || alternative.items.rest || !alternative.items.prefix.empty();
      if (says && num_unevaluated_ > 0) {
        RefusePart(source_, schema, keyword,
                   "it stands below \"not\" and next to \"unevaluated...\"");
      }
      alternative.origins.emplace_back(keyword, &schema);
    }
    Join(&form, std::move(broken));
  }
  open_.pop_back();
  return form;
}

SchemaForm SchemaNormalizer::NegateKeyword(const JsonValue& schema, std::string_view keyword,
                                           const JsonValue& value) {
  if (keyword == "type") {
    SchemaForm form;
    for (Alternative& alternative : AnyForm()) {
      alternative.types &= static_cast<JsonTypes>(~TypesAllowed(schema));
      if (alternative.types != 0) form.push_back(std::move(alternative));
    }
    return form;
  }
  if (keyword == "const") return NegateValues(schema, std::span(&value, 1));
  if (keyword == "enum") return NegateValues(schema, value.AsArray());
  Alternative number = AnyOfType(kJsonNumber), text = AnyOfType(kJsonString);
  const bool is_low = keyword.ends_with("inimum"), is_high = keyword.ends_with("aximum");
  if (is_low || is_high) {
    const long double bound = ExactNumber(value);
    const bool is_open = !keyword.starts_with("exclusive");
    (is_low ? number.number.high : number.number.low) = bound;
    (is_low ? number.number.is_high_open : number.number.is_low_open) = is_open;
    return Only(std::move(number));
  }
  if (keyword == "minLength") {
    text.text.most = std::ceil(value.AsNumber()) - 1;
    return Only(std::move(text));
  }
  if (keyword == "maxLength") {
    text.text.least = std::floor(value.AsNumber()) + 1;
    return Only(std::move(text));
  }
  if (keyword.ends_with("tems") || keyword == "contains") {
    return NegateItems(schema, keyword, value);
  }
  if (keyword.ends_with("Of") && keyword != "multipleOf") {
    return NegateApplicator(schema, keyword, value);
  }
  if (keyword.starts_with('$') || keyword == "not" || keyword == "if") {
    return NegateApplicator(schema, keyword, value);
  }
  return NegateMembers(schema, keyword, value);
}

SchemaForm SchemaNormalizer::NegateValues(const JsonValue& schema,
                                          std::span<const JsonValue> values) {
  SchemaForm form = AnyForm();
  for (const JsonValue& value : values) {
    SchemaForm others;
    for (Alternative& alternative : AnyForm()) {
      if ((alternative.types & TypeOf(value)) == 0) {
        others.push_back(std::move(alternative));
      } else if (value.is_bool()) {
        (value.AsBool() ? alternative.allows_true : alternative.allows_false) = false;
        others.push_back(std::move(alternative));
      } else if (value.is_string()) {
        alternative.text.excluded = {value.AsString()};
        others.push_back(std::move(alternative));
      } else if (value.is_number()) {
        const long double number = ExactNumber(value);
        Alternative above = alternative;
        alternative.number.high = above.number.low = number;
        alternative.number.is_high_open = above.number.is_low_open = true;
        others.push_back(std::move(alternative));
        others.push_back(std::move(above));
      } else if (!value.is_null()) {
        const bool is_empty = value.is_array() ? value.AsArray().empty() : value.AsObject().empty();
        if (!is_empty) {
          const char* keyword = schema.Find("const") != nullptr ? "const" : "enum";
          RefusePart(source_, schema, keyword,
                     "it stands below \"not\" and lists a " +
                         std::string(value.is_array() ? "list" : "object"));
        }
        (value.is_array() ? alternative.items.least : alternative.members.least) = 1;
        others.push_back(std::move(alternative));
      }
    }
    Meet(&form, others);
  }
  return form;
}

SchemaForm SchemaNormalizer::NegateItems(const JsonValue& schema, std::string_view keyword,
                                         const JsonValue& value) {
  Alternative array = AnyOfType(kJsonArray);
  if (keyword == "minItems") {
    array.items.most = std::ceil(value.AsNumber()) - 1;
    return Only(std::move(array));
  }
  if (keyword == "maxItems") {
    array.items.least = std::floor(value.AsNumber()) + 1;
    return Only(std::move(array));
  }
  if (keyword == "prefixItems") {
    SchemaForm form;
    for (const JsonValue& item : value.AsArray()) {
      Alternative broken = array;
      broken.items.prefix.push_back(ConjunctionOf(item, /*is_negated=*/true));
      broken.items.least = static_cast<double>(broken.items.prefix.size());
      form.push_back(std::move(broken));
      array.items.prefix.emplace_back();
    }
    return form;
  }
  const bool counts =
      schema.Find("minContains") != nullptr || schema.Find("maxContains") != nullptr;
  if (keyword == "contains" && !counts) {
    array.items.rest = ConjunctionOf(value, /*is_negated=*/true);
    return Only(std::move(array));
  }
  if (keyword == "items" && IsBool(value, false)) {
    const JsonValue* prefix = schema.Find("prefixItems");
    array.items.least = prefix == nullptr ? 1 : static_cast<double>(prefix->AsArray().size()) + 1;
    return Only(std::move(array));
  }
  RefusePart(source_, schema, keyword, "it stands below \"not\", \"if\" or \"oneOf\"");
}

SchemaForm SchemaNormalizer::NegateMembers(const JsonValue& schema, std::string_view keyword,
                                           const JsonValue& value) {
  const Alternative object = AnyOfType(kJsonObject);
  SchemaForm form;
  if (keyword == "minProperties" || keyword == "maxProperties") {
    const bool is_least = keyword == "minProperties";
    form = Only(object);
    if (is_least) form[0].members.most = std::ceil(value.AsNumber()) - 1;
    if (!is_least) form[0].members.least = std::floor(value.AsNumber()) + 1;
  } else if (keyword == "required") {
    for (const JsonValue& name : value.AsArray()) {
      form.push_back(object);
      form.back().members.Forbid(name.AsString());
    }
  } else if (keyword == "properties") {
    for (const JsonMember* property : source_.InOrder(value)) {
      form.push_back(object);
      form.back().members.listed.push_back(
          {property->name, ConjunctionOf(property->value, /*is_negated=*/true), true, false});
    }
    std::erase_if(form, [&](Alternative& broken) { return !IsPossible(&broken); });
  } else if (keyword.starts_with("depend")) {
    for (const JsonMember* needed : source_.InOrder(value)) {
      Alternative with = object;
      with.members.Require(needed->name);
      if (needed->value.is_array()) {
        for (const JsonValue& name : needed->value.AsArray()) {
          form.push_back(with);
          form.back().members.Forbid(name.AsString());
        }
      } else {
        SchemaForm broken = Only(with);
        Meet(&broken, Negate(needed->value));
        Join(&form, std::move(broken));
      }
    }
  } else {
    RefusePart(source_, schema, keyword, "it stands below \"not\", \"if\" or \"oneOf\"");
  }
  return form;
}

SchemaForm SchemaNormalizer::NegateApplicator(const JsonValue& schema, std::string_view keyword,
                                              const JsonValue& value) {
  SchemaForm form;
  if (keyword == "not") return FormOf(value, true);
  if (keyword == "$ref" || keyword == "$dynamicRef") {
    return Negate(TargetOf(schema, keyword == "$ref" ? "$ref" : "$dynamicRef"));
  }
  if (keyword == "allOf") {
    for (const JsonValue& part : value.AsArray()) Join(&form, Negate(part));
    return form;
  }
  if (keyword == "anyOf" || (keyword == "oneOf" && value.AsArray().size() == 1)) {
    form = AnyForm();
    for (const JsonValue& part : value.AsArray()) Meet(&form, Negate(part));
    return form;
  }
  if (keyword == "if") {
    if (const JsonValue* then = schema.Find("then")) {
      form = FormOf(value, true);
      Meet(&form, Negate(*then));
    }
    if (const JsonValue* otherwise = schema.Find("else")) {
      SchemaForm without = Negate(value);
      Meet(&without, Negate(*otherwise));
      Join(&form, std::move(without));
    }
    return form;
  }
  RefusePart(source_, schema, keyword, "it stands below \"not\", \"if\" or \"oneOf\"");
}

}  // namespace mlc_native
