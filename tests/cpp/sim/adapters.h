// Adapters: what a simulation loads and unloads while requests run, and the errors that it expects.
// One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "mlc_native/engine.h"
#include "sim/random.h"

namespace mlc_native::sim {

class Adapters {
 public:
  explicit Adapters(std::function<void(const std::string& violation)> fail)
      : fail_(std::move(fail)) {}

  // Loads or unloads one, or asks for what must be refused. Returns what was done.
  std::string Act(const Engine& engine, SimRandom& rng);
  // The name of one that is loaded; "" if none is.
  std::string Pick(SimRandom& rng) const;
  // The engine is another one.
  void Clear() { folders_.clear(); }

 private:
  void Check(const Engine& engine) const;
  void ExpectRefusal(const std::string& what, const std::function<void()>& action) const;

  const std::function<void(const std::string& violation)> fail_;
  std::map<std::string, std::string> folders_;  // by name
};

}  // namespace mlc_native::sim
