#include "run_target.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "grammar/backend.h"
#include "mlc_native/errors.h"

namespace mlc_native::fuzz {

void RunOnce(const Target& target, Bytes input) {
  try {
    target.run(input);
  } catch (const CallerError&) {
  } catch (const GrammarError&) {
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: an error that is not for callers: %s\n",
                 std::string(target.name).c_str(), error.what());
    std::abort();
  }
}

const Target* FindTarget(std::string_view name) {
  const auto targets = Targets();
  const auto found = std::ranges::find(targets, name, &Target::name);
  return found == targets.end() ? nullptr : &*found;
}

}  // namespace mlc_native::fuzz
