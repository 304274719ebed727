// Interpreter: runs the statements of a template. One rendering, one thread.
#pragma once

#include "template/evaluator.h"
#include "template/program.h"

namespace mlc_native::templates {

class Interpreter final : public Evaluator {
 public:
  Interpreter(Rendering& rendering, const SpecialNames& names) : Evaluator(rendering, names) {}

  // Runs a template with the variables of a scope and appends what it writes.
  void Run(const Program& program, Scope& scope, TextBuilder* out);

 private:
  // How a body ended: at its end, or at a tag that leaves the iteration or the loop.
  enum class Flow : uint8_t { kEnd, kContinue, kBreak };

  void RunBody(const Body& body, Scope& scope, TextBuilder* out) override;
  Flow RunAll(const Body& body, Scope& scope, TextBuilder* out);
  Flow RunOne(const Statement& statement, Scope& scope, TextBuilder* out);
  Flow RunIf(const Statement& statement, Scope& scope, TextBuilder* out);
  Flow RunFor(const Statement& statement, Scope& scope, TextBuilder* out);
  Flow RunWith(const Statement& statement, Scope& scope, TextBuilder* out);
  void RunSetBlock(const Statement& statement, Scope& scope);
  void RunFilter(const Statement& statement, Scope& scope, TextBuilder* out);
  void RunCall(const Statement& statement, Scope& scope, TextBuilder* out);
  // What a body of its own scope writes.
  const Text* TextOf(const Body& body, const Scope& scope);
  void Assign(const Target& target, const Value& value, Scope& scope);
  void Write(const Text& text, TextBuilder* out);
};

}  // namespace mlc_native::templates
