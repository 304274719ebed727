// The fake model as a plug-in library for model_lib=: reads its options and exports it.
#include <chrono>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

#include "fake_model/fake_model.h"
#include "support/error.h"

namespace mlc_native::testing {
namespace {

using nlohmann::json;

// Reads members of the "fake" object and remembers their names, so that unknown ones are refused.
class OptionReader {
 public:
  explicit OptionReader(const json& object) : object_(object) {}

  template <typename T>
  void Read(const char* name, T* value) {
    known_.insert(name);
    const auto found = object_.find(name);
    if (found == object_.end()) return;
    try {
      *value = found->get<T>();
    } catch (const json::exception& error) {
      throw LoadError(name,
                      std::string("config.json: \"fake\": \"") + name + "\": " + error.what());
    }
  }

  void RefuseUnknown() const {
    for (const auto& [name, value] : object_.items()) {
      if (!known_.contains(name)) {
        throw LoadError(name, "config.json: \"fake\" has no setting \"" + name + '"');
      }
    }
  }

 private:
  const json& object_;
  std::set<std::string> known_;
};

}  // namespace

FakeModelOptions ReadFakeModelOptions(const std::string& model_path) {
  const std::string path = model_path + "/config.json";
  std::ifstream file(path);
  const json config = json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!file || !config.is_object()) throw LoadError(path, path + " is missing or no JSON object");
  const json fake = config.value("fake", json::object());
  if (!fake.is_object()) throw LoadError("fake", path + ": \"fake\" must be an object");

  FakeModelOptions options;
  std::string cost = "spin";
  OptionReader reader(fake);
  reader.Read("vocab_size", &options.vocab_size);
  reader.Read("context_window_size", &options.context_window_size);
  reader.Read("max_batch_size", &options.max_batch_size);
  reader.Read("prefill_chunk_size", &options.prefill_chunk_size);
  reader.Read("kv_bytes_per_token", &options.kv_bytes_per_token);
  reader.Read("free_memory_bytes", &options.free_memory_bytes);
  reader.Read("history_window", &options.history_window);
  reader.Read("eos_token_id", &options.eos_token_id);
  reader.Read("script", &options.script);
  reader.Read("peak", &options.peak);
  reader.Read("reuse_rows", &options.reuse_rows);
  reader.Read("run_ahead", &options.run_ahead);
  reader.Read("is_recurrent", &options.is_recurrent);
  reader.Read("gives_states", &options.gives_states);
  reader.Read("has_head", &options.has_head);
  reader.Read("us_per_step", &options.us_per_step);
  reader.Read("us_per_row", &options.us_per_row);
  reader.Read("load_parts", &options.load_parts);
  reader.Read("us_per_load_part", &options.us_per_load_part);
  reader.Read("cost", &cost);
  reader.Read("fail_at_forward", &options.fail_at_forward);
  reader.Read("fail_always", &options.fail_always);
  reader.Read("fail_copy_at", &options.fail_copy_at);
  reader.Read("fail_at_sample", &options.fail_at_sample);
  reader.Read("fail_at_collect", &options.fail_at_collect);
  reader.Read("poison_token", &options.poison_token);
  reader.Read("nan_token", &options.nan_token);
  reader.RefuseUnknown();
  if (cost != "spin" && cost != "sleep") {
    throw LoadError("cost", OutOfRangeMessage("cost", cost, "\"spin\" or \"sleep\""));
  }
  options.sleep = cost == "sleep";
  return options;
}

}  // namespace mlc_native::testing

extern "C" int mlc_native_plugin_abi() { return mlc_native::kModelPluginAbi; }

extern "C" mlc_native::Model* mlc_native_create_model(const mlc_native::ModelSource* source) {
  using mlc_native::testing::FakeModel;
  const auto options = mlc_native::testing::ReadFakeModelOptions(source->path);
  for (int64_t part = 1; part <= options.load_parts; ++part) {
    std::this_thread::sleep_for(
        std::chrono::duration<double, std::micro>(options.us_per_load_part));
    if (source->progress) source->progress(part, options.load_parts);
  }
  return new FakeModel(options);
}
