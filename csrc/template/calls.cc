// Evaluator: calls of functions, methods and macros.
#include <string>
#include <utility>

#include "template/dict.h"
#include "template/evaluator.h"
#include "template/globals.h"
#include "template/iterate.h"
#include "template/methods.h"

namespace mlc_native::templates {

Value Evaluator::EvaluateCall(const Expression& expression, const Scope& scope,
                              const Value* caller) {
  const Value function = Evaluate(*expression.parts[0], scope);
  const Arguments arguments = EvaluateArguments(expression, scope);
  rendering_.line = expression.line;
  return Call(function, arguments, caller);
}

Value Evaluator::Call(const Value& function, const Arguments& arguments, const Value* caller) {
  if (function.Is(Kind::kMacro)) return CallMacro(*function.macro, arguments, caller);
  if (caller != nullptr) rendering_.NotSupported("a call block of something that is no macro");
  switch (function.kind) {
    case Kind::kCallable:
      return CallGlobal(rendering_, *function.callable, arguments.view());
    case Kind::kMethod:
      return CallMethod(rendering_, *function.method, arguments.view());
    case Kind::kJoiner:
      return CallJoiner(rendering_, *function.joiner);
    case Kind::kUndefined:
      rendering_.FailOnUndefined(function);
    default:
      rendering_.Fail(std::string("'") + TypeName(function) + "' object is not callable");
  }
}

Value Evaluator::CallMacro(const Macro& macro, const Arguments& arguments, const Value* caller) {
  rendering_.Pay(1);
  rendering_.CheckStack();
  Arena& arena = rendering_.arena();
  Scope* const scope = arena.New<Scope>(macro.scope);
  if (caller != nullptr && !macro.syntax->uses_caller) {
    rendering_.Fail("macro takes no keyword argument 'caller'");
  }
  if (macro.syntax->uses_caller) {
    scope->Set(arena, names_.caller, caller != nullptr ? *caller : Value());
  }
  BindMacro(macro, arguments, scope);
  TextBuilder out;
  const int line = rendering_.line;
  RunBody(macro.syntax->body, *scope, &out);
  rendering_.line = line;
  rendering_.arena().ReserveText(out.size());
  return out.Make(arena);
}

void Evaluator::BindMacro(const Macro& macro, const Arguments& arguments, Scope* scope) {
  Arena& arena = rendering_.arena();
  const MacroSyntax& syntax = *macro.syntax;
  const size_t count = syntax.parameters.size();
  std::vector<bool> is_used(arguments.named.size());
  std::vector<size_t> missing;
  for (size_t i = 0; i < count; ++i) {
    const MacroParameter& parameter = syntax.parameters[i];
    const Value* given = i < arguments.positional.size() ? &arguments.positional[i] : nullptr;
    for (size_t j = 0; j < arguments.named.size() && given == nullptr; ++j) {
      if (arguments.named[j].name != parameter.text) continue;
      given = &arguments.named[j].value;
      is_used[j] = true;
    }
    scope->Set(arena, parameter.name, given != nullptr ? *given : Value());
    if (given == nullptr && parameter.default_value != nullptr) missing.push_back(i);
  }
  for (const size_t i : missing) {  // a default may name any parameter, never what it hides
    const MacroParameter& parameter = syntax.parameters[i];
    scope->Set(arena, parameter.name, Evaluate(*parameter.default_value, *scope));
  }
  Dict* const kwargs = arena.New<Dict>();
  for (size_t j = 0; j < arguments.named.size(); ++j) {
    if (is_used[j]) continue;
    if (!syntax.uses_kwargs) {
      rendering_.Fail("macro '" + std::string(syntax.text) + "' takes no keyword argument '" +
                      std::string(arguments.named[j].name) + "'");
    }
    kwargs->Set(arena, NewText(arena, arguments.named[j].name, false), arguments.named[j].value);
  }
  if (syntax.uses_kwargs) scope->Set(arena, names_.kwargs, static_cast<const Dict*>(kwargs));
  const std::span<const Value> positional = arguments.positional;
  if (positional.size() > count && !syntax.uses_varargs) {
    rendering_.Fail("macro '" + std::string(syntax.text) + "' takes not more than " +
                    std::to_string(count) + " argument(s)");
  }
  if (syntax.uses_varargs) {
    const auto rest = positional.subspan(std::min(count, positional.size()));
    scope->Set(arena, names_.varargs, NewTuple(rendering_, rest));
  }
}

}  // namespace mlc_native::templates
