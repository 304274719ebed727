#include "grammar/schema_source.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>
#include <utility>

#include "grammar/backend.h"

namespace mlc_native {
namespace {

constexpr std::string_view kSchemaKeywords[] = {"additionalProperties",
                                                "unevaluatedProperties",
                                                "items",
                                                "unevaluatedItems",
                                                "propertyNames",
                                                "contains",
                                                "not",
                                                "if",
                                                "then",
                                                "else",
                                                "additionalItems"};
constexpr std::string_view kListKeywords[] = {
    "properties", "patternProperties", "dependentSchemas", "$defs", "definitions", "allOf", "anyOf",
    "oneOf",      "prefixItems",       "dependencies"};

bool IsOneOf(std::string_view name, std::span<const std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

// A reference against the address of its schema, without RFC 3986's cases of "..".
std::string ResolveAddress(const std::string& base, const std::string& reference) {
  const size_t scheme = base.find("://");
  const size_t colon = reference.find(':');
  if (base.empty() || (colon != reference.npos && colon < reference.find('/'))) return reference;
  if (reference.starts_with('/') && scheme != base.npos) {
    return base.substr(0, base.find('/', scheme + 3)) + reference;
  }
  const size_t end = base.rfind('/');
  return (end == base.npos ? "" : base.substr(0, end + 1)) + reference;
}

// The text with %XX decoded, and of a step of a pointer also ~0 and ~1.
std::optional<std::string> Decoded(std::string_view text, bool is_step) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      unsigned code = 0;
      if (i + 2 >= text.size()) return std::nullopt;
      const char* end = text.data() + i + 3;
      if (std::from_chars(text.data() + i + 1, end, code, 16).ptr != end) return std::nullopt;
      out += static_cast<char>(code);
      i += 2;
    } else {
      out += text[i];
    }
  }
  if (!is_step) return out;
  std::string step;
  for (size_t i = 0; i < out.size(); ++i) {
    const char next = i + 1 < out.size() ? out[i + 1] : '\0';
    if (out[i] == '~' && (next == '0' || next == '1')) {
      step += out[i + 1] == '0' ? '~' : '/';
      ++i;
    } else {
      step += out[i];
    }
  }
  return step;
}

const std::string* StringMember(const JsonValue& schema, std::string_view name) {
  const JsonValue* value = schema.Find(name);
  return value != nullptr && value->is_string() ? &value->AsString() : nullptr;
}

}  // namespace

std::string PointerStep(std::string_view name) {
  std::string out = "/";
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

void RefusePart(const std::string& pointer, const std::string& reason) {
  throw GrammarError('"' + pointer + "\" of the JSON schema cannot be enforced: " + reason);
}

void RefusePart(const SchemaSource& source, const JsonValue& schema, std::string_view keyword,
                const std::string& reason) {
  RefusePart(source.PointerTo(schema) + PointerStep(keyword), reason);
}

SchemaSource::SchemaSource(const JsonValue& root, const JsonValue& in_order, std::string pointer)
    : root_(root), pointer_(std::move(pointer)) {
  Visit(root, in_order, {nullptr, &root, nullptr}, Role::kSchema);
}

// Nesting is bounded by GrammarLimits.
void SchemaSource::Visit(const JsonValue& part, const JsonValue& in_order, Place place, Role role) {
  if (role == Role::kSchema && part.is_object()) Register(part, &place);
  if (part.is_object()) place.in_order = &in_order.AsObject();
  places_[&part] = place;
  const Place below{&part, place.resource, nullptr};
  if (part.is_array()) {
    for (size_t i = 0; i < part.AsArray().size(); ++i) {
      Visit(part.AsArray()[i], in_order.AsArray()[i], below,
            role == Role::kSchemas ? Role::kSchema : Role::kNone);
    }
  } else if (part.is_object()) {
    std::vector<const JsonMember*> sorted;
    for (const JsonMember& member : in_order.AsObject()) sorted.push_back(&member);
    std::ranges::sort(sorted, {}, [](const JsonMember* member) { return member->name; });
    for (size_t i = 0; i < sorted.size(); ++i) {
      const JsonMember& member = part.AsObject()[i];
      Role role_below = Role::kNone;
      if (role == Role::kSchemas) role_below = Role::kSchema;
      if (role == Role::kSchema && IsOneOf(member.name, kSchemaKeywords)) {
        role_below = Role::kSchema;
      }
      if (role == Role::kSchema && IsOneOf(member.name, kListKeywords)) {
        role_below = Role::kSchemas;
      }
      Visit(member.value, sorted[i]->value, below, role_below);
    }
  }
}

void SchemaSource::Register(const JsonValue& schema, Place* place) {
  if (const std::string* id = StringMember(schema, "$id")) {
    std::string address = ResolveAddress(ids_[place->resource], *id);
    if (address.ends_with('#')) address.pop_back();
    place->resource = &schema;
    const auto [known, is_new] = resources_.try_emplace(address, &schema);
    if (!is_new) known->second = nullptr;
    ids_[&schema] = std::move(address);
  }
  for (const char* keyword : {"$anchor", "$dynamicAnchor"}) {
    const std::string* name = StringMember(schema, keyword);
    if (name == nullptr) continue;
    const auto [known, is_new] = anchors_[place->resource].try_emplace(*name, &schema);
    if (!is_new) known->second = nullptr;
    if (keyword == std::string_view("$dynamicAnchor")) ++dynamic_anchors_[*name];
  }
}

std::string SchemaSource::PointerTo(const JsonValue& part) const {
  std::string pointer;
  const JsonValue* here = &part;
  for (auto found = places_.find(here); found != places_.end() && found->second.parent != nullptr;
       found = places_.find(here)) {
    const JsonValue& parent = *found->second.parent;
    std::string step;
    if (parent.is_array()) {
      step = '/' + std::to_string(here - parent.AsArray().data());
    } else {
      for (const JsonMember& member : parent.AsObject()) {
        if (&member.value == here) step = PointerStep(member.name);
      }
    }
    pointer.insert(0, step);
    here = &parent;
  }
  return pointer_ + pointer;
}

std::vector<const JsonMember*> SchemaSource::InOrder(const JsonValue& object) const {
  std::vector<const JsonMember*> members;
  const auto found = places_.find(&object);
  for (const JsonMember& member : object.AsObject()) members.push_back(&member);
  if (found == places_.end() || found->second.in_order == nullptr) return members;
  std::vector<const JsonMember*> ordered;
  for (const JsonMember& written : *found->second.in_order) {
    const auto here =
        std::ranges::lower_bound(members, written.name, {},
                                 [](const JsonMember* m) -> const std::string& { return m->name; });
    ordered.push_back(*here);
  }
  return ordered;
}

const JsonValue* SchemaSource::FollowPointer(const JsonValue& from, std::string_view pointer) {
  const JsonValue* here = &from;
  while (!pointer.empty() && here != nullptr) {
    const size_t end = std::min(pointer.find('/', 1), pointer.size());
    const std::optional<std::string> step = Decoded(pointer.substr(1, end - 1), /*is_step=*/true);
    pointer.remove_prefix(end);
    if (!step) return nullptr;
    if (here->is_array()) {
      size_t index = 0;
      const char* last = step->data() + step->size();
      const bool is_index = std::from_chars(step->data(), last, index).ptr == last;
      if (!is_index || index >= here->AsArray().size()) return nullptr;
      here = &here->AsArray()[index];
    } else {
      here = here->Find(*step);
    }
  }
  return here;
}

const JsonValue* SchemaSource::Resolve(const JsonValue& schema, std::string_view reference) const {
  const size_t hash = std::min(reference.find('#'), reference.size());
  const std::string address(reference.substr(0, hash));
  const std::string_view fragment =
      hash < reference.size() ? reference.substr(hash + 1) : std::string_view();
  const auto place = places_.find(&schema);
  const JsonValue* resource = place == places_.end() ? &root_ : place->second.resource;
  if (!address.empty()) {
    const auto base = ids_.find(resource);
    const auto found =
        resources_.find(ResolveAddress(base == ids_.end() ? "" : base->second, address));
    resource = found == resources_.end() ? nullptr : found->second;
  }
  if (resource == nullptr || fragment.empty()) return resource;
  if (fragment.starts_with('/')) return FollowPointer(*resource, fragment);
  const std::optional<std::string> name = Decoded(fragment, /*is_step=*/false);
  const auto anchors = anchors_.find(resource);
  if (anchors == anchors_.end() || !name) return nullptr;
  const auto found = anchors->second.find(*name);
  return found == anchors->second.end() ? nullptr : found->second;
}

const JsonValue* SchemaSource::ResolveDynamic(const JsonValue& schema,
                                              std::string_view reference) const {
  const JsonValue* target = Resolve(schema, reference);
  if (target == nullptr) return nullptr;
  const std::string* name = StringMember(*target, "$dynamicAnchor");
  const size_t hash = reference.find('#');
  const bool is_dynamic =
      name != nullptr && hash != reference.npos && reference.substr(hash + 1) == *name;
  return !is_dynamic || dynamic_anchors_.at(*name) == 1 ? target : nullptr;
}

}  // namespace mlc_native
