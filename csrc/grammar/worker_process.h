// WorkerProcess: one running helper program and the socket to it. Movable nowhere, used by one
// thread at a time. The destructor kills and reaps the process: no zombie, no file left open.
//
// The child is started with posix_spawn (nothing of the parent's memory is copied), with default
// signal handlers, in a process group of its own, standard streams on /dev/null and the socket as
// file 3; it closes every other file itself. It is reaped by its own pid, so no SIGCHLD handler is
// touched. It ends when the socket closes, hence with its parent.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace mlc_native {

inline constexpr int kWorkerSocket = 3;  // in the child

class WorkerProcess {
 public:
  // Throws std::system_error when the program cannot be started.
  WorkerProcess(const std::string& program, const std::vector<std::string>& arguments);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  int socket() const { return socket_; }
  // The process is there and has said nothing unasked.
  bool IsIdle() const;
  // Kills it, reaps it and returns the signal it had died of by then; 0 when it had exited by
  // itself, SIGKILL when it was still running.
  int Kill();

 private:
  int socket_ = -1;
  pid_t pid_ = -1;  // -1: reaped
};

}  // namespace mlc_native
