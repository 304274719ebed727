#include <nanobind/nanobind.h>

#include "bindings/bindings.h"
#include "support/check.h"
#include "support/error.h"

namespace nb = nanobind;

namespace mlc_native::bindings {
namespace {

nb::object AddErrorType(nb::module_& m, const char* name, PyObject* base, const char* doc) {
  const std::string qualified = std::string("mlc_native._core.") + name;
  nb::object type = nb::steal(PyErr_NewExceptionWithDoc(qualified.c_str(), doc, base, nullptr));
  if (!type.is_valid()) nb::raise_python_error();
  m.attr(name) = type;
  return type;
}

void SetError(nb::handle module, const char* name, const char* message, const std::string* field) {
  nb::object type = nb::getattr(module, name);
  nb::object error = type(message);
  if (field != nullptr) error.attr("field") = nb::str(field->c_str());
  PyErr_SetObject(type.ptr(), error.ptr());
}

void SetQueueFull(nb::handle module, const QueueFull& full) {
  nb::object type = nb::getattr(module, "QueueFull");
  nb::object error = type(full.what());
  error.attr("field") = nb::str(full.field().c_str());
  error.attr("queue_length") = full.queue_length();
  error.attr("max_queue_length") = full.max_queue_length();
  PyErr_SetObject(type.ptr(), error.ptr());
}

}  // namespace

void BindErrors(nb::module_& m) {
  const nb::object invalid_request = AddErrorType(
      m, "InvalidRequest", PyExc_ValueError,
      "One request is wrong; others are untouched. `field` names the offending field.");
  AddErrorType(m, "QueueFull", invalid_request.ptr(),
               "Too many requests wait already (HTTP 429); the same request may be accepted later. "
               "`queue_length` of them wait, `max_queue_length` may.");
  AddErrorType(m, "InvalidConfig", PyExc_ValueError,
               "An engine setting is wrong. `field` names it.");
  AddErrorType(m, "LoadError", PyExc_RuntimeError,
               "A model's files are missing, damaged or of an unsupported kind. `field` names the "
               "file or tensor.");
  AddErrorType(m, "InternalError", PyExc_RuntimeError,
               "A failed internal check: a bug of mlc_native.");
  nb::register_exception_translator(
      [](const std::exception_ptr& error, void* module_ptr) {
        nb::handle module(static_cast<PyObject*>(module_ptr));
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
      },
      m.ptr());
}

}  // namespace mlc_native::bindings
