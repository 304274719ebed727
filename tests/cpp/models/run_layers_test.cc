#include "models/run_layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/error.h"

namespace mlc_native {
namespace {

using NamedWeights = DecoderWeights<std::string, std::string>;

// Writes down what it is asked to do.
struct RecordingOps {
  using Norm = NormWeights<std::string>;

  int num_parts = 1;  // of the rows that are kept
  bool parallel = false;
  std::vector<std::string> calls{};

  void Add(const std::string& call) { calls.push_back(call); }
  void Embed() { Add("embed"); }
  void Normalize(const Norm& pre) { Add("norm " + pre.weight); }
  void AddAndNormalize(const Norm& post, const Norm& pre) {
    Add("add " + post.weight + " norm " + pre.weight);
  }
  void AddAndKeepInput() { Add("add"); }
  bool HasParallelBlocks() const { return parallel; }
  void Project(size_t layer, LinearRole role) {
    const char* names[] = {"qkv", "out", "gate_up", "down"};
    Add(names[static_cast<size_t>(role)] + std::to_string(layer));
  }
  void RotateAndWriteKv(size_t layer) { Add("kv" + std::to_string(layer)); }
  void Attend(size_t layer) { Add("attend" + std::to_string(layer)); }
  void Activate(size_t layer) { Add("activate" + std::to_string(layer)); }
  bool KeepLastRows() {
    Add("keep");
    return num_parts-- > 0;
  }
  void Head() { Add("head"); }
};

NamedWeights::Layer::Linears Linears(std::initializer_list<LinearRole> roles) {
  NamedWeights::Layer::Linears linears;
  for (const LinearRole role : roles) linears.push_back({{role}, {}});
  return linears;
}
NamedWeights::Layer::Linears LinearsOfBoth() {
  return Linears({LinearRole::kQkv, LinearRole::kOut, LinearRole::kGateUp, LinearRole::kDown});
}

NamedWeights TwoLayers() {
  NamedWeights weights;
  for (const std::string i : {"0", "1"}) {
    NamedWeights::Layer::Norms norms;
    norms[static_cast<size_t>(NormRole::kPreAttention)].weight = "in" + i;
    norms[static_cast<size_t>(NormRole::kPostAttention)].weight = "attended" + i;
    norms[static_cast<size_t>(NormRole::kPreFfn)].weight = "ffn" + i;
    norms[static_cast<size_t>(NormRole::kPostFfn)].weight = "done" + i;
    weights.layers.push_back({LinearsOfBoth(), norms});
  }
  weights.final_norm.weight = "final";
  return weights;
}

TEST(RunLayers, CallsEachOperationInTheOrderOfADecoder) {
  RecordingOps ops;
  RunLayers(TwoLayers(), ops);
  EXPECT_EQ(ops.calls, (std::vector<std::string>{"embed",
                                                 "norm in0",  //
                                                 "qkv0",
                                                 "kv0",
                                                 "attend0",
                                                 "out0",
                                                 "add attended0 norm ffn0",  //
                                                 "gate_up0",
                                                 "activate0",
                                                 "down0",
                                                 "add done0 norm in1",  //
                                                 "qkv1",
                                                 "kv1",
                                                 "attend1",
                                                 "keep",
                                                 "out1",
                                                 "add attended1 norm ffn1",  //
                                                 "gate_up1",
                                                 "activate1",
                                                 "down1",
                                                 "add done1 norm final",
                                                 "head",
                                                 "keep"}));
}

TEST(RunLayers, TheNormOfEmbeddingsIsInFrontOfTheFirstLayer) {
  NamedWeights weights = TwoLayers();
  weights.embedding_norm.weight = "embeddings";
  RecordingOps ops;
  RunLayers(weights, ops);
  EXPECT_EQ(std::vector<std::string>(ops.calls.begin(), ops.calls.begin() + 4),
            (std::vector<std::string>{"embed", "norm embeddings", "norm in0", "qkv0"}));
}

TEST(RunLayers, ParallelBlocksReadTheSameInput) {
  NamedWeights weights = TwoLayers();
  for (auto& layer : weights.layers) {
    NamedWeights::Layer::Norms norms;
    for (NormRole role : {NormRole::kPreAttention, NormRole::kPostFfn}) {
      norms[static_cast<size_t>(role)] = layer.norm(role);
    }
    layer = {LinearsOfBoth(), norms};
  }
  RecordingOps ops{.parallel = true};
  RunLayers(weights, ops);
  const std::vector<std::string> of_a_layer = {
      "norm in0", "qkv0",     "kv0",       "attend0", "out0",
      "add",      "gate_up0", "activate0", "down0",   "add done0 norm in1"};
  EXPECT_EQ(std::vector<std::string>(ops.calls.begin() + 1, ops.calls.begin() + 11), of_a_layer);
}

TEST(RunLayers, ParallelBlocksMayHaveANormEach) {
  RecordingOps ops{.parallel = true};
  RunLayers(TwoLayers(), ops);
  const std::vector<std::string> of_a_layer = {
      "norm in0", "qkv0", "kv0",      "attend0",   "norm ffn0",  // of the same residual
      "out0",     "add",  "gate_up0", "activate0", "down0",     "add done0 norm in1"};
  EXPECT_EQ(std::vector<std::string>(ops.calls.begin() + 1, ops.calls.begin() + 12), of_a_layer);
}

TEST(RunLayers, EndsAfterTheLastKeysAndValuesWhereNoLogitsAreWanted) {
  RecordingOps ops{.num_parts = 0};
  RunLayers(TwoLayers(), ops);
  EXPECT_EQ(ops.calls.back(), "keep");
  EXPECT_EQ(ops.calls[ops.calls.size() - 2], "attend1");
}

// Also writes down when it may copy hidden states.
struct CopyingOps : RecordingOps {
  bool wants_logits = true;  // of the first part

  void CopyStream(size_t layer) { Add("stream" + std::to_string(layer)); }
  bool CopyLastStreams() {
    Add("last streams");
    return std::exchange(wants_logits, false);
  }
};

TEST(RunLayers, StreamsAreCopiedWhereTheyAreComplete) {
  CopyingOps ops;
  RunLayers(TwoLayers(), ops);
  const auto before = [&](const std::string& call) {
    return *(std::ranges::find(ops.calls, call) - 1);
  };
  EXPECT_EQ(before("stream0"), "qkv0");
  EXPECT_EQ(before("stream1"), "qkv1");
  EXPECT_EQ(before("last streams"), "add done1 norm final");
  EXPECT_EQ(before("head"), "last streams");
}

TEST(RunLayers, EndsAfterTheLastStreamsWhereNoLogitsAreWanted) {
  CopyingOps ops;
  ops.wants_logits = false;
  RunLayers(TwoLayers(), ops);
  EXPECT_EQ(ops.calls.end()[-2], "last streams");
}

TEST(RunLayers, FinishesTheLastLayerForEachPartOfTheRows) {
  CopyingOps ops;
  ops.num_parts = 2;
  RunLayers(TwoLayers(), ops);
  const auto first = std::ranges::find(ops.calls, "keep");
  const auto second = std::ranges::find(first + 1, ops.calls.end(), "keep");
  ASSERT_NE(second, ops.calls.end());
  ASSERT_EQ(*(second - 1), "head");
  EXPECT_EQ(std::vector(first, second - 1), std::vector(second, ops.calls.end() - 1));
}

// Layers may have a state beside keys and values, or in their place.
struct RecurrentOps : CopyingOps {
  void Project(size_t layer, LinearRole role) {
    if (!IsOfDelta(role)) return RecordingOps::Project(layer, role);
    static const std::map<LinearRole, std::string> names = {
        {LinearRole::kDeltaInputs, "state in"},   {LinearRole::kDeltaGates, "gates"},
        {LinearRole::kDeltaDecays, "decays"},     {LinearRole::kDeltaOutGates, "out gates"},
        {LinearRole::kScanInputs, "step inputs"}, {LinearRole::kScanSteps, "steps"},
        {LinearRole::kDeltaOut, "state out"}};
    Add(names.at(role) + std::to_string(layer));
  }
  void ConvolveScan(size_t layer) { Add("convolve" + std::to_string(layer)); }
  void RunScan(size_t layer) { Add("scan" + std::to_string(layer)); }
  void RunDeltaRule(size_t layer) { Add("state" + std::to_string(layer)); }
};

TEST(RunLayers, AStateMayBeBesideKeysAndValues) {
  const auto recurrent = {LinearRole::kDeltaInputs, LinearRole::kDeltaOut, LinearRole::kGateUp,
                          LinearRole::kDown};
  NamedWeights weights;
  weights.layers.push_back({Linears(recurrent), {}});
  NamedWeights::Layer::Linears both = LinearsOfBoth();
  for (const auto& linear : Linears({LinearRole::kDeltaInputs, LinearRole::kDeltaOut})) {
    both.push_back(linear);
  }
  weights.layers.push_back({both, {}});
  RecurrentOps ops;
  RunLayers(weights, ops);
  const std::vector<std::string> expected = {
      "embed",      "norm ",    "state in0",  "stream0",    "state0",     "state out0",
      "add  norm ", "gate_up0", "activate0",  "down0",      "add  norm ", "qkv1",
      "stream1",    "kv1",      "attend1",    "state in1",  "state1",     "keep",
      "out1",       "add",      "state out1", "add  norm ", "gate_up1"};
  ASSERT_GT(ops.calls.size(), expected.size());
  EXPECT_EQ(std::vector(ops.calls.begin(), ops.calls.begin() + std::ssize(expected)), expected);
}

// What the inputs give comes before what is made of it.
TEST(RunLayers, DecaysAndOutputGatesMayBeProductsOfTheInputs) {
  NamedWeights weights;
  weights.layers.push_back(
      {Linears({LinearRole::kDeltaInputs, LinearRole::kDeltaOut, LinearRole::kDeltaOutGates,
                LinearRole::kDeltaDecays, LinearRole::kDeltaGates, LinearRole::kGateUp,
                LinearRole::kDown}),
       {}});
  RecurrentOps ops;
  RunLayers(weights, ops);
  const std::vector<std::string> expected = {"state in0", "gates0", "decays0", "out gates0",
                                             "stream0",   "state0", "keep",    "state out0"};
  const auto first = std::ranges::find(ops.calls, "state in0");
  ASSERT_GE(ops.calls.end() - first, std::ssize(expected));
  EXPECT_EQ(std::vector(first, first + std::ssize(expected)), expected);
}

// Of Mamba-1: the convolution comes before what steps, keys and queries come from.
TEST(RunLayers, StepsOfAScanAreProductsOfWhatTheConvolutionGives) {
  NamedWeights weights;
  weights.layers.push_back({Linears({LinearRole::kDeltaInputs, LinearRole::kScanInputs,
                                     LinearRole::kScanSteps, LinearRole::kDeltaOut}),
                            {}});
  RecurrentOps ops;
  RunLayers(weights, ops);
  const std::vector<std::string> expected = {"state in0", "stream0", "convolve0", "step inputs0",
                                             "steps0",    "scan0",   "keep",      "state out0"};
  const auto first = std::ranges::find(ops.calls, "state in0");
  ASSERT_GE(ops.calls.end() - first, std::ssize(expected));
  EXPECT_EQ(std::vector(first, first + std::ssize(expected)), expected);
}

// A feed-forward block, attention and a feed-forward block, each of them a layer.
NamedWeights BlocksAlone() {
  NamedWeights weights;
  for (const bool attends : {false, true, false}) {
    NamedWeights::Layer::Norms norms;
    norms[static_cast<size_t>(NormRole::kPreAttention)].weight =
        "in" + std::to_string(weights.layers.size());
    weights.layers.push_back({attends ? Linears({LinearRole::kQkv, LinearRole::kOut})
                                      : Linears({LinearRole::kGateUp, LinearRole::kDown}),
                              norms});
  }
  weights.final_norm.weight = "final";
  return weights;
}

// The last layer has no keys and values.
struct BlockOps : CopyingOps {
  size_t last_writer() const { return 1; }
};

TEST(RunLayers, LayersMayBeOneBlockAlone) {
  BlockOps ops;
  ops.num_parts = 1;
  RunLayers(BlocksAlone(), ops);
  EXPECT_EQ(ops.calls, (std::vector<std::string>{
                           "embed",
                           "norm in0",  //
                           "gate_up0",      "stream0", "activate0", "down0",
                           "add  norm in1",  //
                           "qkv1",          "stream1", "kv1",       "attend1", "keep",
                           "out1",
                           "add  norm in2",  //
                           "gate_up2",      "stream2", "activate2", "down2",   "add  norm final",
                           "last streams",  "head",    "keep"}));
}

struct ExpertOps : CopyingOps {
  void Project(size_t layer, LinearRole role) {
    static const std::map<LinearRole, std::string> names = {
        {LinearRole::kRouter, "router"},          {LinearRole::kSharedGateUp, "shared up"},
        {LinearRole::kSharedDown, "shared down"}, {LinearRole::kExpertGateUp, "up"},
        {LinearRole::kExpertDown, "down"},        {LinearRole::kExpertsIn, "in"},
        {LinearRole::kExpertsOut, "out"}};
    const auto name = names.find(role);
    if (name == names.end()) return RecordingOps::Project(layer, role);
    Add(name->second);
  }
  void ChooseExperts(size_t) { Add("choose"); }
  void ActivateShared() { Add("activate shared"); }
  void ActivateExperts() { Add("activate"); }
  void MixExperts() { Add("mix"); }
  void MixLatents() { Add("mix latents"); }
  void AddShared() { Add("add shared"); }
};

TEST(RunLayers, ExpertsMayReadAProjection) {
  const auto calls_of = [](std::vector<LinearRole> more) {
    NamedWeights weights = BlocksAlone();
    NamedWeights::Layer::Linears linears =
        Linears({LinearRole::kRouter, LinearRole::kExpertGateUp, LinearRole::kExpertDown});
    for (const LinearRole role : more) linears.push_back({{role}, {}});
    weights.layers.front() = {linears, {}};
    ExpertOps ops;
    RunLayers(weights, ops);
    const auto end = std::ranges::find(ops.calls, "add  norm in1");
    return std::vector<std::string>(std::ranges::find(ops.calls, "router"), end);
  };
  const auto shared = {LinearRole::kSharedGateUp, LinearRole::kSharedDown};
  EXPECT_EQ(calls_of(shared),
            (std::vector<std::string>{"router", "stream0", "choose", "shared up", "activate shared",
                                      "shared down", "up", "activate", "down", "mix"}));
  const auto latent = {LinearRole::kSharedGateUp, LinearRole::kSharedDown, LinearRole::kExpertsIn,
                       LinearRole::kExpertsOut};
  EXPECT_EQ(calls_of(latent),
            (std::vector<std::string>{"router", "stream0", "choose", "shared up", "activate shared",
                                      "shared down", "in", "up", "activate", "down", "mix latents",
                                      "out", "add shared"}));
}

// Layers have residual streams, LAuReL and inputs.
struct StreamOps : CopyingOps {
  void Project(size_t layer, LinearRole role) {
    static const std::map<LinearRole, std::string> names = {
        {LinearRole::kLaurelDown, "laurel down"},
        {LinearRole::kLaurelUp, "laurel up"},
        {LinearRole::kLayerInputGate, "gate"},
        {LinearRole::kLayerInputUp, "up"}};
    const auto name = names.find(role);
    if (name == names.end()) return RecordingOps::Project(layer, role);
    Add(name->second + std::to_string(layer));
  }
  void AddOutput(const Norm& norm) { Add("add " + norm.weight); }
  void ScaleResidual(size_t layer) { Add("scale" + std::to_string(layer)); }
  void ActivateLayerInput(size_t layer) { Add("activate input" + std::to_string(layer)); }
  void PredictStreams(size_t layer) { Add("predict" + std::to_string(layer)); }
  void CorrectStreams(size_t layer) { Add("correct" + std::to_string(layer)); }
  void AddToStreams(const Norm& norm) { Add("add to streams " + norm.weight); }
  void JoinStreams() { Add("join"); }
  void AddLaurel(size_t layer) { Add("laurel" + std::to_string(layer)); }
};

TEST(RunLayers, StreamsArePredictedAndCorrected) {
  NamedWeights weights = TwoLayers();
  for (auto& layer : weights.layers) {
    NamedWeights::Layer::Norms norms;
    for (size_t i = 0; i < norms.size(); ++i) norms[i] = layer.norm(static_cast<NormRole>(i));
    norms[static_cast<size_t>(NormRole::kPostLayerInput)].weight = "input";
    NamedWeights::Layer::Vectors vectors;
    vectors[static_cast<size_t>(VectorRole::kStreamRouter)] = "router";
    auto linears = LinearsOfBoth();
    for (const auto& linear : Linears({LinearRole::kLaurelDown, LinearRole::kLaurelUp,
                                       LinearRole::kLayerInputGate, LinearRole::kLayerInputUp})) {
      linears.push_back(linear);
    }
    layer = {linears, norms, vectors};
  }
  StreamOps ops;
  RunLayers(weights, ops);
  EXPECT_EQ(ops.calls, (std::vector<std::string>{"embed",
                                                 "predict0",
                                                 "norm in0",  //
                                                 "laurel down0",
                                                 "laurel up0",
                                                 "laurel0",
                                                 "qkv0",
                                                 "stream0",
                                                 "kv0",
                                                 "attend0",
                                                 "out0",
                                                 "add attended0 norm ffn0",  //
                                                 "gate_up0",
                                                 "activate0",
                                                 "down0",
                                                 "add done0",
                                                 "correct0",  //
                                                 "gate0",
                                                 "activate input0",
                                                 "up0",
                                                 "add to streams input",
                                                 "predict1",
                                                 "norm in1",  //
                                                 "laurel down1",
                                                 "laurel up1",
                                                 "laurel1",
                                                 "qkv1",
                                                 "stream1",
                                                 "kv1",
                                                 "attend1",
                                                 "keep",
                                                 "out1",
                                                 "add attended1 norm ffn1",  //
                                                 "gate_up1",
                                                 "activate1",
                                                 "down1",
                                                 "add done1",
                                                 "correct1",  //
                                                 "gate1",
                                                 "activate input1",
                                                 "up1",
                                                 "add to streams input",
                                                 "join",
                                                 "norm final",
                                                 "last streams",
                                                 "head",
                                                 "keep"}));
}

using Layer = NamedWeights::Layer;

TEST(LayerWeights, FindsLinearsByRoleAndExpertInWhateverOrderTheyCome) {
  const Layer layer({{{LinearRole::kDown, 1}, {"down1", ""}},
                     {{LinearRole::kQkv}, {"qkv", "bias"}},
                     {{LinearRole::kDown, 0}, {"down0", ""}}},
                    {});
  EXPECT_EQ(layer.linear(LinearRole::kQkv).matrix, "qkv");
  EXPECT_EQ(layer.linear(LinearRole::kQkv).bias, "bias");
  EXPECT_EQ(layer.linear(LinearRole::kDown).matrix, "down0");
  EXPECT_EQ(layer.linear(LinearRole::kDown, 1).matrix, "down1");
  EXPECT_EQ(layer.num_experts(LinearRole::kDown), 2);
  EXPECT_EQ(layer.num_experts(LinearRole::kGateUp), 0);
}

TEST(LayerWeights, RefusesExpertsThatAreMissingOrTwice) {
  EXPECT_THROW(Layer({{{LinearRole::kDown, 1}, {}}}, {}), InternalError);
  EXPECT_THROW(Layer({{{LinearRole::kDown}, {}}, {{LinearRole::kDown}, {}}}, {}), InternalError);
}

// Each block of a layer reads a sum of the streams, and what it gives goes to all of them.
struct CollapsingOps : CopyingOps {
  static std::string NameOf(StreamReader block) {
    return block == StreamReader::kAttention ? "attention" : "ffn";
  }
  void CollapseStreams(size_t layer, StreamReader block) {
    Add("collapse " + NameOf(block) + std::to_string(layer));
  }
  void ExpandStreams(size_t layer, StreamReader block) {
    Add("expand " + NameOf(block) + std::to_string(layer));
  }
  void LeaveStreams() { Add("leave"); }
};

TEST(RunLayers, HyperConnectionsAreAroundEachBlock) {
  NamedWeights weights = TwoLayers();
  for (auto& layer : weights.layers) {
    NamedWeights::Layer::Norms norms;
    norms[static_cast<size_t>(NormRole::kPreAttention)].weight = "in";
    norms[static_cast<size_t>(NormRole::kPreFfn)].weight = "ffn";
    NamedWeights::Layer::Vectors vectors;
    vectors[static_cast<size_t>(VectorRole::kAttentionMix)] = "mix";
    layer = {LinearsOfBoth(), norms, vectors};
  }
  CollapsingOps ops;
  RunLayers(weights, ops);
  EXPECT_EQ(ops.calls, (std::vector<std::string>{"embed",
                                                 "collapse attention0",
                                                 "norm in",  //
                                                 "qkv0",
                                                 "stream0",
                                                 "kv0",
                                                 "attend0",
                                                 "out0",
                                                 "expand attention0",
                                                 "collapse ffn0",
                                                 "norm ffn",  //
                                                 "gate_up0",
                                                 "activate0",
                                                 "down0",
                                                 "expand ffn0",
                                                 "collapse attention1",
                                                 "norm in",  //
                                                 "qkv1",
                                                 "stream1",
                                                 "kv1",
                                                 "attend1",
                                                 "keep",
                                                 "out1",
                                                 "expand attention1",
                                                 "collapse ffn1",
                                                 "norm ffn",  //
                                                 "gate_up1",
                                                 "activate1",
                                                 "down1",
                                                 "expand ffn1",
                                                 "leave",
                                                 "norm final",
                                                 "last streams",
                                                 "head",
                                                 "keep"}));
}

}  // namespace
}  // namespace mlc_native
