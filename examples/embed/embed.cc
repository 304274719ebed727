// A C++ program with a language model inside: continues a text and prints the words as they come.
//
//   build/embed/embed path/to/checkpoint "The capital of France is"
#include <mlc_native/errors.h>
#include <mlc_native/threaded_engine.h>
#include <mlc_native/tokenizer.h>

#include <exception>
#include <future>
#include <iostream>
#include <string>
#include <vector>

namespace {

// Prints one answer. The engine calls Receive on the stream-back thread, with all outputs that have
// queued up.
class Printer {
 public:
  void Receive(const std::vector<mlc_native::RequestStreamOutput>& outputs) {
    for (const mlc_native::RequestStreamOutput& output : outputs) {
      for (const mlc_native::SequenceDelta& delta : output.group) {
        std::cout << delta.extra_prefix_string << delta.text << std::flush;
      }
      if (!output.error_message.empty()) error_ = output.error_message;
      // Each request has exactly one final output, which is its last.
      if (output.is_final()) finished_.set_value(error_);
    }
  }

  // Waits for the end of the answer; returns an error message, empty without an error.
  std::string Wait() { return finished_.get_future().get(); }

 private:
  std::string error_;
  std::promise<std::string> finished_;
};

std::vector<int32_t> Encode(const std::string& model, const mlc_native::TokenTable& table,
                            const std::string& text) {
  std::string reason;
  const auto encoder =
      mlc_native::TextEncoder::FromTokenizerJson(model + "/tokenizer.json", table, &reason);
  std::vector<int32_t> tokens;
  if (encoder == nullptr || !encoder->Encode(text, &tokens)) {
    throw mlc_native::InvalidRequest("prompt", "this tokenizer cannot encode the text " + reason);
  }
  return tokens;
}

int Run(const std::string& model, const std::string& prompt) {
  Printer printer;  // outlives the engine, which calls it
  const auto engine = mlc_native::ThreadedEngine::Create();
  engine->InitThreadedEngine(
      "auto",
      [&](const std::vector<mlc_native::RequestStreamOutput>& outputs) {
        printer.Receive(outputs);
      },
      nullptr);
  engine->Start();  // its two threads, until it is destroyed

  mlc_native::EngineConfig config;
  config.model = model;
  engine->Reload(config.AsJSONString());

  mlc_native::GenerationConfig generation = engine->GetDefaultGenerationConfig();
  generation.temperature = 0;
  generation.max_tokens = 32;
  const std::vector<int32_t> tokens = Encode(model, *engine->GetTokenTable(), prompt);
  std::cout << prompt << std::flush;
  // CreateRequest checks everything that the caller can get wrong; AddRequest returns at once.
  engine->AddRequest(engine->CreateRequest("first", {mlc_native::TokenData{tokens}}, generation));
  const std::string error = printer.Wait();
  std::cout << '\n';
  if (error.empty()) return 0;
  std::cerr << error << '\n';
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: embed MODEL_FOLDER PROMPT\n";
    return 2;
  }
  try {
    return Run(argv[1], argv[2]);
  } catch (const std::exception& error) {
    // InvalidConfig, InvalidRequest and LoadError name the field, the value and what is allowed.
    std::cerr << error.what() << '\n';
    return 1;
  }
}
