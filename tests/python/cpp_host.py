"""The sources of a program in C++ that builds on the wheel, and of a model of its own."""

CONSUMER_CMAKE = """
cmake_minimum_required(VERSION 3.24)
project(consumer LANGUAGES CXX)
find_package(mlc_native 0.1 REQUIRED)
add_executable(consumer main.cc)
target_link_libraries(consumer PRIVATE mlc_native::mlc_native)

add_library(my_model SHARED my_model.cc)  # for model_lib=
target_link_libraries(my_model PRIVATE mlc_native::mlc_native)
"""

MY_MODEL_CC = """
#include <mlc_native/errors.h>
#include <mlc_native/model.h>

#include <fstream>
#include <vector>

namespace {

// The most likely token is the one before plus one.
class CountingModel : public mlc_native::Model {
 public:
  CountingModel() {
    metadata_.vocab_size = 32;
    metadata_.context_window_size = 64;
    metadata_.kv_bytes_per_token = 1;
  }
  const mlc_native::ModelMetadata& metadata() const override { return metadata_; }
  void Allocate(int64_t, int64_t, int64_t max_num_logits) override {
    logits_.resize(max_num_logits * metadata_.vocab_size);
  }
  mlc_native::LogitsView Forward(const mlc_native::ForwardBatch& batch) override {
    const auto num_rows = static_cast<int64_t>(batch.logits_rows.size());
    const mlc_native::LogitsView view{logits_.data(), num_rows, metadata_.vocab_size};
    for (int64_t i = 0; i < num_rows; ++i) {
      for (float& logit : view.row(i)) logit = 0;
      const int32_t token = batch.token_ids[batch.logits_rows[i]];
      view.row(i)[(token + 1) % metadata_.vocab_size] = 100;
    }
    return view;
  }
  void CopyPages(std::span<const mlc_native::PageCopy>) override {}

 private:
  mlc_native::ModelMetadata metadata_;
  std::vector<float> logits_;
};

}  // namespace

extern "C" int mlc_native_plugin_abi() { return mlc_native::kModelPluginAbi; }
extern "C" mlc_native::Model* mlc_native_create_model(const mlc_native::ModelSource* source) {
  if (std::ifstream(source->path + "/refuse")) throw mlc_native::LoadError("refuse", "refused");
  return new CountingModel;
}
"""

CONSUMER_CC = """
#include <mlc_native/errors.h>
#include <mlc_native/grammar.h>
#include <mlc_native/threaded_engine.h>

#include <future>
#include <iostream>
#include <thread>

// The helper process included: a regex is never compiled here first.
bool GrammarsWork() {
  mlc_native::GrammarVocab vocab{{"a", "b", "</s>"}, {2}, 3};
  const auto compiler = mlc_native::CreateGrammarCompiler(vocab, {});
  const auto matcher = compiler->Compile({mlc_native::GrammarKind::kRegex, "ab*"})->NewMatcher(1);
  return matcher->AcceptToken(0) && !matcher->AcceptToken(0) && matcher->AcceptToken(1);
}

int main(int argc, char** argv) {
  if (argc < 3) {
    try {
      std::cout << (GrammarsWork() ? "grammars work" : "grammars are wrong");
    } catch (const mlc_native::InvalidConfig& error) {
      std::cout << error.what();
    }
    return 0;
  }
  const std::string model = argv[1], model_lib = argv[2];
  std::promise<void> finished;
  std::vector<int32_t> tokens;
  auto engine = mlc_native::ThreadedEngine::Create();
  engine->InitThreadedEngine("cpu", [&](std::vector<mlc_native::RequestStreamOutput> outputs) {
    for (const auto& output : outputs) {
      for (const auto& delta : output.group) {
        tokens.insert(tokens.end(), delta.token_ids.begin(), delta.token_ids.end());
      }
      if (output.is_final()) finished.set_value();
    }
  }, nullptr);
  engine->Start();
  const auto reload = [&](const std::string& folder) {
    engine->Reload(R"({"model": ")" + folder + R"(", "model_lib": ")" + model_lib + R"("})");
  };
  for (const char* wrong : {"/does/not/exist", "/refused"}) {
    try {
      reload(model + wrong);
    } catch (const mlc_native::LoadError& error) {
      std::cout << error.field() << ", ";
    }
  }
  reload(model);
  mlc_native::GenerationConfig config;
  config.max_tokens = 4;
  config.temperature = 0;
  engine->AddRequest(
      engine->CreateRequest("r", {mlc_native::TokenData{{1, 2, 3}}}, config));
  finished.get_future().get();
  for (const int32_t token : tokens) std::cout << token << ' ';
  engine->Stop();
}
"""
