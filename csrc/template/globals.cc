#include "template/globals.h"

#include <time.h>

#include <string>

#include "template/dict.h"
#include "template/iterate.h"
#include "template/methods.h"
#include "template/operators.h"
#include "template/python_text.h"

namespace mlc_native::templates {
namespace {

constexpr size_t kMaxReason = 200;  // code points of what a template says about a request

Value MakeRange(Rendering& rendering, const CallArguments& arguments) {
  static constexpr Signature kSignature{"range", {"start", "stop", "step"}, 1};
  if (!arguments.named.empty()) rendering.Fail("range() takes no keyword arguments");
  const Bound bound = Bind(rendering, kSignature, arguments);
  const int64_t first = IntArgument(rendering, kSignature, bound[0]);
  const int64_t start = bound.has(1) ? first : 0;
  const int64_t stop = bound.has(1) ? IntArgument(rendering, kSignature, bound[1]) : first;
  const int64_t step = IntArgument(rendering, kSignature, bound.Or(2, Value::Int(1)));
  if (step == 0) rendering.Fail("range() arg 3 must not be zero");
  const int64_t span = step > 0 ? stop - start : start - stop;
  const int64_t distance = step > 0 ? step : -step;
  const int64_t size = span <= 0 ? 0 : (span + distance - 1) / distance;
  if (size > 100'000) rendering.Fail("Range too big");
  return rendering.arena().New<Range>(Range{start, stop, step, size});
}

// dict(...) and namespace(...): an object or pairs, and named values.
Dict* MakeDict(Rendering& rendering, const CallArguments& arguments) {
  Arena& arena = rendering.arena();
  Dict* const dict = arena.New<Dict>();
  if (arguments.positional.size() > 1) rendering.Fail("dict() takes at most 1 argument");
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (!from.Is(Kind::kDict)) rendering.NotSupported("an object that is made of pairs");
    for (const DictEntry& entry : from.dict->entries()) {
      rendering.Pay(1);
      dict->Set(arena, entry.key, entry.value);
    }
  }
  for (const NamedValue& named : arguments.named) {
    dict->Set(arena, BorrowText(arena, named.name, false), named.value);
  }
  return dict;
}

Value DictFunction(Rendering& rendering, const CallArguments& arguments) {
  return static_cast<const Dict*>(MakeDict(rendering, arguments));
}

Value NamespaceFunction(Rendering& rendering, const CallArguments& arguments) {
  return Value::Namespace(MakeDict(rendering, arguments));
}

Value CyclerFunction(Rendering& rendering, const CallArguments& arguments) {
  Arena& arena = rendering.arena();
  if (arguments.positional.empty() || !arguments.named.empty()) {
    rendering.Fail("at least one item has to be provided");
  }
  return arena.New<Cycler>(Cycler{arena.Copy(arguments.positional), 0});
}

Value JoinerFunction(Rendering& rendering, const CallArguments& arguments) {
  static constexpr Signature kSignature{"joiner", {"sep"}};
  Arena& arena = rendering.arena();
  const Bound bound = Bind(rendering, kSignature, arguments);
  const Text* const separator = bound.has(0) ? &TextArgument(rendering, kSignature, bound[0])
                                             : BorrowText(arena, ", ", false);
  return arena.New<Joiner>(Joiner{separator, false});
}

Value RaiseException(Rendering& rendering, const CallArguments& arguments) {
  static constexpr Signature kSignature{"raise_exception", {"message"}, 1};
  const Text& message = *ToText(rendering, Bind(rendering, kSignature, arguments)[0]);
  const size_t end = ByteOfIndex(message, std::min<size_t>(message.length, kMaxReason));
  throw TemplateError(TemplateError::Kind::kRaised, std::string(message.bytes.substr(0, end)),
                      rendering.line);
}

Value StrftimeNow(Rendering& rendering, const CallArguments& arguments) {
  static constexpr Signature kSignature{"strftime_now", {"format"}, 1};
  const Text& form = TextArgument(rendering, kSignature, Bind(rendering, kSignature, arguments)[0]);
  static constexpr std::string_view kFields = "aAbBdHIjmMpSUwWyY%";
  if (form.bytes.size() > 256) rendering.Refuse("strftime_now() was called with a long format");
  for (size_t at = form.bytes.find('%'); at < form.bytes.size();
       at = form.bytes.find('%', at + 2)) {
    if (at + 1 == form.bytes.size() || kFields.find(form.bytes[at + 1]) == std::string_view::npos) {
      rendering.NotSupported("such a format of strftime_now");
    }
  }
  if (form.bytes.empty()) return BorrowText(rendering.arena(), "", false);
  rendering.Pay(16);
  const time_t now = time(nullptr);
  tm parts{};
  localtime_r(&now, &parts);
  char shown[4096];
  const size_t size = strftime(shown, sizeof(shown), std::string(form.bytes).c_str(), &parts);
  return NewText(rendering.arena(), {shown, size}, false);
}

constexpr Callable kGlobals[] = {
    {{"range"}, MakeRange},
    {{"dict"}, DictFunction},
    {{"namespace"}, NamespaceFunction},
    {{"cycler"}, CyclerFunction},
    {{"joiner"}, JoinerFunction},
    {{"raise_exception"}, RaiseException},
    {{"strftime_now"}, StrftimeNow},
};

Value CyclerNext(Rendering&, const Value& self, const Bound&) {
  Cycler& cycler = *self.cycler;
  const Value value = cycler.values[cycler.at];
  cycler.at = (cycler.at + 1) % cycler.values.size();
  return value;
}

Value CyclerReset(Rendering&, const Value& self, const Bound&) {
  self.cycler->at = 0;
  return Value::None();
}

constexpr MethodEntry kCyclerMethods[] = {{{"next"}, CyclerNext, nullptr, true},
                                          {{"reset"}, CyclerReset, nullptr, true}};

}  // namespace

const Callable* FindGlobal(std::string_view name) { return FindNamed<Callable>(kGlobals, name); }

Value CallGlobal(Rendering& rendering, const Callable& callable, const CallArguments& arguments) {
  rendering.Pay(1);
  const Value result = callable.function(rendering, arguments);
  if (!result.is_text()) return result;
  return HasForeign(rendering, arguments) ? MarkForeign(rendering, result) : result;
}

Value CallJoiner(Rendering& rendering, Joiner& joiner) {
  rendering.Pay(1);
  if (joiner.used) return joiner.separator;
  joiner.used = true;
  return BorrowText(rendering.arena(), "", false);
}

std::optional<Value> CyclerAttribute(Rendering& rendering, Cycler& cycler, std::string_view name) {
  if (name == "current") return cycler.values[cycler.at];
  if (const MethodEntry* const found = FindNamed<MethodEntry>(kCyclerMethods, name)) {
    return Value(rendering.arena().New<Method>(Method{Value(&cycler), found}));
  }
  return std::nullopt;
}

}  // namespace mlc_native::templates
