#include <Python.h>

#include <stdexcept>

#include "bindings/bindings.h"

namespace {

// The threads of an engine take the GIL with PyGILState_Ensure, which knows the main interpreter
// alone: they would call what belongs to another one, and wait for ever.
void RefuseSubinterpreter() {
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) == 0) return;
  throw std::runtime_error(
      "mlc_native runs in the main interpreter of a process, and this is a subinterpreter "
      "(mod_wsgi uses the main one with \"WSGIApplicationGroup %{GLOBAL}\")");
}

}  // namespace

NB_MODULE(_core, m) {
  RefuseSubinterpreter();
  using namespace mlc_native::bindings;  // NOLINT(build/namespaces)
  m.doc() = "The C++ engine of mlc_native.";
  // Engines may still be referenced when the interpreter exits (an uncollected cycle, a forked
  // child). The user of a program that ended well need not hear of them.
  nanobind::set_leak_warnings(false);
  BindErrors(m);
  BindConfig(m);
  BindData(m);
  BindTokenizer(m);
  BindTemplate(m);
  BindEventTrace(m);
  BindPrefixCache(m);
  BindCheckpoint(m);
  BindEngine(m);
  BindThreadedEngine(m);
  BindTesting(m);
}
