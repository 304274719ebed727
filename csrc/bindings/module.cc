#include "bindings/bindings.h"

NB_MODULE(_core, m) {
  using namespace mlc_native::bindings;  // NOLINT(build/namespaces)
  m.doc() = "The C++ engine of mlc_native.";
  BindErrors(m);
  BindConfig(m);
  BindData(m);
  BindTokenizer(m);
  BindEventTrace(m);
  BindEngine(m);
  BindThreadedEngine(m);
  BindTesting(m);
}
