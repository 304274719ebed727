#include "grammar/workers.h"

#include <fstream>
#include <thread>

namespace mlc_native {

std::vector<pid_t> Children(const std::string& thread) {
  const std::string folder = thread.empty() ? "thread-self" : "self/task/" + thread;
  std::ifstream file("/proc/" + folder + "/children");
  std::vector<pid_t> children;
  for (pid_t pid = 0; file >> pid;) children.push_back(pid);
  return children;
}

int64_t CpuTicks(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::vector<std::string> fields(14);  // the name has no space in it
  for (std::string& field : fields) file >> field;
  return !file || fields[2] == "Z" ? -1 : std::stoll(fields[13]);
}

void AwaitWork(pid_t worker, const std::function<void()>& start) {
  const int64_t ticks_before = CpuTicks(worker);
  start();
  while (CpuTicks(worker) < ticks_before + 3) std::this_thread::yield();  // idle it uses none
}

std::string SlowEbnf(int variant) {
  std::string rules = "root ::= r" + std::to_string(variant) + "\n";
  for (int i = 0; i < 4000; ++i) {
    rules += "r" + std::to_string(i) + " ::= [a-z]* r" + std::to_string((i * 7 + 1) % 4000) +
             " | [a-y]* r" + std::to_string((i * 5 + 3) % 4000) + " | \"\"\n";
  }
  return rules;
}

}  // namespace mlc_native
