#include "template/filters.h"

#include <string>

#include "template/attributes.h"
#include "template/iterate.h"
#include "template/operators.h"
#include "template/tests.h"

namespace mlc_native::templates {
namespace {

// Arguments that live as long as an iterator.
CallArguments CopyArguments(Arena& arena, const CallArguments& arguments) {
  return {arena.Copy(arguments.positional), arena.Copy(arguments.named)};
}

class MapIterator final : public Iterator {
 public:
  MapIterator(Iterator* source, const FilterEntry& filter, const CallArguments& arguments)
      : source_(source), filter_(&filter), arguments_(arguments) {}
  MapIterator(Iterator* source, std::span<const Value> path, const Value* missing)
      : source_(source), path_(path), missing_(missing) {}

  bool Next(Rendering& rendering, Value* value) override {
    rendering.Pay(1);
    rendering.CheckStack();  // iterators may be on each other
    Value item;
    if (!source_->Next(rendering, &item)) return false;
    *value = filter_ != nullptr ? CallFilter(rendering, *filter_, item, arguments_)
                                : FollowPath(rendering, item, path_, missing_);
    return true;
  }

 private:
  Iterator* const source_;
  const FilterEntry* const filter_ = nullptr;
  const CallArguments arguments_ = {};
  const std::span<const Value> path_;
  const Value* const missing_ = nullptr;
};

class SelectIterator final : public Iterator {
 public:
  SelectIterator(Iterator* source, std::span<const Value> path, const TestEntry* test,
                 const CallArguments& arguments, bool expected)
      : source_(source), path_(path), test_(test), arguments_(arguments), expected_(expected) {}

  bool Next(Rendering& rendering, Value* value) override {
    rendering.CheckStack();
    while (source_->Next(rendering, value)) {
      rendering.Pay(1);
      const Value tested = FollowPath(rendering, *value, path_);
      const bool passes =
          test_ != nullptr ? CallTest(rendering, *test_, tested, arguments_) : Truth(tested);
      if (passes == expected_) return true;
    }
    return false;
  }

 private:
  Iterator* const source_;
  const std::span<const Value> path_;
  const TestEntry* const test_;  // null: of the truth
  const CallArguments arguments_;
  const bool expected_;
};

Value FilterMap(Rendering& rendering, const Value& value, const CallArguments& arguments) {
  Arena& arena = rendering.arena();
  if (!Truth(value)) return IterateItems(rendering, {});
  if (!arguments.positional.empty()) {
    const Value& name = arguments.positional[0];
    const FilterEntry* const filter = name.is_text() ? FindFilter(name.text->bytes) : nullptr;
    if (filter == nullptr) rendering.NotSupported("map with such a filter");
    const CallArguments rest{arguments.positional.subspan(1), arguments.named};
    return arena.New<MapIterator>(Iterate(rendering, value), *filter, CopyArguments(arena, rest));
  }
  const Value* attribute = nullptr;
  const Value* missing = nullptr;
  for (const NamedValue& named : arguments.named) {
    if (named.name == "attribute") {
      attribute = &named.value;
    } else if (named.name == "default") {
      missing = arena.New<Value>(named.value);
    } else {
      rendering.Fail("Unexpected keyword argument '" + std::string(named.name) + "'");
    }
  }
  if (attribute == nullptr) rendering.Fail("map requires a filter argument");
  if (missing != nullptr && missing->Is(Kind::kNone)) missing = nullptr;
  return arena.New<MapIterator>(Iterate(rendering, value), AttributePath(rendering, *attribute),
                                missing);
}

template <bool by_attribute, bool expected>
Value FilterSelect(Rendering& rendering, const Value& value, const CallArguments& arguments) {
  Arena& arena = rendering.arena();
  auto positional = arguments.positional;
  std::span<const Value> path;
  if (by_attribute) {
    if (positional.empty()) rendering.Fail("Missing parameter for attribute name");
    path = AttributePath(rendering, positional[0]);
    positional = positional.subspan(1);
  }
  const TestEntry* test = nullptr;
  if (!positional.empty()) {
    const Value& name = positional[0];
    test = name.is_text() ? FindTest(name.text->bytes) : nullptr;
    if (test == nullptr) rendering.NotSupported("a selection by such a test");
    positional = positional.subspan(1);
  } else if (!arguments.named.empty()) {
    rendering.NotSupported("a selection with named arguments only");
  }
  if (!Truth(value)) return IterateItems(rendering, {});
  const CallArguments rest = CopyArguments(arena, {positional, arguments.named});
  return arena.New<SelectIterator>(Iterate(rendering, value), path, test, rest, expected);
}

constexpr FilterEntry kFilters[] = {
    {{"trim", {"chars"}}, FilterTrim, nullptr, true},
    {{"upper"}, FilterUpper},
    {{"lower"}, FilterLower},
    {{"capitalize"}, FilterCapitalize},
    {{"title"}, FilterTitle},
    {{"replace", {"old", "new", "count"}, 2}, FilterReplace, nullptr, true},
    {{"indent", {"width", "first", "blank"}}, FilterIndent},
    {{"string"}, FilterString, nullptr, true},
    {{"safe"}, FilterString, nullptr, true},
    {{"e"}, FilterEscape},
    {{"escape"}, FilterEscape},
    {{"forceescape"}, FilterEscape},
    {{"join", {"d", "attribute"}}, FilterJoin, nullptr, true},
    {{"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}}, FilterToJson},
    {{"format"}, nullptr, FilterFormat, true},
    {{"list"}, FilterList},
    {{"first"}, FilterFirst, nullptr, true},
    {{"last"}, FilterLast, nullptr, true},
    {{"length"}, FilterLength, nullptr, true},
    {{"count"}, FilterLength, nullptr, true},
    {{"items"}, FilterItems, nullptr, true},
    {{"reverse"}, FilterReverse},
    {{"sum", {"attribute", "start"}}, FilterSum},
    {{"default", {"default_value", "boolean"}}, FilterDefault, nullptr, true},
    {{"d", {"default_value", "boolean"}}, FilterDefault, nullptr, true},
    {{"sort", {"reverse", "case_sensitive", "attribute"}}, FilterSort},
    {{"dictsort", {"case_sensitive", "by", "reverse"}}, FilterDictSort},
    {{"unique", {"case_sensitive", "attribute"}}, FilterUnique},
    {{"min", {"case_sensitive", "attribute"}}, FilterMin},
    {{"max", {"case_sensitive", "attribute"}}, FilterMax},
    {{"map"}, nullptr, FilterMap, true},
    {{"select"}, nullptr, FilterSelect<false, true>, true},
    {{"reject"}, nullptr, FilterSelect<false, false>, true},
    {{"selectattr"}, nullptr, FilterSelect<true, true>, true},
    {{"rejectattr"}, nullptr, FilterSelect<true, false>, true},
    {{"int", {"default", "base"}}, FilterInt, nullptr, true},
    {{"float", {"default"}}, FilterFloat, nullptr, true},
    {{"round", {"precision", "method"}}, FilterRound, nullptr, true},
    {{"abs"}, FilterAbs, nullptr, true},
};

}  // namespace

const FilterEntry* FindFilter(std::string_view name) {
  return FindNamed<FilterEntry>(kFilters, name);
}

Value CallFilter(Rendering& rendering, const FilterEntry& filter, const Value& value,
                 const CallArguments& arguments) {
  rendering.Pay(1);
  Value input = value;
  if (!filter.keeps_own && value.Is(Kind::kIterator)) {
    input = NewList(rendering, Collect(rendering, value));
  }
  const Value result =
      filter.raw != nullptr
          ? filter.raw(rendering, input, arguments)
          : filter.function(rendering, input, Bind(rendering, filter.signature, arguments));
  if (filter.keeps_own || !(result.is_text() || result.is_list_or_tuple())) return result;
  const bool foreign = HasForeign(rendering, input) || HasForeign(rendering, arguments);
  return foreign ? MarkForeign(rendering, result) : result;
}

}  // namespace mlc_native::templates
