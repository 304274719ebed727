#include "support/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "support/utf8.h"

namespace mlc_native {
namespace {

using Kind = JsonParseError::Kind;

// Builds a JsonValue from the events of the library's parser, without recursion. An event that
// returns false ends the parse; error() says why.
class Builder {
 public:
  explicit Builder(const JsonParseOptions& options) : options_(options) {}

  bool null() { return Scalar({}); }
  bool boolean(bool value) { return Scalar(value); }
  bool number_integer(int64_t value) { return Scalar(value); }
  bool number_unsigned(uint64_t value) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return Scalar(value);
    return Scalar(static_cast<int64_t>(value));
  }
  bool number_float(double value, const std::string&) { return Scalar(value); }
  bool string(std::string& value) { return Scalar(std::move(value)); }
  bool binary(std::vector<uint8_t>&) { return false; }  // JSON text has none

  bool start_object(size_t) { return Open(JsonObject()); }
  bool start_array(size_t) {
    if (skipped_depth_ == 0 && IsSkippedList()) {
      std::get<JsonObject>(open_.back()).pop_back();
      skipped_depth_ = 1;
      return true;
    }
    return Open(JsonArray());
  }
  bool key(std::string& name) {
    if (skipped_depth_ > 0) return true;
    std::get<JsonObject>(open_.back()).push_back({std::move(name), {}});
    return true;
  }
  bool end_object() {
    if (skipped_depth_ > 0) return CloseSkipped();
    auto& object = std::get<JsonObject>(open_.back());
    const auto name_of = [](const JsonMember& member) -> const std::string& { return member.name; };
    if (!std::ranges::is_sorted(object, std::ranges::less_equal(), name_of)) {
      std::ranges::stable_sort(object, {}, name_of);
    }
    return DropDuplicates(object) && Close();
  }
  bool end_array() { return skipped_depth_ > 0 ? CloseSkipped() : Close(); }

  bool parse_error(size_t byte, const std::string&, const nlohmann::json::exception& error) {
    constexpr int kNumberOverflow = 406;
    // The message quotes what was read, which need not be text.
    Fail(error.id == kNumberOverflow ? Kind::kNumberRange : Kind::kSyntax,
         ToValidUtf8(error.what()));
    error_->byte = byte;
    return false;
  }

  const std::optional<JsonParseError>& error() const { return error_; }
  JsonValue Take() { return JsonValue(std::move(root_)); }

 private:
  // Whether the list that begins is the value of a member that is left out.
  bool IsSkippedList() const {
    if (options_.skipped_list.empty() || open_.empty()) return false;
    const auto* object = std::get_if<JsonObject>(&open_.back());
    return object != nullptr && object->back().name == options_.skipped_list;
  }

  bool Scalar(JsonValue::Data value) {
    if (skipped_depth_ > 0) return true;
    if (!Count()) return false;
    Place(std::move(value));
    return true;
  }

  // Where a value goes that is complete: into the container that is open, else it is the whole.
  void Place(JsonValue::Data value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (auto* array = std::get_if<JsonArray>(&open_.back())) {
      array->emplace_back(std::move(value));
    } else {
      std::get<JsonObject>(open_.back()).back().value = JsonValue(std::move(value));
    }
  }

  bool Open(JsonValue::Data container) {
    if (skipped_depth_ > 0) {
      ++skipped_depth_;
      return true;
    }
    if (open_.size() == options_.max_depth) {
      return Fail(Kind::kDepth,
                  "is nested more than " + std::to_string(options_.max_depth) + " levels deep");
    }
    if (!Count()) return false;
    open_.push_back(std::move(container));
    return true;
  }

  bool Count() {
    return ++num_values_ <= options_.max_values ||
           Fail(Kind::kSize, "has more than " + std::to_string(options_.max_values) +
                                 " values, which is the limit");
  }

  bool Close() {
    JsonValue::Data complete = std::move(open_.back());
    open_.pop_back();
    Place(std::move(complete));
    return true;
  }

  bool CloseSkipped() {
    --skipped_depth_;
    return true;
  }

  // Of equal names, which are neighbours, only the last member stays.
  bool DropDuplicates(JsonObject& object) {
    size_t kept = 0;
    for (size_t i = 0; i < object.size(); ++i) {
      const bool again = kept > 0 && object[kept - 1].name == object[i].name;
      if (again && options_.refuse_duplicates) {
        Fail(Kind::kDuplicateName, "has the name \"" + object[i].name + "\" twice");
        error_->name = object[i].name;
        return false;
      }
      JsonMember& place = object[again ? kept - 1 : kept++];
      if (&place != &object[i]) place = std::move(object[i]);
    }
    object.resize(kept);
    return true;
  }

  bool Fail(Kind kind, const std::string& message) {
    error_.emplace(kind, message);
    return false;
  }

  const JsonParseOptions& options_;
  std::vector<JsonValue::Data> open_;  // containers that are not complete, outermost first
  JsonValue::Data root_;
  size_t num_values_ = 0;
  int64_t skipped_depth_ = 0;  // open containers that are left out
  std::optional<JsonParseError> error_;
};

// Gives up as soon as there is enough for a message.
void AppendExcerpt(const JsonValue& value, size_t max_bytes, JsonWriter* writer) {
  if (writer->text().size() > max_bytes) return;
  if (value.is_array()) {
    writer->BeginArray();
    for (const JsonValue& item : value.AsArray()) {
      if (writer->text().size() > max_bytes) return;
      AppendExcerpt(item, max_bytes, writer);
    }
    writer->EndArray();
  } else if (value.is_object()) {
    writer->BeginObject();
    for (const JsonMember& member : value.AsObject()) {
      if (writer->text().size() > max_bytes) return;
      AppendExcerpt(member.value, max_bytes, &writer->Name(member.name));
    }
    writer->EndObject();
  } else {
    writer->Put(value);
  }
}

}  // namespace

// ---- values

template <typename T>
const T& JsonValue::Get(const char* expected) const {
  if (const T* value = std::get_if<T>(&data_)) return *value;
  throw JsonError(std::string("expected ") + expected + ", got " + JsonExcerpt(*this));
}

bool JsonValue::IsIntegerIn(int64_t low, int64_t high) const {
  const auto* value = std::get_if<int64_t>(&data_);
  return value != nullptr && *value >= low && *value <= high;
}

bool JsonValue::AsBool() const { return Get<bool>("true or false"); }
int64_t JsonValue::AsInteger() const { return Get<int64_t>("an integer"); }
const std::string& JsonValue::AsString() const { return Get<std::string>("a string"); }
const JsonArray& JsonValue::AsArray() const { return Get<JsonArray>("an array"); }
const JsonObject& JsonValue::AsObject() const { return Get<JsonObject>("an object"); }

double JsonValue::AsNumber() const {
  if (const auto* value = std::get_if<int64_t>(&data_)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<uint64_t>(&data_)) return static_cast<double>(*value);
  return Get<double>("a number");
}

const JsonValue* JsonValue::Find(std::string_view name) const {
  const auto* object = std::get_if<JsonObject>(&data_);
  if (object == nullptr) return nullptr;
  const auto found = std::ranges::lower_bound(
      *object, name, {}, [](const JsonMember& member) { return std::string_view(member.name); });
  return found != object->end() && found->name == name ? &found->value : nullptr;
}

const JsonValue& JsonValue::At(std::string_view name) const {
  const JsonValue* value = Find(name);
  if (value == nullptr) throw JsonError('"' + std::string(name) + "\" is missing");
  return *value;
}

JsonValue ParseJson(std::string_view text, const JsonParseOptions& options) {
  Builder builder(options);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (builder.error()) throw *builder.error();
  return builder.Take();
}

bool IsValidJson(std::string_view text) { return nlohmann::json::accept(text); }

std::string JsonExcerpt(const JsonValue& value, size_t max_bytes) {
  JsonWriter writer;
  AppendExcerpt(value, max_bytes, &writer);
  std::string text = writer.Take();
  if (text.size() <= max_bytes) return text;
  const auto is_continuation = [](char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; };
  while (max_bytes > 0 && is_continuation(text[max_bytes])) --max_bytes;
  return text.substr(0, max_bytes) + "...";
}

// ---- the writer

void AppendQuotedJson(std::string_view text, std::string* out) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string replaced;
  if (!IsValidUtf8(text)) text = replaced = ToValidUtf8(text);
  *out += '"';
  for (const char c : text) {
    constexpr std::string_view kShort = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
    const size_t short_form = kShort.find(c);
    const auto byte = static_cast<uint8_t>(c);
    if (short_form != kShort.npos) {
      *out += {'\\', kLetters[short_form]};
    } else if (byte < 0x20) {
      *out += {'\\', 'u', '0', '0', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      *out += c;
    }
  }
  *out += '"';
}

void JsonWriter::Separate() {
  const bool is_first = text_.empty() || text_.back() == '{' || text_.back() == '[';
  if (!is_first && text_.back() != ':') text_ += ',';
}

JsonWriter& JsonWriter::Begin(char bracket) {
  Separate();
  text_ += bracket;
  return *this;
}

JsonWriter& JsonWriter::End(char bracket) {
  text_ += bracket;
  return *this;
}

JsonWriter& JsonWriter::Name(std::string_view name) {
  Put(name);
  text_ += ':';
  return *this;
}

JsonWriter& JsonWriter::Raw(std::string_view json) {
  Separate();
  text_ += json;
  return *this;
}

JsonWriter& JsonWriter::Put(std::string_view text) {
  Separate();
  AppendQuotedJson(text, &text_);
  return *this;
}

JsonWriter& JsonWriter::Put(int64_t value) {
  char digits[32];
  return Raw({digits, std::to_chars(digits, digits + sizeof(digits), value).ptr});
}

JsonWriter& JsonWriter::Put(uint64_t value) {
  char digits[32];
  return Raw({digits, std::to_chars(digits, digits + sizeof(digits), value).ptr});
}

JsonWriter& JsonWriter::Put(double value) {
  if (!std::isfinite(value)) return Null();
  char digits[32];
  const std::string_view shortest(digits,
                                  std::to_chars(digits, digits + sizeof(digits), value).ptr);
  Raw(shortest);
  if (shortest.find_first_of(".e") == shortest.npos) text_ += ".0";
  return *this;
}

JsonWriter& JsonWriter::Put(const JsonValue& value) {
  if (value.is_array()) {
    BeginArray();
    for (const JsonValue& item : value.AsArray()) Put(item);
    return EndArray();
  }
  if (value.is_object()) {
    BeginObject();
    for (const JsonMember& member : value.AsObject()) Name(member.name).Put(member.value);
    return EndObject();
  }
  if (value.is_null()) return Null();
  if (value.is_string()) return Put(value.AsString());
  if (value.is_bool()) return Put(value.AsBool());
  if (const auto* large = std::get_if<uint64_t>(&value.data())) return Put(*large);
  return value.is_integer() ? Put(value.AsInteger()) : Put(value.AsNumber());
}

}  // namespace mlc_native
