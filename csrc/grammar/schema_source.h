// SchemaSource is a JSON schema as its client wrote it: where each part is, which part a "$ref"
// names, and in which order the members of an object are. Immutable; any thread.
//
// Parts are the JsonValues of the root; they stay where they are for as long as the source lives.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "support/json.h"

namespace mlc_native {

class SchemaSource {
 public:
  // `in_order` is what ReadOrder says of the root; `pointer` leads to the root.
  // Requires: both outlive the source.
  SchemaSource(const JsonValue& root, const JsonValue& in_order, std::string pointer);

  const JsonValue& root() const { return root_; }
  // The JSON pointer of a part. Of a value that is no part, that of the root.
  std::string PointerTo(const JsonValue& part) const;
  // The members of an object among the parts, in the order of the text.
  std::vector<const JsonMember*> InOrder(const JsonValue& object) const;
  // The schema that a reference within `schema` names; null if there is none, or more than one.
  const JsonValue* Resolve(const JsonValue& schema, std::string_view reference) const;
  // The same for "$dynamicRef": null also if schemas further out could change what it names.
  const JsonValue* ResolveDynamic(const JsonValue& schema, std::string_view reference) const;

 private:
  enum class Role : uint8_t { kSchema, kSchemas, kNone };  // kSchemas: a list, or a map by name
  struct Place {
    const JsonValue* parent = nullptr;
    const JsonValue* resource = nullptr;  // the schema around it that has an "$id", or the root
    const JsonObject* in_order = nullptr;
  };

  void Visit(const JsonValue& part, const JsonValue& in_order, Place place, Role role);
  void Register(const JsonValue& schema, Place* place);
  static const JsonValue* FollowPointer(const JsonValue& from, std::string_view pointer);

  const JsonValue& root_;
  const std::string pointer_;
  std::unordered_map<const JsonValue*, Place> places_;
  std::unordered_map<const JsonValue*, std::string> ids_;        // of resources, resolved
  std::unordered_map<std::string, const JsonValue*> resources_;  // by id; null: several
  // By resource and name; null: several. `dynamic_anchors_` by name: how many.
  std::unordered_map<const JsonValue*, std::unordered_map<std::string, const JsonValue*>> anchors_;
  std::unordered_map<std::string, int> dynamic_anchors_;
};

// "/" + name, escaped as JSON pointers are.
std::string PointerStep(std::string_view name);

// Throws GrammarError, which names the part.
[[noreturn]] void RefusePart(const std::string& pointer, const std::string& reason);
[[noreturn]] void RefusePart(const SchemaSource& source, const JsonValue& schema,
                             std::string_view keyword, const std::string& reason);

}  // namespace mlc_native
