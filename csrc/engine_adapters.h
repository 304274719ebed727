// EngineAdapters: the adapters that are loaded for the model of one engine, by name.
//
// A request takes its adapter when it is created, and holds it to its end: what is unloaded
// meanwhile stays in memory as long as a request needs it. Each load has an id of its own, which is
// part of the space of the prefix cache, so that a name that is loaded again finds nothing of the
// adapter before. Shared by the engine and the threads that create requests for it. Thread-safe;
// Load blocks its caller and is not called on the engine's thread while it serves.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mlc_native/data.h"
#include "mlc_native/model.h"
#include "request/request.h"
#include "support/mutex.h"

namespace mlc_native {

class EngineAdapters {
 public:
  // A null loader: the model takes none.
  explicit EngineAdapters(std::shared_ptr<const AdapterLoader> loader)
      : loader_(std::move(loader)) {}

  // Throws InvalidRequest for a name that is empty or in use, LoadError, and InvalidConfig if the
  // model takes no adapters.
  void Load(const std::string& name, const std::string& folder);
  // Those of EngineConfig::adapters. Throws InvalidConfig for what is not "NAME=FOLDER".
  void LoadAll(const std::vector<std::string>& adapters);
  // Throws InvalidRequest for a name that is not loaded.
  void Unload(const std::string& name);
  std::vector<AdapterInfo> List() const;  // in the order of names

  // Fills in the adapter that the request names. Throws InvalidRequest if there is none.
  void ResolveFor(Request* request) const;
  // Throws InvalidRequest if the request names an adapter and has none of this engine.
  void Check(const Request& request) const;

 private:
  std::string Loaded() const MLC_REQUIRES(mutex_);

  const std::shared_ptr<const AdapterLoader> loader_;
  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<const RequestAdapter>> adapters_ MLC_GUARDED_BY(mutex_);
  int64_t num_loaded_ MLC_GUARDED_BY(mutex_) = 0;  // ever
};

}  // namespace mlc_native
