#include "support/json_in_order.h"

#include <algorithm>
#include <string>
#include <utility>

namespace mlc_native {
namespace {

class OrderReader {
 public:
  explicit OrderReader(std::string_view text) : rest_(text) {}

  JsonValue Value() {
    SkipSpace();
    if (rest_.starts_with('{')) return JsonValue(Object());
    if (rest_.starts_with('[')) return JsonValue(Array());
    if (rest_.starts_with('"')) {
      Literal();
    } else {
      rest_.remove_prefix(std::min(rest_.find_first_of(",]} \t\r\n"), rest_.size()));
    }
    return {};
  }

 private:
  JsonValue::Data Object() {
    JsonObject members;
    while (HasNext('}')) {
      std::string name = ParseJson(Literal()).AsString();
      SkipSpace();
      rest_.remove_prefix(1);  // the colon
      members.push_back({std::move(name), Value()});
    }
    return members;
  }

  JsonValue::Data Array() {
    JsonArray items;
    while (HasNext(']')) items.push_back(Value());
    return items;
  }

  // Goes past the bracket or comma before the next part. False, past the end, if there is none.
  bool HasNext(char end) {
    SkipSpace();
    if (!rest_.starts_with(end)) {
      rest_.remove_prefix(1);
      SkipSpace();
      if (!rest_.starts_with(end)) return !rest_.empty();
    }
    rest_.remove_prefix(1);
    return false;
  }

  // Takes a string with its quotes.
  std::string_view Literal() {
    size_t end = 1;
    while (end < rest_.size() && rest_[end] != '"') end += rest_[end] == '\\' ? 2 : 1;
    const std::string_view literal = rest_.substr(0, end + 1);
    rest_.remove_prefix(literal.size());
    return literal;
  }

  void SkipSpace() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
  }

  std::string_view rest_;
};

}  // namespace

JsonValue ReadOrder(std::string_view text) { return OrderReader(text).Value(); }

}  // namespace mlc_native
