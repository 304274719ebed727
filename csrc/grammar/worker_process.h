// WorkerProcess is one running helper program and the socket to it. Not movable; one thread at a
// time, except for HangUp. The destructor kills and reaps the process and leaves no file open.
//
// The child is started with posix_spawn, which copies nothing of the parent's memory, with default
// signal handlers, in its own process group, with standard streams on /dev/null and the socket as
// file number 3. It closes every other file itself. It is reaped by its pid, so no SIGCHLD handler
// is affected. It ends when the socket closes, and so with its parent.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace mlc_native {

inline constexpr int kWorkerSocket = 3;  // file number in the child

class WorkerProcess {
 public:
  // Throws std::system_error if the program cannot be started.
  WorkerProcess(const std::string& program, const std::vector<std::string>& arguments);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  int socket() const { return socket_; }
  // Ends all transfers over the socket, those that wait, too; the program ends then. Any thread
  // that knows that the object lives.
  void HangUp() const;
  // True if the process runs and has sent nothing unexpected.
  bool IsIdle() const;
  // Kills and reaps the process. Returns the signal that ended it: 0 if it had exited by itself,
  // SIGKILL if it was still running.
  int Kill();

 private:
  int socket_ = -1;
  pid_t pid_ = -1;  // -1: reaped
};

}  // namespace mlc_native
