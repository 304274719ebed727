// What programs that were compiled with version 1.0 of mlc_native.h rely on: codes, and where the
// members of structs lie. A later minor version may append members and add lines here; it changes
// none.
#include <gtest/gtest.h>

#include <cstddef>

#include "mlc_native/mlc_native.h"

namespace {

#define MLCN_EXPECT_AT(type, member, offset) static_assert(offsetof(type, member) == (offset))

static_assert(MLCN_ABI_MAJOR == 1);

static_assert(MLCN_OK == 0 && MLCN_INVALID_ARGUMENT == 1 && MLCN_INVALID_REQUEST == 2);
static_assert(MLCN_QUEUE_FULL == 3 && MLCN_INVALID_CONFIG == 4 && MLCN_LOAD_ERROR == 5);
static_assert(MLCN_INVALID_STATE == 6 && MLCN_TIMEOUT == 7 && MLCN_OUT_OF_MEMORY == 8);
static_assert(MLCN_INTERNAL_ERROR == 9);
static_assert(MLCN_FINISH_NONE == 0 && MLCN_FINISH_STOP == 1 && MLCN_FINISH_LENGTH == 2);
static_assert(MLCN_FINISH_ABORT == 3 && MLCN_FINISH_ERROR == 4 && MLCN_FINISH_TIMEOUT == 5);
static_assert(MLCN_ADD_SPECIAL_TOKENS == 1 && MLCN_SKIP_SPECIAL_TOKENS == 1);

MLCN_EXPECT_AT(mlcn_engine_options, size, 0);
MLCN_EXPECT_AT(mlcn_engine_options, device, 8);
MLCN_EXPECT_AT(mlcn_engine_options, on_progress, 16);
MLCN_EXPECT_AT(mlcn_engine_options, user_data, 24);
static_assert(sizeof(mlcn_engine_options) >= 32);
MLCN_EXPECT_AT(mlcn_engine_options, on_log, 32);  // since 1.1
MLCN_EXPECT_AT(mlcn_engine_options, log_user_data, 40);
MLCN_EXPECT_AT(mlcn_engine_options, log_level, 48);
MLCN_EXPECT_AT(mlcn_engine_options, reserved, 52);
static_assert(sizeof(mlcn_engine_options) >= 56);
static_assert(MLCN_LOG_OFF == 0 && MLCN_LOG_ERROR == 1);
static_assert(MLCN_LOG_WARNING == 2 && MLCN_LOG_INFO == 3);

MLCN_EXPECT_AT(mlcn_submit_options, size, 0);
MLCN_EXPECT_AT(mlcn_submit_options, on_output, 8);
MLCN_EXPECT_AT(mlcn_submit_options, user_data, 16);
MLCN_EXPECT_AT(mlcn_submit_options, request_id, 24);
MLCN_EXPECT_AT(mlcn_submit_options, tokens, 32);
MLCN_EXPECT_AT(mlcn_submit_options, num_tokens, 40);
static_assert(sizeof(mlcn_submit_options) >= 48);

MLCN_EXPECT_AT(mlcn_logprobs, size, 0);
MLCN_EXPECT_AT(mlcn_logprobs, count, 8);
MLCN_EXPECT_AT(mlcn_logprobs, tokens, 16);
MLCN_EXPECT_AT(mlcn_logprobs, values, 24);
MLCN_EXPECT_AT(mlcn_logprobs, num_top, 32);
MLCN_EXPECT_AT(mlcn_logprobs, top_tokens, 40);
MLCN_EXPECT_AT(mlcn_logprobs, top_values, 48);

MLCN_EXPECT_AT(mlcn_usage, size, 0);
MLCN_EXPECT_AT(mlcn_usage, prompt_tokens, 8);
MLCN_EXPECT_AT(mlcn_usage, completion_tokens, 16);
MLCN_EXPECT_AT(mlcn_usage, cached_tokens, 24);
MLCN_EXPECT_AT(mlcn_usage, jump_forward_tokens, 32);
MLCN_EXPECT_AT(mlcn_usage, draft_tokens, 40);
MLCN_EXPECT_AT(mlcn_usage, accepted_draft_tokens, 48);
MLCN_EXPECT_AT(mlcn_usage, num_preemptions, 56);
MLCN_EXPECT_AT(mlcn_usage, queue_time, 64);
MLCN_EXPECT_AT(mlcn_usage, time_to_first_token, 72);
MLCN_EXPECT_AT(mlcn_usage, inter_token_latency, 80);
MLCN_EXPECT_AT(mlcn_usage, end_to_end_latency, 88);

MLCN_EXPECT_AT(mlcn_output, size, 0);
MLCN_EXPECT_AT(mlcn_output, index, 4);
MLCN_EXPECT_AT(mlcn_output, is_final, 8);
MLCN_EXPECT_AT(mlcn_output, finish_reason, 12);
MLCN_EXPECT_AT(mlcn_output, request, 16);
MLCN_EXPECT_AT(mlcn_output, user_data, 24);
MLCN_EXPECT_AT(mlcn_output, text, 32);
MLCN_EXPECT_AT(mlcn_output, text_length, 40);
MLCN_EXPECT_AT(mlcn_output, tokens, 48);
MLCN_EXPECT_AT(mlcn_output, num_tokens, 56);
MLCN_EXPECT_AT(mlcn_output, logprobs, 64);
MLCN_EXPECT_AT(mlcn_output, prompt_logprobs, 72);
MLCN_EXPECT_AT(mlcn_output, usage, 80);
MLCN_EXPECT_AT(mlcn_output, error_message, 88);
MLCN_EXPECT_AT(mlcn_output, embedding, 96);  // since 1.4
MLCN_EXPECT_AT(mlcn_output, embedding_size, 104);

TEST(CAbi, TheLibraryIsOfTheHeadersVersion) {
  EXPECT_EQ(mlcn_abi_version(), (uint32_t{MLCN_ABI_MAJOR} << 16) | MLCN_ABI_MINOR);
}

}  // namespace
