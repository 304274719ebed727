#include "checkpoint/config_fields.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "support/error.h"

namespace mlc_native {

using nlohmann::json;

struct ConfigFields::Node {
  json value;

  // nullptr for an absent field and for null.
  const json* Find(const char* field) const {
    const auto it = value.find(field);
    return it == value.end() || it->is_null() ? nullptr : &*it;
  }
};

ConfigFields::ConfigFields(std::string file, std::shared_ptr<const Node> object)
    : file_(std::move(file)), object_(std::move(object)) {}

ConfigFields ConfigFields::ReadFile(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  std::ifstream in(path, std::ios::binary);
  if (!in) throw LoadError(name, path + ": cannot be opened");
  json value = json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) throw LoadError(name, path + ": is not a JSON object");
  return ConfigFields(path, std::make_shared<Node>(Node{std::move(value)}));
}

bool ConfigFields::Has(const char* field) const { return object_->Find(Spelled(field)) != nullptr; }

bool ConfigFields::IsNull(const char* field) const {
  return object_->value.contains(Spelled(field)) && !Has(field);
}

void ConfigFields::Fail(const std::string& field, const std::string& what) const {
  throw LoadError(field, file_ + ": \"" + field + "\" " + what);
}

void ConfigFields::FailValue(const char* field, const std::string& allowed) const {
  const json* value = object_->Find(Spelled(field));
  const std::string got =
      value == nullptr ? "nothing"
                       : value->dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 100);
  Fail(Spelled(field), "must be " + allowed + ", got " + got);
}

int64_t ConfigFields::Integer(const char* field, std::optional<int64_t> absent, int64_t min,
                              int64_t max) const {
  const std::string allowed =
      "an integer in [" + std::to_string(min) + ", " + std::to_string(max) + "]";
  const json* value = object_->Find(Spelled(field));
  if (value == nullptr) {
    if (!absent) FailValue(field, allowed);
    return *absent;
  }
  if (!value->is_number_integer()) FailValue(field, allowed);
  const bool above = value->is_number_unsigned() &&
                     value->get<uint64_t>() > static_cast<uint64_t>(std::max<int64_t>(max, 0));
  const auto number = value->get<int64_t>();
  if (above || number < min || number > max) FailValue(field, allowed);
  return number;
}

double ConfigFields::Number(const char* field, std::optional<double> absent) const {
  const json* value = object_->Find(Spelled(field));
  if (value == nullptr && absent) return *absent;
  if (value == nullptr || !value->is_number() || !std::isfinite(value->get<double>())) {
    FailValue(field, "a number");
  }
  return value->get<double>();
}

double ConfigFields::Positive(const char* field, std::optional<double> absent) const {
  const double number = Number(field, absent);
  if (!(number > 0)) FailValue(field, "a number above 0");
  return number;
}

bool ConfigFields::Bool(const char* field, bool absent) const {
  const json* value = object_->Find(Spelled(field));
  if (value == nullptr) return absent;
  if (!value->is_boolean()) FailValue(field, "true or false");
  return value->get<bool>();
}

std::string ConfigFields::String(const char* field, const std::string& absent) const {
  const json* value = object_->Find(Spelled(field));
  if (value == nullptr) return absent;
  if (!value->is_string()) FailValue(field, "a string");
  return value->get<std::string>();
}

std::vector<std::string> ConfigFields::Strings(const char* field) const {
  const json* value = object_->Find(Spelled(field));
  if (value == nullptr) return {};
  const bool right = value->is_array() && std::all_of(value->begin(), value->end(),
                                                      [](const json& v) { return v.is_string(); });
  if (!right) FailValue(field, "a list of strings");
  return value->get<std::vector<std::string>>();
}

std::vector<double> ConfigFields::Numbers(const char* field) const {
  const json* value = object_->Find(Spelled(field));
  if (value == nullptr) return {};
  const bool right = value->is_array() && std::all_of(value->begin(), value->end(),
                                                      [](const json& v) { return v.is_number(); });
  if (!right) FailValue(field, "a list of numbers");
  return value->get<std::vector<double>>();
}

std::vector<std::string> ConfigFields::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : object_->value.items()) names.push_back(name);
  return names;
}

std::vector<int64_t> ConfigFields::Sizes(const char* field) const {
  constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  const json* value = object_->Find(Spelled(field));
  const bool right = value != nullptr && value->is_array() &&
                     std::all_of(value->begin(), value->end(), [](const json& v) {
                       return v.is_number_unsigned() && v.get<uint64_t>() <= kMax;
                     });
  if (!right) FailValue(field, "a list of integers of at least 0");
  return value->get<std::vector<int64_t>>();
}

std::vector<ConfigFields> ConfigFields::Objects(const char* field) const {
  const json* value = object_->Find(Spelled(field));
  const bool right =
      value != nullptr && value->is_array() &&
      std::all_of(value->begin(), value->end(), [](const json& v) { return v.is_object(); });
  if (!right) FailValue(field, "a list of JSON objects");
  std::vector<ConfigFields> objects;
  for (const json& item : *value) {
    const std::string place = file_ + ": " + field + "[" + std::to_string(objects.size()) + "]";
    objects.push_back(ConfigFields(place, std::make_shared<Node>(Node{item})));
  }
  return objects;
}

ConfigFields ConfigFields::Flattened(const char* field) const {
  if (!HasObject(field)) return *this;
  json value = object_->value;
  value.update(*object_->Find(Spelled(field)));
  return ConfigFields(file_, std::make_shared<Node>(Node{std::move(value)}));
}

ConfigFields ConfigFields::Respelled(std::vector<Spelling> spellings) const {
  json value = object_->value;
  std::erase_if(spellings, [&](const Spelling& s) { return !value.contains(s.spelled); });
  for (const Spelling& s : spellings) {
    json& number = value[s.spelled];
    if (number.is_number() && number.get<double>() < 1) number = nullptr;
  }
  ConfigFields fields(file_, std::make_shared<Node>(Node{std::move(value)}));
  fields.spellings_ = std::move(spellings);
  return fields;
}

const char* ConfigFields::Spelled(const char* field) const {
  for (const Spelling& s : spellings_) {
    if (std::string_view(s.field) == field) return s.spelled;
  }
  return field;
}

bool ConfigFields::HasObject(const char* field) const {
  const json* value = object_->Find(Spelled(field));
  if (value != nullptr && !value->is_object()) FailValue(field, "a JSON object");
  return value != nullptr && !value->empty();
}

ConfigFields ConfigFields::Object(const char* field) const {
  json value = HasObject(field) ? *object_->Find(Spelled(field)) : json::object();
  return ConfigFields(file_, std::make_shared<Node>(Node{std::move(value)}));
}

}  // namespace mlc_native
