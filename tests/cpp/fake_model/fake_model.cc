#include "fake_model/fake_model.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <limits>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include "support/check.h"
#include "support/error.h"
#include "support/random.h"

namespace mlc_native::testing {
namespace {

constexpr int32_t kFirstRowToken = 1000000;
constexpr int64_t kStateSize = 3;  // the token, the stream and the history
const std::vector<int32_t> kHeadReads = {2, 0};
constexpr int32_t kHeadGives = 1;

bool Contains(const std::vector<int64_t>& values, int64_t value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// The history ends with the first `length` tokens of the repeated script.
bool EndsWithScript(std::span<const int32_t> history, const std::vector<int32_t>& script,
                    size_t length) {
  for (size_t i = 0; i < length; ++i) {
    if (history[history.size() - length + i] != script[i % script.size()]) return false;
  }
  return true;
}

int32_t NextOfScript(std::span<const int32_t> history, const std::vector<int32_t>& script) {
  for (size_t length = std::min(history.size(), 2 * script.size()); length > 0; --length) {
    if (EndsWithScript(history, script, length)) return script[length % script.size()];
  }
  return script[0];
}

uint64_t Extended(uint64_t hash, int32_t token) {
  return MixBits(hash ^ static_cast<uint64_t>(token));
}

// What floats have exactly, also sums of many.
float HashState(uint64_t hash) { return static_cast<float>(hash % 65536); }

const FakeAdapter* AdapterOf(const SequenceSlice& slice) {
  return static_cast<const FakeAdapter*>(slice.adapter);
}

int64_t NumberOf(const SequenceSlice& slice) {
  return slice.adapter == nullptr ? 0 : AdapterOf(slice)->number();
}

int64_t LoadOf(const SequenceSlice& slice) {
  return slice.adapter == nullptr ? 0 : AdapterOf(slice)->load();
}

uint64_t HashOfNothing(int64_t adapter) {
  return adapter == 0 ? 0 : MixBits(static_cast<uint64_t>(adapter));
}

}  // namespace

std::shared_ptr<const ModelAdapter> FakeAdapterLoader::Load(const std::string& folder) const {
  int64_t number = 0;
  const char* const end = folder.data() + folder.size();
  const auto read = std::from_chars(folder.data(), end, number);
  if (read.ptr != end || number <= 0) {
    throw LoadError(folder, "fake model: \"" + folder + "\" is no number above 0");
  }
  return std::make_shared<FakeAdapter>(number, ++num_loaded_);
}

FakeModel::FakeModel(FakeModelOptions options) : options_(std::move(options)) {
  metadata_.vocab_size = options_.vocab_size;
  metadata_.context_window_size = options_.context_window_size;
  metadata_.max_batch_size = options_.max_batch_size;
  metadata_.preferred_prefill_chunk_size = options_.prefill_chunk_size;
  metadata_.kv_bytes_per_token = options_.kv_bytes_per_token;
  if (options_.gives_states || options_.is_draft_head) {
    metadata_.num_layers = 1;
    metadata_.hidden_size = kStateSize;
  }
  metadata_.whole_prompts = options_.whole_prompts;
  metadata_.generates = options_.has_head && !options_.whole_prompts;
  metadata_.input_size = options_.is_draft_head ? 0 : 1;
  if (options_.whole_rows) metadata_.max_whole_rows = 1000;
  if (options_.is_draft_head) {
    metadata_.draft_head = DraftHeadInfo{.target_streams = kHeadReads, .own_stream = kHeadGives};
  }
  if (options_.is_recurrent) {
    MLC_CHECK(options_.history_window == 0 && options_.script.empty());
    metadata_.recurrent_bytes_per_slot = sizeof(RecurrentState);
  }
  if (options_.free_memory_bytes >= 0) metadata_.free_memory_bytes = options_.free_memory_bytes;
}

void FakeModel::Allocate(int64_t num_pages, int64_t max_num_rows, int64_t max_num_logits) {
  stored_.assign(num_pages * kKvPageSize, -1);
  loads_.assign(num_pages * kKvPageSize, 0);
  logits_.assign(max_num_logits * options_.vocab_size, 0.0f);
  peaks_.assign(max_num_logits, 0);
  max_num_rows_ = max_num_rows;
}

void FakeModel::AllocateRecurrent(int64_t num_slots) { recurrent_.assign(num_slots, {}); }

int32_t FakeModel::NextToken(const FakeModelOptions& options, std::span<const int32_t> history,
                             int64_t adapter) {
  if (!options.script.empty()) return NextOfScript(history, options.script);
  if (options.history_window > 0 && static_cast<int64_t>(history.size()) > options.history_window) {
    history = history.last(options.history_window);
  }
  uint64_t hash = HashOfNothing(adapter);
  for (int32_t token : history) hash = Extended(hash, token);
  return TokenOf(options, hash);
}

int32_t FakeModel::TokenOf(const FakeModelOptions& options, uint64_t hash) {
  const auto next = static_cast<int32_t>(hash % static_cast<uint64_t>(options.vocab_size));
  return next == options.eos_token_id ? static_cast<int32_t>((next + 1) % options.vocab_size)
                                      : next;
}

int32_t FakeModel::TokenOfRow(float value) { return kFirstRowToken + static_cast<int32_t>(value); }

// Those of rows in place of tokens, too.
std::span<const int32_t> FakeModel::TokensOf(const ForwardBatch& batch) {
  if (batch.input_rows.empty()) return batch.token_ids;
  tokens_.assign(batch.token_ids.begin(), batch.token_ids.end());
  for (const InputRows& rows : batch.input_rows) {
    for (int32_t i = 0; i < rows.num_rows; ++i) {
      int32_t& token = tokens_.at(static_cast<size_t>(rows.first_row + i));
      MLC_CHECK(token == 0) << "row " << rows.first_row + i << " has token " << token;
      token = TokenOfRow(rows.values[i]);
    }
  }
  return tokens_;
}

LogitsView FakeModel::Forward(const ForwardBatch& batch) {
  ForwardBatch of_tokens = batch;
  of_tokens.token_ids = TokensOf(batch);
  return ForwardTokens(of_tokens);
}

LogitsView FakeModel::ForwardTokens(const ForwardBatch& batch) {
  ++num_forwards_;
  num_rows_ += static_cast<int64_t>(batch.token_ids.size());
  max_batch_ = std::max(max_batch_, static_cast<int64_t>(batch.sequences.size()));
  CheckBatch(batch);
  if (hook_) hook_(batch);
  StoreTokens(batch);
  if (adapters_->has_loaded()) CheckAdapters(batch);
  for (const SequenceSlice& slice : batch.sequences) {
    MLC_CHECK(!options_.whole_prompts || slice.position == 0) << slice.position;
  }
  if (options_.is_recurrent) RunRecurrence(batch);
  const auto cost = CostOf(std::ssize(batch.token_ids));
  if (cost.count() > 0 && !options_.run_ahead)
    SpendTimeUntil(std::chrono::steady_clock::now() + cost);
  if (options_.fail_always || Contains(options_.fail_at_forward, num_forwards_)) {
    throw std::runtime_error("fake model: forward " + std::to_string(num_forwards_) + " fails");
  }
  if (options_.poison_token >= 0) CheckPoison(batch);
  WriteStates(batch);
  const LogitsView logits{logits_.data(), static_cast<int64_t>(batch.logits_rows.size()),
                          options_.vocab_size};
  if (options_.is_draft_head) {
    ReadStates(batch);
    FillGuesses(batch);
    return logits;
  }
  size_t sequence = 0;
  for (size_t i = 0; i < batch.logits_rows.size(); ++i) {
    const int32_t row = batch.logits_rows[i];
    while (row >= batch.sequences[sequence].first_row + batch.sequences[sequence].num_tokens) {
      ++sequence;
    }
    const SequenceSlice& slice = batch.sequences[sequence];
    FillRow(static_cast<int64_t>(i), slice, row);
  }
  return logits;
}

std::vector<float> FakeModel::HiddenState(std::span<const int32_t> history, int32_t stream,
                                          int64_t adapter) {
  uint64_t hash = HashOfNothing(adapter);
  for (int32_t token : history) hash = Extended(hash, token);
  return {static_cast<float>(history.back()), static_cast<float>(stream), HashState(hash)};
}

void FakeModel::WriteStates(const ForwardBatch& batch) {
  const HiddenStates& asked = batch.hidden;
  auto slice = batch.sequences.begin();
  uint64_t hash = 0;
  int64_t length = -1;  // tokens in the hash; -1: none of this slice
  for (size_t i = 0; i < asked.rows.size(); ++i) {
    const int32_t row = asked.rows[i];
    for (; row >= slice->first_row + slice->num_tokens; ++slice) length = -1;
    if (length < 0) {
      hash = HashOfNothing(NumberOf(*slice));
      length = 0;
    }
    const int64_t end = slice->position + (row - slice->first_row) + 1;
    for (; length < end; ++length) {
      hash = Extended(hash,
                      stored_token(slice->block_table[length / kKvPageSize], length % kKvPageSize));
    }
    float* out = asked.memory->data() + asked.places[i] * asked.memory->width();
    for (int32_t stream : asked.streams) {
      *out++ = static_cast<float>(batch.token_ids[row]);
      *out++ = static_cast<float>(stream);
      *out++ = HashState(hash);
    }
    const bool nan = options_.nan_token >= 0 && batch.token_ids[row] == options_.nan_token;
    if (nan) out[-1] = std::numeric_limits<float>::quiet_NaN();
  }
}

void FakeModel::ReadStates(const ForwardBatch& batch) {
  const DraftInput& draft = batch.draft;
  const bool of_target = draft.target != nullptr;
  const std::vector<int32_t> streams = of_target ? kHeadReads : std::vector<int32_t>{kHeadGives};
  const int64_t width = std::ssize(streams) * kStateSize;
  const float* const states = of_target ? draft.target->data() : own_states_.data();
  const std::span<const int32_t> places = of_target ? draft.places : draft.own_rows;
  MLC_CHECK(!of_target || draft.target->width() == width) << draft.target->width();
  MLC_CHECK(places.size() == batch.token_ids.size())
      << places.size() << " states for " << batch.token_ids.size() << " rows";
  state_tokens_.clear();
  for (size_t row = 0; row < batch.token_ids.size(); ++row) {
    MLC_CHECK(of_target || (places[row] + 1) * width <= std::ssize(own_states_)) << places[row];
    const float* state = states + places[row] * width;
    state_tokens_.push_back(static_cast<int32_t>(*state));
    for (int32_t stream : streams) {
      const bool is_state = static_cast<int32_t>(state[0]) == state_tokens_.back() &&
                            static_cast<int32_t>(state[1]) == stream;
      num_wrong_states_ += is_state ? 0 : 1;
      MLC_CHECK(is_state) << "row " << row << " is no hidden state";
      state += kStateSize;
    }
  }
  for (const SequenceSlice& slice : batch.sequences) {
    for (int32_t i = 0; i < slice.num_tokens; ++i) {
      const int64_t before = slice.position + i - 1;
      if (before < 0) continue;
      const int32_t token =
          stored_token(slice.block_table[before / kKvPageSize], before % kKvPageSize);
      num_misaligned_ += token == state_tokens_[slice.first_row + i] ? 0 : 1;
    }
  }
  own_states_.clear();
  for (int32_t row : batch.logits_rows) {
    own_states_.push_back(static_cast<float>(batch.token_ids[row]));
    own_states_.push_back(static_cast<float>(kHeadGives));
    own_states_.push_back(0);
  }
}

void FakeModel::FillGuesses(const ForwardBatch& batch) {
  for (size_t i = 0; i < batch.logits_rows.size(); ++i) {
    const int32_t row = batch.logits_rows[i];
    float* logits = logits_.data() + static_cast<int64_t>(i) * options_.vocab_size;
    std::fill_n(logits, options_.vocab_size, 0.0f);
    logits[NextToken(options_, std::vector<int32_t>{state_tokens_[row], batch.token_ids[row]})] =
        options_.peak;
  }
}

void FakeModel::CheckBatch(const ForwardBatch& batch) const {
  MLC_CHECK(!batch.token_ids.empty() &&
            static_cast<int64_t>(batch.token_ids.size()) <= max_num_rows_)
      << batch.token_ids.size() << " rows of " << max_num_rows_;
  MLC_CHECK(batch.logits_rows.size() * options_.vocab_size <= logits_.size());
  int64_t row = 0;
  for (const SequenceSlice& slice : batch.sequences) {
    MLC_CHECK(slice.first_row == row && slice.num_tokens > 0) << "gap at row " << row;
    row += slice.num_tokens;
    const int64_t end = slice.position + slice.num_tokens;
    MLC_CHECK(static_cast<int64_t>(slice.block_table.size()) ==
              (end + kKvPageSize - 1) / kKvPageSize)
        << slice.block_table.size() << " pages for " << end << " tokens";
    MLC_CHECK(options_.context_window_size <= 0 || end <= options_.context_window_size)
        << end << " tokens of " << options_.context_window_size;
  }
  MLC_CHECK(row == static_cast<int64_t>(batch.token_ids.size())) << row;
}

void FakeModel::StoreTokens(const ForwardBatch& batch) {
  written_.clear();
  for (const SequenceSlice& slice : batch.sequences) {
    for (int32_t i = 0; i < slice.num_tokens; ++i) {
      const int32_t token = batch.token_ids[slice.first_row + i];
      MLC_CHECK((token >= 0 && token < options_.vocab_size) ||
                (token >= kFirstRowToken && !IsInputRow(token)))
          << "token " << token;
      const int64_t position = slice.position + i;
      written_.push_back(int64_t{slice.block_table[position / kKvPageSize]} * kKvPageSize +
                         position % kKvPageSize);
      stored_[written_.back()] = token;
      loads_[written_.back()] = LoadOf(slice);
    }
  }
}

// What a sequence reads was computed with its own adapter.
void FakeModel::CheckAdapters(const ForwardBatch& batch) const {
  for (const SequenceSlice& slice : batch.sequences) {
    for (int64_t position = 0; position < slice.position; ++position) {
      const int64_t page = slice.block_table[position / kKvPageSize];
      const int64_t load = loads_[page * kKvPageSize + position % kKvPageSize];
      MLC_CHECK(load == LoadOf(slice))
          << "position " << position << " is of load " << load << ", not of " << LoadOf(slice);
    }
  }
}

// What a slot holds of other tokens, or of another position, is an error of the engine.
uint64_t FakeModel::HashBefore(const SequenceSlice& slice) {
  uint64_t hash = HashOfNothing(NumberOf(slice));
  if (slice.position == 0) return hash;
  for (const int32_t token : History(slice, slice.position, 0)) hash = Extended(hash, token);
  const RecurrentState& state = recurrent_.at(slice.recurrent_slot);
  const bool is_right = state.position == slice.position && state.hash == hash;
  num_wrong_states_ += is_right ? 0 : 1;
  MLC_CHECK(is_right) << "slot " << slice.recurrent_slot << " has a state of " << state.position
                      << " tokens, wanted that of " << slice.position << " in the pages";
  return hash;
}

void FakeModel::RunRecurrence(const ForwardBatch& batch) {
  row_hashes_.resize(batch.token_ids.size());
  std::set<int32_t> read, written;
  for (const SequenceSlice& slice : batch.sequences) {
    uint64_t hash = HashBefore(slice);
    if (slice.position > 0) read.insert(slice.recurrent_slot);
    auto write = slice.recurrent_writes.begin();
    for (int32_t i = 0; i < slice.num_tokens; ++i) {
      hash = Extended(hash, batch.token_ids[slice.first_row + i]);
      row_hashes_[slice.first_row + i] = hash;
      if (write == slice.recurrent_writes.end() || write->num_tokens != i + 1) continue;
      MLC_CHECK(written.insert(write->slot).second) << "slot " << write->slot;
      recurrent_.at(write->slot) = {slice.position + i + 1, hash};
      ++write;
    }
    MLC_CHECK(write == slice.recurrent_writes.end() && !slice.recurrent_writes.empty() &&
              slice.recurrent_writes.back().num_tokens == slice.num_tokens)
        << slice.num_tokens << " tokens leave no state";
  }
  for (const int32_t slot : read) MLC_CHECK(!written.contains(slot)) << "slot " << slot;
}

void FakeModel::Spoil(std::span<const int64_t> written) {
  for (int64_t index : written) stored_[index] = -1;
}

void FakeModel::CheckPoison(const ForwardBatch& batch) {
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const SequenceSlice& slice = batch.sequences[i];
    const std::span<const int32_t> history = History(slice, slice.position + slice.num_tokens, 0);
    if (std::find(history.begin(), history.end(), options_.poison_token) != history.end()) {
      throw SequenceError(static_cast<int>(i), "fake model: poisoned sequence");
    }
  }
}

// The last `window` (0: all) of the first `length` tokens, read from the pages.
std::span<const int32_t> FakeModel::History(const SequenceSlice& slice, int64_t length,
                                            int64_t window) {
  const int64_t begin = window > 0 ? std::max<int64_t>(0, length - window) : 0;
  history_.clear();
  for (int64_t position = begin; position < length; ++position) {
    history_.push_back(stored_[int64_t{slice.block_table[position / kKvPageSize]} * kKvPageSize +
                               position % kKvPageSize]);
  }
  return history_;
}

void FakeModel::FillRow(int64_t row, const SequenceSlice& slice, int32_t batch_row) {
  const int64_t length = slice.position + (batch_row - slice.first_row) + 1;
  const int64_t window =
      options_.script.empty() ? options_.history_window : 2 * std::ssize(options_.script);
  const std::span<const int32_t> history = History(slice, length, window);
  float* logits = logits_.data() + row * options_.vocab_size;
  const int32_t next = options_.is_recurrent ? TokenOf(options_, row_hashes_[batch_row])
                                             : NextToken(options_, history, NumberOf(slice));
  if (options_.reuse_rows) {
    logits[peaks_[row]] = 0.0f;
  } else {
    const bool nan = options_.nan_token >= 0 && history.back() == options_.nan_token;
    std::fill_n(logits, options_.vocab_size, nan ? std::numeric_limits<float>::quiet_NaN() : 0.0f);
    if (nan) return;
  }
  logits[next] = options_.peak;
  peaks_[row] = next;
}

void FakeModel::CopyPages(std::span<const PageCopy> copies) {
  ++num_copies_;
  if (Contains(options_.fail_copy_at, num_copies_)) {
    throw std::runtime_error("fake model: copy " + std::to_string(num_copies_) + " fails");
  }
  for (const PageCopy& copy : copies) {
    const int64_t from = int64_t{copy.src_page} * kKvPageSize;
    const int64_t to = int64_t{copy.dst_page} * kKvPageSize;
    std::copy_n(stored_.begin() + from, kKvPageSize, stored_.begin() + to);
    std::copy_n(loads_.begin() + from, kKvPageSize, loads_.begin() + to);
  }
  steps_.NotePageCopies(copies);
}

std::chrono::nanoseconds FakeModel::CostOf(int64_t num_rows) const {
  const double us = options_.us_per_step + options_.us_per_row * static_cast<double>(num_rows);
  return std::chrono::nanoseconds(static_cast<int64_t>(us * 1000));
}

void FakeModel::SpendTimeUntil(std::chrono::steady_clock::time_point end) const {
  if (options_.sleep) return std::this_thread::sleep_until(end);
  while (std::chrono::steady_clock::now() < end) {
  }
}

}  // namespace mlc_native::testing
