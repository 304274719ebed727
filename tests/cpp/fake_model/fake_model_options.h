// FakeModelOptions: the "fake" object of config.json.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace mlc_native::testing {

// Environment variable MLC_NATIVE_FAKE_RUN_AHEAD: tests are run once with it and once without.
inline bool RunsAheadByDefault() { return std::getenv("MLC_NATIVE_FAKE_RUN_AHEAD") != nullptr; }

// Calls are counted from 1.
struct FakeModelOptions {
  int64_t vocab_size = 256;
  int64_t context_window_size = 4096;
  int64_t max_batch_size = 128;
  int64_t prefill_chunk_size = 2048;
  int64_t kv_bytes_per_token = 4096;  // claimed; what is stored takes 4
  int64_t free_memory_bytes = -1;     // of the device that it claims to be on; -1: on the host
  int64_t history_window = 0;         // tokens that the next one depends on, 0: all
  int32_t eos_token_id = -1;          // never comes out of the hash
  std::vector<int32_t> script;        // not empty: the answers, in turn, instead of the hash
  float peak = 12;                    // logit of the next token; the others have 0
  bool reuse_rows = false;  // rows are not refilled: only for samplers that leave them as they were

  bool run_ahead = RunsAheadByDefault();  // offers a StepQueue (fake_steps.h)

  // What the next token depends on is read from slots of states instead of pages. Needs all of the
  // history, and no script.
  bool is_recurrent = false;

  bool whole_prompts = false;  // rows see all of their prompt
  bool whole_rows = false;     // rows in place of tokens are computed at once, piece by piece
  bool gives_states = false;   // hidden states, for a draft head and for embeddings
  bool has_head = true;        // it generates
  bool is_draft_head = false;  // guesses what a model with history_window 2 says

  int64_t load_parts = 0;  // reported, one by one, while it is loaded
  double us_per_load_part = 0;

  // Costs on the host or, with run_ahead, on a device.
  double us_per_step = 0;
  double us_per_row = 0;
  bool sleep = false;  // "cost": "sleep" instead of "spin"

  std::vector<int64_t> fail_at_forward;
  bool fail_always = false;
  std::vector<int64_t> fail_copy_at;
  std::vector<int64_t> fail_at_sample;  // with run_ahead, like the next one
  std::vector<int64_t> fail_at_collect;
  int32_t poison_token = -1;  // a sequence that contains it: SequenceError
  int32_t nan_token = -1;     // a sequence whose last token is it: a row of NaN
};

// Throws LoadError for a config.json without a valid "fake" object.
FakeModelOptions ReadFakeModelOptions(const std::string& model_path);

}  // namespace mlc_native::testing
