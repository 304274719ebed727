#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "bindings/bindings.h"
#include "template/chat_template.h"
#include "template/text.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlc_native::bindings {
namespace {

using ChatTemplatePtr = std::shared_ptr<const ChatTemplate>;

[[noreturn]] void RefuseValue(const char* what) {
  throw TemplateError(TemplateError::Kind::kNotSupported, what, 0);
}

std::string_view Utf8Of(nb::handle text) {
  Py_ssize_t size = 0;
  const char* const bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (bytes == nullptr) {  // halves of surrogate pairs
    PyErr_Clear();
    RefuseValue("a text in the input that is not valid Unicode");
  }
  return {bytes, static_cast<size_t>(size)};
}

// Adds a value of Python, down to its last member, which are those that JSON has. Requires: the
// GIL.
void AddValue(nb::handle value, TemplateInput* input) {
  PyObject* const object = value.ptr();
  if (PyUnicode_Check(object)) {
    input->Put(Utf8Of(value));
  } else if (object == Py_None) {
    input->Null();
  } else if (PyBool_Check(object)) {
    input->Put(object == Py_True);
  } else if (PyLong_CheckExact(object)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow != 0) RefuseValue("an integer of more than 64 bits in the input");
    input->Put(static_cast<int64_t>(number));
  } else if (PyFloat_CheckExact(object)) {
    input->Put(PyFloat_AsDouble(object));
  } else if (PyList_Check(object)) {
    input->BeginArray();
    for (const nb::handle item : nb::borrow<nb::list>(value)) AddValue(item, input);
    input->EndArray();
  } else if (PyDict_Check(object)) {
    input->BeginObject();
    for (const auto [key, member] : nb::borrow<nb::dict>(value)) {
      const nb::object own_key = nb::borrow(key);  // other threads may change the dict
      const nb::object own_member = nb::borrow(member);
      if (!PyUnicode_Check(key.ptr())) RefuseValue("a key in the input that is no text");
      input->Key(Utf8Of(own_key));
      AddValue(own_member, input);
    }
    input->EndObject();
  } else {
    RefuseValue("a value in the input that JSON does not have");
  }
}

// The ranges in code points, as Python counts. Null if the prompt has no text of the input.
nb::object OwnRanges(const RenderedPrompt& prompt) {
  if (!prompt.has_input) return nb::none();
  const std::string_view text = prompt.text;
  size_t byte = 0, index = 0;
  const auto index_of = [&](size_t end) {
    index += templates::CountCodePoints(text.substr(byte, end - byte));
    byte = end;
    return index;
  };
  nb::list ranges;
  for (const PromptRange& range : prompt.own) {
    const size_t begin = index_of(range.begin);
    ranges.append(nb::make_tuple(begin, index_of(range.end)));
  }
  return nb::tuple(ranges);
}

nb::tuple RenderTemplate(const ChatTemplatePtr& self, const nb::dict& given, const nb::dict& own,
                         bool trusted, double seconds, int64_t steps, size_t memory_bytes,
                         size_t output_chars) {
  TemplateInput input(trusted);
  AddValue(given, &input);
  AddValue(own, &input);
  const RenderLimits limits{.seconds = seconds,
                            .steps = steps,
                            .memory_bytes = memory_bytes,
                            .output_chars = output_chars,
                            .stack_bytes = size_t{512} << 10};
  RenderedPrompt prompt;
  {
    const ReleasedGil released;
    prompt = self->Render(std::move(input), limits);
  }
  return nb::make_tuple(nb::str(prompt.text.data(), prompt.text.size()), OwnRanges(prompt));
}

const char* KindName(TemplateError::Kind kind) {
  static constexpr const char* kNames[] = {"syntax", "not_supported", "failed", "raised", "limit"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace

void BindTemplate(nb::module_& m) {
  // A class of its own: what callers see is an InvalidRequest or a LoadError of Python.
  const nb::object type =
      nb::steal(PyErr_NewException("mlc_native._core.TemplateError", PyExc_Exception, nullptr));
  m.attr("TemplateError") = type;
  nb::register_exception_translator(
      [](const std::exception_ptr& error, void* type_ptr) {
        try {
          std::rethrow_exception(error);
        } catch (const TemplateError& e) {
          const nb::tuple arguments = nb::make_tuple(KindName(e.kind()), e.what(), e.line());
          PyErr_SetObject(static_cast<PyObject*>(type_ptr), arguments.ptr());
        }
      },
      type.ptr());

  nb::class_<ChatTemplate>(
      m, "ChatTemplate",
      "A compiled chat template. Immutable. Its errors are TemplateErrors, whose "
      "arguments are the kind (\"syntax\", \"not_supported\", \"failed\", "
      "\"raised\", \"limit\"), a message and the line.")
      .def_static(
          "compile",
          [](nb::str source) {
            const std::string_view text = Utf8Of(source);
            return std::const_pointer_cast<ChatTemplate>(ChatTemplate::Compile(text));
          },
          "source"_a)
      .def(
          "render",
          [](const std::shared_ptr<ChatTemplate>& self, const nb::dict& given, const nb::dict& own,
             bool trusted, double seconds, int64_t steps, size_t memory_bytes,
             size_t output_chars) {
            return RenderTemplate(self, given, own, trusted, seconds, steps, memory_bytes,
                                  output_chars);
          },
          "given"_a, "own"_a, "trusted"_a, "seconds"_a, "steps"_a, "memory_bytes"_a,
          "output_chars"_a,
          "Returns the prompt and the ranges of it that the template wrote, None for all of it.");
}

}  // namespace mlc_native::bindings
