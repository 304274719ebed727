// A request as admitted: immutable, shared by queues and states. Created and validated on the
// caller's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kv/cache_space.h"
#include "mlc_native/config.h"
#include "mlc_native/data.h"
#include "mlc_native/detail/export.h"

namespace mlc_native {

class AdapterLoader;
class CompiledGrammar;
class InputRowIds;
class ModelAdapter;
class Retokenizer;
class TokenTable;

// An adapter as requests hold it.
struct RequestAdapter {
  int64_t id = 0;  // of this load; above 0
  std::string path;
  std::shared_ptr<const ModelAdapter> weights;
  std::shared_ptr<const AdapterLoader> loader;  // of the model that it is for
};

// Rows of a prompt that are not of tokens: positions [begin, begin + num_rows).
struct PromptRows {
  int64_t begin = 0;
  int64_t num_rows = 0;
  // Of EmbeddingData, of which the first ones may be cut off.
  std::shared_ptr<const std::vector<float>> values;
  int64_t first_value = 0;
  std::vector<RowPosition> positions{};  // of EmbeddingData, and so is this
  int64_t advance = 0;

  int64_t end() const { return begin + num_rows; }
};

// Python shares it with C++: a Python object refers to the same owners, so that the last of them is
// free to go without the GIL.
struct Request : std::enable_shared_from_this<Request> {
  std::string id;
  std::vector<Data> inputs;  // as given
  // All inputs flattened; never empty. Rows of EmbeddingData have ids from kFirstInputRow on.
  std::vector<int32_t> prompt_token_ids;
  std::vector<PromptRows> prompt_rows;  // those rows, ascending
  // Whose ids they have (InputRowIds), and of which round; null until they have any.
  std::shared_ptr<const InputRowIds> row_ids;
  int64_t row_round = 0;
  // Of a prompt with EmbeddingData::positions: where rope puts each of its tokens, and how much
  // further than its place what follows is.
  std::vector<RowPosition> rope_positions;
  int64_t rope_shift = 0;
  bool has_whole_rows = false;      // no step ends within a piece of prompt_rows
  bool is_whole = false;            // nor within the prompt
  GenerationConfig generation_cfg;  // validated, seed filled in
  // The answer is a turn of a chat, thus a text of its own: it loses the leading space that the
  // tokenizer's decoder strips from texts. A continuation of the prompt keeps it.
  bool begins_turn = false;
  // The prompt is embedded or classified: resolved, with all fields but `dimensions`.
  // generation_cfg then has what concerns the service alone.
  std::optional<EmbeddingConfig> embedding;
  // What the pooled state goes through; null: nothing.
  std::shared_ptr<const DenseLayers> pooled_layers;
  // What generation_cfg.response_format became, and the tokens that it was compiled for. Null when
  // the answer is not constrained.
  std::shared_ptr<const CompiledGrammar> grammar;
  std::shared_ptr<const TokenTable> grammar_tokens;
  // Encodes text that the grammar forces, for jump-forward decoding or as drafts. May be null.
  std::shared_ptr<const Retokenizer> retokenizer;
  // What generation_cfg.adapter names. Null: the model alone.
  std::shared_ptr<const RequestAdapter> adapter;
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
  const ModelAdapter* adapter_weights() const {
    return adapter != nullptr ? adapter->weights.get() : nullptr;
  }
  // What its tokens' keys and values depend on besides the tokens.
  CacheSpace cache_space() const {
    return {generation_cfg.cache_salt, adapter != nullptr ? adapter->id : 0, row_round};
  }
  // The furthest place up to `end` at which a step that begins at `begin` may end.
  int64_t StepEnd(int64_t begin, int64_t end) const;
  int64_t prompt_len() const { return static_cast<int64_t>(prompt_token_ids.size()); }
  bool embeds(Pooling pooling) const { return embedding && embedding->pooling == pooling; }
};

// The largest n of a request. Answers beyond max_num_sequence wait until others have ended.
int64_t MaxAnswers(const RequestLimits& limits);

// Throws InvalidRequest when a prompt of this length could not be pinned even if nothing else was.
void CheckPin(int64_t prompt_len, const RequestLimits& limits);

// Throws InvalidRequest when the request can never be served: empty or too long prompt, token ids
// outside the vocabulary, rows that the model does not take, invalid generation config, n above
// MaxAnswers, a prompt to be pinned that CheckPin refuses, an answer of a model without a head, or
// an embedding that the model does not give. A prompt of exactly max_sequence_length tokens is
// served.
void CheckRequest(const Request& request, const RequestLimits& limits);

// Fills in the adapter, the ids of rows and the grammar of a request that is right otherwise, or
// is_aborted; may take seconds.
using CompleteRequest = std::function<void(Request*)>;

// Flattens the inputs and checks the request. Throws InvalidRequest, also for an empty id and for
// untokenized text. Fills in a random seed when none is given. Without
// `complete` no engine takes a request that names an adapter, has rows or whose answer is
// constrained.
// begins_turn: see Request.
RequestPtr CreateRequest(std::string id, std::vector<Data> inputs, GenerationConfig generation_cfg,
                         const RequestLimits& limits, const CompleteRequest& complete = {},
                         bool begins_turn = false);

// The same for a request that embeds its inputs. Of `service`, what it reads is
// truncate_prompt_tokens and the fields of VisitServiceFields.
RequestPtr CreateEmbeddingRequest(std::string id, std::vector<Data> inputs,
                                  const EmbeddingConfig& embedding, const GenerationConfig& service,
                                  const RequestLimits& limits,
                                  const CompleteRequest& complete = {});

// An integer of a caller as a token id. Throws InvalidRequest naming `field` for what no vocabulary
// can hold.
MLC_NATIVE_PRIVATE_API int32_t CheckedTokenId(const char* field, int64_t value);

}  // namespace mlc_native
