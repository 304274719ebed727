// Memory on machines with several NUMA nodes. Any thread.
#pragma once

#include <cstddef>

namespace mlc_native {

// What is written first from now on lies on the nodes that the process may use in turns, a page (or
// huge page) on each, so that the threads of no node have all of it far away. Returns false, and
// changes nothing, where the system cannot do that or does not allow it, as in many containers.
bool SpreadOverNodes(std::byte* data, size_t size);

}  // namespace mlc_native
