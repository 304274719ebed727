// The nanobind module mlc_native._core, one Bind function per family of classes. The only place
// that knows Python.
//
// Every call that can block or compute releases the GIL; callbacks into Python take it once per
// call.
#pragma once

#include <nanobind/nanobind.h>

#include "data.h"

namespace mlc_native::bindings {

void BindErrors(nanobind::module_& m);
void BindConfig(nanobind::module_& m);
void BindData(nanobind::module_& m);
void BindTokenizer(nanobind::module_& m);
void BindEventTrace(nanobind::module_& m);
void BindEngine(nanobind::module_& m);
void BindThreadedEngine(nanobind::module_& m);
void BindTesting(nanobind::module_& m);

// A Python callable as an engine callback. It may be called and destroyed on any thread, with or
// without the GIL; after the interpreter has begun to shut down it does nothing. kPropagate lets a
// Python exception out of the call (for calls that began in Python), kReport hands it to
// sys.unraisablehook.
enum class OnPythonError { kPropagate, kReport };
RequestStreamCallback WrapStreamCallback(nanobind::object callable, OnPythonError on_error);

// int64 values of any Python list as token ids. Throws InvalidRequest for a value that no
// vocabulary can have.
std::vector<Data> TokenInputs(const std::vector<int64_t>& token_ids);

}  // namespace mlc_native::bindings
