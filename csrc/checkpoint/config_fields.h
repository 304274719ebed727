// Typed reading of a JSON object of config.json: absent and null are the same unless asked; a wrong
// type or range is a LoadError that names the file, the field and the value. An immutable value;
// any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace mlc_native {

class ConfigFields {
 public:
  // Throws LoadError unless the file holds a JSON object.
  static ConfigFields ReadFile(const std::string& path);

  bool Has(const char* field) const;     // there, and not null
  bool IsNull(const char* field) const;  // there, and null

  // Without a default an absent field is an error.
  int64_t Integer(const char* field, std::optional<int64_t> absent, int64_t min, int64_t max) const;
  double Number(const char* field, std::optional<double> absent) const;    // finite
  double Positive(const char* field, std::optional<double> absent) const;  // finite, > 0
  bool Bool(const char* field, bool absent) const;
  std::string String(const char* field, const std::string& absent) const;
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
  // finds. Numbers below 1 are null ("not given").
  struct Spelling {
    const char* field;
    const char* spelled;
  };
  ConfigFields Respelled(std::vector<Spelling> spellings) const;

  // LoadError: <file>: "<field>" <what>
  [[noreturn]] void Fail(const std::string& field, const std::string& what) const;
  [[noreturn]] void FailValue(const char* field, const std::string& allowed) const;

 private:
  struct Node;  // a JSON value
  ConfigFields(std::string file, std::shared_ptr<const Node> object);
  const char* Spelled(const char* field) const;  // as the file names it

  std::string file_;  // and the place in it
  std::shared_ptr<const Node> object_;
  std::vector<Spelling> spellings_;
};

}  // namespace mlc_native
