// The table of `end_to_end --profile`: where the threads' time of some steps went, from the answers
// of the engine's profilers. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

#include <nlohmann/json.hpp>

#include "arch/model_config.h"
#include "kernels_machine.h"

namespace mlc_native {

// Wall times of some steps, in seconds, and what the kernels did in them.
struct KernelTimes {
  int64_t steps = 0;
  double step = 0;
  double forward = 0;  // of it
  double sample = 0;
  nlohmann::json kernels{};  // KernelProfile::Json
};

class KernelTable {
 public:
  KernelTable(const ModelConfig& config, const KernelTimes& times)
      : config_(config), times_(times), threads_(times.kernels.at("num_threads").get<double>()) {}

  void Print() const {
    std::printf("  %-34s %7s %9s %8s %9s %9s %8s %8s %7s\n", "", "calls", "ms", "share", "wait ms",
                "MB", "GB/s", "Gop/s", "limit");
    double waits = 0;
    for (const nlohmann::json& kernel : times_.kernels.at("kernels")) {
      PrintKernel(kernel);
      waits += kernel.at("wait_s").get<double>() / threads_;
    }
    PrintRest("threads wait in loops", waits);
    PrintRest("between loops", times_.forward - times_.kernels.at("loops_s").get<double>());
    PrintRest("sampling", times_.sample);
    PrintRest("the engine otherwise", times_.step - times_.forward - times_.sample);
    std::fflush(stdout);
  }

 private:
  double PerStep(double amount) const { return amount / static_cast<double>(times_.steps); }

  // Times are those of one thread: the sum over threads divided by their number.
  void PrintKernel(const nlohmann::json& kernel) const {
    const double busy = kernel.at("busy_s").get<double>() / threads_;
    const double wait = kernel.at("wait_s").get<double>() / threads_;
    const double bytes = kernel.at("bytes").get<double>();
    const double operations = kernel.at("operations").get<double>();
    const kernels::Machine& machine = kernels::TheMachine();
    const double limit =
        std::max(bytes / machine.bytes_per_second, operations / machine.Peak(ArithmeticOf(kernel)));
    std::printf("  %-34s %7.0f %9.3f %6.2f %% %9.3f %9.2f %8.1f %8.1f %5.0f %%\n",
                NameOf(kernel).c_str(), PerStep(kernel.at("calls").get<double>()),
                1e3 * PerStep(busy), 100 * busy / times_.step, 1e3 * PerStep(wait),
                1e-6 * PerStep(bytes), 1e-9 * bytes / busy, 1e-9 * operations / busy,
                100 * limit / (busy + wait));
  }
  void PrintRest(const char* name, double seconds) const {
    std::printf("  %-34s %7s %9.3f %6.2f %%\n", name, "", 1e3 * PerStep(seconds),
                100 * seconds / times_.step);
  }

  static kernels::Arithmetic ArithmeticOf(const nlohmann::json& kernel) {
    if (kernel.at("name") == "attention") return kernels::Arithmetic::kBFloat16;
    if (!kernel.contains("format")) return kernels::Arithmetic::kFloat32;
    const std::string format = kernel.at("format");
    if (format == "float32" || format == "float16") return kernels::Arithmetic::kFloat32;
    const bool floats = format == "bfloat16" || format == "fp8";
    return floats ? kernels::Arithmetic::kBFloat16 : kernels::Arithmetic::kInt8;
  }

  // A linear is named by the matrices of its shape.
  std::string NameOf(const nlohmann::json& kernel) const {
    if (!kernel.contains("format")) return kernel.at("name");
    static constexpr const char* kRoles[] = {"qkv",
                                             "out",
                                             "gate_up",
                                             "down",
                                             "router",
                                             "expert gate_up",
                                             "expert down",
                                             "shared gate_up",
                                             "shared down",
                                             "query up",
                                             "head key up",
                                             "head value up",
                                             "index queries",
                                             "index keys",
                                             "index weights",
                                             "delta inputs",
                                             "delta gates",
                                             "delta out",
                                             "delta decays",
                                             "delta out gates",
                                             "scan inputs",
                                             "scan steps",
                                             "layer input gate",
                                             "layer input up",
                                             "laurel down",
                                             "laurel up",
                                             "experts in",
                                             "experts out",
                                             "token rows",
                                             "group out"};
    static_assert(std::size(kRoles) == kNumLinearRoles);
    const auto n = kernel.at("n").get<int64_t>(), k = kernel.at("k").get<int64_t>();
    std::string name;
    const auto add = [&](const char* role) {
      name += (name.empty() ? "" : "/") + std::string(role);
    };
    for (size_t i = 0; i < kNumLinearRoles; ++i) {
      const LinearRole role = kLinearRoles[i];
      const bool is_there = std::ranges::any_of(config_.layers, [&](const LayerConfig& layer) {
        return config_.num_linears(layer, role) > 0 && config_.linear_rows(layer, role) == n &&
               config_.linear_columns(layer, role) == k;
      });
      if (is_there) {
        add(kRoles[i]);
      }
    }
    if (n == config_.vocab_size && k == config_.hidden_size) add("head");
    return name + " " + std::to_string(n) + "x" + std::to_string(k) + " " +
           kernel.at("format").get<std::string>();
  }

  const ModelConfig& config_;
  const KernelTimes& times_;
  const double threads_;
};

}  // namespace mlc_native
