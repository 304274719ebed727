// SchemaWriter writes a JSON schema in the form that the grammar library (xgrammar 0.2) enforces as
// a whole: one keyword of alternatives in each schema, and nothing next to it.
//
// It avoids what the library gets wrong: names of members that come again with escapes, properties
// called "title" or "description" whose schemas it takes for equal, patterns that are no JSON or no
// UTF-8, numbers that it rounds, empty ranges. What cannot be written is refused.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "grammar/schema_form.h"
#include "grammar/schema_normal.h"
#include "support/json.h"

namespace mlc_native {

inline constexpr size_t kMaxSchemas = size_t{1} << 14;  // of the new schema
inline constexpr double kMaxLibraryCount = 1e9;         // the library counts with 32 bits

class SchemaWriter {
 public:
  // `strict`: see GrammarSpec.
  SchemaWriter(const SchemaSource& source, bool strict)
      : source_(source), normalizer_(source), strict_(strict) {}

  // Call once. Throws GrammarError.
  std::string Write();

 private:
  void Form(const SchemaForm& form);
  void Keywords(const Alternative& alternative);
  void Below(const Conjunction& schemas);
  void Values(const Alternative& alternative);
  void Number(const Alternative& alternative);
  void Integer(const Alternative& alternative);
  void Text(const Alternative& alternative);
  void TextOfFormat(const Alternative& alternative, const std::string& format);
  void Array(const Alternative& alternative);
  void Object(const Alternative& alternative);

  struct Members;  // of one object, as they are written
  void ListNames(const Alternative& alternative, Members* members);
  void AddPatterns(const Alternative& alternative, Members* members);
  void AddOthers(const Alternative& alternative, Members* members);
  void Lengths(const char* least_name, double least, const char* most_name, double most);
  // Nullopt as Regex::WithLengths. Requires: text.least <= kMaxLibraryCount.
  static std::optional<Regex> WithLengthsOf(const Regex& regex, const TextLimits& text);
  std::string LibraryPattern(const Alternative& alternative, const char* keyword,
                             const Regex& regex) const;
  [[noreturn]] void Refuse(const Alternative& alternative, std::string_view keyword,
                           const std::string& reason) const {
    RefuseKeyword(source_, alternative, keyword, reason);
  }

  const SchemaSource& source_;
  SchemaNormalizer normalizer_;
  const bool strict_;
  JsonWriter json_;
  std::map<Conjunction, size_t> numbers_;    // of the definitions
  std::vector<const Conjunction*> pending_;  // definitions, in their order
  size_t num_schemas_ = 0;
};

}  // namespace mlc_native
