#include "sim/pins.h"

#include <algorithm>
#include <utility>

#include "mlc_native/config.h"
#include "mlc_native/detail/page.h"
#include "support/error.h"

namespace mlc_native::sim {
namespace {

bool IsPinned(const Engine& engine, int64_t id) {
  const std::vector<PinnedPrefix> pinned = engine.PinnedPrefixes();
  return std::any_of(pinned.begin(), pinned.end(),
                     [id](const PinnedPrefix& prefix) { return prefix.id == id; });
}

}  // namespace

std::string Pins::Act(Engine& engine, SimRandom& rng, const std::vector<int32_t>& tokens) {
  if (pins_.empty() || rng.Chance(0.5)) return PinSome(engine, rng, tokens);
  if (rng.Chance(0.1)) return UnpinUnknown(engine, rng);
  const auto pin = std::next(pins_.begin(), rng.Range(0, std::ssize(pins_) - 1));
  const int64_t id = pin->first;
  CheckIsCached(engine, pin->second);
  Unpin(engine, id);
  return "unpin " + std::to_string(id);
}

std::string Pins::PinSome(Engine& engine, SimRandom& rng, std::vector<int32_t> tokens) {
  if (rng.Chance(0.5)) tokens.resize(rng.Range(0, std::ssize(tokens)));
  const std::string what = "pin " + std::to_string(tokens.size()) + " tokens: ";
  int64_t id = 0;
  try {
    id = engine.PinPrefix(tokens);
  } catch (const InvalidRequest&) {  // not in the cache, or too many
    return what + "refused";
  }
  if (engine.config().prefix_cache_mode == PrefixCacheMode::kDisable) {
    fail_("a prompt was pinned without a prefix cache");
  }
  if (engine.PinPrefix(tokens) != id) fail_("the same tokens have two pins");
  pins_[id] = {.num_tokens = std::ssize(tokens), .tokens = std::move(tokens)};
  return what + std::to_string(id);
}

void Pins::Unpin(Engine& engine, int64_t id) {
  engine.UnpinPrefix(id);
  if (IsPinned(engine, id)) fail_("pin " + std::to_string(id) + " outlives its UnpinPrefix");
  pins_.erase(id);
  Check(engine);
}

std::string Pins::UnpinUnknown(Engine& engine, SimRandom& rng) {
  const int64_t id = pins_.rbegin()->first + rng.Range(1, 1000);
  try {
    engine.UnpinPrefix(id);
  } catch (const InvalidRequest&) {
    return "unpin what is not pinned";
  }
  fail_("pin " + std::to_string(id) + " was never made, but could be unpinned");
  return "";
}

// Its whole pages are pinned already, so there is room for a pin of them alone.
void Pins::CheckIsCached(Engine& engine, const Pin& pin) {
  const int64_t num_tokens = std::ssize(pin.tokens) / kKvPageSize * kKvPageSize;
  if (num_tokens == 0) return;
  const std::vector<int32_t> whole_pages(pin.tokens.begin(), pin.tokens.begin() + num_tokens);
  try {
    const int64_t id = engine.PinPrefix(whole_pages);
    if (!pins_.contains(id)) engine.UnpinPrefix(id);
  } catch (const InvalidRequest& error) {
    fail_(std::string("a pinned prompt is not in the prefix cache: ") + error.what());
  }
}

void Pins::Check(const Engine& engine) {
  std::map<int64_t, int64_t> now;
  for (const PinnedPrefix& prefix : engine.PinnedPrefixes()) now[prefix.id] = prefix.num_tokens;
  for (const auto& [id, pin] : pins_) {
    const auto found = now.find(id);
    if (found == now.end() || found->second != pin.num_tokens) {
      fail_("pin " + std::to_string(id) + " of " + std::to_string(pin.num_tokens) +
            " tokens is gone");
    }
  }
  for (const auto& [id, num_tokens] : now) pins_.try_emplace(id, Pin{num_tokens, {}});
}

void Pins::UnpinAll(Engine& engine) {
  Check(engine);
  while (!pins_.empty()) {
    CheckIsCached(engine, pins_.begin()->second);
    Unpin(engine, pins_.begin()->first);
  }
}

}  // namespace mlc_native::sim
