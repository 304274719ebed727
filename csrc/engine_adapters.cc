#include "engine_adapters.h"

#include <utility>

#include "support/error.h"
#include "support/json.h"

namespace mlc_native {
namespace {

constexpr char kField[] = "adapter";

std::string Quoted(const std::string& text) { return JsonExcerpt(JsonValue(text)); }

[[noreturn]] void RefuseName(const std::string& name) {
  throw InvalidRequest(kField,
                       "The adapter " + Quoted(name) + " is loaded already; unload it first");
}

}  // namespace

void EngineAdapters::Load(const std::string& name, const std::string& folder) {
  if (name.empty()) throw InvalidRequest(kField, "The name of an adapter must not be empty");
  if (loader_ == nullptr) {
    throw InvalidConfig("adapters", "The model, or the device that it is on, takes no adapters");
  }
  {
    const MutexLock lock(mutex_);
    if (adapters_.contains(name)) RefuseName(name);
  }
  std::shared_ptr<const ModelAdapter> weights = loader_->Load(folder);
  const MutexLock lock(mutex_);
  const auto adapter = std::make_shared<const RequestAdapter>(RequestAdapter{
      .id = num_loaded_ + 1, .path = folder, .weights = std::move(weights), .loader = loader_});
  if (!adapters_.try_emplace(name, adapter).second) RefuseName(name);
  ++num_loaded_;
}

void EngineAdapters::LoadAll(const std::vector<std::string>& adapters) {
  for (const std::string& adapter : adapters) {
    const size_t at = adapter.find('=');
    if (at == adapter.npos || at == 0 || at + 1 == adapter.size()) {
      throw InvalidConfig("adapters",
                          OutOfRangeMessage("adapters", adapter, "a list of \"NAME=FOLDER\""));
    }
    try {
      Load(adapter.substr(0, at), adapter.substr(at + 1));
    } catch (const InvalidRequest& error) {
      throw InvalidConfig("adapters", error.what());
    }
  }
}

void EngineAdapters::Unload(const std::string& name) {
  const MutexLock lock(mutex_);
  const auto found = adapters_.find(name);
  if (found == adapters_.end()) {
    throw InvalidRequest(kField, "There is no adapter " + Quoted(name) + Loaded());
  }
  adapters_.erase(found);
}

std::vector<AdapterInfo> EngineAdapters::List() const {
  const MutexLock lock(mutex_);
  std::vector<AdapterInfo> list;
  list.reserve(adapters_.size());
  for (const auto& [name, adapter] : adapters_) {
    list.push_back({.name = name,
                    .path = adapter->path,
                    .rank = adapter->weights->rank(),
                    .num_bytes = adapter->weights->num_bytes()});
  }
  return list;
}

std::string EngineAdapters::Loaded() const {
  if (adapters_.empty()) return "; none is loaded";
  std::string names;
  for (const auto& [name, adapter] : adapters_) {
    names += (names.empty() ? "; there are " : ", ") + Quoted(name);
    if (names.size() > 200) return names + ", ...";
  }
  return names;
}

void EngineAdapters::ResolveFor(Request* request) const {
  const std::string& name = request->generation_cfg.adapter;
  if (name.empty()) return;
  const MutexLock lock(mutex_);
  const auto found = adapters_.find(name);
  if (found == adapters_.end()) {
    throw InvalidRequest(kField, "There is no adapter " + Quoted(name) + Loaded());
  }
  request->adapter = found->second;
}

void EngineAdapters::Check(const Request& request) const {
  if (request.generation_cfg.adapter.empty()) return;
  if (request.adapter != nullptr && request.adapter->loader == loader_) return;
  throw InvalidRequest(kField,
                       "The request was not created for this model, so it lacks the adapter " +
                           Quoted(request.generation_cfg.adapter));
}

}  // namespace mlc_native
