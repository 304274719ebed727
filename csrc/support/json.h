// JSON: values that were read, and a writer of compact text. The only door to the JSON library,
// whose header costs half a minute of compile time per file: json.cc alone includes it.
//
// A JsonValue is immutable once it is parsed; any thread. The members of an object are in the order
// of their names; of members with equal names the last one counts. A JsonWriter belongs to one
// thread.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace mlc_native {

// A value is of another type than the caller needs, or a member is missing.
class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A text is no JSON, or breaks one of the JsonParseOptions.
class JsonParseError : public JsonError {
 public:
  enum class Kind { kSyntax, kNumberRange, kDepth, kSize, kDuplicateName };
  JsonParseError(Kind kind, const std::string& message) : JsonError(message), kind(kind) {}

  Kind kind;
  size_t byte = 0;   // kSyntax: where, counted from 1
  std::string name;  // kDuplicateName: which
};

class JsonValue;
struct JsonMember;
using JsonArray = std::vector<JsonValue>;
using JsonObject = std::vector<JsonMember>;

class JsonValue {
 public:
  // uint64_t only for integers above int64_t; the names of an object ascend and differ.
  using Data = std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, JsonArray,
                            JsonObject>;

  JsonValue();  // null
  explicit JsonValue(Data data);
  JsonValue(const JsonValue& other);
  JsonValue(JsonValue&& other) noexcept;
  JsonValue& operator=(const JsonValue& other);
  JsonValue& operator=(JsonValue&& other) noexcept;
  ~JsonValue();

  const Data& data() const { return data_; }
  bool is_null() const { return Is<std::monostate>(); }
  bool is_bool() const { return Is<bool>(); }
  // Written without point and exponent, at most uint64_t.
  bool is_integer() const { return Is<int64_t>() || Is<uint64_t>(); }
  bool is_number() const { return is_integer() || Is<double>(); }
  bool is_string() const { return Is<std::string>(); }
  bool is_array() const { return Is<JsonArray>(); }
  bool is_object() const { return Is<JsonObject>(); }
  bool IsIntegerIn(int64_t low, int64_t high) const;

  // Each throws JsonError for a value of another type, AsInteger also for one above int64_t.
  bool AsBool() const;
  int64_t AsInteger() const;
  double AsNumber() const;
  const std::string& AsString() const;
  const JsonArray& AsArray() const;
  const JsonObject& AsObject() const;

  // The member of that name, which may be null; a null pointer when there is none, or no object.
  const JsonValue* Find(std::string_view name) const;
  // As Find; throws JsonError when there is none.
  const JsonValue& At(std::string_view name) const;

 private:
  template <typename T>
  bool Is() const {
    return std::holds_alternative<T>(data_);
  }
  template <typename T>
  const T& Get(const char* expected) const;

  Data data_;
};

struct JsonMember {
  std::string name;
  JsonValue value;
};

// Here, where JsonMember is complete.
inline JsonValue::JsonValue() = default;
inline JsonValue::JsonValue(Data data) : data_(std::move(data)) {}
inline JsonValue::JsonValue(const JsonValue& other) = default;
inline JsonValue::JsonValue(JsonValue&& other) noexcept = default;
inline JsonValue& JsonValue::operator=(const JsonValue& other) = default;
inline JsonValue& JsonValue::operator=(JsonValue&& other) noexcept = default;
inline JsonValue::~JsonValue() = default;

struct JsonParseOptions {
  size_t max_depth = 1000;             // of objects and arrays within each other
  size_t max_values = SIZE_MAX;        // in all, without those that are left out
  bool refuse_duplicates = false;      // of the names of one object
  std::string_view skipped_list = {};  // members of this name that are arrays are left out
};

// Throws JsonParseError.
JsonValue ParseJson(std::string_view text, const JsonParseOptions& options = {});

// Whether the text is JSON, however deep.
bool IsValidJson(std::string_view text);

// The compact text of a value for a message: at most `max_bytes` and "..."; valid UTF-8.
std::string JsonExcerpt(const JsonValue& value, size_t max_bytes = 80);

// Writes one compact JSON text from left to right. Bytes that are no UTF-8 become U+FFFD; NaN and
// infinities become null, since JSON has no word for them. Requires: within an object each value
// follows its Name, and every Begin has its End.
class JsonWriter {
 public:
  JsonWriter& BeginObject() { return Begin('{'); }
  JsonWriter& EndObject() { return End('}'); }
  JsonWriter& BeginArray() { return Begin('['); }
  JsonWriter& EndArray() { return End(']'); }
  JsonWriter& Name(std::string_view name);

  JsonWriter& Null() { return Raw("null"); }
  JsonWriter& Raw(std::string_view json);  // a text that is JSON already
  JsonWriter& Put(bool value) { return Raw(value ? "true" : "false"); }
  JsonWriter& Put(int64_t value);
  JsonWriter& Put(uint64_t value);
  JsonWriter& Put(std::signed_integral auto value) { return Put(int64_t{value}); }
  JsonWriter& Put(std::unsigned_integral auto value) { return Put(uint64_t{value}); }
  JsonWriter& Put(double value);  // with a point or an exponent, so that it is read as a real again
  JsonWriter& Put(std::string_view text);
  JsonWriter& Put(const std::string& text) { return Put(std::string_view(text)); }
  JsonWriter& Put(const char* text) { return Put(std::string_view(text)); }
  JsonWriter& Put(const JsonValue& value);

  // A member of the object that is open.
  template <typename Value>
  JsonWriter& Add(std::string_view name, const Value& value) {
    return Name(name).Put(value);
  }

  const std::string& text() const { return text_; }
  std::string Take() { return std::move(text_); }

 private:
  JsonWriter& Begin(char bracket);
  JsonWriter& End(char bracket);
  void Separate();

  std::string text_;
};

// Appends a JSON string literal, as JsonWriter writes it.
void AppendQuotedJson(std::string_view text, std::string* out);

}  // namespace mlc_native
