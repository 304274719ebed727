// The nanobind module mlc_native._core, with one Bind function per family of classes. Only this
// folder uses Python.
//
// Every call that can block or compute releases the GIL. Callbacks into Python take it once per
// call. Where Python has no GIL, objects that are not immutable are locked by each call.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "bindings/gil.h"
#include "mlc_native/data.h"
#include "mlc_native/detail/log.h"
#include "request/request.h"

namespace mlc_native::bindings {

void BindErrors(nanobind::module_& m);
void BindConfig(nanobind::module_& m);
void BindData(nanobind::module_& m);
void BindTokenizer(nanobind::module_& m);
void BindTemplate(nanobind::module_& m);
void BindEventTrace(nanobind::module_& m);
void BindEngine(nanobind::module_& m);
void BindThreadedEngine(nanobind::module_& m);
void BindPrefixCache(nanobind::module_& m);
void BindCheckpoint(nanobind::module_& m);
void BindTesting(nanobind::module_& m);

// Calls callable(list of outputs) and passes Python's exceptions on. Requires: the GIL is held.
void CallWithOutputs(nanobind::handle callable, std::vector<RequestStreamOutput> outputs);

// A Python callable as the callback of a C++ thread. It may be called and destroyed without the
// GIL, takes the GIL once per call, and does nothing once the interpreter shuts down. After a
// MemoryError it is called again with the same list until it has the memory, so that no request
// loses its end (MemoryReserve). Other exceptions of Python go to sys.unraisablehook.
RequestStreamCallback WrapStreamCallback(nanobind::object callable);
// A Log that calls callable(level, message) with every message that is no info. What it raises is
// reported as unraisable. None: messages go to stderr.
Log WrapLog(nanobind::object callable);

// Converts a Python list of integers to token ids. Throws InvalidRequest, which names `field`, for
// a value that cannot be a token id.
std::vector<int32_t> CheckedTokenIds(const char* field, const std::vector<int64_t>& token_ids);

// The same as the inputs of a request.
std::vector<Data> TokenInputs(const std::vector<int64_t>& token_ids);

// AnyEngine::CreateRequest. Releases the GIL if there is a grammar to compile. The cancellation may
// be null.
template <typename AnyEngine>
std::shared_ptr<Request> CreateEngineRequest(AnyEngine& engine, std::string id,
                                             const std::vector<int64_t>& token_ids,
                                             const GenerationConfig& config, bool begins_turn,
                                             const std::stop_source* cancellation) {
  std::vector<Data> inputs = TokenInputs(token_ids);
  GenerationConfig own_config = config;  // the object may change once the GIL is released
  const std::stop_token stop =
      cancellation != nullptr ? cancellation->get_token() : std::stop_token();
  std::optional<ReleasedGil> release;
  if (own_config.response_format.is_constrained()) release.emplace();
  return std::const_pointer_cast<Request>(engine.CreateRequest(
      std::move(id), std::move(inputs), std::move(own_config), begins_turn, stop));
}

// The same for a request that embeds its tokens; None is what the model folder says.
template <typename AnyEngine>
std::shared_ptr<Request> CreateEngineEmbeddingRequest(AnyEngine& engine, std::string id,
                                                      const std::vector<int64_t>& token_ids,
                                                      const std::optional<std::string>& pooling,
                                                      std::optional<int64_t> dimensions,
                                                      std::optional<bool> normalize,
                                                      const GenerationConfig& service) {
  EmbeddingConfig config{.dimensions = dimensions, .normalize = normalize};
  if (pooling) config.pooling = ParsePooling(*pooling);
  return std::const_pointer_cast<Request>(
      engine.CreateEmbeddingRequest(std::move(id), TokenInputs(token_ids), config, service));
}

}  // namespace mlc_native::bindings
