// Reference: what a request has to answer whatever happens around it: what it answers alone, in an
// engine with memory in plenty, and for greedy requests and embeddings what the fake model's oracle
// says.
//
// The distribution of greedy requests does not come from the engine at all. One thread.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "mlc_native/engine.h"
#include "sim/scenario.h"
#include "testing/history_checker.h"

namespace mlc_native::sim {

class Reference {
 public:
  Reference(const Scenario& scenario, testing::HistoryChecker::FailureSink fail);

  // Compares each sequence with its reference: ends of their own ("stop", "length") in everything,
  // others as far as they got. True when the request ends with an error alone, too.
  bool Check(const Request& request, const testing::RequestHistory& answer);

 private:
  const testing::RequestHistory& AnswerAlone(const Request& request);
  void UseOwnAdapter(Request* request);
  void CheckSequence(const Request& request, const testing::SequenceHistory& answer,
                     const testing::SequenceHistory& alone);
  void CheckOracle(const Request& request, const testing::SequenceHistory& answer);
  // Bit for bit. True when there is none.
  bool CheckEmbedding(const Request& request, const testing::RequestHistory& answer);
  bool CanSpell() const;
  void CheckGrammar(const Request& request, const testing::SequenceHistory& answer);
  void CheckFirstAnswer(const Request& request, const testing::SequenceHistory& answer);
  void CheckBranches(const Request& request, const testing::RequestHistory& answer);
  void CheckUsage(const Request& request, const testing::RequestHistory& answer,
                  const testing::RequestHistory& alone);
  bool IsStopToken(const Request& request, int32_t token) const;

  const Scenario& scenario_;
  const testing::HistoryChecker::FailureSink fail_;
  testing::HistoryChecker history_;
  const bool can_spell_;
  std::unique_ptr<Engine> engine_;
  std::set<std::string> adapters_;  // that it has loaded
};

}  // namespace mlc_native::sim
