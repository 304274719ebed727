#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "bindings/bindings.h"
#include "observe/event_trace.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlc_native::bindings {

void BindEventTrace(nb::module_& m) {
  nb::class_<EventTraceRecorder>(m, "EventTraceRecorder",
                                 "Bounded recorder of request events. Thread-safe.")
      .def(nb::init<int64_t>(), "capacity"_a = EventTraceRecorder::kDefaultCapacity)
      .def(
          "add_event",
          [](EventTraceRecorder& self, const std::string& request_id, const std::string& event) {
            self.AddEvent(request_id, event);
          },
          "request_id"_a, "event"_a)
      .def("dump_json", &EventTraceRecorder::DumpJSON, ReleaseGil(), "Chrome trace JSON.")
      .def_prop_ro("num_dropped", &EventTraceRecorder::num_dropped);
}

}  // namespace mlc_native::bindings
