#include "grammar/schema_normal.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "grammar/schema_validate.h"

namespace mlc_native {
namespace {

constexpr size_t kMaxOpen = 200;  // schemas that apply to one value, within each other

}  // namespace

void SchemaNormalizer::Count(size_t parts) {
  work_ += parts;
  if (work_ > kMaxSchemaWork) {
    RefusePart(source_.PointerTo(source_.root()), "writing it for a grammar takes more than " +
                                                      std::to_string(kMaxSchemaWork) +
                                                      " parts of schemas");
  }
}

// ---- conjunctions

const SchemaForm& SchemaNormalizer::FormOf(const Conjunction& schemas) {
  if (const auto known = forms_.find(schemas); known != forms_.end()) return known->second;
  static const SchemaForm any = AnyForm();
  if (!pending_.insert(schemas).second) return any;  // its values contain such values
  const std::vector<const JsonValue*> open = std::exchange(open_, {});
  const int num_unevaluated = std::exchange(num_unevaluated_, 0);
  SchemaForm form;
  const JsonValue* listed = nullptr;
  for (const SchemaLiteral& literal : schemas) {
    if (!literal.is_negated && listed == nullptr) listed = FindListed(*literal.schema, 0);
  }
  if (listed != nullptr) {
    Alternative values;
    values.values.emplace();
    const std::span<const JsonValue> candidates = *ListedValues(*listed);
    for (const JsonValue& value : candidates) {
      if (Accepts(schemas, value)) values.values->push_back(&value);
    }
    if (!values.values->empty()) form.push_back(std::move(values));
  } else {
    form = AnyForm();
    for (const SchemaLiteral& literal : schemas) {
      Meet(&form, literal.is_negated ? Negate(*literal.schema) : FormOf(*literal.schema, false));
    }
  }
  open_ = open;
  num_unevaluated_ = num_unevaluated;
  pending_.erase(schemas);
  return forms_[schemas] = std::move(form);
}

bool SchemaNormalizer::Accepts(const Conjunction& schemas, const JsonValue& value) const {
  return std::ranges::all_of(schemas, [&](const SchemaLiteral& literal) {
    return IsValidFor(source_, *literal.schema, value) != literal.is_negated;
  });
}

const JsonValue* SchemaNormalizer::FindListed(const JsonValue& schema, int hops) {
  Count(1);
  if (ListedValues(schema)) return &schema;
  if (hops > static_cast<int>(kMaxOpen)) return nullptr;
  if (const JsonValue* uri = schema.Find("$ref"); uri != nullptr && uri->is_string()) {
    const JsonValue* target = source_.Resolve(schema, uri->AsString());
    const JsonValue* found = target == nullptr ? nullptr : FindListed(*target, hops + 1);
    if (found != nullptr) return found;
  }
  const JsonValue* all = schema.Find("allOf");
  if (all == nullptr || !all->is_array()) return nullptr;
  for (const JsonValue& part : all->AsArray()) {
    if (const JsonValue* found = FindListed(part, hops + 1)) return found;
  }
  return nullptr;
}

// ---- one schema

SchemaForm SchemaNormalizer::FormOf(const JsonValue& schema, bool is_exact) {
  Count(1);
  if (schema.is_bool()) return schema.AsBool() ? AnyForm() : SchemaForm();
  if (!schema.is_object()) RefusePart(source_.PointerTo(schema), "it is no schema");
  if (std::ranges::find(open_, &schema) != open_.end() || open_.size() > kMaxOpen) {
    RefusePart(source_.PointerTo(schema), "it refers to itself without an end");
  }
  open_.push_back(&schema);
  SchemaForm form;
  if (FindListed(schema, 0) != nullptr) {
    form = FormOf(Conjunction{{&schema}});
  } else {
    form = OfKeywords(schema, is_exact);
  }
  open_.pop_back();
  return form;
}

SchemaForm SchemaNormalizer::OfKeywords(const JsonValue& schema, bool is_exact) {
  if (schema.Find("$recursiveRef") != nullptr) {
    RefusePart(source_, schema, "$recursiveRef", "the keyword is not supported");
  }
  const bool has_unevaluated =
      schema.Find("unevaluatedProperties") != nullptr || schema.Find("unevaluatedItems") != nullptr;
  num_unevaluated_ += has_unevaluated ? 1 : 0;
  SchemaForm form = Typed(schema, is_exact);
  for (const char* keyword : {"$ref", "$dynamicRef"}) {
    if (schema.Find(keyword) != nullptr) Meet(&form, OfReference(schema, keyword, is_exact));
  }
  if (const JsonValue* all = schema.Find("allOf")) {
    if (all->AsArray().empty()) RefusePart(source_, schema, "allOf", "the list is empty");
    for (const JsonValue& part : all->AsArray()) Meet(&form, FormOf(part, is_exact));
  }
  if (schema.Find("anyOf") != nullptr) Meet(&form, OfList(schema, "anyOf", is_exact));
  if (schema.Find("oneOf") != nullptr) Meet(&form, OfOneOf(schema, is_exact));
  if (const JsonValue* other = schema.Find("not")) Meet(&form, Negate(*other));
  if (schema.Find("if") != nullptr) Meet(&form, OfCondition(schema));
  for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    if (schema.Find(keyword) != nullptr) AddDependencies(schema, keyword, &form);
  }
  if (has_unevaluated) AddUnevaluated(schema, &form);
  num_unevaluated_ -= has_unevaluated ? 1 : 0;
  return form;
}

// ---- keywords that apply schemas to the same value

const JsonValue& SchemaNormalizer::TargetOf(const JsonValue& schema, const char* keyword) const {
  const std::string& reference = schema.At(keyword).AsString();
  const bool is_dynamic = keyword == std::string_view("$dynamicRef");
  const JsonValue* target =
      is_dynamic ? source_.ResolveDynamic(schema, reference) : source_.Resolve(schema, reference);
  if (target == nullptr) {
    RefusePart(
        source_, schema, keyword,
        '"' + reference + "\" is no " + (is_dynamic ? "single " : "") + "place in this schema");
  }
  return *target;
}

SchemaForm SchemaNormalizer::OfReference(const JsonValue& schema, const char* keyword,
                                         bool is_exact) {
  return FormOf(TargetOf(schema, keyword), is_exact);
}

SchemaForm SchemaNormalizer::OfList(const JsonValue& schema, const char* keyword, bool is_exact) {
  const JsonArray& list = schema.At(keyword).AsArray();
  if (list.empty()) RefusePart(source_, schema, keyword, "the list is empty");
  SchemaForm form;
  for (const JsonValue& option : list) Join(&form, FormOf(option, is_exact));
  return form;
}

// Those that match one option and, where both could match, not another one.
SchemaForm SchemaNormalizer::OfOneOf(const JsonValue& schema, bool is_exact) {
  const JsonArray& list = schema.At("oneOf").AsArray();
  if (list.empty() || list.size() > kMaxAlternatives) {
    RefusePart(source_, schema, "oneOf", "the list is empty or too long");
  }
  std::vector<SchemaForm> exact;
  for (const JsonValue& option : list) exact.push_back(FormOf(option, true));
  SchemaForm form;
  for (size_t i = 0; i < list.size(); ++i) {
    SchemaForm only = FormOf(list[i], is_exact);
    for (size_t j = 0; j < list.size(); ++j) {
      if (i == j) continue;
      SchemaForm both = only;
      Meet(&both, exact[j]);
      if (!both.empty()) Meet(&only, Negate(list[j]));
    }
    Join(&form, std::move(only));
  }
  return form;
}

SchemaForm SchemaNormalizer::OfCondition(const JsonValue& schema) {
  const JsonValue *then = schema.Find("then"), *otherwise = schema.Find("else");
  if (then == nullptr && otherwise == nullptr) return AnyForm();
  const JsonValue& condition = schema.At("if");
  SchemaForm form = FormOf(condition, true);
  if (then != nullptr) Meet(&form, FormOf(*then, true));
  SchemaForm without = Negate(condition);
  if (otherwise != nullptr) Meet(&without, FormOf(*otherwise, true));
  Join(&form, std::move(without));
  return form;
}

void SchemaNormalizer::AddDependencies(const JsonValue& schema, const char* keyword,
                                       SchemaForm* form) {
  for (const JsonMember* needed : source_.InOrder(schema.At(keyword))) {
    SchemaForm without = AnyForm(), with = AnyForm();
    without.back().members.Forbid(needed->name);
    with = {AnyOfType(kJsonObject)};
    with.back().members.Require(needed->name);
    if (needed->value.is_array()) {
      for (const JsonValue& name : needed->value.AsArray()) {
        with.back().members.Require(name.AsString());
      }
    } else {
      Meet(&with, FormOf(needed->value, true));
    }
    Join(&without, std::move(with));
    Meet(form, without);
  }
}

void SchemaNormalizer::AddUnevaluated(const JsonValue& schema, SchemaForm* form) const {
  const JsonValue* members = schema.Find("unevaluatedProperties");
  const JsonValue* items = schema.Find("unevaluatedItems");
  for (Alternative& alternative : *form) {
    if (items != nullptr && alternative.is(kJsonArray) && !alternative.items.rest) {
      alternative.items.rest = ConjunctionOf(*items);
    }
    if (members == nullptr || !alternative.is(kJsonObject) || alternative.members.others) continue;
    alternative.members.others = ConjunctionOf(*members);
    for (MemberLimits::Property& property : alternative.members.listed) {
      if (!property.is_evaluated) property.schema = Both(property.schema, ConjunctionOf(*members));
    }
  }
  std::erase_if(*form, [](const Alternative& alternative) {
    return std::ranges::any_of(alternative.members.listed, [](const auto& property) {
      return property.is_required && property.schema == NoValue();
    });
  });
}

// ---- forms

void SchemaNormalizer::Join(SchemaForm* form, SchemaForm other) const {
  std::ranges::move(other, std::back_inserter(*form));
  if (form->size() > kMaxAlternatives) {
    RefusePart(source_.PointerTo(open_.empty() ? source_.root() : *open_.back()),
               "it has more than " + std::to_string(kMaxAlternatives) + " alternatives");
  }
}

void SchemaNormalizer::Meet(SchemaForm* form, const SchemaForm& other) {
  SchemaForm both;
  for (const Alternative& a : *form) {
    for (const Alternative& b : other) {
      std::optional<Alternative> combined = Combine(a, b);
      if (!combined) continue;
      SchemaForm one;
      one.push_back(std::move(*combined));
      Join(&both, std::move(one));
    }
  }
  *form = std::move(both);
}

std::optional<Alternative> SchemaNormalizer::Combine(const Alternative& a, const Alternative& b) {
  if (a.values || b.values) {
    const Alternative& listed = a.values ? a : b;
    const Alternative& other = a.values ? b : a;
    Alternative both = listed;
    std::erase_if(*both.values, [&](const JsonValue* value) { return !Accepts(other, *value); });
    Count(WeightOf(both));
    return both.values->empty() ? std::nullopt : std::optional(both);
  }
  if ((a.types & b.types) == 0) return std::nullopt;
  std::optional<Alternative> both = Intersect(source_, a, b);
  if (both) Count(WeightOf(*both));
  return both && IsPossible(&*both) ? both : std::nullopt;
}

}  // namespace mlc_native
