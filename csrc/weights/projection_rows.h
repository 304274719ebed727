// How many rows a layer's tensor has, and which of them go where. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "arch/model_config.h"

namespace mlc_native {

int64_t RowsOfProjection(const ModelConfig& config, const LayerConfig& layer, Rows rows);

// Rows of a tensor that has groups of them, one after the other: `run` rows of each group are
// those from row_offset on, group by group.
struct RunOfGroup {
  int64_t run = 0;
  int64_t row_offset = 0;
  float scale = 1;  // of these rows
};

// How the rows of a group are divided; empty: the rows have no groups.
std::vector<RunOfGroup> RunsOfGroups(const ModelConfig& config, Rows rows);

// What the rows of a projection without groups, and their biases, are multiplied with. Of those of
// a gate and of up, the gate's are the first.
struct ScaleOfRows {
  float weight = 1;
  float bias = 1;
};
ScaleOfRows ScaleOfProjection(const ModelConfig& config, const ProjectionName& projection,
                              bool is_first);

}  // namespace mlc_native
