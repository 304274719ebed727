#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "bindings/load_progress.h"
#include "mlc_native/engine.h"
#include "mlc_native/tokenizer.h"
#include "observe/event_trace.h"
#include "request/request.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlc_native::bindings {
namespace {

// Holds the only reference to the Python callback, where the garbage collector can see it: a
// callback is usually a method of the object that owns the engine.
struct PyEngine {
  std::unique_ptr<Engine> engine;
  nb::object callback = nb::none();  // by the methods below, while other threads may use it
  mutable nb::ft_mutex mutex;        // guards it where there is no GIL

  nb::object GetCallback() const {
    const nb::ft_lock_guard lock(mutex);
    return callback;
  }
  void SetCallback(nb::object other) {
    const nb::ft_lock_guard lock(mutex);
    std::swap(callback, other);  // the old one is dropped after the lock
  }

  // Waits for threads that may be in the log function.
  ~PyEngine() {
    const ReleasedGil release;
    engine.reset();
  }
};

int TraverseEngine(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  Py_VISIT(nb::inst_ptr<PyEngine>(self)->callback.ptr());
  return 0;
}

int ClearEngine(PyObject* self) {
  nb::inst_ptr<PyEngine>(self)->callback = nb::none();
  return 0;
}

const PyType_Slot kEngineSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&TraverseEngine)},
                                    {Py_tp_clear, reinterpret_cast<void*>(&ClearEngine)},
                                    {0, nullptr}};

std::unique_ptr<PyEngine> CreatePyEngine(const std::string& config_json, std::string device,
                                         nb::object callback,
                                         std::shared_ptr<EventTraceRecorder> trace_recorder,
                                         nb::object progress, nb::object log) {
  auto result = std::make_unique<PyEngine>();
  result->callback = std::move(callback);
  EngineOptions options;
  options.request_stream_callback = [self =
                                         result.get()](std::vector<RequestStreamOutput> outputs) {
    const AcquiredGil gil;
    const nb::object callable = self->GetCallback();
    if (!callable.is_none()) CallWithOutputs(callable, std::move(outputs));
  };
  options.trace_recorder = std::move(trace_recorder);
  options.device = std::move(device);
  options.load_progress = WrapLoadProgress(std::move(progress));
  options.log = WrapLog(std::move(log));
  const ReleasedGil release;
  result->engine = Engine::Create(EngineConfig::FromJSONString(config_json), options);
  return result;
}

}  // namespace

void BindEngine(nb::module_& m) {
  nb::class_<PyEngine>(m, "Engine", nb::type_slots(kEngineSlots),
                       "The single-threaded engine; one thread at a time.")
      .def_static("create", &CreatePyEngine, "config_json"_a, "device"_a, "callback"_a = nb::none(),
                  "trace_recorder"_a = nb::none(), "progress"_a = nb::none(), "log"_a = nb::none(),
                  "Loads the model named in the config. Raises InvalidConfig, LoadError.")
      .def(
          "create_request",
          [](const PyEngine& self, std::string id, const std::vector<int64_t>& token_ids,
             const GenerationConfig& config, bool begins_turn, const std::stop_source* cancellation,
             const PlacedRows& rows) {
            return CreateEngineRequest(*self.engine, std::move(id), token_ids, config, begins_turn,
                                       cancellation, rows);
          },
          "id"_a, "token_ids"_a, "generation_config"_a.lock(), "begins_turn"_a = false,
          "cancellation"_a.none() = nb::none(), "embeddings"_a = PlacedRows(),
          "Validates, and compiles a grammar without the GIL. Raises InvalidRequest, "
          "InvalidConfig.")
      .def(
          "create_embedding_request",
          [](const PyEngine& self, std::string id, const std::vector<int64_t>& token_ids,
             const std::optional<std::string>& pooling, std::optional<int64_t> dimensions,
             std::optional<bool> normalize, const GenerationConfig& service, const PlacedRows& rows,
             bool classify, int64_t second_text) {
            return CreateEngineEmbeddingRequest(*self.engine, std::move(id), token_ids, pooling,
                                                dimensions, normalize, service, rows, classify,
                                                second_text);
          },
          "id"_a, "token_ids"_a, "pooling"_a, "dimensions"_a, "normalize"_a, "service"_a.lock(),
          "embeddings"_a = PlacedRows(), "classify"_a = false, "second_text"_a = 0,
          "A request for the embedding of the tokens, or for the logits of their classes; None is "
          "what the model folder says. Raises "
          "InvalidRequest.")
      .def(
          "add_request",
          [](PyEngine& self, std::shared_ptr<Request> request) {
            self.engine->AddRequest(std::move(request));
          },
          "request"_a, ReleaseGil())
      .def(
          "abort_request",
          [](PyEngine& self, const std::string& id) { self.engine->AbortRequest(id); },
          "request_id"_a, ReleaseGil())
      .def(
          "abort_all_requests", [](PyEngine& self) { self.engine->AbortAllRequests(); },
          ReleaseGil())
      .def(
          "step", [](PyEngine& self) { self.engine->Step(); }, ReleaseGil())
      .def(
          "reset", [](PyEngine& self) { self.engine->Reset(); }, ReleaseGil())
      .def("empty", [](const PyEngine& self) { return self.engine->Empty(); })
      .def(
          "json_metrics", [](const PyEngine& self) { return self.engine->JSONMetrics(); },
          ReleaseGil())
      .def(
          "load_adapter",
          [](PyEngine& self, const std::string& name, const std::string& path) {
            self.engine->LoadAdapter(name, path);
          },
          "name"_a, "path"_a, ReleaseGil(), "Raises InvalidRequest, InvalidConfig, LoadError.")
      .def(
          "unload_adapter",
          [](PyEngine& self, const std::string& name) { self.engine->UnloadAdapter(name); },
          "name"_a, ReleaseGil(), "Raises InvalidRequest.")
      .def("adapters", [](const PyEngine& self) { return self.engine->ListAdapters(); })
      .def(
          "pin_prefix",
          [](PyEngine& self, const std::vector<int64_t>& token_ids) {
            return self.engine->PinPrefix(CheckedTokenIds("prompt", token_ids));
          },
          "token_ids"_a)
      .def(
          "unpin_prefix", [](PyEngine& self, int64_t pin_id) { self.engine->UnpinPrefix(pin_id); },
          "pin_id"_a)
      .def("pinned_prefixes", [](const PyEngine& self) { return self.engine->PinnedPrefixes(); })
      .def(
          "debug_call",
          [](PyEngine& self, const std::string& name) { return self.engine->DebugCall(name); },
          "name"_a, ReleaseGil())
      .def(
          "set_request_stream_callback",
          [](PyEngine& self, nb::object callback) { self.SetCallback(std::move(callback)); },
          "callback"_a.none())
      .def("get_request_stream_callback", [](const PyEngine& self) { return self.GetCallback(); })
      .def("default_generation_config",
           [](const PyEngine& self) {
             return GenerationConfig(self.engine->default_generation_config());
           })
      .def("config_json", [](const PyEngine& self) { return self.engine->config().AsJSONString(); })
      .def("request_limits", [](const PyEngine& self) { return self.engine->request_limits(); })
      .def("token_table", [](const PyEngine& self) {
        return std::const_pointer_cast<TokenTable>(self.engine->token_table());
      });
}

}  // namespace mlc_native::bindings
