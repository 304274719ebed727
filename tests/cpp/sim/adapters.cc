#include "sim/adapters.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "mlc_native/errors.h"

namespace mlc_native::sim {

std::string Adapters::Act(const Engine& engine, SimRandom& rng) {
  const std::string name(1, static_cast<char>('a' + rng.Range(0, 2)));
  const std::string folder = std::to_string(rng.Range(1, 4));
  const bool is_loaded = folders_.contains(name);
  if (rng.Chance(0.2)) {
    ExpectRefusal(is_loaded ? "loading a name twice" : "unloading what is not loaded", [&] {
      if (is_loaded) return engine.LoadAdapter(name, folder);
      engine.UnloadAdapter(name);
    });
    Check(engine);
    return "adapter " + name + " is refused";
  }
  if (is_loaded) {
    engine.UnloadAdapter(name);
    folders_.erase(name);
  }
  const bool loads = !is_loaded || rng.Chance(0.5);
  if (loads) {
    engine.LoadAdapter(name, folder);
    folders_[name] = folder;
  }
  Check(engine);
  return "adapter " + name + (loads ? " is " + folder : " is unloaded");
}

std::string Adapters::Pick(SimRandom& rng) const {
  if (folders_.empty()) return "";
  return std::next(folders_.begin(), rng.Range(0, std::ssize(folders_) - 1))->first;
}

void Adapters::Check(const Engine& engine) const {
  const std::vector<AdapterInfo> list = engine.ListAdapters();
  const auto is_same = [](const AdapterInfo& info, const auto& loaded) {
    return info.name == loaded.first && info.path == loaded.second;
  };
  if (!std::ranges::equal(list, folders_, is_same)) fail_("other adapters than were loaded");
}

void Adapters::ExpectRefusal(const std::string& what, const std::function<void()>& action) const {
  try {
    action();
  } catch (const InvalidRequest&) {
    return;
  }
  fail_(what + " was accepted");
}

}  // namespace mlc_native::sim
