// mlc_native._core.testing: what tests of the project drive from Python below the engine. Not for
// users.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "arch/model_config.h"
#include "bindings/bindings.h"
#include "mlc_native/model.h"
#include "mlc_native/tokenizer.h"
#include "models/draft_head.h"
#include "models/draft_loader.h"
#include "support/error.h"
#include "support/half.h"
#include "weights/weight_set.h"

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT(build/namespaces)

namespace mlc_native::bindings {
namespace {

// Token ids, position of the first one, block table.
using Sequence = std::tuple<std::vector<int32_t>, int64_t, std::vector<int32_t>>;

struct Batch {
  std::vector<int32_t> token_ids;
  std::vector<SequenceSlice> slices;
  std::vector<int32_t> logits_rows;
  std::vector<RecurrentWrite> writes;  // [slices] of a model with recurrent layers

  Batch(const std::vector<Sequence>& sequences, const std::string& logits) {
    for (const auto& [tokens, position, block_table] : sequences) {
      const auto first_row = static_cast<int32_t>(token_ids.size());
      token_ids.insert(token_ids.end(), tokens.begin(), tokens.end());
      const auto end = static_cast<int32_t>(token_ids.size());
      slices.push_back({first_row, end - first_row, position, block_table});
      for (int32_t row = logits == "all" ? first_row : end - 1; row < end && logits != "none";
           ++row) {
        logits_rows.push_back(row);
      }
    }
  }
};

// The states of recurrent layers: each sequence, known by its first page, has two slots, which it
// reads and writes in turn.
class TwoSlotsPerSequence {
 public:
  static int64_t NumSlots(int64_t num_pages) { return 2 * num_pages; }
  void Place(Batch& batch) {
    batch.writes.resize(batch.slices.size());
    for (size_t i = 0; i < batch.slices.size(); ++i) {
      SequenceSlice& slice = batch.slices[i];
      const int32_t first = slice.block_table.front();
      int32_t& slot = slots_.try_emplace(first, 2 * first).first->second;
      slice.recurrent_slot = slot;
      slot = slot == 2 * first ? 2 * first + 1 : 2 * first;
      batch.writes[i] = {.num_tokens = slice.num_tokens, .slot = slot};
      slice.recurrent_writes = {&batch.writes[i], 1};
    }
  }
  // The sequence whose first page is a copy goes on from the same state.
  void Copy(int32_t from_page, int32_t to_page) {
    if (slots_.contains(from_page)) slots_[to_page] = slots_[from_page];
  }

 private:
  std::unordered_map<int32_t, int32_t> slots_;  // with the last state, by first page
};

using Matrix = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

Matrix ToNumpy(std::unique_ptr<float[]> data, int64_t rows, int64_t columns) {
  float* values = data.get();
  nb::capsule owner(data.release(), [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return Matrix(values, {static_cast<size_t>(rows), static_cast<size_t>(columns)}, owner);
}

// What the codes, scales and shifts of a weight mean.
void DecodeCodes(const WeightSource& weight, int64_t rows, int64_t columns, float* out) {
  const std::optional<CodeForm> form = weight.code_form();
  if (!form || form->is_mxfp4 || form->is_float8) {
    throw std::invalid_argument("the matrix is not stored as integers with scales");
  }
  const int64_t words = form->scale_words();
  std::vector<int8_t> codes(static_cast<size_t>(rows * columns));
  std::vector<uint16_t> scales(static_cast<size_t>(rows * form->num_groups * words));
  weight.ReadCodes(0, rows, codes.data(), scales.data());
  for (int64_t i = 0; i < rows * columns; ++i) {
    const int64_t group = i / columns * form->num_groups + i % columns / form->group;
    const uint16_t* const scale = &scales[static_cast<size_t>(group * words)];
    const float shift = form->is_affine ? Float16ToFloat(scale[1]) : 0;
    out[i] = Float16ToFloat(scale[0]) * (static_cast<float>(codes[static_cast<size_t>(i)]) + shift);
  }
}

Matrix ReadWeight(const std::string& path, const std::string& name, int64_t rows, int64_t columns,
                  bool as_codes) {
  const Checkpoint checkpoint(path);
  const WeightSet weights(checkpoint, ReadModelConfig(path).quantization);
  const int64_t shape[] = {rows, columns};
  auto data = std::make_unique<float[]>(static_cast<size_t>(rows * columns));
  const std::unique_ptr<WeightSource> weight = weights.Open(name, shape);
  weight->Load();
  if (as_codes) {
    DecodeCodes(*weight, rows, columns, data.get());
  } else {
    weight->Decode(0, rows, data.get());
  }
  return ToNumpy(std::move(data), rows, columns);
}

// A model without an engine: the caller plays the page bookkeeping.
class TestModel {
 public:
  TestModel(const std::string& path, const std::string& dtype, int64_t num_threads,
            const std::string& model_lib, const std::string& quantization,
            const std::string& weight_cache_dir, const std::string& kv_cache_dtype,
            std::optional<int64_t> longest_sequence, bool strict_weights) {
    const EngineConfig config = EngineConfig::FromJSONString(
        R"({"kv_cache_dtype": ")" + kv_cache_dtype + R"(", "quantization": )" +
        (quantization.empty() ? "null" : '"' + quantization + '"') + "}");
    ModelSource source;
    source.quantization = config.quantization;
    source.kv_cache_dtype = config.kv_cache_dtype;
    source.path = path;
    source.dtype = dtype;
    source.num_threads = num_threads;
    source.model_lib = model_lib_ = model_lib;
    if (!model_lib.empty()) source.device = "auto";
    source.weight_cache_dir = weight_cache_dir;
    if (longest_sequence) source.longest_sequence = *longest_sequence;
    source.strict_weights = strict_weights;
    const ReleasedGil release;
    model_ = LoadModel(source);
  }

  void Allocate(int64_t num_pages, int64_t max_num_rows, int64_t max_num_logits) {
    has_states_ = model_->metadata().recurrent_bytes_per_slot > 0;
    if (has_states_) model_->AllocateRecurrent(TwoSlotsPerSequence::NumSlots(num_pages));
    model_->Allocate(num_pages, max_num_rows, max_num_logits);
  }

  Matrix Forward(const std::vector<Sequence>& sequences, const std::string& logits) {
    Batch batch(sequences, logits);
    if (has_states_) states_.Place(batch);
    LogitsView view;
    {
      const ReleasedGil release;
      view = model_->Forward({batch.token_ids, batch.slices, batch.logits_rows});
    }
    return CopyLogits(view);
  }

  // Logits of the last rows, and the streams of `rows` (of all without any).
  std::tuple<Matrix, Matrix> ForwardStates(const std::vector<Sequence>& sequences,
                                           const std::vector<int32_t>& streams,
                                           std::vector<int32_t> rows, const std::string& logits) {
    Batch batch(sequences, logits);
    if (has_states_) states_.Place(batch);
    if (rows.empty()) {
      rows.resize(batch.token_ids.size());
      std::iota(rows.begin(), rows.end(), 0);
    }
    const auto columns = std::ssize(streams) * model_->metadata().hidden_size;
    const auto size = static_cast<size_t>(std::ssize(rows) * columns);
    std::vector<int32_t> places(rows.size());
    std::iota(places.begin(), places.end(), 0);
    const auto memory = model_->MakeStateMemory(std::ssize(rows), columns);
    ForwardBatch forward{batch.token_ids, batch.slices, batch.logits_rows};
    forward.hidden = {rows, streams, memory.get(), places};
    Matrix copy = CopyLogits(model_->Forward(forward));
    auto states = std::make_unique<float[]>(size);
    memory->Read(0, {states.get(), size});
    return {copy, ToNumpy(std::move(states), std::ssize(rows), columns)};
  }

  const Model& model() const { return *model_; }
  const std::string& model_lib() const { return model_lib_; }

  void CopyPages(const std::vector<std::tuple<int32_t, int32_t>>& pairs) {
    std::vector<PageCopy> copies;
    for (const auto& [from, to] : pairs) {
      copies.push_back({from, to});
      states_.Copy(from, to);
    }
    model_->CopyPages(copies);
  }

  nb::dict Metadata() const {
    const ModelMetadata& m = model_->metadata();
    nb::dict out;
    out["vocab_size"] = m.vocab_size;
    out["num_layers"] = m.num_layers;
    out["hidden_size"] = m.hidden_size;
    out["context_window_size"] = m.context_window_size;
    out["preferred_prefill_chunk_size"] = m.preferred_prefill_chunk_size;
    out["weight_bytes"] = m.weight_bytes;
    out["mapped_weight_bytes"] = m.mapped_weight_bytes;
    out["expert_weight_bytes"] = m.expert_weight_bytes;
    out["kv_bytes_per_token"] = m.kv_bytes_per_token;
    out["recurrent_bytes_per_slot"] = m.recurrent_bytes_per_slot;
    out["workspace_bytes_per_token"] = m.workspace_bytes_per_token;
    out["workspace_bytes_per_sequence"] = m.workspace_bytes_per_sequence;
    return out;
  }

 private:
  static Matrix CopyLogits(const LogitsView& view) {
    const auto size = static_cast<size_t>(view.num_rows * view.vocab_size);
    auto copy = std::make_unique<float[]>(size);
    if (size > 0) std::memcpy(copy.get(), view.data, size * sizeof(float));
    return ToNumpy(std::move(copy), view.num_rows, view.vocab_size);
  }

  std::string model_lib_;
  std::unique_ptr<Model> model_;
  bool has_states_ = false;  // of recurrent layers
  TwoSlotsPerSequence states_;
};

// A draft head without an engine. The caller plays the page bookkeeping.
class TestDraftHead {
 public:
  // The next tokens, the states [tokens, streams * hidden], the position, the block table.
  using Work = std::tuple<std::vector<int32_t>,
                          nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>,
                          int64_t, std::vector<int32_t>>;

  TestDraftHead(const std::string& path, const TestModel& target, const std::string& quantization) {
    ModelSource source;
    source.path = path;
    if (!quantization.empty()) {
      source.quantization =
          EngineConfig::FromJSONString(R"({"quantization": ")" + quantization + "\"}").quantization;
    }
    source.strict_weights = true;
    source.model_lib = target.model_lib();
    if (!source.model_lib.empty()) source.device = "auto";
    source.target = &target.model();
    head_ = std::make_unique<DraftHead>(LoadModel(source));
  }

  void Allocate(int64_t num_pages, int64_t max_num_rows, int64_t max_num_sequences) {
    head_->Allocate(num_pages, max_num_rows, max_num_sequences);
  }

  std::vector<std::vector<int32_t>> Propose(const std::vector<Work>& work, int64_t length) {
    std::vector<int32_t> places;
    for (const auto& [tokens, states, position, block_table] : work) {
      for (size_t i = 0; i < tokens.size(); ++i) {
        places.push_back(static_cast<int32_t>(places.size()));
      }
    }
    const auto width = static_cast<int64_t>(std::get<1>(work.front()).shape(1));
    const auto memory = head_->model().MakeStateMemory(std::ssize(places), width);
    std::vector<DraftWork> items;
    size_t row = 0;
    for (const auto& [tokens, states, position, block_table] : work) {
      memory->Write(static_cast<int64_t>(row), {states.data(), states.size()});
      const auto rows = std::span(places).subspan(row, tokens.size());
      items.push_back({tokens, rows, position, block_table, length});
      row += tokens.size();
    }
    return head_->Propose(items, *memory);
  }

  std::vector<int32_t> TargetStreams() const { return head_->info().target_streams; }

 private:
  std::unique_ptr<DraftHead> head_;
};

// The engine's encoder.
class TestEncoder {
 public:
  explicit TestEncoder(const std::string& path) {
    std::string reason;
    encoder_ = TextEncoder::FromTokenizerJson(path, *TokenTable::FromTokenizerJson(path), &reason);
    if (encoder_ == nullptr) throw LoadError("tokenizer.json", "not encoded here: " + reason);
  }

  std::optional<std::vector<int32_t>> Encode(nb::bytes text) const {
    std::vector<int32_t> token_ids;
    if (!encoder_->Encode({text.c_str(), text.size()}, &token_ids)) return std::nullopt;
    return token_ids;
  }

 private:
  std::shared_ptr<const TextEncoder> encoder_;
};

}  // namespace

void BindTesting(nb::module_& m) {
  nb::module_ testing = m.def_submodule("testing", "Parts below the engine, for tests only.");
  testing.attr("MODEL_PLUGIN_ABI") = kModelPluginAbi;
  testing.def("read_weight", &ReadWeight, "path"_a, "name"_a, "rows"_a, "columns"_a,
              "as_codes"_a = false,
              "A matrix of a model folder as the loader sees it, whatever form it is stored in; "
              "with as_codes, what the integers and scales mean that kernels take instead. Raises "
              "LoadError, ValueError.");
  nb::class_<TestModel>(testing, "TestModel", "A model without an engine.")
      .def(nb::init<const std::string&, const std::string&, int64_t, const std::string&,
                    const std::string&, const std::string&, const std::string&,
                    std::optional<int64_t>, bool>(),
           "path"_a, "dtype"_a = "auto", "num_threads"_a = 1, "model_lib"_a = "",
           "quantization"_a = "", "weight_cache_dir"_a = "", "kv_cache_dtype"_a = "auto",
           "longest_sequence"_a = nb::none(), "strict_weights"_a = true,
           "Load a model folder. Raises LoadError, InvalidConfig.")
      .def("allocate", &TestModel::Allocate, "num_pages"_a, "max_num_rows"_a, "max_num_logits"_a)
      .def("forward", &TestModel::Forward, "sequences"_a, "logits"_a = "last",
           "One batch of (token_ids, position, block_table). Returns float32 logits [rows, vocab] "
           "of each sequence's last row (logits=\"last\"), of \"all\" rows or of \"none\".")
      .def("copy_pages", &TestModel::CopyPages, "pairs"_a, "pairs: (from, to) page ids.")
      .def("forward_states", &TestModel::ForwardStates, "sequences"_a, "streams"_a,
           "rows"_a = std::vector<int32_t>(), "logits"_a = "last",
           "As forward. Returns also the hidden states float32 [rows, streams * hidden] of these "
           "rows of the batch, of all without any.")
      .def_prop_ro("metadata", &TestModel::Metadata);
  nb::class_<TestDraftHead>(testing, "TestDraftHead", "A draft head without an engine.")
      .def(nb::init<const std::string&, const TestModel&, const std::string&>(), "path"_a,
           "target"_a, "quantization"_a = "",
           "Load the draft head of a folder. Raises LoadError, InvalidConfig.")
      .def("allocate", &TestDraftHead::Allocate, "num_pages"_a, "max_num_rows"_a,
           "max_num_sequences"_a)
      .def("propose", &TestDraftHead::Propose, "work"_a, "length"_a,
           "Drafts of (next tokens, states, position, block_table), one list per sequence.")
      .def_prop_ro("target_streams", &TestDraftHead::TargetStreams);
  nb::class_<TestEncoder>(testing, "TextEncoder", "Texts to tokens, as the engine encodes them.")
      .def(nb::init<const std::string&>(), "path"_a,
           "Read a tokenizer.json. Raises LoadError, also for a kind that is not encoded.")
      .def("encode", &TestEncoder::Encode, "text"_a,
           "Token ids, or None when a byte of the text has no token.");
}

}  // namespace mlc_native::bindings
