#include "models/weight_loader.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

#include "models/weight_map.h"
#include "models/weight_source.h"
#include "support/check.h"
#include "support/error.h"
#include "support/half.h"

namespace mlc_native {
namespace {

constexpr int64_t kBlockBytes = 8 << 20;  // of a weight, mapped or decoded at a time
constexpr size_t kMaxNamesInError = 8;

// Buffers that old checkpoints carry and nobody needs.
bool IsDerivedBuffer(const std::string& name) { return name.ends_with("rotary_emb.inv_freq"); }

bool SameBytes(const Checkpoint::Entry& a, const Checkpoint::Entry& b) {
  const auto x = a.tensor->data;
  const auto y = b.tensor->data;
  if (x.size() != y.size() || a.tensor->dtype_name != b.tensor->dtype_name) return false;
  for (size_t at = 0; at < x.size(); at += kBlockBytes) {
    const size_t bytes = std::min<size_t>(kBlockBytes, x.size() - at);
    const bool same = std::memcmp(x.data() + at, y.data() + at, bytes) == 0;
    a.file->file.Drop(x.subspan(at, bytes));
    b.file->file.Drop(y.subspan(at, bytes));
    if (!same) return false;
  }
  return true;
}

// Whether both are stored as plain tensors, with the same content.
bool SameTensor(const Checkpoint& checkpoint, const std::string& a, const std::string& b) {
  const Checkpoint::Entry* x = checkpoint.Find(a);
  const Checkpoint::Entry* y = checkpoint.Find(b);
  return x != nullptr && y != nullptr && SameBytes(*x, *y);
}

// Which spelling of the names this checkpoint uses: with or without the outer module's prefix.
WeightNames FindNames(const ModelConfig& config, const WeightSet& weights) {
  const char* prefixes[] = {"model.", "", "language_model.model.", "model.language_model."};
  WeightNames names{.prefix = prefixes[0], .head = ""};
  for (const char* prefix : prefixes) {
    if (!weights.Has(std::string(prefix) + "embed_tokens.weight")) continue;
    names.prefix = prefix;
    break;
  }
  const char* heads[] = {"lm_head.weight", "language_model.lm_head.weight"};
  const char* head = heads[weights.Has(heads[1]) ? 1 : 0];
  // A head that is stored although it is tied counts only when it differs, as in transformers 5.
  const bool tied = config.tie_word_embeddings &&
                    (!weights.Has(head) ||
                     SameTensor(weights.checkpoint(), head, names.prefix + "embed_tokens.weight"));
  if (!tied) names.head = head;
  return names;
}

std::string JoinNames(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kMaxNamesInError); ++i) {
    out += (i > 0 ? ", " : "") + names[i];
  }
  if (names.size() > kMaxNamesInError) {
    out += " and " + std::to_string(names.size() - kMaxNamesInError) + " more";
  }
  return out;
}

void CheckMissing(const ModelConfig& config, const WeightSet& weights, const WeightMap& map) {
  std::vector<std::string> missing;
  for (const WeightSlot& slot : map.slots) {
    if (!weights.Has(slot.name)) missing.push_back(slot.name);
  }
  if (missing.empty()) return;
  throw LoadError(missing[0], "the checkpoint lacks tensors of " +
                                  std::string(config.arch->architecture) + ": " +
                                  JoinNames(missing));
}

using Sources = std::vector<std::unique_ptr<WeightSource>>;  // of the slots

void CheckUnused(const ModelConfig& config, const WeightSet& weights, const Sources& sources) {
  std::set<const TensorInfo*> used;
  for (const auto& source : sources) {
    for (const Checkpoint::Entry* part : source->parts()) used.insert(part->tensor);
  }
  std::vector<std::string> unused;
  for (const Checkpoint::Entry& entry : weights.checkpoint().entries()) {
    const std::string& name = entry.tensor->name;
    const auto& ignored = config.arch->ignored_prefixes;
    const bool known =
        used.contains(entry.tensor) || IsDerivedBuffer(name) || weights.IsEmptyBias(entry) ||
        (config.tie_word_embeddings && name.ends_with("lm_head.weight")) ||
        std::any_of(ignored.begin(), ignored.end(),
                    [&](std::string_view prefix) { return name.starts_with(prefix); });
    if (!known) unused.push_back(name);
  }
  if (unused.empty()) return;
  throw LoadError(unused[0], "the checkpoint has tensors that " +
                                 std::string(config.arch->architecture) +
                                 " does not use: " + JoinNames(unused));
}

class Loader {
 public:
  Loader(const ModelConfig& config, const Sources& sources, const WeightLoadOptions& options,
         const WeightMap& map)
      : config_(config), sources_(sources), options_(options), map_(map) {}

  DecoderWeights Load() {
    weights_.dtype = ChooseDType();
    Allocate();
    std::vector<size_t> order(sources_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto start = [&](size_t slot) {
      return sources_[slot]->parts().front()->tensor->data.data();
    };
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return start(a) < start(b); });
    for (const auto& source : sources_) total_ += source->stored_bytes();
    for (size_t slot : order) Fill(map_.slots[slot], *sources_[slot]);
    for (size_t i = 0; i < map_.parameters.size(); ++i) {
      MLC_CHECK(filled_[i] == map_.parameters[i].rows)
          << "parameter " << i << ": " << filled_[i] << " of " << map_.parameters[i].rows;
    }
    return View();
  }

 private:
  DType ChooseDType() const {
    if (options_.dtype) return *options_.dtype;
    if (config_.dtype) return *config_.dtype;
    return sources_.front()->dtype();
  }

  kernels::WeightFormat Format(size_t parameter) const {
    switch (options_.quantization) {
      case WeightQuantization::kNone:
        break;
      case WeightQuantization::kQ8:
        return kernels::WeightFormat::kQ8;
      case WeightQuantization::kQ4:
        return map_.IsSensitive(parameter) ? kernels::WeightFormat::kQ8
                                           : kernels::WeightFormat::kQ4;
    }
    return kernels::FormatOf(weights_.dtype);
  }

  size_t Bytes(size_t parameter) const {
    const Parameter& p = map_.parameters[parameter];
    switch (p.form) {
      case ParameterForm::kPacked:
        return kernels::PackedLinearBytes(*options_.cpu.isa, Format(parameter), p.rows, p.columns);
      case ParameterForm::kTable:
        return static_cast<size_t>(p.rows * p.columns) * DTypeSize(weights_.dtype);
      case ParameterForm::kVector:
        return static_cast<size_t>(p.rows) * sizeof(float);
    }
    return 0;
  }

  void Allocate() {
    constexpr size_t kAlign = kernels::kPackedAlignment;
    size_t end = 0;
    for (size_t i = 0; i < map_.parameters.size(); ++i) {
      offsets_.push_back(end);
      end += (Bytes(i) + kAlign - 1) / kAlign * kAlign;
    }
    weights_.storage = TensorStorage(end, "the model's weights");
    filled_.resize(map_.parameters.size());
  }

  std::byte* Data(size_t parameter) const { return weights_.storage.data() + offsets_[parameter]; }

  kernels::PackedLinear Packed(size_t parameter) const {
    const Parameter& p = map_.parameters[parameter];
    return kernels::MakePackedLinear(*options_.cpu.isa, Format(parameter), p.rows, p.columns,
                                     Data(parameter));
  }

  // Block by block, so that little of the file is mapped in at any time.
  void Fill(const WeightSlot& slot, const WeightSource& source) {
    const Parameter& p = map_.parameters[slot.parameter];
    const int64_t rows = slot.shape[0];
    const int64_t done = done_;
    const bool stored = source.StoredRows(0) != nullptr;
    const size_t element = stored ? DTypeSize(source.dtype()) : sizeof(float);
    const int64_t row_bytes = p.columns * static_cast<int64_t>(element);
    // Blocks end on panels, so that threads and blocks never share one.
    const int64_t panel = p.form == ParameterForm::kPacked ? Packed(slot.parameter).panel_width : 1;
    const int64_t step = std::max<int64_t>(kBlockBytes / row_bytes / panel, 1) * panel;
    for (int64_t row = 0; row < rows; row += step) {
      const int64_t end = std::min(rows, row + step);
      FillRows(slot.parameter, slot.row_offset + row,
               stored ? StoredBlock(source, row, end, p.columns)
                      : DecodedBlock(source, row, end, p.columns));
      source.Drop(row, end);
      done_ = done + source.stored_bytes() * end / rows;
      if (options_.progress) options_.progress(done_, total_);
    }
    filled_[slot.parameter] += rows;
  }

  // A file may put its data anywhere; the kernels read whole elements.
  kernels::PackSource StoredBlock(const WeightSource& source, int64_t begin, int64_t end,
                                  int64_t columns) {
    const std::byte* rows = source.StoredRows(begin);
    const size_t element = DTypeSize(source.dtype());
    if (reinterpret_cast<uintptr_t>(rows) % element != 0) {
      block_.assign(rows, rows + static_cast<size_t>((end - begin) * columns) * element);
      rows = block_.data();
    }
    return {.dtype = source.dtype(), .data = rows, .ld = columns, .rows = end - begin};
  }

  // Threads split the rows.
  kernels::PackSource DecodedBlock(const WeightSource& source, int64_t begin, int64_t end,
                                   int64_t columns) {
    block_.resize(static_cast<size_t>((end - begin) * columns) * sizeof(float));
    auto* floats = reinterpret_cast<float*>(block_.data());
    options_.cpu.pool->ParallelFor(end - begin, [&](int64_t from, int64_t to, int) {
      source.Decode(begin + from, begin + to, floats + from * columns);
    });
    return {.dtype = DType::kFloat32, .data = floats, .ld = columns, .rows = end - begin};
  }

  void FillRows(size_t parameter, int64_t row_offset, const kernels::PackSource& source) {
    const Parameter& p = map_.parameters[parameter];
    switch (p.form) {
      case ParameterForm::kPacked:
        return Pack(Packed(parameter), row_offset, source);
      case ParameterForm::kTable:
        return Copy(Data(parameter), row_offset * p.columns, source, p.columns);
      case ParameterForm::kVector:
        return Widen(reinterpret_cast<float*>(Data(parameter)) + row_offset, source);
    }
  }

  // Threads split the panels.
  void Pack(const kernels::PackedLinear& packed, int64_t row_offset,
            const kernels::PackSource& source) {
    const int64_t width = packed.panel_width;
    const int64_t first = row_offset / width;
    const int64_t end_row = row_offset + source.rows;
    const int64_t panels = (end_row + width - 1) / width - first;
    const auto element = static_cast<int64_t>(DTypeSize(source.dtype));
    options_.cpu.pool->ParallelFor(panels, [&](int64_t begin, int64_t end, int) {
      const int64_t from = std::max((first + begin) * width, row_offset);
      const int64_t to = std::min((first + end) * width, end_row);
      kernels::PackSource part = source;
      part.data =
          static_cast<const std::byte*>(source.data) + (from - row_offset) * source.ld * element;
      part.rows = to - from;
      kernels::PackLinear(packed, from, part);
    });
  }

  void Copy(std::byte* table, int64_t first_element, const kernels::PackSource& source,
            int64_t columns) {
    const int64_t elements = source.rows * columns;
    if (source.dtype == weights_.dtype) {
      const size_t size = DTypeSize(source.dtype);
      std::memcpy(table + static_cast<size_t>(first_element) * size, source.data,
                  static_cast<size_t>(elements) * size);
      return;
    }
    options_.cpu.pool->ParallelFor(elements, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        StoreElement(weights_.dtype, table, first_element + i,
                     LoadElement(source.dtype, source.data, i));
      }
    });
  }

  // To float32, but with the precision of the weights' type.
  void Widen(float* out, const kernels::PackSource& source) {
    for (int64_t i = 0; i < source.rows; ++i) {
      StoreElement(weights_.dtype, &out[i], 0, LoadElement(source.dtype, source.data, i));
      out[i] = LoadElement(weights_.dtype, &out[i], 0);
    }
  }

  DecoderWeights View() {
    const auto vector = [&](size_t p) { return reinterpret_cast<const float*>(Data(p)); };
    for (const LayerParameters& layer : map_.layers) {
      LayerWeights& out = weights_.layers.emplace_back();
      for (size_t m = 0; m < kNumMatrices; ++m) out.matrices[m] = Packed(layer.matrices[m]);
      for (size_t v = 0; v < kNumVectors; ++v) {
        if (layer.vectors[v] != LayerParameters::kAbsent) out.vectors[v] = vector(layer.vectors[v]);
      }
    }
    weights_.final_norm = vector(map_.final_norm);
    weights_.head = Packed(map_.head);
    if (map_.embeddings != LayerParameters::kAbsent) {
      weights_.embeddings = {.dtype = weights_.dtype,
                             .data = Data(map_.embeddings),
                             .n = config_.vocab_size,
                             .k = config_.hidden_size,
                             .ld = config_.hidden_size};
    }
    return std::move(weights_);
  }

  const ModelConfig& config_;
  const Sources& sources_;
  const WeightLoadOptions& options_;
  const WeightMap& map_;
  DecoderWeights weights_;
  std::vector<size_t> offsets_;   // of the parameters in the storage
  std::vector<int64_t> filled_;   // rows of the parameters
  std::vector<std::byte> block_;  // realigned or decoded rows
  int64_t done_ = 0;              // bytes of the checkpoint
  int64_t total_ = 0;
};

}  // namespace

DecoderWeights LoadWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                           const WeightLoadOptions& options) {
  const WeightSet weights(checkpoint, config.quantization);
  const WeightMap map = MakeWeightMap(config, FindNames(config, weights));
  CheckMissing(config, weights, map);
  Sources sources;
  for (const WeightSlot& slot : map.slots) {
    sources.push_back(weights.Open(slot.name, slot.shape));
  }
  CheckUnused(config, weights, sources);
  return Loader(config, sources, options, map).Load();
}

}  // namespace mlc_native
