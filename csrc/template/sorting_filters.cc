#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "template/attributes.h"
#include "template/dict.h"
#include "template/filter_functions.h"
#include "template/iterate.h"
#include "template/operators.h"
#include "template/text_functions.h"

namespace mlc_native::templates {
namespace {

struct Keyed {
  Value key;
  Value value;
};

// What values are compared by: an attribute, and texts in lower case.
class KeyOf {
 public:
  KeyOf(Rendering& rendering, const Value& case_sensitive, const Value& attribute)
      : rendering_(rendering), case_sensitive_(Truth(case_sensitive)) {
    if (attribute.Is(Kind::kNone)) return;
    if (attribute.is_text() && attribute.text->bytes.find(',') != std::string_view::npos) {
      rendering.NotSupported("sorting by several attributes");
    }
    path_ = AttributePath(rendering, attribute);
  }

  Value operator()(const Value& value) const {
    const Value key = FollowPath(rendering_, value, path_);
    if (case_sensitive_ || !key.is_text()) return key;
    return ChangeCase(rendering_, *key.text, Case::kLower);
  }

 private:
  Rendering& rendering_;
  std::span<const Value> path_;
  const bool case_sensitive_;
};

// Stable, also backwards, as Python's sorted().
void SortByKeys(Rendering& rendering, bool reverse, std::vector<Keyed>* members) {
  const auto count = static_cast<int64_t>(members->size());
  rendering.Pay(1 + count * static_cast<int64_t>(std::bit_width(members->size())) / 4);
  std::ranges::stable_sort(*members, [&](const Keyed& one, const Keyed& other) {
    const Keyed& left = reverse ? other : one;
    const Keyed& right = reverse ? one : other;
    return !Equal(rendering, left.key, right.key) && Order(rendering, left.key, right.key) < 0;
  });
}

std::vector<Keyed> WithKeys(Rendering& rendering, const Value& value, const KeyOf& key_of) {
  std::vector<Keyed> members;
  for (const Value& member : Collect(rendering, value)) {
    rendering.Pay(1);
    members.push_back({key_of(member), member});
  }
  return members;
}

Value ListOf(Rendering& rendering, const std::vector<Keyed>& members) {
  std::vector<Value> values;
  values.reserve(members.size());
  for (const Keyed& member : members) values.push_back(member.value);
  return NewList(rendering, values);
}

Value Extreme(Rendering& rendering, const Value& value, const Bound& arguments, int sign) {
  const KeyOf key_of(rendering, arguments.Or(0, Value::Bool(false)),
                     arguments.Or(1, Value::None()));
  const std::vector<Keyed> members = WithKeys(rendering, value, key_of);
  if (members.empty()) return {};
  const Keyed* best = &members[0];
  for (const Keyed& member : members) {
    if (&member != &members[0] && sign * Order(rendering, member.key, best->key) > 0)
      best = &member;
  }
  return best->value;
}

}  // namespace

Value FilterSort(Rendering& rendering, const Value& value, const Bound& arguments) {
  const KeyOf key_of(rendering, arguments.Or(1, Value::Bool(false)),
                     arguments.Or(2, Value::None()));
  std::vector<Keyed> members = WithKeys(rendering, value, key_of);
  SortByKeys(rendering, Truth(arguments.Or(0, Value::Bool(false))), &members);
  return ListOf(rendering, members);
}

Value FilterDictSort(Rendering& rendering, const Value& value, const Bound& arguments) {
  if (!value.Is(Kind::kDict)) rendering.Fail("dictsort() takes an object");
  bool by_value = false;
  if (arguments.has(1)) {
    const std::string_view by = arguments[1].is_text() ? arguments[1].text->bytes : "";
    by_value = by == "value";
    if (!by_value && by != "key")
      rendering.Fail("You can only sort by either \"key\" or \"value\"");
  }
  const KeyOf key_of(rendering, arguments.Or(0, Value::Bool(false)), Value::None());
  std::vector<Keyed> members;
  for (const DictEntry& entry : value.dict->entries()) {
    const Value pair[] = {entry.key, entry.value};
    members.push_back({key_of(by_value ? entry.value : entry.key), NewTuple(rendering, pair)});
  }
  SortByKeys(rendering, Truth(arguments.Or(2, Value::Bool(false))), &members);
  return ListOf(rendering, members);
}

Value FilterUnique(Rendering& rendering, const Value& value, const Bound& arguments) {
  const KeyOf key_of(rendering, arguments.Or(0, Value::Bool(false)),
                     arguments.Or(1, Value::None()));
  Dict seen;
  std::vector<Value> kept;
  for (const Keyed& member : WithKeys(rendering, value, key_of)) {
    rendering.Pay(1);
    if (!Dict::CanBeKey(member.key)) rendering.NotSupported("unique values of such a type");
    if (seen.Find(member.key) != nullptr) continue;
    seen.Set(rendering.arena(), member.key, Value::None());
    kept.push_back(member.value);
  }
  return IterateItems(rendering, rendering.arena().Copy(std::span<const Value>(kept)));
}

Value FilterMin(Rendering& rendering, const Value& value, const Bound& arguments) {
  return Extreme(rendering, value, arguments, -1);
}

Value FilterMax(Rendering& rendering, const Value& value, const Bound& arguments) {
  return Extreme(rendering, value, arguments, 1);
}

}  // namespace mlc_native::templates
