// The nanobind module mlc_native._core, with one Bind function per family of classes. Only this
// folder uses Python.
//
// Every call that can block or compute releases the GIL. Callbacks into Python take it once per
// call. Where Python has no GIL, objects that are not immutable are locked by each call.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
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

// Rows in place of the tokens of a prompt from a position on: [num_rows, input_size].
using RowArray = nanobind::ndarray<const float, nanobind::ndim<2>, nanobind::c_contig,
                                   nanobind::device::cpu, nanobind::ro>;
// Of each row, EmbeddingData::positions: [num_rows, 3].
using PositionArray = nanobind::ndarray<const int32_t, nanobind::shape<-1, 3>, nanobind::c_contig,
                                        nanobind::device::cpu, nanobind::ro>;
// With the position; with positions and an advance of their own, too.
using PlacedRows = std::vector<std::variant<std::tuple<int64_t, RowArray>,
                                            std::tuple<int64_t, RowArray, PositionArray, int64_t>>>;

// The inputs of a request: tokens, and copies of the rows. Needs no GIL. Throws InvalidRequest for
// rows that are not ascending places of the prompt, and for what cannot be a token id elsewhere.
std::vector<Data> RequestInputs(const std::vector<int64_t>& token_ids, const PlacedRows& rows);

// AnyEngine::CreateRequest. Releases the GIL if there are rows to copy or a grammar to compile. The
// cancellation may be null.
template <typename AnyEngine>
std::shared_ptr<Request> CreateEngineRequest(AnyEngine& engine, std::string id,
                                             const std::vector<int64_t>& token_ids,
                                             const GenerationConfig& config, bool begins_turn,
                                             const std::stop_source* cancellation,
                                             const PlacedRows& rows) {
  GenerationConfig own_config = config;  // the object may change once the GIL is released
  const std::stop_token stop =
      cancellation != nullptr ? cancellation->get_token() : std::stop_token();
  std::optional<ReleasedGil> release;
  if (!rows.empty() || own_config.response_format.is_constrained()) release.emplace();
  return std::const_pointer_cast<Request>(engine.CreateRequest(
      std::move(id), RequestInputs(token_ids, rows), std::move(own_config), begins_turn, stop));
}

// The same for a request that embeds its tokens, or classifies them; None is what the model folder
// says.
template <typename AnyEngine>
std::shared_ptr<Request> CreateEngineEmbeddingRequest(
    AnyEngine& engine, std::string id, const std::vector<int64_t>& token_ids,
    const std::optional<std::string>& pooling, std::optional<int64_t> dimensions,
    std::optional<bool> normalize, const GenerationConfig& service, const PlacedRows& rows,
    bool classify, int64_t second_text) {
  EmbeddingConfig config{.dimensions = dimensions,
                         .normalize = normalize,
                         .classify = classify,
                         .second_text = second_text};
  if (pooling) config.pooling = ParsePooling(*pooling);
  std::optional<ReleasedGil> release;
  if (!rows.empty()) release.emplace();
  return std::const_pointer_cast<Request>(engine.CreateEmbeddingRequest(
      std::move(id), RequestInputs(token_ids, rows), config, service));
}

}  // namespace mlc_native::bindings
