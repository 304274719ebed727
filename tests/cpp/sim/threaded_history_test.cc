// Histories of the simulation against the threaded engine: eight threads add, abort, reset, reload,
// unload, ask and exit as their seeds say, while models and callbacks fail. The order of events is
// not reproducible here, but every promise must hold in any order, and ThreadSanitizer watches.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "sim/embeddings.h"
#include "sim/random.h"
#include "sim/reference.h"
#include "sim/scenario.h"
#include "sim/workload.h"
#include "support/error.h"
#include "testing/fake_grammar.h"
#include "testing/threaded_harness.h"

namespace mlc_native::sim {
namespace {

constexpr int kNumThreads = 8;
constexpr int kOperationsPerThread = 60;

class ThreadedHistory {
 public:
  explicit ThreadedHistory(uint64_t seed)
      : scenario_(DrawScenario(seed, AllFeatures())),
        workload_(scenario_),
        random_(SimRandom(seed).Fork(8)),
        has_life_cycle_(random_.Chance(0.5)),
        has_exit_(has_life_cycle_ && random_.Chance(0.5)),
        harness_({}, [this](const EngineConfig&, const EngineOptions& options) {
          return MakeEngine(options);
        }) {
    harness_.on_outputs = [this](const auto&) {
      // Called on the stream-back thread only.
      if (callback_random_.Chance(scenario_.rate(Feature::kCallbackThrows))) {
        throw std::runtime_error("the callback throws");
      }
    };
  }

  void Run() {
    harness_.StartAndLoad();
    std::vector<std::thread> threads;
    for (int i = 0; i < kNumThreads; ++i) threads.emplace_back([this, i] { Operate(i); });
    for (std::thread& thread : threads) thread.join();
    harness_.AwaitAll();
    if (!has_exit_) ExpectServesTheNext();
    harness_.ExitAndJoin();
    CheckAnswers();
  }

 private:
  std::unique_ptr<Engine> MakeEngine(const EngineOptions& options) {
    auto model = std::make_unique<testing::FakeModel>(scenario_.model);
    auto rng = std::make_shared<SimRandom>(random_.Fork(100 + num_engines_++));
    model->set_on_forward([this, rng](const ForwardBatch&) {
      if (!rng->Chance(scenario_.rate(Feature::kForwardFails)) || calm_) return;
      throw std::runtime_error("the forward fails");
    });
    ModelDefaults defaults;
    defaults.eos_token_ids = scenario_.eos_token_ids;
    defaults.embedding = scenario_.embedding;
    EngineOptions with_grammars = options;
    with_grammars.create_grammar_compiler = testing::FakeGrammarFactory();
    return Engine::FromModel(std::move(model), scenario_.config, std::move(defaults),
                             scenario_.vocabulary.table, with_grammars);
  }

  void Operate(int thread) {
    SimRandom rng = random_.Fork(static_cast<uint64_t>(thread));
    for (int i = 0; i < kOperationsPerThread; ++i) {
      const double kind = rng.Uniform();
      if (kind < 0.6) {
        Add(rng, std::to_string(thread) + '-' + std::to_string(i));
      } else if (kind < 0.8) {
        Abort(rng);
      } else if (kind < 0.9) {
        Ask(rng);
      } else if (has_life_cycle_) {
        ChangeLife(rng, thread, i);
      }
    }
  }

  void Add(SimRandom& rng, const std::string& id) {
    std::vector<int32_t> prompt = workload_.DrawPrompt(rng);
    GenerationConfig config = workload_.DrawGeneration(rng, std::ssize(prompt));
    RequestPtr request;
    try {
      // A prompt that exceeds the room for pins is refused.
      config.debug_config.pinned_system_prompt &=
          std::ssize(prompt) <= harness_.engine().GetRequestLimits().max_pinned_length.value_or(0);
      request = Create(rng, id, {TokenData{std::move(prompt)}}, config);
    } catch (const InvalidRequest&) {
      return ExpectLifeCycle("nothing is loaded");
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      requests_[id] = request;
    }
    if (harness_.TryAdd(request)) return;
    if (!scenario_.has(Feature::kQueueLimit)) ExpectLifeCycle("a valid request was refused");
    const std::lock_guard<std::mutex> lock(mutex_);
    requests_.erase(id);
  }

  RequestPtr Create(const SimRandom& rng, const std::string& id, std::vector<Data> inputs,
                    const GenerationConfig& config) {
    SimRandom own = rng.Fork(static_cast<uint64_t>(*config.seed));
    ThreadedEngine& engine = harness_.engine();
    const bool is_whole = scenario_.model.whole_prompts;
    if (!own.Chance(scenario_.rate(Feature::kEmbeddings)) && !is_whole) {
      return engine.CreateRequest(id, std::move(inputs), config);
    }
    return engine.CreateEmbeddingRequest(id, std::move(inputs), DrawEmbedding(own, is_whole),
                                         config);
  }

  void Abort(SimRandom& rng) {
    const std::string id = std::to_string(rng.Range(0, kNumThreads - 1)) + '-' +
                           std::to_string(rng.Range(0, kOperationsPerThread));
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      aborted_.insert(id);
    }
    harness_.engine().AbortRequest(id);
  }

  void Ask(SimRandom& rng) {
    const char* const names[] = {"audit_pages", "dump_state", "no such function"};
    const int64_t kind = rng.Range(0, 3);
    try {
      if (kind == 3) {
        harness_.engine().JSONMetrics();
      } else {
        harness_.engine().DebugCallFuncOnAllAllWorker(names[kind]);
        EXPECT_NE(kind, 2);
      }
    } catch (const InvalidRequest&) {
      if (kind != 2) ExpectLifeCycle("a question was refused");
    }
  }

  void ChangeLife(SimRandom& rng, int thread, int operation) {
    try {
      const int64_t kind = rng.Range(0, 9);
      if (kind < 4) return harness_.engine().Reset();
      if (kind < 6) return harness_.Load();
      if (kind < 7) return harness_.engine().Unload();
      if (kind < 8) return harness_.engine().Reload("{\"model\": \"/no/such/folder\"}");
      if (has_exit_ && thread == 0 && operation > kOperationsPerThread / 2) {
        harness_.engine().ExitBackgroundLoop();
      }
    } catch (const CallerError&) {
      // Exited, or the folder that is not there.
    }
  }

  void ExpectLifeCycle(const char* what) const {
    EXPECT_TRUE(has_life_cycle_) << what << ", although no thread unloaded the model or exited";
  }

  void ExpectServesTheNext() {
    calm_ = true;
    harness_.Load();
    GenerationConfig config = testing::Greedy(1);
    config.seed = 0;
    const RequestPtr request = Create(SimRandom(1), "next", {TokenData{{0}}}, config);
    requests_["next"] = request;
    harness_.AddRequest(request);
    harness_.AwaitAll();
    harness_.engine().DebugCallFuncOnAllAllWorker("audit_pages");
  }

  void CheckAnswers() {
    Reference reference(scenario_, [](const std::string& what) { ADD_FAILURE() << what; });
    for (const auto& [id, request] : requests_) {
      const testing::RequestHistory answer = harness_.Await(id);
      const bool fails_alone = reference.Check(*request, answer);
      for (const testing::SequenceHistory& sequence : answer.sequences) {
        if (has_life_cycle_ || ::testing::Test::HasFailure()) continue;
        if (sequence.finish_reason == FinishReason::kAbort) {
          EXPECT_TRUE(aborted_.contains(id)) << id << " was aborted without a cause";
        }
        if (sequence.finish_reason == FinishReason::kError) {
          EXPECT_TRUE(fails_alone || scenario_.has(Feature::kForwardFails))
              << id << ": " << answer.error_message;
        }
      }
    }
  }

  const Scenario scenario_;
  const Workload workload_;
  SimRandom random_;
  const bool has_life_cycle_;  // somebody resets, reloads, unloads
  const bool has_exit_;
  SimRandom callback_random_{1};    // stream-back thread only
  uint64_t num_engines_ = 0;        // background thread only
  std::atomic<bool> calm_ = false;  // no faults
  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<std::string, RequestPtr> requests_;
  std::set<std::string> aborted_;
  testing::ThreadedHarness harness_;  // last: its threads use the others
};

TEST(ThreadedHistory, EightThreads) {
  for (uint64_t seed = 1; seed <= 12 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    ThreadedHistory(seed).Run();
  }
}

}  // namespace
}  // namespace mlc_native::sim
