// Typed reading of the fields of a JSON object. An absent field and null are the same unless asked.
// A wrong type or range is an error of the caller's kind that names the place, the field, the value
// and what is allowed. An immutable view that keeps its text's values alive; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "support/json.h"

namespace mlc_native {

class ConfigFields {
 public:
  // Throws what a wrong field becomes, as ThrowFieldError<LoadError> does.
  using Thrower = void (*)(const std::string& field, const std::string& message);

  // Reads a file of a model folder. Errors are LoadErrors that begin with the path. Throws one
  // unless the file holds a JSON object within these limits. Members named `skipped_list` that are
  // lists are left out.
  static constexpr uint64_t kMaxFileBytes = uint64_t{64} << 20;  // the largest known has 34 MB
  static constexpr size_t kMaxFileDepth = 128;
  static constexpr size_t kMaxFileValues = 4'000'000;  // the largest known has 1.9 million
  static ConfigFields ReadFile(const std::string& path, std::string_view skipped_list = {});
  // The same for a file that holds a list of objects.
  static std::vector<ConfigFields> ReadListFile(const std::string& path);
  // ReadFile for the text of such a file.
  static ConfigFields ParseFile(const std::string& path, const std::string& text,
                                std::string_view skipped_list = {});
  // `what` names the text in messages ("The engine config"), `field` it in errors about the whole.
  static ConfigFields Parse(std::string_view text, const std::string& what,
                            const std::string& field, Thrower thrower,
                            size_t max_depth = JsonParseOptions().max_depth);

  // The value of a field; null when it is absent or null.
  const JsonValue* Find(const char* field) const;
  bool Has(const char* field) const { return Find(field) != nullptr; }
  bool IsNull(const char* field) const;  // there, and null

  // Without a default an absent field is an error.
  int64_t Integer(const char* field, std::optional<int64_t> absent, int64_t min, int64_t max) const;
  double Number(const char* field, std::optional<double> absent) const;    // finite
  double Positive(const char* field, std::optional<double> absent) const;  // finite, > 0
  bool Bool(const char* field, bool absent) const;
  std::string String(const char* field, const std::string& absent) const;
  std::string String(const char* field) const;                 // required
  std::vector<std::string> Strings(const char* field) const;   // absent: empty
  std::vector<double> Numbers(const char* field) const;        // absent: empty
  std::vector<std::string> Names() const;                      // of all fields
  std::vector<int64_t> Sizes(const char* field) const;         // integers of at least 0, required
  std::vector<ConfigFields> Objects(const char* field) const;  // a list of objects, required
  bool HasObject(const char* field) const;                     // there, and not empty
  ConfigFields Object(const char* field) const;                // absent: an object without fields

  // With the fields of the object `field` over its own ones; the same when there is none.
  ConfigFields Flattened(const char* field) const;
  // The same fields read by other names: `spelled`, if it is there, is what asking for `field`
  // finds. Of these, numbers below 1 may be null ("not given").
  struct Spelling {
    const char* field;
    const char* spelled;
  };
  enum class SmallNumbers : uint8_t { kKept, kNotGiven };
  ConfigFields Respelled(std::vector<Spelling> spellings,
                         SmallNumbers small = SmallNumbers::kKept) const;

  // The file, and the place in it.
  const std::string& place() const { return place_; }
  // The message as it is.
  [[noreturn]] void Refuse(const std::string& field, const std::string& message) const;
  // <place>: "<field>" <what>
  [[noreturn]] void Fail(const std::string& field, const std::string& what) const;
  // <place>: "<field>" must be <allowed>, got <value>
  [[noreturn]] void FailValue(const char* field, const std::string& allowed) const;

 private:
  using Shared = std::shared_ptr<const JsonValue>;
  ConfigFields(std::string place, Thrower thrower, Shared object)
      : place_(std::move(place)), thrower_(thrower), object_(std::move(object)) {}
  ConfigFields With(JsonObject members) const;  // the same place with other fields
  ConfigFields At(std::string place, const JsonValue& object) const;  // an object within this one
  static Shared ParseFileValue(const std::string& path, const std::string& text,
                               std::string_view skipped_list);
  const char* Spelled(const char* field) const;  // as the text names it

  std::string place_;
  Thrower thrower_;
  Shared object_;  // shares the ownership of the whole text's value
  std::vector<Spelling> spellings_;
};

template <typename Error>
[[noreturn]] void ThrowFieldError(const std::string& field, const std::string& message) {
  throw Error(field, message);
}

}  // namespace mlc_native
