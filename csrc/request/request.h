// A request as admitted: immutable, shared by queues and states. Created and validated on the
// caller's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mlc_native/config.h"
#include "mlc_native/data.h"
#include "mlc_native/detail/export.h"

namespace mlc_native {

class CompiledGrammar;
class Retokenizer;
class TokenTable;

// Python shares it with C++: a Python object refers to the same owners, so that the last of them is
// free to go without the GIL.
struct Request : std::enable_shared_from_this<Request> {
  std::string id;
  std::vector<Data> inputs;               // as given
  std::vector<int32_t> prompt_token_ids;  // all inputs flattened; never empty
  GenerationConfig generation_cfg;        // validated, seed filled in
  // The answer is a turn of a chat, thus a text of its own: it loses the leading space that the
  // tokenizer's decoder strips from texts. A continuation of the prompt keeps it.
  bool begins_turn = false;
  // What generation_cfg.response_format became, and the tokens that it was compiled for. Null when
  // the answer is not constrained.
  std::shared_ptr<const CompiledGrammar> grammar;
  std::shared_ptr<const TokenTable> grammar_tokens;
  // Encodes text that the grammar forces, for jump-forward decoding or as drafts. May be null.
  std::shared_ptr<const Retokenizer> retokenizer;
  // It was given up while its grammar compiled: it has none and ends as soon as it is added.
  bool is_aborted = false;

  // False for what is answered at once, however long the queue.
  bool needs_queue_slot() const {
    return !is_aborted && generation_cfg.debug_config.special_request.empty();
  }
  // What the grammar forces is put in without a forward (jump-forward decoding).
  bool jumps() const {
    return retokenizer != nullptr &&
           generation_cfg.debug_config.grammar_execution_mode == "jump_forward";
  }
  int64_t prompt_len() const { return static_cast<int64_t>(prompt_token_ids.size()); }
};

// The largest n of a request. Answers beyond max_num_sequence wait until others have ended.
int64_t MaxAnswers(const RequestLimits& limits);

// Throws InvalidRequest when a prompt of this length could not be pinned even if nothing else was.
void CheckPin(int64_t prompt_len, const RequestLimits& limits);

// Throws InvalidRequest when the request can never be served: empty or too long prompt, token ids
// outside the vocabulary, invalid generation config, n above MaxAnswers, a prompt to be pinned that
// CheckPin refuses. A prompt of exactly max_sequence_length tokens is served.
void CheckRequest(const Request& request, const RequestLimits& limits);

// Fills in the grammar of a request that is right otherwise, or is_aborted; may take seconds.
using CompileGrammar = std::function<void(Request*)>;

// Flattens the inputs and checks the request. Throws InvalidRequest, also for an empty id and for
// untokenized text. Fills in a random seed when none is given. `compile` is called when the answer
// is constrained; without it no engine takes such a request. begins_turn: see Request.
RequestPtr CreateRequest(std::string id, std::vector<Data> inputs, GenerationConfig generation_cfg,
                         const RequestLimits& limits, const CompileGrammar& compile = {},
                         bool begins_turn = false);

// An integer of a caller as a token id. Throws InvalidRequest naming `field` for what no vocabulary
// can hold.
MLC_NATIVE_PRIVATE_API int32_t CheckedTokenId(const char* field, int64_t value);

}  // namespace mlc_native
