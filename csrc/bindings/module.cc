#include "bindings/bindings.h"

NB_MODULE(_core, m) {
  using namespace mlc_native::bindings;  // NOLINT(build/namespaces)
  m.doc() = "The C++ engine of mlc_native.";
  // Engines that are still referenced when the interpreter exits (a cycle not collected, a forked
  // child) are no news to the user of a program that ended well.
  nanobind::set_leak_warnings(false);
  BindErrors(m);
  BindConfig(m);
  BindData(m);
  BindTokenizer(m);
  BindEventTrace(m);
  BindPrefixCache(m);
  BindEngine(m);
  BindThreadedEngine(m);
  BindTesting(m);
}
