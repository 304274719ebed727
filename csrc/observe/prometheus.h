// The metrics of an engine in Prometheus' text exposition format, for hosts without Python. Pure;
// any thread. mlc_native/serve/metric_families.py makes the same metrics for Python's collectors; a
// test compares the two.
#pragma once

#include <string>
#include <string_view>

#include "mlc_native/detail/export.h"

namespace mlc_native {

// `metrics_json` is what EngineMetrics::AsJSONString returns. Each number becomes a sample, and
// those of a nested object begin with its key. Times are in seconds.
MLC_NATIVE_PRIVATE_API std::string PrometheusText(std::string_view metrics_json);

}  // namespace mlc_native
