// SchemaNormalizer brings JSON schemas into their normal form (schema_form.h): it merges "allOf",
// references and what stands next to them, distributes over "anyOf", "oneOf" and "if", and turns
// "not" into alternatives, each exactly as JSON Schema 2020-12 says. What has no such form is
// refused.
//
// One thread. The work is bounded by the limits below; exceeding one is a GrammarError.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "grammar/schema_form.h"
#include "grammar/schema_source.h"

namespace mlc_native {

inline constexpr size_t kMaxAlternatives = 128;            // of one schema
inline constexpr size_t kMaxSchemaWork = size_t{1} << 19;  // parts of alternatives that are made

class SchemaNormalizer {
 public:
  explicit SchemaNormalizer(const SchemaSource& source) : source_(source) {}

  // The values that satisfy all of the schemas; no alternatives: none does.
  const SchemaForm& FormOf(const Conjunction& schemas);
  bool IsEmpty(const Conjunction& schemas) { return !schemas.empty() && FormOf(schemas).empty(); }
  bool Accepts(const Conjunction& schemas, const JsonValue& value) const;
  bool Accepts(const Alternative& alternative, const JsonValue& value) const;

 private:
  // `is_exact`: without a type, "properties" and the like are also about values of other types,
  // which a grammar would leave out.
  SchemaForm FormOf(const JsonValue& schema, bool is_exact);
  SchemaForm OfKeywords(const JsonValue& schema, bool is_exact);
  SchemaForm OfList(const JsonValue& schema, const char* keyword, bool is_exact);
  SchemaForm OfOneOf(const JsonValue& schema, bool is_exact);
  SchemaForm OfCondition(const JsonValue& schema);
  SchemaForm OfReference(const JsonValue& schema, const char* keyword, bool is_exact);
  void AddDependencies(const JsonValue& schema, const char* keyword, SchemaForm* form);
  void AddUnevaluated(const JsonValue& schema, SchemaForm* form) const;
  const JsonValue& TargetOf(const JsonValue& schema, const char* keyword) const;

  // The complement, in schema_negate.cc. Always exact.
  SchemaForm Negate(const JsonValue& schema);
  SchemaForm NegateKeyword(const JsonValue& schema, std::string_view keyword,
                           const JsonValue& value);
  SchemaForm NegateMembers(const JsonValue& schema, std::string_view keyword,
                           const JsonValue& value);
  SchemaForm NegateItems(const JsonValue& schema, std::string_view keyword, const JsonValue& value);
  SchemaForm NegateValues(const JsonValue& schema, std::span<const JsonValue> values);
  SchemaForm NegateApplicator(const JsonValue& schema, std::string_view keyword,
                              const JsonValue& value);

  // The alternatives of a schema without those around it.
  SchemaForm Typed(const JsonValue& schema, bool is_exact) const;
  void AddMembers(const JsonValue& schema, Alternative* alternative) const;
  void AddItems(const JsonValue& schema, Alternative* alternative) const;

  void Meet(SchemaForm* form, const SchemaForm& other);
  void Join(SchemaForm* form, SchemaForm other) const;
  std::optional<Alternative> Combine(const Alternative& a, const Alternative& b);
  bool IsPossible(Alternative* alternative);
  // The schema with "const" or "enum" that applies as a whole; null if there is none.
  const JsonValue* FindListed(const JsonValue& schema, int hops);
  void Count(size_t parts);

  const SchemaSource& source_;
  std::map<Conjunction, SchemaForm> forms_;
  std::set<Conjunction> pending_;
  std::vector<const JsonValue*> open_;  // schemas that apply to the same value
  int depth_ = 0;                       // of values within each other
  int num_unevaluated_ = 0;             // "unevaluated..." around what is looked at
  size_t work_ = 0;
};

}  // namespace mlc_native
