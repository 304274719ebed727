#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "bindings/load_progress.h"
#include "mlc_native/threaded_engine.h"
#include "mlc_native/tokenizer.h"
#include "observe/event_trace.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mlc_native::bindings {
namespace {

void Init(ThreadedEngine& self, std::string device, nb::object callback,
          std::shared_ptr<EventTraceRecorder> trace_recorder, nb::object log) {
  self.InitThreadedEngine(std::move(device), WrapStreamCallback(std::move(callback)),
                          std::move(trace_recorder), WrapLog(std::move(log)));
}

void Reload(ThreadedEngine& self, const std::string& config_json, nb::object progress) {
  LoadProgress load_progress = WrapLoadProgress(std::move(progress));
  const ReleasedGil release;
  self.Reload(config_json, std::move(load_progress));
}

}  // namespace

LoadProgress WrapLoadProgress(nb::object callable) {
  if (callable.is_none()) return {};
  // The loading call keeps `callable` alive through its arguments, so no reference is dropped
  // without the GIL.
  nb::handle handle = callable;
  return [handle](int64_t done, int64_t total) {
    if (!nb::is_alive()) return;
    const AcquiredGil gil;
    handle(done, total);
  };
}

void BindThreadedEngine(nb::module_& m) {
  nb::class_<ThreadedEngine>(m, "ThreadedEngine", "The engine behind its two loops. Thread-safe.")
      .def(nb::new_([] { return ThreadedEngine::Create(); }))
      .def("init_threaded_engine", &Init, "device"_a, "callback"_a, "trace_recorder"_a = nb::none(),
           "log"_a = nb::none())
      .def("run_background_loop", &ThreadedEngine::RunBackgroundLoop, ReleaseGil())
      .def("run_background_stream_back_loop", &ThreadedEngine::RunBackgroundStreamBackLoop,
           ReleaseGil())
      .def("exit_background_loop", &ThreadedEngine::ExitBackgroundLoop, ReleaseGil())
      .def("reload", &Reload, "engine_config_json"_a, "progress"_a = nb::none(),
           "Blocks until the model is loaded. Raises InvalidConfig, LoadError.")
      .def("unload", &ThreadedEngine::Unload, ReleaseGil())
      .def("reset", &ThreadedEngine::Reset, ReleaseGil())
      .def("create_request", &CreateEngineRequest<ThreadedEngine>, "id"_a, "token_ids"_a,
           "generation_config"_a.lock(), "begins_turn"_a = false,
           "cancellation"_a.none() = nb::none(), "embeddings"_a = PlacedRows(),
           "Validates against the loaded model, and compiles a grammar without the GIL. Raises "
           "InvalidRequest, InvalidConfig.")
      .def("create_embedding_request", &CreateEngineEmbeddingRequest<ThreadedEngine>, "id"_a,
           "token_ids"_a, "pooling"_a, "dimensions"_a, "normalize"_a, "service"_a.lock(),
           "embeddings"_a = PlacedRows(), "classify"_a = false, "second_text"_a = 0,
           "A request for the embedding of the tokens, or for the logits of their classes; None is "
           "what the model folder says. Raises "
           "InvalidRequest.")
      .def(
          "add_request",
          [](ThreadedEngine& self, std::shared_ptr<Request> request) {
            self.AddRequest(std::move(request));
          },
          "request"_a, ReleaseGil())
      .def("abort_request", &ThreadedEngine::AbortRequest, "request_id"_a, ReleaseGil())
      .def("abort_all_requests", &ThreadedEngine::AbortAllRequests, ReleaseGil())
      .def("get_default_generation_config", &ThreadedEngine::GetDefaultGenerationConfig)
      .def("get_complete_engine_config",
           [](const ThreadedEngine& self) { return self.GetCompleteEngineConfig().AsJSONString(); })
      .def("get_request_limits", &ThreadedEngine::GetRequestLimits)
      .def("get_token_table",
           [](const ThreadedEngine& self) {
             return std::const_pointer_cast<TokenTable>(self.GetTokenTable());
           })
      .def("json_metrics", &ThreadedEngine::JSONMetrics, ReleaseGil())
      .def(
          "load_adapter",
          [](ThreadedEngine& self, const std::string& name, const std::string& path) {
            self.LoadAdapter(name, path);
          },
          "name"_a, "path"_a, ReleaseGil(), "Raises InvalidRequest, InvalidConfig, LoadError.")
      .def(
          "unload_adapter",
          [](ThreadedEngine& self, const std::string& name) { self.UnloadAdapter(name); }, "name"_a,
          ReleaseGil(), "Raises InvalidRequest.")
      .def("adapters", [](const ThreadedEngine& self) { return self.ListAdapters(); })
      .def(
          "pin_prefix",
          [](ThreadedEngine& self, const std::vector<int64_t>& token_ids) {
            const std::vector<int32_t> checked = CheckedTokenIds("prompt", token_ids);
            const ReleasedGil release;
            return self.Call([&](Engine& engine) { return engine.PinPrefix(checked); });
          },
          "token_ids"_a)
      .def(
          "unpin_prefix",
          [](ThreadedEngine& self, int64_t pin_id) {
            self.Call([=](Engine& engine) { engine.UnpinPrefix(pin_id); });
          },
          "pin_id"_a, ReleaseGil())
      .def(
          "pinned_prefixes",
          [](ThreadedEngine& self) {
            return self.Call([](Engine& engine) { return engine.PinnedPrefixes(); });
          },
          ReleaseGil())
      .def("debug_call_func_on_all_worker", &ThreadedEngine::DebugCallFuncOnAllAllWorker, "name"_a,
           ReleaseGil());
}

}  // namespace mlc_native::bindings
