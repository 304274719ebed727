// The experts of a decoder in numbers: how many, how they are chosen, and which layers have them.
// A value; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "arch/arch_spec.h"
#include "kernels/experts.h"
#include "support/config_fields.h"

namespace mlc_native {

struct ExpertConfig {
  kernels::RouterRule router;
  int64_t ffn_size = 0;         // of each expert
  int64_t shared_ffn_size = 0;  // of the expert that every row passes; 0: there is none
  int64_t latent_size = 0;      // of a projection that experts read; 0: they read the input
  bool shared_gate = false;     // a row of the router's matrix weighs the shared expert
  float shared_scale = 1;       // of what the shared expert gives
  bool biases = false;          // of the router and of the experts
  bool scales_inputs = false;   // the weights are of what experts read, not of what they give
  float swiglu_limit = 0;       // of kClampedSwiGlu; 0: the decoder's activation
  float swiglu_sharpness = 1;
  bool limits_silu = false;  // the limit is of kClampedSilu instead, and of the shared expert, too

  int64_t router_rows() const { return router.num_experts + (shared_gate ? 1 : 0); }
};

// Whether there is a tensor of this name.
using HasTensor = std::function<bool(const std::string&)>;

// Returns the spelling of the experts of a layer, whose tensors begin with `layer`; null if it has
// none.
const ExpertSpelling* FindExpertSpelling(const ExpertRule& rule, const std::string& layer,
                                         const HasTensor& has_tensor);

// Absent of a family without experts. Throws LoadError.
std::optional<ExpertConfig> ReadExperts(const ConfigFields& fields, const ExpertRule& rule);
// Which of the layers have experts. Throws LoadError.
std::vector<bool> ReadSparseLayers(const ConfigFields& fields, const ExpertRule& rule,
                                   size_t num_layers);

}  // namespace mlc_native
