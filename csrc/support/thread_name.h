// The name of a thread, which debuggers and top show. Any thread.
#pragma once

#include <pthread.h>

#include <cstddef>

namespace mlc_native {

// Names the calling thread: "mlcn-" and what it does, at most 15 characters in all.
template <size_t kSize>
void NameThisThread(const char (&name)[kSize]) {
  static_assert(kSize <= 16, "Linux keeps 15 characters");
  pthread_setname_np(pthread_self(), name);
}

}  // namespace mlc_native
