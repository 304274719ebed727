#include "grammar/big_stack.h"

#include <pthread.h>

#include <exception>
#include <system_error>

#include "support/library_thread.h"

namespace mlc_native {
namespace {

struct Job {
  const std::function<void()>& work;
  std::exception_ptr error{};
};

void* RunJob(void* argument) {
  Job& job = *static_cast<Job*>(argument);
  try {
    job.work();
  } catch (...) {
    job.error = std::current_exception();
  }
  return nullptr;
}

}  // namespace

void RunOnBigStack(size_t stack_bytes, const std::function<void()>& work) {
  Job job{work};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stack_bytes);
  pthread_t thread;
  const int error = [&] {
    const SignalsBlocked blocked;
    return pthread_create(&thread, &attributes, RunJob, &job);
  }();
  pthread_attr_destroy(&attributes);
  if (error != 0) throw std::system_error(error, std::generic_category(), "pthread_create");
  pthread_join(thread, nullptr);
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace mlc_native
