// Which lock guards what, in words that clang checks (-Wthread-safety) and other compilers skip.
// See https://clang.llvm.org/docs/ThreadSafetyAnalysis.html. For locks that carry these
// annotations: support/mutex.h. tools/tidy.sh runs the check.
#pragma once

#if defined(__clang__)
#define MLC_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define MLC_THREAD_ANNOTATION(x)
#endif

// Of a class: its objects are locks.
#define MLC_CAPABILITY(name) MLC_THREAD_ANNOTATION(capability(name))
// Of a class: its objects hold a lock from construction to destruction.
#define MLC_SCOPED_CAPABILITY MLC_THREAD_ANNOTATION(scoped_lockable)
// Of a member: it is read and written only while `mutex` is held.
#define MLC_GUARDED_BY(mutex) MLC_THREAD_ANNOTATION(guarded_by(mutex))
// Of a function: the caller holds the lock.
#define MLC_REQUIRES(...) MLC_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
// Of a function: it takes the lock and keeps it, or gives it back.
#define MLC_ACQUIRE(...) MLC_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define MLC_RELEASE(...) MLC_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
// Of a function whose body clang cannot follow; what it promises to callers still holds.
#define MLC_NO_THREAD_SAFETY_ANALYSIS MLC_THREAD_ANNOTATION(no_thread_safety_analysis)
