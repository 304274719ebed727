// Evaluator: computes the expressions of a template in a scope, and calls its macros. The
// statements of their bodies are the Interpreter's, which derives from it. One rendering, one
// thread.
#pragma once

#include <vector>

#include "template/function.h"
#include "template/rendering.h"
#include "template/scope.h"
#include "template/syntax.h"
#include "template/text.h"
#include "template/value.h"

namespace mlc_native::templates {

// A macro that was defined, or the body of a call block.
struct Macro {
  const MacroSyntax* syntax;
  const Scope* scope;  // in which it was defined
};

// The numbers of names that the renderer itself gives values.
struct SpecialNames {
  int loop;
  int caller;
  int varargs;
  int kwargs;
};

class Evaluator {
 public:
  Evaluator(Rendering& rendering, const SpecialNames& names)
      : rendering_(rendering), names_(names) {}

  Value Evaluate(const Expression& expression, const Scope& scope);
  // The call of a call block, which gets its body as `caller`.
  Value EvaluateCall(const Expression& expression, const Scope& scope, const Value* caller);
  // Filters of a block on its text.
  Value ApplyFilters(const Expression& filters, const Value& input, const Scope& scope);

 protected:
  ~Evaluator() = default;
  // Runs the body of a macro and appends what it writes.
  virtual void RunBody(const Body& body, Scope& scope, TextBuilder* out) = 0;

  Rendering& rendering_;
  const SpecialNames names_;

 private:
  // The arguments of a call, filter or test while it runs.
  struct Arguments {
    std::vector<Value> positional;
    std::vector<NamedValue> named;
    CallArguments view() const { return {positional, named}; }
  };

  Value EvaluateName(const Expression& expression, const Scope& scope);
  Value EvaluateSlice(const Expression& expression, const Scope& scope);
  Value EvaluateIf(const Expression& expression, const Scope& scope);
  Value EvaluateCompare(const Expression& expression, const Scope& scope);
  bool CompareOne(ComparisonOp op, const Value& left, const Value& right);
  Value EvaluateConcat(const Expression& expression, const Scope& scope);
  Value EvaluateItems(const Expression& expression, const Scope& scope);
  Value EvaluateDict(const Expression& expression, const Scope& scope);
  Value EvaluateFilter(const Expression& expression, const Value& input, const Scope& scope);
  Value EvaluateTest(const Expression& expression, const Scope& scope);
  Value EvaluateBinary(const Expression& expression, const Scope& scope);
  Arguments EvaluateArguments(const Expression& expression, const Scope& scope);
  Value Call(const Value& function, const Arguments& arguments, const Value* caller);
  Value CallMacro(const Macro& macro, const Arguments& arguments, const Value* caller);
  void BindMacro(const Macro& macro, const Arguments& arguments, Scope* scope);
};

}  // namespace mlc_native::templates
