"""csrc/cmake/baseline: programs that are linked on its libraries want no newer system, and work."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fake_model import find_test_library

import mlc_native

BASELINE = Path(__file__).resolve().parents[2] / "csrc" / "cmake" / "baseline"
# Wants all of compat.c, what GCC 8 lacks of libstdc++, and a constructor before main.
PROGRAM = """
#include <sys/stat.h>
#include <unistd.h>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

static std::vector<int> before_main = {1, 2, 3};
static int destroyed = 0;
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
  ~Error() override { ++destroyed; }
};

int main(int, char** arguments) {
  std::exception_ptr kept;
  try {
    throw Error("thrown");
  } catch (...) {
    kept = std::current_exception();
  }
  std::string what;
  for (int i = 0; i < 1000; ++i) {
    std::vector<std::exception_ptr> copies(10, kept);
  }
  try {
    std::rethrow_exception(kept);
  } catch (const std::exception& error) {
    what = error.what();
  }
  const int destroyed_early = destroyed;
  kept = nullptr;
  std::mutex mutex;
  std::condition_variable condition;
  bool ready = false;
  std::thread other([&] {
    const std::lock_guard lock(mutex);
    ready = true;
    condition.notify_one();
  });
  std::unique_lock lock(mutex);
  condition.wait(lock, [&] { return ready; });
  const bool in_time = condition.wait_until(
      lock, std::chrono::steady_clock::now() + std::chrono::milliseconds(5), [] { return false; });
  lock.unlock();
  other.join();
  std::timed_mutex timed;
  timed.lock();
  bool locked = true;
  std::thread([&] { locked = timed.try_lock_for(std::chrono::milliseconds(5)); }).join();
  struct stat status;
  double number = 0;
  const std::string digits = "2.5";
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  std::ostringstream out;
  out << before_main.size() << ' ' << what << ' ' << destroyed_early << ' ' << destroyed << ' '
      << in_time << ' ' << locked << ' ' << number << ' '
      << (stat(arguments[0], &status) == 0 && status.st_size > 0) << ' '
      << std::filesystem::exists(arguments[0]) << ' ' << (gettid() == getpid());
  std::puts(out.str().c_str());
}
"""
# Waits with deadlines of a system that has none: compat.c with a dlsym that finds nothing.
WAIT = """
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
int pthread_cond_clockwait(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
int pthread_mutex_clocklock(pthread_mutex_t*, clockid_t, const struct timespec*);
void* no_dlsym(void* library, const char* name) { (void)library, (void)name; return 0; }

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}
int main(void) {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  pthread_mutex_lock(&mutex);
  for (int i = -1; i <= 4; ++i) {  // from 2 on: of a mutex that is locked
    const int of_mutex = i >= 2, later = of_mutex ? i - 3 : i;
    const double began = now(), asked = began + 0.03 * later;
    struct timespec deadline = {.tv_sec = (time_t)asked};
    deadline.tv_nsec = (long)(1e9 * (asked - deadline.tv_sec));
    const int result =
        of_mutex ? pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &deadline)
                 : pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &deadline);
    printf("%d %d ", result == ETIMEDOUT, now() - began > 0.02);
  }
}
"""
NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7,)}


def run(*command: str | Path) -> str:
    done = subprocess.run(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("machine", ["native", "aarch64"])
def test_what_is_linked_on_it_wants_nothing_newer(machine: str, tmp_path: Path) -> None:
    """Only versions that the older system has, and no symbol that no library is named for."""
    compiler, launcher = "g++", []
    if machine != "native":
        prefix = f"{machine}-linux-gnu"
        compiler, launcher = f"{prefix}-g++", [f"qemu-{machine}", "-L", f"/usr/{prefix}"]
        if not shutil.which(compiler) or not shutil.which(launcher[0]):
            pytest.skip(f"{compiler} or {launcher[0]} is not installed")
    libraries = tmp_path / "baseline"
    make = [sys.executable, BASELINE / "make_baseline.py", "--glibc", "2.28"]
    run(*make, "--compiler", compiler, libraries)
    source = tmp_path / "program.cc"
    source.write_text(PROGRAM)
    options = [f"-L{libraries}", "-Wl,--exclude-libs,ALL", "-Wl,--wrap=__libc_start_main"]
    run(compiler, "-std=c++20", "-O1", source, *options, "-o", tmp_path / "program")
    wanted = run("nm", "-D", "-u", tmp_path / "program")
    versions = re.findall(r"@([A-Z]+)_([\d.]+)", wanted)
    assert {"GLIBC", "GLIBCXX"} <= {name for name, _ in versions}
    for name, version in versions:
        assert tuple(map(int, version.split("."))) <= NEWEST[name], wanted
    strong = re.findall(r" U ([^@\s]+)$", wanted, flags=re.MULTILINE)
    assert strong == []
    assert run(*launcher, tmp_path / "program").strip() == "3 thrown 0 1 0 0 2.5 1 1 1"


def test_without_it_the_program_wants_a_newer_system(tmp_path: Path) -> None:
    """The program above does use what older systems lack."""
    source = tmp_path / "program.cc"
    source.write_text(PROGRAM)
    run("g++", "-std=c++20", "-O1", source, "-pthread", "-o", tmp_path / "program")
    wanted = re.findall(r"@([A-Z]+)_([\d.]+)", run("nm", "-D", "-u", tmp_path / "program"))
    newer = [w for w in wanted if tuple(map(int, w[1].split("."))) > NEWEST[w[0]]]
    assert newer


def test_a_wait_with_a_deadline_where_glibc_has_none(tmp_path: Path) -> None:
    """It times out: at once where the deadline is over, and not before it."""
    source = tmp_path / "wait.c"
    source.write_text(WAIT)
    compat = [BASELINE / "compat.c", "-Ddlsym=no_dlsym"]
    run("gcc", "-std=gnu11", source, *compat, "-lstdc++", "-lpthread", "-o", tmp_path / "wait")
    assert run(tmp_path / "wait").split() == 2 * ["1", "0", "1", "0", "1", "1"]


def test_what_is_built_wants_nothing_that_a_release_lacks(tmp_path: Path) -> None:
    """Releases are linked in the nightly set only; this is what their linker would miss."""
    emulated = find_test_library("libmlc_native_cuda_emulated.so", "MLC_NATIVE_CUDA_EMULATED_LIB")
    built = [Path(emulated), *Path(mlc_native.__file__).parent.rglob("*.so")]
    assert len(built) > 4
    libraries = tmp_path / "baseline"
    run(sys.executable, BASELINE / "make_baseline.py", "--glibc", "2.28", libraries)
    there = run("nm", "--defined-only", libraries / "libcompat.a")
    for library in (p for p in libraries.iterdir() if re.search(r"\.so\.\d+$", p.name)):
        there += run("nm", "-D", "--defined-only", library)
    names = set(re.findall(r" [A-Za-z] ([^@\s]+)", there))
    for library in built:
        wanted = run("nm", "-D", "-u", library)
        missing = set(re.findall(r" U ([^@\s]+)@GLIBC_", wanted)) - names
        assert not missing, library
