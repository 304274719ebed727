// InputRowIds: the ids that rows of EmbeddingData have among the tokens of sequences, so that the
// prefix cache knows rows as it knows tokens.
//
// The same rows get the same ids, others never do: ids are given in order and not given again.
// When all 2^30 are gone, a new round begins, which is a space of the prefix cache of its own
// (CacheSpace). What was given is remembered by a hash with a secret key; the oldest is forgotten,
// and those rows get new ids when they come again. One per engine, shared with the threads that
// create requests for it. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>

#include "request/request.h"
#include "support/mutex.h"

namespace mlc_native {

class InputRowIds : public std::enable_shared_from_this<InputRowIds> {
 public:
  struct Options {
    int64_t num_ids = int64_t{1} << 30;  // of a round
    size_t max_remembered = 16384;       // pieces of rows
  };

  InputRowIds() : InputRowIds(Options()) {}
  explicit InputRowIds(const Options& options);

  // Gives the rows of a request their ids.
  void ResolveFor(Request* request);
  // Throws InvalidRequest if the request has rows without ids of this engine.
  void Check(const Request& request) const;

 private:
  using Hash = std::array<uint64_t, 2>;
  struct Piece {
    Hash hash;
    int32_t first_id;
  };

  int32_t FirstIdOf(const Hash& hash, int64_t num_rows) MLC_REQUIRES(mutex_);
  void BeginRound() MLC_REQUIRES(mutex_);

  const Options options_;
  const Hash key_;
  Mutex mutex_;
  int64_t round_ MLC_GUARDED_BY(mutex_) = 0;
  int64_t num_given_ MLC_GUARDED_BY(mutex_) = 0;    // ids of this round
  std::list<Piece> pieces_ MLC_GUARDED_BY(mutex_);  // the one that was asked for last is in front
  std::map<Hash, std::list<Piece>::iterator> by_hash_ MLC_GUARDED_BY(mutex_);
};

}  // namespace mlc_native
