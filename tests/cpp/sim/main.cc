// mlc_native_sim: runs simulations of the engine core.
//
//   mlc_native_sim --seeds A..B [--jobs J]        all of them; the first failure is replayed by the
//                                                 command that is printed
//   mlc_native_sim --seed N [--trace]             one, with its history
//   mlc_native_sim --forever [--seed N]           from N on, until stopped or failed
//   --only a,b,c / --without a,b,c                which features may happen (--features lists them)
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <limits>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "sim/simulation.h"

namespace mlc_native::sim {
namespace {

struct Options {
  uint64_t first_seed = 1;
  uint64_t last_seed = 1;
  int jobs = 1;
  bool trace = false;
  bool list_features = false;
  FeatureSet allowed = AllFeatures();
  std::string feature_arguments;  // as given, for the command that replays
};

[[noreturn]] void Usage() {
  std::fprintf(stderr,
               "mlc_native_sim --seed N [--trace] | --seeds A..B [--jobs J] | --forever | "
               "--features\n    [--only a,b,c] [--without a,b,c]\n");
  std::exit(2);
}

FeatureSet ParseFeatures(const std::string& names) {
  FeatureSet set = {};
  std::istringstream in(names);
  for (std::string name; std::getline(in, name, ',');)
    set[static_cast<size_t>(FeatureOf(name))] = true;
  return set;
}

void ParseSeeds(const std::string& range, Options* options) {
  const size_t dots = range.find("..");
  if (dots == std::string::npos) Usage();
  options->first_seed = std::stoull(range.substr(0, dots));
  options->last_seed = std::stoull(range.substr(dots + 2));
}

void ParseFeatureArgument(const std::string& name, const std::string& value, Options* options) {
  const FeatureSet named = ParseFeatures(value);
  for (size_t i = 0; i < kNumFeatures; ++i) {
    options->allowed[i] = options->allowed[i] && named[i] == (name == "--only");
  }
  options->feature_arguments += ' ' + name + ' ' + value;
}

Options Parse(const std::vector<std::string>& arguments) {
  Options options;
  if (arguments.empty()) Usage();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i];
    const auto value = [&]() -> const std::string& {
      if (i + 1 >= arguments.size()) Usage();
      return arguments[++i];
    };
    if (name == "--seed") {
      options.first_seed = options.last_seed = std::stoull(value());
    } else if (name == "--seeds") {
      ParseSeeds(value(), &options);
    } else if (name == "--forever") {
      options.last_seed = std::numeric_limits<uint64_t>::max() - 1;
    } else if (name == "--jobs") {
      options.jobs = std::stoi(value());
    } else if (name == "--trace") {
      options.trace = true;
    } else if (name == "--features") {
      options.list_features = true;
    } else if (name == "--only" || name == "--without") {
      ParseFeatureArgument(name, value(), &options);
    } else {
      Usage();
    }
  }
  return options;
}

// Runs seeds on several threads; each simulation stays on one.
class Runner {
 public:
  explicit Runner(const Options& options) : options_(options), next_seed_(options.first_seed) {}

  bool Run() {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> workers;
    for (int i = 1; i < options_.jobs; ++i) workers.emplace_back([this] { Work(); });
    Work();
    for (std::thread& worker : workers) worker.join();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf(
        "%s: %llu seeds, %lld steps, %lld requests, %lld tokens (%lld jumped, %lld "
        "guessed), %lld faults in %.1f s\n",
        failed_ ? "FAILED" : "ok", static_cast<unsigned long long>(num_seeds_),
        static_cast<long long>(sum_.num_steps), static_cast<long long>(sum_.num_requests),
        static_cast<long long>(sum_.num_tokens), static_cast<long long>(sum_.num_jumped),
        static_cast<long long>(sum_.num_drafted), static_cast<long long>(sum_.num_injected),
        seconds.count());
    return !failed_;
  }

 private:
  void Work() {
    while (!failed_) {
      const uint64_t seed = next_seed_++;
      if (seed > options_.last_seed) return;
      Count(seed, Simulate(seed, options_.allowed, options_.trace));
    }
  }

  void Count(uint64_t seed, const SimResult& result) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++num_seeds_;
    sum_.num_steps += result.num_steps;
    sum_.num_requests += result.num_requests;
    sum_.num_tokens += result.num_tokens;
    sum_.num_injected += result.num_injected;
    sum_.num_jumped += result.num_jumped;
    sum_.num_drafted += result.num_drafted;
    sum_.num_slow += result.num_slow;
    if (options_.first_seed == options_.last_seed) {
      std::printf("digest %016llx\n", static_cast<unsigned long long>(result.digest));
    }
    if (result.failure.empty()) return;
    failed_ = true;
    std::printf("seed %llu: %s\nreplay: mlc_native_sim --seed %llu%s --trace\n",
                static_cast<unsigned long long>(seed), result.failure.c_str(),
                static_cast<unsigned long long>(seed), options_.feature_arguments.c_str());
  }

  const Options options_;
  std::atomic<uint64_t> next_seed_;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  // Guarded by mutex_.
  uint64_t num_seeds_ = 0;
  SimResult sum_;
};

int Main(const std::vector<std::string>& arguments) {
  const Options options = Parse(arguments);
  if (options.list_features) {
    for (size_t i = 0; i < kNumFeatures; ++i) std::puts(NameOf(static_cast<Feature>(i)));
    return 0;
  }
  return Runner(options).Run() ? 0 : 1;
}

}  // namespace
}  // namespace mlc_native::sim

int main(int argc, char** argv) {
  try {
    return mlc_native::sim::Main(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
