#include "weights/budget_formats.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "kernels/packed_format.h"

namespace mlc_native {
namespace {

constexpr LinearRole kOfAttention[] = {LinearRole::kOut, LinearRole::kQkv,
                                       LinearRole::kQueryUp};  // and IsOfHeads
constexpr LinearRole kOfFeedForward[] = {LinearRole::kSharedDown, LinearRole::kDown,
                                         LinearRole::kSharedGateUp, LinearRole::kGateUp};

using Units = std::vector<Widening>;

int64_t SizeOf(const Units& units) {
  int64_t size = 0;
  for (const Widening& unit : units) size += unit.size;
  return size;
}

// What is widened together, in three lists that have every matrix once.
class AllUnits {
 public:
  explicit AllUnits(const WeightMap& map) : map_(map), is_taken_(map.parameters.size(), false) {
    const auto count = std::ssize(map_.layers);
    const int64_t first = std::min<int64_t>(count, 1);
    Add({map_.head}, &sensitive);
    Units layer;
    for (const LinearRole role : kOfAttention) AddRole(role, 0, first, &layer);
    AddTogether(IsOfHeads, 0, first, &layer);
    for (const LinearRole role : kOfFeedForward) AddRole(role, 0, first, &layer);
    AddTogether(IsOfExperts, 0, first, &layer);
    const auto at = SizeOf(layer) < SizeOf(sensitive) ? sensitive.begin() : sensitive.end();
    sensitive.insert(at, layer.begin(), layer.end());
    for (const LinearRole role : kOfAttention) AddRole(role, first, count, &attention);
    AddTogether(IsOfHeads, first, count, &attention);
    for (const LinearRole role : kOfFeedForward) AddRole(role, first, count, &rest);
    AddTogether(IsOfExperts, first, count, &rest);
    for (size_t i = 0; i < map_.parameters.size(); ++i) Add({i}, &rest);  // of draft heads
  }

  Units sensitive, attention, rest;

 private:
  // Adds a unit of those of the parameters that are quantized and in no unit yet, if there are any.
  void Add(const std::vector<size_t>& parameters, Units* to) {
    Widening unit;
    for (const size_t i : parameters) {
      if (i == kAbsent || is_taken_[i]) continue;
      const Parameter& parameter = map_.parameters[i];
      if (parameter.form != ParameterForm::kPacked || parameter.in_float32) continue;
      is_taken_[i] = true;
      unit.parameters.push_back(i);
      unit.size += parameter.rows * parameter.columns;
    }
    if (unit.size > 0) to->push_back(std::move(unit));
  }
  // Of the layers [begin, end).
  void AddRole(LinearRole role, int64_t begin, int64_t end, Units* to) {
    for (int64_t layer = begin; layer < end; ++layer) {
      for (const LinearParameters& linear : map_.layers[static_cast<size_t>(layer)].linears) {
        if (linear.key.role == role) Add({linear.matrix}, to);
      }
    }
  }
  // All linears of a layer whose role is one of those.
  void AddTogether(bool (*is_one)(LinearRole), int64_t begin, int64_t end, Units* to) {
    for (int64_t layer = begin; layer < end; ++layer) {
      std::vector<size_t> together;
      for (const LinearParameters& linear : map_.layers[static_cast<size_t>(layer)].linears) {
        if (is_one(linear.key.role)) together.push_back(linear.matrix);
      }
      Add(together, to);
    }
  }

  const WeightMap& map_;
  std::vector<bool> is_taken_;
};

}  // namespace

int64_t MillibitsOf(kernels::WeightFormat format) {
  const kernels::PanelLayout layout = kernels::LayoutOf(format);
  return 1000 * (layout.code_bits * layout.group + 8 * layout.scale_bytes) / layout.group;
}

std::vector<Widening> OrderOfWidening(const WeightMap& map, size_t num_formats) {
  const AllUnits units(map);
  std::vector<Widening> order;
  const auto add = [&](const Units& some, size_t to) {
    if (to >= num_formats) return;
    for (const Widening& unit : some) order.push_back({unit.parameters, unit.size, to});
  };
  add(units.sensitive, 1);
  add(units.attention, 1);
  add(units.sensitive, 2);
  add(units.rest, 1);
  add(units.attention, 2);
  add(units.rest, 2);
  return order;
}

std::vector<kernels::WeightFormat> FormatsWithin(const WeightMap& map, int64_t millibits,
                                                 std::span<const kernels::WeightFormat> formats) {
  std::vector<kernels::WeightFormat> chosen(map.parameters.size(), formats.front());
  const std::vector<Widening> order = OrderOfWidening(map, formats.size());
  int64_t room = 0;  // what is left of the budget, of all weights together
  for (const Widening& step : order) {
    if (step.to == 1) room += (millibits - MillibitsOf(formats.front())) * step.size;
  }
  for (const Widening& step : order) {
    room -= (MillibitsOf(formats[step.to]) - MillibitsOf(formats[step.to - 1])) * step.size;
    if (room < 0) return chosen;
    for (const size_t parameter : step.parameters) chosen[parameter] = formats[step.to];
  }
  return chosen;
}

}  // namespace mlc_native
