// What a program that was compiled with the headers of a newer glibc or libstdc++ wants of them, in
// terms of glibc 2.17 and GCC 8. Linked statically, and hidden, into each library and program of a
// release: see make_baseline.py. Any thread.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#pragma GCC visibility push(hidden)

struct stat;

// glibc 2.33 made functions of these, which were inline functions on others with a number for the
// layout.
#if defined(__x86_64__)
enum { kStatVersion = 1 };
#else
enum { kStatVersion = 0 };
#endif
#pragma GCC visibility push(default)
int __xstat(int version, const char* path, struct stat* result);
int __lxstat(int version, const char* path, struct stat* result);
int __fxstat(int version, int file, struct stat* result);
int __fxstatat(int version, int folder, const char* path, struct stat* result, int flags);
#pragma GCC visibility pop
int stat(const char* path, struct stat* result) { return __xstat(kStatVersion, path, result); }
int lstat(const char* path, struct stat* result) { return __lxstat(kStatVersion, path, result); }
int fstat(int file, struct stat* result) { return __fxstat(kStatVersion, file, result); }
int fstatat(int folder, const char* path, struct stat* result, int flags) {
  return __fxstatat(kStatVersion, folder, path, result, flags);
}

// glibc 2.32 says so where there is one thread, which spares libstdc++ some atomic operations.
char __libc_single_threaded = 0;

// glibc 2.30.
pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }

// glibc 2.30 has waits with a deadline on any clock, which are used where they are. Else the
// deadline is translated to CLOCK_REALTIME, which is that of conditions that are made without
// attributes, as those of libstdc++ are, and of mutexes. A change of that clock during the wait
// moves it: the callers in libstdc++ look at their own clock again.

typedef struct Found {
  void* function;
  int looked_for;
} Found;

static void* OfSystem(Found* found, const char* name) {
  if (!__atomic_load_n(&found->looked_for, __ATOMIC_ACQUIRE)) {
    __atomic_store_n(&found->function, dlsym(RTLD_DEFAULT, name), __ATOMIC_RELAXED);
    __atomic_store_n(&found->looked_for, 1, __ATOMIC_RELEASE);
  }
  return __atomic_load_n(&found->function, __ATOMIC_RELAXED);
}

// Returns 0, or EINVAL for a clock that there is not.
static int ToRealTime(clockid_t clock, const struct timespec* deadline, struct timespec* real) {
  struct timespec now;
  if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, real) != 0) return EINVAL;
  const long kSecond = 1000000000;
  real->tv_sec += deadline->tv_sec - now.tv_sec;
  real->tv_nsec += deadline->tv_nsec - now.tv_nsec;
  if (real->tv_nsec < 0) real->tv_sec -= 1, real->tv_nsec += kSecond;
  if (real->tv_nsec >= kSecond) real->tv_sec += 1, real->tv_nsec -= kSecond;
  return 0;
}

typedef int (*CondClockWait)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* deadline) {
  static Found found;
  void* const of_system = OfSystem(&found, "pthread_cond_clockwait");
  if (of_system != NULL) return ((CondClockWait)of_system)(condition, mutex, clock, deadline);
  if (clock == CLOCK_REALTIME) return pthread_cond_timedwait(condition, mutex, deadline);
  struct timespec real;
  const int failed = ToRealTime(clock, deadline, &real);
  return failed ? failed : pthread_cond_timedwait(condition, mutex, &real);
}

typedef int (*MutexClockLock)(pthread_mutex_t*, clockid_t, const struct timespec*);

// Of std::timed_mutex.
int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock,
                            const struct timespec* deadline) {
  static Found found;
  void* const of_system = OfSystem(&found, "pthread_mutex_clocklock");
  if (of_system != NULL) return ((MutexClockLock)of_system)(mutex, clock, deadline);
  if (clock == CLOCK_REALTIME) return pthread_mutex_timedlock(mutex, deadline);
  struct timespec real;
  const int failed = ToRealTime(clock, deadline, &real);
  return failed ? failed : pthread_mutex_timedlock(mutex, &real);
}

// GCC 11 made these members of std::exception_ptr public, and its headers call them. Before, the
// copy constructor and the destructor, which every version has, were all that counted references.
// (The static libstdc++ has them in a file with std::terminate, which shall be that of the
// process.)
typedef struct ExceptionPtr {
  void* exception;
} ExceptionPtr;
#pragma GCC visibility push(default)
void CopyExceptionPtr(ExceptionPtr* self, const ExceptionPtr* other) __asm__(
    "_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
void DestroyExceptionPtr(ExceptionPtr* self) __asm__("_ZNSt15__exception_ptr13exception_ptrD1Ev");
#pragma GCC visibility pop
void AddReference(ExceptionPtr* self) __asm__("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
void AddReference(ExceptionPtr* self) {
  ExceptionPtr kept;  // never destroyed, so its reference stays
  CopyExceptionPtr(&kept, self);
}
void ReleaseReference(ExceptionPtr* self) __asm__(
    "_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
void ReleaseReference(ExceptionPtr* self) {
  DestroyExceptionPtr(self);
  self->exception = NULL;
}
