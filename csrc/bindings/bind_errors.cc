#include <nanobind/nanobind.h>

#include "bindings/bindings.h"
#include "support/check.h"
#include "support/error.h"

namespace nb = nanobind;

namespace mlc_native::bindings {
namespace {

void SetError(nb::handle module, const char* name, const char* message, const std::string* field) {
  const nb::object type = nb::getattr(module, name);
  const nb::object error = field != nullptr ? type(message, field->c_str()) : type(message);
  PyErr_SetObject(type.ptr(), error.ptr());
}

void SetQueueFull(nb::handle module, const QueueFull& full) {
  const nb::object type = nb::getattr(module, "QueueFull");
  const nb::object error =
      type(full.what(), full.queue_length(), full.max_queue_length(), full.field().c_str());
  PyErr_SetObject(type.ptr(), error.ptr());
}

// Throws the error if it is none of this family, and what making the one of Python raises.
void SetErrorOf(const std::exception_ptr& error, nb::handle module) {
  try {
    std::rethrow_exception(error);
  } catch (const QueueFull& e) {
    SetQueueFull(module, e);
  } catch (const InvalidRequest& e) {
    SetError(module, "InvalidRequest", e.what(), &e.field());
  } catch (const InvalidConfig& e) {
    SetError(module, "InvalidConfig", e.what(), &e.field());
  } catch (const LoadError& e) {
    SetError(module, "LoadError", e.what(), &e.field());
  } catch (const InternalError& e) {
    SetError(module, "InternalError", e.what(), nullptr);
  }
}

}  // namespace

void BindErrors(nb::module_& m) {
  // The classes are Python's, so that the whole package has one family of errors.
  const nb::module_ errors = nb::module_::import_("mlc_native.errors");
  for (const char* name :
       {"InvalidRequest", "QueueFull", "InvalidConfig", "LoadError", "InternalError"}) {
    m.attr(name) = errors.attr(name);
  }
  nb::register_exception_translator(
      [](const std::exception_ptr& error, void* module_ptr) {
        nb::handle module(static_cast<PyObject*>(module_ptr));
        try {
          SetErrorOf(error, module);
        } catch (nb::python_error& e) {
          e.restore();  // Ctrl-C, or no memory, while the error was made
        }
      },
      m.ptr());
}

}  // namespace mlc_native::bindings
