// Runs fuzz targets where there is no libFuzzer: each input of a corpus, then mutations of it.
//
//   mlc_native_fuzz [--seconds S] [--seed N] [--inputs N] CORPUS [TARGET...]
//
// CORPUS has a folder for each target. Default: all targets, seed 1, and no mutations; --seconds is
// for each target, --inputs a least number of inputs. An input is written to TARGET.last in the
// working folder before it runs, and stays there if it is a finding: the program ends in it, or it
// takes more than 10 s. The exit status is then not 0, and also if a target needs more than 2 GiB
// of memory.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "mutate.h"
#include "run_target.h"

namespace mlc_native::fuzz {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  double seconds = 0;
  uint64_t seed = 1;
  int64_t inputs = 0;
  std::string corpus;
  std::vector<std::string> targets;
};

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto number = [&] { return i + 1 < argc ? std::atof(argv[++i]) : 0; };
    if (argument == "--seconds") {
      options.seconds = number();
    } else if (argument == "--seed") {
      options.seed = static_cast<uint64_t>(number());
    } else if (argument == "--inputs") {
      options.inputs = static_cast<int64_t>(number());
    } else if (options.corpus.empty()) {
      options.corpus = argument;
    } else {
      options.targets.push_back(argument);
    }
  }
  return options;
}

std::vector<std::string> ReadCorpus(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  std::vector<std::string> inputs;
  for (const auto& path : paths) {
    std::stringstream content;
    content << std::ifstream(path, std::ios::binary).rdbuf();
    inputs.push_back(content.str());
  }
  return inputs;
}

// Runs inputs of one target and keeps the one that runs on disk.
class Runner {
 public:
  explicit Runner(const Target& target)
      : target_(target), last_(std::string(target.name) + ".last") {}
  ~Runner() {
    if (slowest_ < kMaxSeconds) std::filesystem::remove(last_);
  }

  // Returns false if it took too long.
  bool Run(const std::string& input) {
    std::ofstream(last_, std::ios::binary) << input;
    const auto start = Clock::now();
    RunOnce(target_, {reinterpret_cast<const uint8_t*>(input.data()), input.size()});
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    slowest_ = std::max(slowest_, seconds);
    ++count_;
    return seconds < kMaxSeconds;
  }
  int64_t count() const { return count_; }
  double slowest() const { return slowest_; }

 private:
  static constexpr double kMaxSeconds = 10;  // with sanitizers, on a busy machine

  const Target& target_;
  std::string last_;
  int64_t count_ = 0;
  double slowest_ = 0;
};

bool RunTarget(const Target& target, const Options& options) {
  const std::string name(target.name);
  const std::vector<std::string> corpus = ReadCorpus(options.corpus + "/" + name);
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: the corpus is empty\n", name.c_str());
    return false;
  }
  Runner runner(target);
  bool ok = true;
  for (const std::string& input : corpus) ok = runner.Run(input) && ok;
  Mutator mutator(corpus, options.seed);
  const auto end = Clock::now() + std::chrono::duration<double>(options.seconds);
  while (ok && (runner.count() < options.inputs || Clock::now() < end)) {
    ok = runner.Run(mutator.Next());
  }
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  std::printf("%s: %lld inputs, the slowest took %.2f s, peak memory %ld MiB%s\n", name.c_str(),
              static_cast<long long>(runner.count()), runner.slowest(), usage.ru_maxrss >> 10,
              ok ? "" : ": TOO SLOW");
  std::fflush(stdout);
  constexpr long kMaxMib = 2048;  // sanitizers keep freed memory
  return ok && usage.ru_maxrss >> 10 < kMaxMib;
}

int Main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  bool ok = !options.corpus.empty();
  for (const std::string& name : options.targets) {
    if (FindTarget(name) == nullptr) {
      std::fprintf(stderr, "there is no target \"%s\"\n", name.c_str());
      return 2;
    }
  }
  for (const Target& target : Targets()) {
    const bool chosen =
        options.targets.empty() || std::ranges::count(options.targets, target.name) > 0;
    if (chosen) ok = RunTarget(target, options) && ok;
  }
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace mlc_native::fuzz

int main(int argc, char** argv) { return mlc_native::fuzz::Main(argc, argv); }
