// Pins: pins and unpins prompts, and holds the engine to what a pin promises.
//
// A pinned prompt stays in the prefix cache, and in the list of pins, until it is unpinned or the
// engine is reset, whatever happens in between; the same tokens have one pin. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "mlc_native/engine.h"
#include "sim/random.h"

namespace mlc_native::sim {

class Pins {
 public:
  explicit Pins(std::function<void(const std::string& violation)> fail) : fail_(std::move(fail)) {}

  // One call of PinPrefix or UnpinPrefix. `tokens`: what may be in the cache. Returns what was
  // done, for the history.
  std::string Act(Engine& engine, SimRandom& rng, const std::vector<int32_t>& tokens);
  // After a step: nothing is missing. Learns of prompts that were pinned while they were served.
  void Check(const Engine& engine);
  // The engine was reset, or is another one.
  void Clear() { pins_.clear(); }
  void UnpinAll(Engine& engine);

 private:
  struct Pin {
    int64_t num_tokens = 0;
    std::vector<int32_t> tokens;  // empty: pinned while it was served
  };

  std::string PinSome(Engine& engine, SimRandom& rng, std::vector<int32_t> tokens);
  void Unpin(Engine& engine, int64_t id);
  std::string UnpinUnknown(Engine& engine, SimRandom& rng);
  void CheckIsCached(Engine& engine, const Pin& pin);

  const std::function<void(const std::string& violation)> fail_;
  std::map<int64_t, Pin> pins_;
};

}  // namespace mlc_native::sim
