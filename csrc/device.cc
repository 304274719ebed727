#include "device.h"

#include <algorithm>

#include "support/error.h"

namespace mlc_native {

std::vector<std::string> AvailableDevices() { return {"cpu"}; }

std::string ResolveDevice(const std::string& device) {
  const std::vector<std::string> available = AvailableDevices();
  if (device == "auto") return available.back();
  if (std::find(available.begin(), available.end(), device) != available.end()) return device;
  std::string names;
  for (const std::string& name : available) names += (names.empty() ? "\"" : ", \"") + name + '"';
  throw InvalidConfig("device", "device \"" + device + "\" is not available; available: " + names +
                                    " (or \"auto\")");
}

}  // namespace mlc_native
