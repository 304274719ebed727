// Adapters of an engine: names, what requests hold, and loads beside the loops. With the fake
// model's adapters, whose folders are numbers.
#include "engine_adapters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fake_model/fake_model.h"
#include "support/error.h"
#include "testing/error_message.h"
#include "testing/test_engine.h"
#include "testing/threaded_harness.h"

namespace mlc_native::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

GenerationConfig WithAdapter(GenerationConfig config, const std::string& name) {
  config.adapter = name;
  return config;
}

std::vector<int32_t> AnswerWith(int64_t number, std::vector<int32_t> history, int num_tokens,
                                const FakeModelOptions& model = {}) {
  std::vector<int32_t> answer;
  for (int i = 0; i < num_tokens; ++i) {
    answer.push_back(FakeModel::NextToken(model, history, number));
    history.push_back(answer.back());
  }
  return answer;
}

std::vector<std::string> NamesOf(const std::vector<AdapterInfo>& list) {
  std::vector<std::string> names;
  for (const AdapterInfo& info : list) names.push_back(info.name);
  return names;
}

TEST(EngineAdapters, NamesAreLoadedOnceAndUnloaded) {
  EngineAdapters adapters(std::make_shared<FakeAdapterLoader>());
  adapters.Load("b", "2");
  adapters.Load("a", "1");
  EXPECT_THAT(NamesOf(adapters.List()), ElementsAre("a", "b"));
  EXPECT_EQ(adapters.List()[1].path, "2");
  EXPECT_EQ(adapters.List()[1].rank, 2);
  EXPECT_THAT(MessageOf<InvalidRequest>("adapter", [&] { adapters.Load("a", "3"); }),
              HasSubstr("\"a\" is loaded already"));
  EXPECT_THAT(MessageOf<InvalidRequest>("adapter", [&] { adapters.Load("", "3"); }),
              HasSubstr("must not be empty"));
  EXPECT_THROW(adapters.Load("c", "no number"), LoadError);
  EXPECT_THAT(MessageOf<InvalidRequest>("adapter", [&] { adapters.Unload("c"); }),
              HasSubstr("there are \"a\", \"b\""));
  adapters.Unload("a");
  EXPECT_THAT(NamesOf(adapters.List()), ElementsAre("b"));
  adapters.Load("a", "3");
  EXPECT_EQ(adapters.List()[0].rank, 3);
}

TEST(EngineAdapters, SettingsAreNamesAndFolders) {
  for (const char* wrong : {"", "a", "a=", "=1", "b=no number", "b=1"}) {
    EngineAdapters adapters(std::make_shared<FakeAdapterLoader>());
    adapters.LoadAll({"b=3"});
    if (std::string(wrong) == "b=no number") {
      EXPECT_THROW(adapters.LoadAll({"c=no number"}), LoadError);
      continue;
    }
    MessageOf<InvalidConfig>("adapters", [&] { adapters.LoadAll({wrong}); });
    EXPECT_THAT(NamesOf(adapters.List()), ElementsAre("b"));
  }
}

TEST(EngineAdapters, AModelThatTakesNoneSaysSo) {
  EngineAdapters adapters(nullptr);
  adapters.LoadAll({});
  MessageOf<InvalidConfig>("adapters", [&] { adapters.Load("a", "1"); });
  Request request;
  adapters.ResolveFor(&request);
  request.generation_cfg.adapter = "a";
  EXPECT_THAT(MessageOf<InvalidRequest>("adapter", [&] { adapters.ResolveFor(&request); }),
              HasSubstr("none is loaded"));
}

// Waits until two threads load, so that both have found the name free.
class SlowLoader : public AdapterLoader {
 public:
  std::shared_ptr<const ModelAdapter> Load(const std::string& folder) const override {
    gate_.Pass();
    return loader_.Load(folder);
  }
  Gate& gate() const { return gate_; }

 private:
  FakeAdapterLoader loader_;
  mutable Gate gate_;
};

TEST(EngineAdapters, OfTwoLoadsOfANameOneIsRefused) {
  const auto loader = std::make_shared<SlowLoader>();
  EngineAdapters adapters(loader);
  std::atomic<int> num_refused = 0;
  const auto load = [&](const std::string& folder) {
    try {
      adapters.Load("a", folder);
    } catch (const InvalidRequest&) {
      ++num_refused;
    }
  };
  std::thread first(load, "1");
  std::thread second(load, "2");
  loader->gate().AwaitArrival(2);
  loader->gate().Open();
  first.join();
  second.join();
  EXPECT_EQ(num_refused, 1);
  EXPECT_EQ(adapters.List().size(), 1u);
}

TEST(EngineAdapters, RequestsGetTheTokensOfTheirs) {
  TestEngine engine({});
  engine.engine().LoadAdapter("a", "1");
  engine.engine().LoadAdapter("b", "2");
  for (const char* name : {"", "a", "b"}) {
    engine.Add(std::string("first ") + name, Prompt(40), WithAdapter(Greedy(9, 2), name));
  }
  engine.Run();
  for (const char* name : {"", "a", "b"}) {
    engine.Add(std::string("again ") + name, Prompt(40), WithAdapter(Greedy(9), name));
  }
  engine.Run();
  const std::vector<std::string> names = {"", "a", "b"};
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(engine.Answer("first " + names[i], 1).token_ids, AnswerWith(i, Prompt(40), 9));
    EXPECT_EQ(engine.Answer("again " + names[i]).token_ids, AnswerWith(i, Prompt(40), 9));
  }
  // All tokens except the last one, of each of the three prompts that came again.
  EXPECT_EQ(engine.Metric("cached_tokens_sum"), 3 * 39);
}

TEST(EngineAdapters, WhatIsUnloadedServesThoseThatHaveIt) {
  TestEngine engine({});
  engine.engine().LoadAdapter("a", "1");
  engine.Add("before", Prompt(5), WithAdapter(Greedy(9), "a"));
  engine.Step();
  engine.engine().UnloadAdapter("a");
  MessageOf<InvalidRequest>("adapter",
                            [&] { engine.Add("without", Prompt(5), WithAdapter(Greedy(9), "a")); });
  engine.engine().LoadAdapter("a", "2");
  engine.Add("after", Prompt(5), WithAdapter(Greedy(9), "a"));
  engine.Run();
  EXPECT_EQ(engine.Answer("before").token_ids, AnswerWith(1, Prompt(5), 9));
  EXPECT_EQ(engine.Answer("after").token_ids, AnswerWith(2, Prompt(5), 9));
}

TEST(EngineAdapters, RequestsOfAnotherEngineAreRefused) {
  TestEngine engine({}), other({});
  for (TestEngine* each : {&engine, &other}) each->engine().LoadAdapter("a", "1");
  const RequestPtr foreign =
      other.engine().CreateRequest("a", {TokenData{Prompt(5)}}, WithAdapter(Greedy(3), "a"));
  MessageOf<InvalidRequest>("adapter", [&] { engine.engine().AddRequest(foreign); });
  const RequestPtr unresolved = CreateRequest(
      "a", {TokenData{Prompt(5)}}, WithAdapter(Greedy(3), "a"), engine.engine().request_limits());
  MessageOf<InvalidRequest>("adapter", [&] { engine.engine().AddRequest(unresolved); });
  EXPECT_TRUE(engine.engine().Empty());
}

// Loads, unloads and requests of several threads, while the engine serves.
TEST(ThreadedAdapters, AreLoadedBesideTheEngine) {
  ThreadedHarness harness;
  harness.StartAndLoad();
  harness.engine().LoadAdapter("kept", "7");
  const FakeModelOptions& model = harness.model();
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      const std::string own = "own" + std::to_string(i);
      for (int round = 0; round < 10; ++round) {
        const int64_t number = 10 * i + round + 1;
        harness.engine().LoadAdapter(own, std::to_string(number));
        const std::string id = own + "-" + std::to_string(round);
        harness.Add(id, Prompt(5), WithAdapter(Greedy(6), own));
        harness.Add(id + "k", Prompt(5), WithAdapter(Greedy(6), "kept"));
        harness.engine().UnloadAdapter(own);
        EXPECT_EQ(harness.Await(id).only().token_ids, AnswerWith(number, Prompt(5), 6, model));
        EXPECT_EQ(harness.Await(id + "k").only().token_ids, AnswerWith(7, Prompt(5), 6, model));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(NamesOf(harness.engine().ListAdapters()), ElementsAre("kept"));
  harness.Load();  // again: nothing is left of them
  EXPECT_TRUE(harness.engine().ListAdapters().empty());
  harness.ExpectHealthy();
}

}  // namespace
}  // namespace mlc_native::testing
