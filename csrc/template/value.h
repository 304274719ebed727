// Value: what a template computes with, which are Python's values. A Value is small and copied
// freely; what it refers to lies in an Arena. Lists, texts and objects do not change once a
// template can see them; namespaces do.
#pragma once

#include <cstdint>
#include <span>

namespace mlc_native::templates {

class Dict;
class Iterator;
struct Callable;
struct Cycler;
struct Joiner;
struct List;
struct Loop;
struct Macro;
struct Method;
struct Range;
struct Text;
struct View;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kList,
  kTuple,
  kDict,
  kView,  // of a dict: keys(), values(), items()
  kRange,
  kNamespace,
  kIterator,  // a generator: it can be gone through once
  kCallable,  // a function of the environment
  kMethod,    // of a value
  kMacro,
  kLoop,
  kCycler,
  kJoiner,
};

struct Value {
  constexpr Value() : text(nullptr) {}
  static constexpr Value None() { return Value(Kind::kNone); }
  static constexpr Value Bool(bool value) {
    Value made(Kind::kBool);
    made.boolean = value;
    return made;
  }
  static constexpr Value Int(int64_t value) {
    Value made(Kind::kInt);
    made.integer = value;
    return made;
  }
  static constexpr Value Float(double value) {
    Value made(Kind::kFloat);
    made.real = value;
    return made;
  }
  // An undefined value knows what is undefined, for messages.
  static constexpr Value Undefined(const Text* name) {
    Value made;
    made.text = name;
    return made;
  }
  static constexpr Value Tuple(const List* members) {
    Value made(Kind::kTuple);
    made.list = members;
    return made;
  }
  static constexpr Value Namespace(Dict* attributes) {
    Value made(Kind::kNamespace);
    made.attributes = attributes;
    return made;
  }
  constexpr Value(const Text* value) : kind(Kind::kText), text(value) {}              // NOLINT
  constexpr Value(const List* value) : kind(Kind::kList), list(value) {}              // NOLINT
  constexpr Value(const Dict* value) : kind(Kind::kDict), dict(value) {}              // NOLINT
  constexpr Value(const View* value) : kind(Kind::kView), view(value) {}              // NOLINT
  constexpr Value(const Range* value) : kind(Kind::kRange), range(value) {}           // NOLINT
  constexpr Value(Iterator* value) : kind(Kind::kIterator), iterator(value) {}        // NOLINT
  constexpr Value(const Callable* value) : kind(Kind::kCallable), callable(value) {}  // NOLINT
  constexpr Value(const Method* value) : kind(Kind::kMethod), method(value) {}        // NOLINT
  constexpr Value(const Macro* value) : kind(Kind::kMacro), macro(value) {}           // NOLINT
  constexpr Value(Loop* value) : kind(Kind::kLoop), loop(value) {}                    // NOLINT
  constexpr Value(Cycler* value) : kind(Kind::kCycler), cycler(value) {}              // NOLINT
  constexpr Value(Joiner* value) : kind(Kind::kJoiner), joiner(value) {}              // NOLINT

  bool Is(Kind other) const { return kind == other; }
  bool is_text() const { return kind == Kind::kText; }
  // A bool counts as an integer, as in Python.
  bool is_integer() const { return kind == Kind::kInt || kind == Kind::kBool; }
  bool is_number() const { return is_integer() || kind == Kind::kFloat; }
  bool is_list_or_tuple() const { return kind == Kind::kList || kind == Kind::kTuple; }
  // Requires: is_integer().
  int64_t AsInt() const { return kind == Kind::kBool ? int64_t{boolean} : integer; }
  // Requires: is_number().
  double AsDouble() const { return kind == Kind::kFloat ? real : static_cast<double>(AsInt()); }

  Kind kind = Kind::kUndefined;
  union {
    bool boolean;
    int64_t integer;
    double real;
    const Text* text;  // of kUndefined: the name, or null
    const List* list;  // also of a tuple
    const Dict* dict;
    const View* view;
    const Range* range;
    Dict* attributes;  // of a namespace
    Iterator* iterator;
    const Callable* callable;
    const Method* method;
    const Macro* macro;
    Loop* loop;
    Cycler* cycler;
    Joiner* joiner;
  };

 private:
  explicit constexpr Value(Kind kind) : kind(kind), text(nullptr) {}
};

struct List {
  std::span<const Value> items;
  bool given = false;  // by the input: whatever is in it counts as the input's
};

struct View {
  enum class Of : uint8_t { kKeys, kValues, kItems };
  const Dict* dict;
  Of of;
};

struct Range {
  int64_t start;
  int64_t stop;
  int64_t step;  // not 0
  int64_t size;
  int64_t at(int64_t index) const { return start + index * step; }
};

// The Python name of a value's type.
const char* TypeName(const Value& value);

}  // namespace mlc_native::templates
