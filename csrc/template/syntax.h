// What a template consists of once it is parsed: statements and expressions. Immutable after that.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "template/operators.h"
#include "template/value.h"

namespace mlc_native::templates {

struct FilterEntry;
struct TestEntry;
struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<const Expression>;
using Body = std::vector<std::unique_ptr<const Statement>>;

enum class Op : uint8_t {
  kConstant,   // constant
  kName,       // name
  kAttribute,  // parts[0].constant
  kItem,       // parts[0][parts[1]]
  kSlice,      // parts[0][parts[1]:parts[2]:parts[3]]
  kCall,       // parts[0](...); arguments are the other parts
  kFilter,     // parts[0] | filter(...); without parts[0] in a block
  kTest,       // parts[0] is test(...)
  kList,
  kTuple,
  kDict,  // keys and values by turns
  kIf,    // parts[1] if parts[0] else parts[2], which may be missing
  kAnd,   // of two
  kOr,    // of two
  kNot,
  kCompare,  // a chain: parts[0] comparisons[0] parts[1] ...
  kConcat,   // ~, of all parts
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kNegate,
  kPlus,
};

enum class ComparisonOp : uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct Expression {
  Op op;
  int line = 0;
  int height = 1;  // of the tree
  int name = 0;    // the number of a name
  Value constant;
  std::vector<ExpressionPtr> parts;
  std::vector<std::string_view> keywords;  // of the last arguments of a call, filter or test
  std::vector<ComparisonOp> comparisons;
  const FilterEntry* filter = nullptr;
  const TestEntry* test = nullptr;
};

// What an assignment or a loop writes to: a name, an attribute of a namespace, or several of them.
struct Target {
  int name = 0;
  const Text* attribute = nullptr;
  std::vector<Target> members;  // where they are several
};

enum class StatementKind : uint8_t {
  kData,      // text
  kOutput,    // expression
  kIf,        // branches; other_body where no condition holds
  kFor,       // target, expression, condition, body, other_body
  kSet,       // target, expression
  kSetBlock,  // target, filter (may be missing), body
  kMacro,     // macro
  kCall,      // macro is the body; expression is the call
  kFilter,    // filter, body
  kWith,      // targets and their expressions in branches; body
  kBreak,
  kContinue,
};

struct MacroParameter {
  int name;
  std::string_view text;
  ExpressionPtr default_value;  // may be missing
};

// A macro, or the body of a call block.
struct MacroSyntax {
  int name = 0;
  std::string_view text;
  std::vector<MacroParameter> parameters;
  Body body;
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

struct Branch {
  Target target;
  ExpressionPtr condition;  // or the value of a target
  Body body;
};

struct Statement {
  StatementKind kind;
  int line = 0;
  const Text* text = nullptr;
  Target target;
  ExpressionPtr expression;
  ExpressionPtr condition;
  ExpressionPtr filter;
  std::vector<Branch> branches;
  Body body;
  Body other_body;
  std::unique_ptr<MacroSyntax> macro;
};

}  // namespace mlc_native::templates
