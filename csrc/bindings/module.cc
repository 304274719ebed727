#include "bindings/bindings.h"

NB_MODULE(_core, m) {
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
