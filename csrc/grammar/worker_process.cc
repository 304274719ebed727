#include "grammar/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

#include "support/check.h"

extern char** environ;

namespace mlc_native {
namespace {

// The file actions of posix_spawn, freed by the destructor.
struct SpawnPlan {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;

  explicit SpawnPlan(int socket) {
    posix_spawn_file_actions_init(&files);
    // The copy comes first: dup2 of a file to itself would keep close-on-exec, and `socket` may be
    // 0, 1 or 2.
    posix_spawn_file_actions_adddup2(&files, socket, kWorkerSocket);
    for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      posix_spawn_file_actions_addopen(&files, stream, "/dev/null", O_RDWR, 0);
    }
    posix_spawnattr_init(&attributes);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
};

// Moves a file to a number other than 3: dup2 of a file to itself would keep close-on-exec.
void MoveOff(int* file) {
  if (*file != kWorkerSocket) return;
  const int moved = fcntl(*file, F_DUPFD_CLOEXEC, kWorkerSocket + 1);
  if (moved < 0) throw std::system_error(errno, std::generic_category(), "fcntl");
  close(*file);
  *file = moved;
}

}  // namespace

WorkerProcess::WorkerProcess(const std::string& program,
                             const std::vector<std::string>& arguments) {
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw std::system_error(errno, std::generic_category(), "socketpair");
  }
  socket_ = ends[0];
  int error = 0;
  try {
    MoveOff(&ends[1]);
    SpawnPlan plan(ends[1]);
    error =
        posix_spawn(&pid_, program.c_str(), &plan.files, &plan.attributes, argv.data(), environ);
  } catch (...) {
    close(ends[0]);
    close(ends[1]);
    throw;
  }
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    throw std::system_error(error, std::generic_category(), program);
  }
}

WorkerProcess::~WorkerProcess() {
  Kill();
  close(socket_);
}

void WorkerProcess::HangUp() const { shutdown(socket_, SHUT_RDWR); }

bool WorkerProcess::IsIdle() const {
  pollfd entry{socket_, POLLIN, 0};
  return poll(&entry, 1, 0) == 0;
}

int WorkerProcess::Kill() {
  if (pid_ < 0) return 0;
  kill(pid_, SIGKILL);  // not reaped yet, so the pid is still its own
  int status = 0;
  pid_t reaped = -1;
  do {
    reaped = waitpid(pid_, &status, 0);
  } while (reaped < 0 && errno == EINTR);
  pid_ = -1;
  // The status is lost if the host ignores SIGCHLD or reaps all children.
  if (reaped < 0) return SIGKILL;
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace mlc_native
