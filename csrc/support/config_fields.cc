#include "support/config_fields.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "support/check.h"
#include "support/error.h"
#include "support/git_lfs.h"
#include "support/json_words.h"
#include "support/regular_file.h"

namespace mlc_native {
namespace {

// Whether a value is a list of items that are all right.
template <typename Predicate>
bool IsListOf(const JsonValue* value, Predicate is_right) {
  return value != nullptr && value->is_array() && std::ranges::all_of(value->AsArray(), is_right);
}

// Adds a member in the order of names, or gives the one of that name its value.
void Assign(const JsonMember& member, JsonObject* members) {
  const auto place = std::ranges::lower_bound(*members, member.name, {}, &JsonMember::name);
  if (place != members->end() && place->name == member.name) {
    place->value = member.value;
  } else {
    members->insert(place, member);
  }
}

// A text that has no word of Python's is not searched for one.
JsonValue ParseFileText(const std::string& text, std::string_view skipped_list) {
  const JsonParseOptions options{.max_depth = ConfigFields::kMaxFileDepth,
                                 .max_values = ConfigFields::kMaxFileValues,
                                 .skipped_list = skipped_list};
  try {
    return ParseJson(text, options);
  } catch (const JsonParseError& error) {
    if (error.kind != JsonParseError::Kind::kSyntax) throw;
    const std::string spelled = SpellOutJsonWords(text);
    if (spelled.size() == text.size()) throw;  // there is no such word
    return ParseJson(spelled, options);
  }
}

}  // namespace

ConfigFields ConfigFields::ReadFile(const std::string& path, std::string_view skipped_list) {
  const std::string name = path.substr(path.rfind('/') + 1);
  return ParseFile(path, RegularFile(path, name).ReadAll(kMaxFileBytes), skipped_list);
}

std::vector<ConfigFields> ConfigFields::ReadListFile(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  const Shared list = ParseFileValue(path, RegularFile(path, name).ReadAll(kMaxFileBytes), {});
  if (!IsListOf(list.get(), &JsonValue::is_object)) {
    throw LoadError(name, path + ": is not a list of JSON objects");
  }
  const ConfigFields whole(path, ThrowFieldError<LoadError>, list);
  std::vector<ConfigFields> objects;
  for (const JsonValue& item : list->AsArray()) {
    objects.push_back(whole.At(path + "[" + std::to_string(objects.size()) + "]", item));
  }
  return objects;
}

ConfigFields::Shared ConfigFields::ParseFileValue(const std::string& path, const std::string& text,
                                                  std::string_view skipped_list) {
  const std::string name = path.substr(path.rfind('/') + 1);
  try {
    return std::make_shared<const JsonValue>(ParseFileText(text, skipped_list));
  } catch (const JsonParseError& error) {
    if (IsLfsPointer(text)) throw LoadError(name, path + ": " + kIsLfsPointer);
    const bool is_limit =
        error.kind == JsonParseError::Kind::kDepth || error.kind == JsonParseError::Kind::kSize;
    throw LoadError(name, path + (is_limit ? ": " : ": is not valid JSON: ") + error.what());
  }
}

ConfigFields ConfigFields::ParseFile(const std::string& path, const std::string& text,
                                     std::string_view skipped_list) {
  Shared value = ParseFileValue(path, text, skipped_list);
  if (!value->is_object()) {
    throw LoadError(path.substr(path.rfind('/') + 1), path + ": is not a JSON object");
  }
  return ConfigFields(path, ThrowFieldError<LoadError>, std::move(value));
}

ConfigFields ConfigFields::Parse(std::string_view text, const std::string& what,
                                 const std::string& field, Thrower thrower, size_t max_depth) {
  Shared value;
  try {
    value = std::make_shared<const JsonValue>(ParseJson(text, {.max_depth = max_depth}));
  } catch (const JsonParseError& error) {
    thrower(field, what + " is not valid JSON: " + error.what());
  }
  if (!value->is_object()) {
    thrower(field, what + " must be a JSON object, got " + JsonExcerpt(*value));
  }
  return ConfigFields("", thrower, std::move(value));
}

ConfigFields ConfigFields::With(JsonObject members) const {
  return ConfigFields(place_, thrower_,
                      std::make_shared<const JsonValue>(JsonValue::Data(std::move(members))));
}

ConfigFields ConfigFields::At(std::string place, const JsonValue& object) const {
  return ConfigFields(std::move(place), thrower_, Shared(object_, &object));
}

const JsonValue* ConfigFields::Find(const char* field) const {
  const JsonValue* value = object_->Find(Spelled(field));
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool ConfigFields::IsNull(const char* field) const {
  const JsonValue* value = object_->Find(Spelled(field));
  return value != nullptr && value->is_null();
}

void ConfigFields::Refuse(const std::string& field, const std::string& message) const {
  thrower_(field, message);
  throw InternalError("a Thrower returned");
}

void ConfigFields::Fail(const std::string& field, const std::string& what) const {
  Refuse(field, (place_.empty() ? "\"" : place_ + ": \"") + field + "\" " + what);
}

void ConfigFields::FailValue(const char* field, const std::string& allowed) const {
  const JsonValue* value = Find(field);
  Fail(Spelled(field),
       "must be " + allowed + ", got " + (value == nullptr ? "nothing" : JsonExcerpt(*value)));
}

int64_t ConfigFields::Integer(const char* field, std::optional<int64_t> absent, int64_t min,
                              int64_t max) const {
  const JsonValue* value = Find(field);
  if (value == nullptr && absent) return *absent;
  if (value == nullptr || !value->IsIntegerIn(min, max)) {
    FailValue(field, min == max ? "the integer " + std::to_string(min)
                                : "an integer in [" + std::to_string(min) + ", " +
                                      std::to_string(max) + "]");
  }
  return value->AsInteger();
}

double ConfigFields::Number(const char* field, std::optional<double> absent) const {
  const JsonValue* value = Find(field);
  if (value == nullptr && absent) return *absent;
  if (value == nullptr || !value->is_number() || !std::isfinite(value->AsNumber())) {
    FailValue(field, "a number");
  }
  return value->AsNumber();
}

double ConfigFields::Positive(const char* field, std::optional<double> absent) const {
  const double number = Number(field, absent);
  if (!(number > 0)) FailValue(field, "a number above 0");
  return number;
}

bool ConfigFields::Bool(const char* field, bool absent) const {
  const JsonValue* value = Find(field);
  if (value == nullptr) return absent;
  if (!value->is_bool()) FailValue(field, "true or false");
  return value->AsBool();
}

std::string ConfigFields::String(const char* field, const std::string& absent) const {
  return Has(field) ? String(field) : absent;
}

std::string ConfigFields::String(const char* field) const {
  const JsonValue* value = Find(field);
  if (value == nullptr || !value->is_string()) FailValue(field, "a string");
  return value->AsString();
}

std::vector<std::string> ConfigFields::Strings(const char* field) const {
  const JsonValue* value = Find(field);
  if (value == nullptr) return {};
  if (!IsListOf(value, &JsonValue::is_string)) FailValue(field, "a list of strings");
  std::vector<std::string> strings;
  for (const JsonValue& item : value->AsArray()) strings.push_back(item.AsString());
  return strings;
}

std::vector<double> ConfigFields::Numbers(const char* field) const {
  const JsonValue* value = Find(field);
  if (value == nullptr) return {};
  if (!IsListOf(value, &JsonValue::is_number)) FailValue(field, "a list of numbers");
  std::vector<double> numbers;
  for (const JsonValue& item : value->AsArray()) numbers.push_back(item.AsNumber());
  return numbers;
}

std::vector<std::string> ConfigFields::Names() const {
  std::vector<std::string> names;
  for (const JsonMember& member : object_->AsObject()) names.push_back(member.name);
  return names;
}

std::vector<int64_t> ConfigFields::Sizes(const char* field) const {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const JsonValue* value = Find(field);
  const auto is_size = [](const JsonValue& item) { return item.IsIntegerIn(0, kMax); };
  if (!IsListOf(value, is_size)) FailValue(field, "a list of integers of at least 0");
  std::vector<int64_t> sizes;
  for (const JsonValue& item : value->AsArray()) sizes.push_back(item.AsInteger());
  return sizes;
}

std::vector<ConfigFields> ConfigFields::Objects(const char* field) const {
  const JsonValue* value = Find(field);
  if (!IsListOf(value, &JsonValue::is_object)) FailValue(field, "a list of JSON objects");
  std::vector<ConfigFields> objects;
  for (const JsonValue& item : value->AsArray()) {
    objects.push_back(At(place_ + ": " + field + "[" + std::to_string(objects.size()) + "]", item));
  }
  return objects;
}

bool ConfigFields::HasObject(const char* field) const {
  const JsonValue* value = Find(field);
  if (value != nullptr && !value->is_object()) FailValue(field, "a JSON object");
  return value != nullptr && !value->AsObject().empty();
}

ConfigFields ConfigFields::Object(const char* field) const {
  return HasObject(field) ? At(place_, *Find(field)) : With({});
}

ConfigFields ConfigFields::Flattened(const char* field) const {
  if (!HasObject(field)) return *this;
  JsonObject members = object_->AsObject();
  for (const JsonMember& member : Find(field)->AsObject()) Assign(member, &members);
  return With(std::move(members));
}

ConfigFields ConfigFields::Respelled(std::vector<Spelling> spellings, SmallNumbers small) const {
  JsonObject members = object_->AsObject();
  std::erase_if(spellings, [&](const Spelling& s) { return object_->Find(s.spelled) == nullptr; });
  for (JsonMember& member : members) {
    const bool is_respelled =
        std::ranges::any_of(spellings, [&](const Spelling& s) { return member.name == s.spelled; });
    if (small == SmallNumbers::kNotGiven && is_respelled && member.value.is_number() &&
        member.value.AsNumber() < 1) {
      member.value = JsonValue();
    }
  }
  ConfigFields fields = With(std::move(members));
  fields.spellings_ = std::move(spellings);
  return fields;
}

const char* ConfigFields::Spelled(const char* field) const {
  for (const Spelling& s : spellings_) {
    if (std::string_view(s.field) == field) return s.spelled;
  }
  return field;
}

}  // namespace mlc_native
