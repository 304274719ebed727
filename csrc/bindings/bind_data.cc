#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <bit>
#include <memory>
#include <new>
#include <stop_token>

#include "bindings/bindings.h"
#include "bindings/merge_outputs.h"
#include "mlc_native/data.h"
#include "observe/metrics.h"
#include "request/request.h"
#include "support/error.h"
#include "support/memory_reserve.h"
#include "tokenizer/logprob_json.h"

namespace nb = nanobind;

namespace mlc_native::bindings {
namespace {

// Copies of the rows, and the position where they begin.
constexpr auto RowsOf = []<typename... More>(const std::tuple<int64_t, RowArray, More...>& placed) {
  const RowArray& array = std::get<1>(placed);
  EmbeddingData data{.num_rows = static_cast<int64_t>(array.shape(0)),
                     .values = std::make_shared<const std::vector<float>>(
                         array.data(), array.data() + array.shape(0) * array.shape(1))};
  if constexpr (sizeof...(More) > 0) {
    const PositionArray& positions = std::get<2>(placed);
    for (size_t i = 0; i < positions.shape(0); ++i) {
      data.positions.push_back({positions(i, 0), positions(i, 1), positions(i, 2)});
    }
    data.advance = std::get<3>(placed);
  }
  return std::pair(std::get<0>(placed), std::move(data));
};

// Drops the reference under the GIL; leaks it when the interpreter is gone.
struct DeleteWithGil {
  void operator()(nb::object* callable) const {
    if (!nb::is_alive()) return;
    const AcquiredGil gil;
    delete callable;
  }
};

// A copy of the rows: those of the request must not change.
nb::object CopyOfRows(const EmbeddingData& data) {
  auto* const values = new std::vector<float>(*data.values);
  nb::capsule owner(values, [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  const auto num_rows = static_cast<size_t>(data.num_rows);
  return nb::cast(nb::ndarray<nb::numpy, float, nb::ndim<2>>(
      values->data(), {num_rows, values->size() / num_rows}, owner));
}

nb::list PiecesOf(const Request& request) {
  nb::list pieces;
  for (const Data& data : request.inputs) {
    if (const auto* tokens = std::get_if<TokenData>(&data)) {
      pieces.append(tokens->token_ids);
    } else if (const auto* rows = std::get_if<EmbeddingData>(&data)) {
      pieces.append(CopyOfRows(*rows));
    }
  }
  return pieces;
}

std::vector<std::string> LogprobJsonStrs(const std::vector<SampleResult>& results,
                                         const TokenTable* token_table) {
  std::vector<std::string> strs;
  strs.reserve(results.size());
  for (const SampleResult& result : results) strs.push_back(LogprobJson(result, token_table));
  return strs;
}

std::vector<std::string> DeltaLogprobs(const SequenceDelta& delta) {
  return LogprobJsonStrs(delta.logprobs, delta.token_table.get());
}

std::optional<std::vector<std::string>> ScoredPrompt(const RequestStreamOutput& output) {
  if (!output.prompt_logprobs) return std::nullopt;
  const auto& [tokens, token_table] = *output.prompt_logprobs;
  return LogprobJsonStrs(tokens, token_table.get());
}

// Float32 of the machine, which is little-endian.
nb::object EmbeddingBytes(const RequestStreamOutput& output) {
  static_assert(std::endian::native == std::endian::little);
  if (output.embedding.empty()) return nb::none();
  return nb::bytes(output.embedding.data(), output.embedding.size() * sizeof(float));
}

std::optional<std::string> FinalUsageJson(const RequestStreamOutput& output) {
  if (!output.usage) return std::nullopt;
  return UsageJSONString(*output.usage);
}

// (text, token_ids, logprob_json_strs or None, finish_reason or None) of each sequence.
nb::list UnpackDeltas(const RequestStreamOutput& output) {
  nb::list deltas;
  for (const SequenceDelta& delta : output.group) {
    nb::object text = delta.extra_prefix_string.empty()
                          ? nb::cast(delta.text)
                          : nb::cast(delta.extra_prefix_string + delta.text);
    nb::object logprobs = delta.logprobs.empty() ? nb::none() : nb::cast(DeltaLogprobs(delta));
    nb::object reason = delta.finish_reason ? nb::cast(ToString(*delta.finish_reason)) : nb::none();
    deltas.append(nb::make_tuple(std::move(text), nb::cast(delta.token_ids), std::move(logprobs),
                                 std::move(reason)));
  }
  return deltas;
}

std::optional<std::string> FinishReasonName(const SequenceDelta& delta) {
  if (!delta.finish_reason) return std::nullopt;
  return ToString(*delta.finish_reason);
}

// A list of `size` places without objects. Throws python_error.
nb::object NewList(size_t size) {
  PyObject* const list = PyList_New(static_cast<Py_ssize_t>(size));
  if (list == nullptr) throw nb::python_error();
  return nb::steal(list);
}

}  // namespace

void CallWithOutputs(nb::handle callable, std::vector<RequestStreamOutput> outputs) {
  nb::list list;
  for (RequestStreamOutput& output : outputs) list.append(nb::cast(std::move(output)));
  callable(list);
}

RequestStreamCallback WrapStreamCallback(nb::object callable) {
  struct State {
    std::unique_ptr<nb::object, DeleteWithGil> callable;
    MemoryReserve reserve;
  };
  const auto state = std::make_shared<State>();
  state->callable.reset(new nb::object(std::move(callable)));
  return [state](std::vector<RequestStreamOutput> outputs) {
    if (!nb::is_alive()) return;
    outputs = MergeOutputs(std::move(outputs));
    state->reserve.Refill();
    std::unique_ptr<nb::object, DeleteWithGil> list;
    size_t num_made = 0;
    state->reserve.Run([&] {
      if (!nb::is_alive()) return;
      const AcquiredGil gil;
      try {
        if (list == nullptr) list.reset(new nb::object(NewList(outputs.size())));
        for (; num_made < outputs.size(); ++num_made) {
          nb::object output = nb::cast(std::move(outputs[num_made]));
          PyList_SetItem(list->ptr(), static_cast<Py_ssize_t>(num_made), output.release().ptr());
        }
        (*state->callable)(*list);
      } catch (nb::python_error& error) {
        if (error.matches(PyExc_MemoryError)) throw std::bad_alloc();
        error.restore();
        PyErr_WriteUnraisable(state->callable->ptr());
      }
      list.reset();  // while the GIL is held
    });
  };
}

Log WrapLog(nb::object callable) {
  if (callable.is_none()) return {};
  std::shared_ptr<nb::object> shared(new nb::object(std::move(callable)), DeleteWithGil());
  return {.function = [shared](LogLevel level, std::string_view message) {
    if (!nb::is_alive()) return;
    const AcquiredGil gil;
    try {
      // A message may quote any bytes.
      const auto text = nb::steal<nb::str>(PyUnicode_DecodeUTF8(
          message.data(), static_cast<Py_ssize_t>(message.size()), "backslashreplace"));
      (*shared)(static_cast<int32_t>(level), text);
    } catch (nb::python_error& error) {
      error.restore();
      PyErr_WriteUnraisable(shared->ptr());
    }
  }};
}

std::vector<int32_t> CheckedTokenIds(const char* field, const std::vector<int64_t>& token_ids) {
  std::vector<int32_t> checked;
  checked.reserve(token_ids.size());
  for (int64_t id : token_ids) checked.push_back(CheckedTokenId(field, id));
  return checked;
}

std::vector<Data> RequestInputs(const std::vector<int64_t>& token_ids, const PlacedRows& rows) {
  std::vector<Data> inputs;
  const auto add_tokens = [&](size_t begin, size_t end) {
    if (begin == end && !rows.empty()) return;
    TokenData& tokens = std::get<TokenData>(inputs.emplace_back(TokenData()));
    tokens.token_ids.reserve(end - begin);
    for (size_t i = begin; i < end; ++i) {
      tokens.token_ids.push_back(CheckedTokenId("prompt", token_ids[i]));
    }
  };
  size_t end = 0;  // of what has been added
  for (const auto& placed : rows) {
    const auto [at, data] = std::visit(RowsOf, placed);
    const auto begin = static_cast<size_t>(at);
    const auto num_rows = static_cast<size_t>(data.num_rows);
    if (at < 0 || begin < end || begin > token_ids.size() || num_rows > token_ids.size() - begin) {
      throw InvalidRequest(
          "embeddings", "Rows must take the places of tokens of the prompt, one after another: " +
                            std::to_string(num_rows) + " rows from " + std::to_string(at) +
                            " on of " + std::to_string(token_ids.size()) + " tokens");
    }
    add_tokens(end, begin);
    inputs.emplace_back(data);
    end = begin + num_rows;
  }
  add_tokens(end, token_ids.size());
  return inputs;
}

void BindData(nb::module_& m) {
  nb::class_<Request>(m, "Request", "A validated request. Immutable.")
      .def_ro("id", &Request::id)
      .def_prop_ro("inputs", &PiecesOf, nb::sig("def inputs(self) -> list"),
                   "Lists of token ids, and arrays [n, hidden_size] of rows in place of tokens.")
      .def_prop_ro("generation_config",
                   [](const Request& self) { return GenerationConfig(self.generation_cfg); })
      .def_prop_ro("prompt_len", &Request::prompt_len);

  nb::class_<std::stop_source>(m, "Cancellation",
                               "Lets any thread give up a create_request that compiles a grammar.")
      .def(nb::init<>())
      .def(
          "cancel", [](std::stop_source& self) { self.request_stop(); }, ReleaseGil(),
          "From now on the request, or a later one, ends with \"abort\" as soon as it is added.")
      .def_prop_ro("cancelled", [](const std::stop_source& self) { return self.stop_requested(); });

  nb::class_<SequenceDelta>(m, "SequenceDelta", "What one sequence of a request has new.")
      .def_ro("token_ids", &SequenceDelta::token_ids)
      .def_ro("text", &SequenceDelta::text)
      .def_prop_ro("logprob_json_strs", &DeltaLogprobs)
      .def_prop_ro("finish_reason", &FinishReasonName,
                   "\"stop\", \"length\", \"abort\", \"error\", \"timeout\" or None.")
      .def_ro("extra_prefix_string", &SequenceDelta::extra_prefix_string);

  nb::class_<RequestStreamOutput>(m, "RequestStreamOutput",
                                  "The new output of one request; the last one has is_final set.")
      .def_ro("request_id", &RequestStreamOutput::request_id)
      .def_ro("group", &RequestStreamOutput::group, "One SequenceDelta per sequence, or empty.")
      .def_prop_ro(
          "has_prompt_results",
          [](const RequestStreamOutput& self) {
            return self.prompt_logprobs.has_value() || !self.embedding.empty();
          },
          "Whether it has a scored prompt or an embedding.")
      .def_prop_ro("embedding", &EmbeddingBytes, nb::sig("def embedding(self) -> bytes | None"),
                   "Of a request that embeds its tokens: float32, little-endian. Else None.")
      .def_prop_ro("has_scored_prompt",
                   [](const RequestStreamOutput& self) { return self.prompt_logprobs.has_value(); })
      .def_prop_ro(
          "scored_prompt", &ScoredPrompt, ReleaseGil(),
          "One JSON object per token of the prompt, with its log-probability and those of "
          "its alternatives. The first token has none: its \"logprob\" means nothing. None "
          "except in the first output of a request with prompt_logprobs. Made on each "
          "access, without the GIL.")
      .def_prop_ro("request_final_usage_json_str", &FinalUsageJson)
      .def_ro("error_message", &RequestStreamOutput::error_message)
      .def_prop_ro("is_final", &RequestStreamOutput::is_final)
      .def("unpack_deltas", &UnpackDeltas,
           "All of `group` in one call: (text with its extra prefix, token_ids, logprob_json_strs "
           "or None, finish_reason or None) per sequence.");
}

}  // namespace mlc_native::bindings
