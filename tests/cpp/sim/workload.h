// Workload: draws the requests of a scenario. Prompts often begin like what was said before, and
// lengths like to be close to limits. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mlc_native/config.h"
#include "sim/random.h"
#include "sim/scenario.h"

namespace mlc_native::sim {

class Workload {
 public:
  explicit Workload(const Scenario& scenario) : scenario_(scenario) {}

  // Never longer than a request may be.
  std::vector<int32_t> DrawPrompt(SimRandom& rng) const;
  // Valid for a prompt of this length.
  GenerationConfig DrawGeneration(SimRandom& rng, int64_t prompt_len) const;
  // A prompt and its answer, or nothing when none was remembered.
  std::vector<int32_t> DrawRemembered(SimRandom& rng) const;
  // Later prompts may begin like a prompt and its answer, or be the same.
  void Remember(std::vector<int32_t> prompt, const std::vector<int32_t>& answer, SimRandom& rng);

 private:
  static constexpr size_t kMaxRemembered = 8;
  struct Conversation {
    std::vector<int32_t> tokens;  // of the prompt and its answer
    int64_t prompt_len = 0;
  };

  bool Happens(SimRandom& rng, Feature feature) const {
    return rng.Chance(scenario_.rate(feature));
  }
  int64_t DrawLength(SimRandom& rng) const;
  int64_t DrawMaxTokens(SimRandom& rng, int64_t prompt_len) const;
  int32_t DrawToken(SimRandom& rng) const;
  void DrawDistribution(SimRandom& rng, GenerationConfig* config) const;
  void DrawPenalties(SimRandom& rng, GenerationConfig* config) const;
  void DrawService(SimRandom& rng, GenerationConfig* config) const;
  void DrawSpeculation(SimRandom& rng, GenerationConfig* config) const;
  void DrawTokenLimits(SimRandom& rng, GenerationConfig* config) const;
  void DrawOutputOptions(SimRandom& rng, GenerationConfig* config) const;
  std::string DrawForcedAnswers(SimRandom& rng) const;
  void DrawGrammar(SimRandom& rng, GenerationConfig* config) const;
  void DrawStops(SimRandom& rng, GenerationConfig* config) const;

  const Scenario& scenario_;
  std::vector<Conversation> remembered_;
};

}  // namespace mlc_native::sim
