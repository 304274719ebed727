#include "template/iterate.h"

#include "template/dict.h"
#include "template/text.h"

namespace mlc_native::templates {
namespace {

class ItemIterator final : public Iterator {
 public:
  explicit ItemIterator(std::span<const Value> items) : items_(items) {}
  bool Next(Rendering&, Value* value) override {
    if (items_.empty()) return false;
    *value = items_.front();
    items_ = items_.subspan(1);
    return true;
  }

 private:
  std::span<const Value> items_;
};

class EntryIterator final : public Iterator {
 public:
  EntryIterator(const Dict& dict, View::Of of) : dict_(dict), of_(of) {}
  bool Next(Rendering& rendering, Value* value) override {
    if (at_ == dict_.size()) return false;
    const DictEntry& entry = dict_.entries()[at_++];
    if (of_ == View::Of::kItems) {
      const Value pair[] = {entry.key, entry.value};
      *value = NewTuple(rendering, pair);
    } else {
      *value = of_ == View::Of::kKeys ? entry.key : entry.value;
    }
    return true;
  }

 private:
  const Dict& dict_;
  const View::Of of_;
  size_t at_ = 0;
};

class RangeIterator final : public Iterator {
 public:
  explicit RangeIterator(const Range& range) : range_(range) {}
  bool Next(Rendering&, Value* value) override {
    if (at_ == range_.size) return false;
    *value = Value::Int(range_.at(at_++));
    return true;
  }

 private:
  const Range& range_;
  int64_t at_ = 0;
};

class CharIterator final : public Iterator {
 public:
  explicit CharIterator(const Text& text) : text_(text) {}
  bool Next(Rendering& rendering, Value* value) override {
    if (at_ == text_.bytes.size()) return false;
    const size_t end = at_ + CodePointSize(text_.bytes[at_]);
    *value = CutBytes(rendering.arena(), text_, at_, end);
    at_ = end;
    return true;
  }

 private:
  const Text& text_;
  size_t at_ = 0;
};

}  // namespace

bool IsIterable(const Value& value) {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kText:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kView:
    case Kind::kRange:
    case Kind::kIterator:
    case Kind::kLoop:
      return true;
    default:
      return false;
  }
}

Iterator* Iterate(Rendering& rendering, const Value& value) {
  Arena& arena = rendering.arena();
  switch (value.kind) {
    case Kind::kUndefined:
      return arena.New<ItemIterator>(std::span<const Value>());
    case Kind::kText:
      return arena.New<CharIterator>(*value.text);
    case Kind::kList:
    case Kind::kTuple:
      return arena.New<ItemIterator>(value.list->items);
    case Kind::kDict:
      return arena.New<EntryIterator>(*value.dict, View::Of::kKeys);
    case Kind::kView:
      return arena.New<EntryIterator>(*value.view->dict, value.view->of);
    case Kind::kRange:
      return arena.New<RangeIterator>(*value.range);
    case Kind::kIterator:
      return value.iterator;
    case Kind::kLoop:
      rendering.NotSupported("a loop over another one's loop variable");
    default:
      rendering.Fail(std::string("'") + TypeName(value) + "' object is not iterable");
  }
}

Iterator* IterateItems(Rendering& rendering, std::span<const Value> items) {
  return rendering.arena().New<ItemIterator>(items);
}

std::vector<Value> Collect(Rendering& rendering, const Value& value) {
  if (value.is_list_or_tuple()) {
    rendering.Pay(1 + static_cast<int64_t>(value.list->items.size() / 8));
    return {value.list->items.begin(), value.list->items.end()};
  }
  std::vector<Value> values;
  Iterator* const iterator = Iterate(rendering, value);
  Value next;
  while (iterator->Next(rendering, &next)) {
    rendering.Pay(1);
    values.push_back(next);
    if (values.size() % 1024 == 0) rendering.arena().Reserve(values.size() * sizeof(Value));
  }
  return values;
}

Value NewList(Rendering& rendering, std::span<const Value> items) {
  Arena& arena = rendering.arena();
  return arena.New<List>(List{arena.Copy(items)});
}

Value NewTuple(Rendering& rendering, std::span<const Value> items) {
  Arena& arena = rendering.arena();
  return Value::Tuple(arena.New<List>(List{arena.Copy(items)}));
}

}  // namespace mlc_native::templates
