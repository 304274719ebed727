#include "template/interpreter.h"

#include <string>

#include "template/dict.h"
#include "template/loop.h"
#include "template/operators.h"
#include "template/python_text.h"

namespace mlc_native::templates {
namespace {

// The values of a loop that fulfil its condition, which is asked as they are taken.
class FilteredIterator final : public Iterator {
 public:
  using Test = bool (*)(void* loop, const Value& value);
  FilteredIterator(Iterator* source, void* loop, Test test)
      : source_(source), loop_(loop), test_(test) {}
  bool Next(Rendering& rendering, Value* value) override {
    while (source_->Next(rendering, value)) {
      rendering.Pay(1);
      if (test_(loop_, *value)) return true;
    }
    return false;
  }

 private:
  Iterator* const source_;
  void* const loop_;
  const Test test_;
};

}  // namespace

void Interpreter::Run(const Program& program, Scope& scope, TextBuilder* out) {
  RunBody(program.body, scope, out);
}

void Interpreter::RunBody(const Body& body, Scope& scope, TextBuilder* out) {
  RunAll(body, scope, out);
}

Interpreter::Flow Interpreter::RunAll(const Body& body, Scope& scope, TextBuilder* out) {
  for (const auto& statement : body) {
    const Flow flow = RunOne(*statement, scope, out);
    if (flow != Flow::kEnd) return flow;
  }
  return Flow::kEnd;
}

void Interpreter::Write(const Text& text, TextBuilder* out) {
  rendering_.PayBytes(text.bytes.size());
  rendering_.CheckOutput(out->size() + text.bytes.size());
  out->Append(text);
}

Interpreter::Flow Interpreter::RunOne(const Statement& statement, Scope& scope, TextBuilder* out) {
  rendering_.CheckStack();
  rendering_.line = statement.line;
  switch (statement.kind) {
    case StatementKind::kData:
      Write(*statement.text, out);
      break;
    case StatementKind::kOutput:
      Write(*ToText(rendering_, Evaluate(*statement.expression, scope)), out);
      break;
    case StatementKind::kIf:
      return RunIf(statement, scope, out);
    case StatementKind::kFor:
      return RunFor(statement, scope, out);
    case StatementKind::kSet:
      Assign(statement.target, Evaluate(*statement.expression, scope), scope);
      break;
    case StatementKind::kSetBlock:
      RunSetBlock(statement, scope);
      break;
    case StatementKind::kMacro: {
      const MacroSyntax* const syntax = statement.macro.get();
      const Macro* const macro = rendering_.arena().New<Macro>(Macro{syntax, &scope});
      scope.Set(rendering_.arena(), syntax->name, macro);
      break;
    }
    case StatementKind::kCall:
      RunCall(statement, scope, out);
      break;
    case StatementKind::kFilter:
      RunFilter(statement, scope, out);
      break;
    case StatementKind::kWith:
      return RunWith(statement, scope, out);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  rendering_.Pay(1);
  return Flow::kEnd;
}

Interpreter::Flow Interpreter::RunIf(const Statement& statement, Scope& scope, TextBuilder* out) {
  for (const Branch& branch : statement.branches) {
    if (Truth(Evaluate(*branch.condition, scope))) return RunAll(branch.body, scope, out);
  }
  return RunAll(statement.other_body, scope, out);
}

Interpreter::Flow Interpreter::RunFor(const Statement& statement, Scope& scope, TextBuilder* out) {
  Arena& arena = rendering_.arena();
  const Value values = Evaluate(*statement.expression, scope);
  Iterator* iterator = Iterate(rendering_, values);
  std::optional<int64_t> length = Length(values);
  struct Condition {
    Interpreter* self;
    const Statement* statement;
    Scope* scope;
  };
  if (statement.condition != nullptr) {
    Condition* const condition =
        arena.New<Condition>(Condition{this, &statement, arena.New<Scope>(&scope)});
    const auto test = [](void* data, const Value& value) {
      const Condition& asked = *static_cast<Condition*>(data);
      asked.scope->Clear();
      asked.self->Assign(asked.statement->target, value, *asked.scope);
      return Truth(asked.self->Evaluate(*asked.statement->condition, *asked.scope));
    };
    iterator = arena.New<FilteredIterator>(iterator, condition, test);
    length.reset();
  }
  Loop* const loop = arena.New<Loop>(iterator, length);
  Scope* const inner = arena.New<Scope>(&scope);
  Value value;
  bool completed = false;  // an iteration, without a break or continue
  while (loop->Next(rendering_, &value)) {
    rendering_.Pay(1);
    inner->Clear();
    inner->Set(arena, names_.loop, loop);
    Assign(statement.target, value, *inner);
    const Flow flow = RunAll(statement.body, *inner, out);
    completed = completed || flow == Flow::kEnd;
    if (flow == Flow::kBreak) break;
  }
  // In jinja2, `else` also follows a loop of which no iteration reached the end of its body.
  if (completed || statement.other_body.empty()) return Flow::kEnd;
  return RunAll(statement.other_body, *arena.New<Scope>(&scope), out);
}

Interpreter::Flow Interpreter::RunWith(const Statement& statement, Scope& scope, TextBuilder* out) {
  Scope* const inner = rendering_.arena().New<Scope>(&scope);
  for (const Branch& variable : statement.branches) {
    Assign(variable.target, Evaluate(*variable.condition, scope), *inner);
  }
  return RunAll(statement.body, *inner, out);
}

const Text* Interpreter::TextOf(const Body& body, const Scope& scope) {
  TextBuilder text;
  RunAll(body, *rendering_.arena().New<Scope>(&scope), &text);
  return text.Make(rendering_.arena());
}

void Interpreter::RunSetBlock(const Statement& statement, Scope& scope) {
  Value value = TextOf(statement.body, scope);
  if (statement.filter != nullptr) value = ApplyFilters(*statement.filter, value, scope);
  Assign(statement.target, value, scope);
}

void Interpreter::RunFilter(const Statement& statement, Scope& scope, TextBuilder* out) {
  const Value filtered = ApplyFilters(*statement.filter, TextOf(statement.body, scope), scope);
  Write(*ToText(rendering_, filtered), out);
}

void Interpreter::RunCall(const Statement& statement, Scope& scope, TextBuilder* out) {
  const Macro* const body = rendering_.arena().New<Macro>(Macro{statement.macro.get(), &scope});
  const Value caller(body);
  Write(*ToText(rendering_, EvaluateCall(*statement.expression, scope, &caller)), out);
}

void Interpreter::Assign(const Target& target, const Value& value, Scope& scope) {
  Arena& arena = rendering_.arena();
  if (!target.members.empty()) {
    const std::vector<Value> values = Collect(rendering_, value);
    if (values.size() != target.members.size()) {
      rendering_.Fail("expected " + std::to_string(target.members.size()) +
                      " values to unpack, got " + std::to_string(values.size()));
    }
    for (size_t i = 0; i < values.size(); ++i) Assign(target.members[i], values[i], scope);
    return;
  }
  if (target.attribute == nullptr) return scope.Set(arena, target.name, value);
  const Value* const found = scope.Find(target.name);
  if (found == nullptr || !found->Is(Kind::kNamespace)) {
    rendering_.Fail("cannot assign attribute on non-namespace object");
  }
  found->attributes->Set(arena, target.attribute, value);
}

}  // namespace mlc_native::templates
