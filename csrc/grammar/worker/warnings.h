// CapturedWarnings keeps what the grammar library logs: its warnings say that it leaves out a part
// of a grammar, and it has no other way to say so. The library writes to std::cerr, which belongs
// to the worker's process, so this is for one thread of that process at a time.
#pragma once

#include <sstream>
#include <string>

namespace mlc_native {

class CapturedWarnings {
 public:
  CapturedWarnings();
  ~CapturedWarnings();  // what is no warning goes where it would have gone
  CapturedWarnings(const CapturedWarnings&) = delete;
  CapturedWarnings& operator=(const CapturedWarnings&) = delete;

  // The first warning so far, without its time and place; empty if there is none.
  std::string First() const;

 private:
  std::ostringstream log_;
  std::streambuf* const before_;
};

}  // namespace mlc_native
