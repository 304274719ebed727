/* The C interface of mlc_native: a serving engine for large language models inside your process.
 *
 * A complete program, which prints an answer as it is generated:
 *
 *   #include <mlc_native/mlc_native.h>
 *   #include <stdio.h>
 *
 *   static void print(const mlcn_output* output) {
 *     fwrite(output->text, 1, output->text_length, stdout);
 *     fflush(stdout);
 *   }
 *
 *   int main(int argc, char** argv) {
 *     const char* body =
 *         "{\"messages\": [{\"role\": \"user\", \"content\": \"Who are you?\"}],"
 *         " \"max_tokens\": 64}";
 *     mlcn_engine* engine = NULL;
 *     mlcn_request* request = NULL;
 *     mlcn_error* error = NULL;
 *     mlcn_submit_options options = MLCN_SUBMIT_OPTIONS_INIT;
 *     options.on_output = print;
 *     if (argc == 2 && mlcn_engine_create(argv[1], NULL, NULL, &engine, &error) == MLCN_OK &&
 *         mlcn_submit(engine, body, MLCN_NUL_TERMINATED, &options, &request, &error) == MLCN_OK) {
 *       mlcn_request_wait(request, MLCN_FOREVER, &error);
 *     }
 *     if (error != NULL) fprintf(stderr, "%s\n", mlcn_error_message(error));
 *     mlcn_error_release(error);
 *     mlcn_request_release(request);
 *     return mlcn_engine_destroy(engine, NULL) != MLCN_OK || error != NULL;
 *   }
 *
 * RULES
 *
 * Threads. Any thread may call any function at any time, except that a handle that is being
 *   destroyed or released must not be in use elsewhere. Functions that block say so. No function
 *   holds a lock while it calls a function of yours. What is "not in a callback" fails there, in
 *   on_output and in on_progress, with MLCN_INVALID_STATE and changes nothing.
 * Errors. A function that can fail returns a code, MLCN_OK or one of the others, and stores an
 *   error object through its last argument, which may be NULL. The object names the field that is
 *   wrong, its value and what is allowed. A call that fails changes nothing, and sets the
 *   handles that it would have made to NULL. No C++ exception leaves the library; running out of
 *   memory or of threads is MLCN_OUT_OF_MEMORY.
 * Arguments. NULL where it is not allowed is MLCN_INVALID_ARGUMENT, never a crash. Texts are UTF-8;
 *   their length is in bytes, and MLCN_NUL_TERMINATED stands for strlen. Embedded NULs are part of
 *   a text whose length is given.
 * Results. Texts and arrays that a function returns through a pointer belong to the caller, who
 *   passes them to mlcn_free. Texts have a NUL behind their last byte. What an mlcn_output points
 *   to is valid until the callback returns, or until its batch is released.
 * Structs. Each begins with its size, which MLCN_..._INIT sets for those that you fill in. Later
 *   versions only append members; a smaller struct of an earlier version has their defaults.
 * Outputs. Each accepted request gets exactly one final output, its last, whatever happens: also
 *   when it is cancelled, when it fails, and when the engine is stopped or destroyed.
 * fork. An engine belongs to the process that created it. In a child process its functions fail
 *   with MLCN_INVALID_STATE, and mlcn_engine_destroy only frees memory.
 * Guest. The library installs no signal handlers, changes neither the locale nor the environment,
 *   and writes nothing to stdout. It computes in the default floating point environment, in which
 *   callbacks run, too; that of your threads is as before when a call returns. What an engine has
 *   to report besides errors (a weight cache that cannot be used) goes to the log function of its
 *   options, or to stderr, a line each, if there is none and the log level asks for it. Its threads
 *   are named "mlcn-...".
 */
#ifndef MLC_NATIVE_MLC_NATIVE_H_
#define MLC_NATIVE_MLC_NATIVE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define MLCN_API __declspec(dllimport)
#else
#define MLCN_API __attribute__((visibility("default")))
#endif

/* ---- versions, codes and errors ------------------------------------------------------------- */

#define MLCN_ABI_MAJOR 1
#define MLCN_ABI_MINOR 4

/* Returns (major << 16) | minor of the library. A program that was compiled with major m and minor
 * n runs with every library of major m whose minor is at least n. */
MLCN_API uint32_t mlcn_abi_version(void);

/* Returns the version of the library, such as "0.1.0". The text is static. */
MLCN_API const char* mlcn_version(void);

enum {
  MLCN_OK = 0,
  MLCN_INVALID_ARGUMENT = 1, /* of the call: NULL, a wrong size, a text that is no UTF-8 */
  MLCN_INVALID_REQUEST = 2,  /* one request is wrong; others are not affected */
  MLCN_QUEUE_FULL = 3,       /* the same request may be accepted later */
  MLCN_INVALID_CONFIG = 4,   /* a setting of the engine is wrong */
  MLCN_LOAD_ERROR = 5,       /* files of a model are missing, damaged or not supported */
  MLCN_INVALID_STATE = 6,    /* the engine is stopped, or the call is not allowed in a callback */
  MLCN_TIMEOUT = 7,          /* what was waited for has not happened yet */
  MLCN_OUT_OF_MEMORY = 8,
  MLCN_INTERNAL_ERROR = 9 /* a fault of the library; please report the message */
};

typedef struct mlcn_error mlcn_error;

/* Each takes NULL: the code is then MLCN_OK and the texts are "". The texts live as long as the
 * error. The field is the name of the setting, the member of the body, the argument, the file or
 * the tensor that is wrong. */
MLCN_API int32_t mlcn_error_code(const mlcn_error* error);
MLCN_API const char* mlcn_error_field(const mlcn_error* error);
MLCN_API const char* mlcn_error_message(const mlcn_error* error);
MLCN_API void mlcn_error_release(mlcn_error* error);

/* Frees what a function returned through a pointer to a text or an array. Takes NULL. */
MLCN_API void mlcn_free(void* memory);

#define MLCN_NUL_TERMINATED ((size_t)-1)
#define MLCN_FOREVER (-1)

/* ---- engines -------------------------------------------------------------------------------- */

typedef struct mlcn_engine mlcn_engine;

/* How severe a message of the log is. */
enum { MLCN_LOG_OFF = 0, MLCN_LOG_ERROR = 1, MLCN_LOG_WARNING = 2, MLCN_LOG_INFO = 3 };

typedef struct mlcn_engine_options {
  uint32_t size;
  /* "cpu", "cuda", "cuda:1", or "auto" for the best that there is. NULL: "auto". */
  const char* device;
  /* Called while weights are loaded, also by mlcn_engine_reload, with bytes, on a thread of the
   * library. May be NULL. */
  void (*on_progress)(void* user_data, int64_t done, int64_t total);
  void* user_data; /* of on_progress */
  /* Since version 1.1. Called with each message of the engine, which has no newline at its end and
   * is valid during the call, on any thread, several at a time. It must not call functions of the
   * engine. NULL: messages go to stderr. */
  void (*on_log)(void* user_data, int32_t level, const char* message);
  void* log_user_data;
  /* MLCN_LOG_...; less severe messages are dropped. Errors: a step has failed. Warnings: something
   * is slower or less than was asked for. Infos: a model was loaded. */
  int32_t log_level;
  int32_t reserved; /* 0 */
} mlcn_engine_options;
#define MLCN_ENGINE_OPTIONS_INIT \
  {(uint32_t)sizeof(mlcn_engine_options), NULL, NULL, NULL, NULL, NULL, MLCN_LOG_WARNING, 0}

/* Loads a model and starts an engine, with two threads of its own and those that compute.
 *
 * `model` is a folder (of Hugging Face or MLC-LLM) or a GGUF file. `config` is a JSON object of
 * engine settings, such as {"max_num_sequence": 8, "quantization": "q4"}; NULL: defaults. `options`
 * may be NULL. Blocks until the model is loaded. MLCN_INVALID_CONFIG, MLCN_LOAD_ERROR. */
MLCN_API int32_t mlcn_engine_create(const char* model, const char* config,
                                    const mlcn_engine_options* options, mlcn_engine** engine,
                                    mlcn_error** error);

/* Loads another model into the engine. Requests of the model before end with MLCN_FINISH_ABORT.
 * What can be known to be wrong is refused before that model is unloaded; a load that fails
 * later leaves the engine without a model. Blocks. Not in a callback. */
MLCN_API int32_t mlcn_engine_reload(mlcn_engine* engine, const char* model, const char* config,
                                    mlcn_error** error);

/* Cancels all requests, delivers their final outputs, and ends the engine's threads. Later calls
 * that need a model fail with MLCN_INVALID_STATE; mlcn_poll still returns what has not been
 * polled. Blocks for the callbacks. Idempotent. Not in a callback. */
MLCN_API int32_t mlcn_engine_stop(mlcn_engine* engine, mlcn_error** error);

/* Stops the engine and frees it. Handles of its requests stay valid until they are released;
 * batches of outputs, too. Takes NULL. Not in a callback. */
MLCN_API int32_t mlcn_engine_destroy(mlcn_engine* engine, mlcn_error** error);

/* Cancels all requests that were submitted before. Does not block. */
MLCN_API int32_t mlcn_engine_cancel_all(mlcn_engine* engine, mlcn_error** error);

/* A JSON object about the loaded model: "model", "device" (where it runs: "cpu" or "cuda:i";
 * "auto" if a "model_lib" chooses), "config" (all settings, with those that were inferred),
 * "vocab_size", "max_sequence_length", "has_tokenizer" and "has_chat_template". Since version 1.4
 * also "generates" (false: the model embeds texts only), "embedding_size" (numbers of an
 * embedding; 0: it gives none), "num_classes" (of texts that are classified; 0: it has none),
 * and what embeddings are like whose requests do not say it: "pooling" (null: a request has to name
 * its own) and "normalize". */
MLCN_API int32_t mlcn_engine_info(mlcn_engine* engine, char** json, size_t* length,
                                  mlcn_error** error);

/* The metrics of the engine as a JSON object; docs/tuning.md describes them. Waits for the end of
 * a step. Not in a callback. */
MLCN_API int32_t mlcn_engine_metrics(mlcn_engine* engine, char** json, size_t* length,
                                     mlcn_error** error);

/* The same in Prometheus' text exposition format, as the server has it at /metrics; times are in
 * seconds. Not in a callback. Since version 1.2. */
MLCN_API int32_t mlcn_engine_metrics_prometheus(mlcn_engine* engine, char** text, size_t* length,
                                                mlcn_error** error);

/* ---- requests and their outputs ------------------------------------------------------------- */

typedef struct mlcn_request mlcn_request;

enum {
  MLCN_FINISH_NONE = 0, /* the answer goes on */
  MLCN_FINISH_STOP = 1, /* a stop text, a stop token, or the model ended it; or an embedding */
  MLCN_FINISH_LENGTH = 2,
  MLCN_FINISH_ABORT = 3,
  MLCN_FINISH_ERROR = 4,
  MLCN_FINISH_TIMEOUT = 5
};

/* Log-probabilities of `count` tokens: natural logarithms, of the model's own distribution. */
typedef struct mlcn_logprobs {
  uint32_t size;
  size_t count;
  const int32_t* tokens;
  const float* values;
  size_t num_top;            /* alternatives of each token */
  const int32_t* top_tokens; /* [count][num_top], the most likely ones first; -1: there is none */
  const float* top_values;   /* [count][num_top] */
} mlcn_logprobs;

/* Tokens and times of a request that has ended. Times are in seconds, and 0 if what they end with
 * was not reached. */
typedef struct mlcn_usage {
  uint32_t size;
  int64_t prompt_tokens;
  int64_t completion_tokens; /* of all answers, with the token that ended each */
  int64_t cached_tokens;     /* of the prompt, taken from the prefix cache */
  int64_t jump_forward_tokens;
  int64_t draft_tokens;
  int64_t accepted_draft_tokens;
  int64_t num_preemptions;
  double queue_time;
  double time_to_first_token;
  double inter_token_latency; /* mean */
  double end_to_end_latency;
} mlcn_usage;

/* What a request has new. The answer number i is the text of all outputs with that index. */
typedef struct mlcn_output {
  uint32_t size;
  int32_t index;         /* of the answer, in [0, n); -1 in the final output */
  int32_t is_final;      /* 1 in the last output of the request, which has the usage and no text */
  int32_t finish_reason; /* MLCN_FINISH_NONE, or why this answer has ended */
  /* The handle that mlcn_submit returned; alive during the callback, or as long as the batch, also
   * if that handle was released. Not to be released for an output. */
  mlcn_request* request;
  void* user_data;  /* of the submit options */
  const char* text; /* valid UTF-8, never NULL */
  size_t text_length;
  const int32_t* tokens;
  size_t num_tokens;
  const mlcn_logprobs* logprobs;        /* of `tokens`; NULL unless asked for */
  const mlcn_logprobs* prompt_logprobs; /* once, if asked for; the first token has none */
  const mlcn_usage* usage;              /* of the final output; else NULL */
  const char* error_message;            /* "" unless an answer has ended with MLCN_FINISH_ERROR */
  /* Since version 1.4. The embedding that a body with "input" asks for, in the output with
   * MLCN_FINISH_STOP; else NULL and 0. */
  const float* embedding;
  size_t embedding_size;
} mlcn_output;

typedef struct mlcn_submit_options {
  uint32_t size;
  /* Called for each output, on a thread of the library, one call at a time per engine. It may
   * submit and cancel requests. It should return soon: outputs of other requests wait meanwhile.
   * NULL: outputs are taken by mlcn_poll, and kept until then or until the engine is destroyed. */
  void (*on_output)(const mlcn_output* output);
  void* user_data; /* of the outputs */
  /* The name of the request in metrics and traces; other live requests must have other names.
   * NULL: the engine makes one. */
  const char* request_id;
  /* A prompt as token ids, instead of "messages" or "prompt" of the body. NULL: none. */
  const int32_t* tokens;
  size_t num_tokens;
} mlcn_submit_options;
#define MLCN_SUBMIT_OPTIONS_INIT {(uint32_t)sizeof(mlcn_submit_options), NULL, NULL, NULL, NULL, 0}

/* Submits a request and returns as soon as it is accepted.
 *
 * `body` is the JSON body of OpenAI's chat completions ("messages") or completions ("prompt", a
 * text or token ids), with the further options of this engine (docs/api.md). "stream", "model" and
 * "user" are ignored: all answers stream. Calls of tools are part of the text, as the model
 * writes them; "tool_choice" may be "auto" or "none" (docs/embedding.md). An answer with a
 * response_format may take a while to be accepted, because its grammar is compiled. `options` may
 * be NULL: outputs are then taken by mlcn_poll. *request is set before the first callback.
 * MLCN_INVALID_REQUEST, MLCN_QUEUE_FULL.
 *
 * Since version 1.4, a body with "input" (one text, or one list of token ids) asks for its
 * embedding: the output before the final one has it, MLCN_FINISH_STOP and no text. Such a body may
 * have "pooling" ("last", "mean" or "cls"), "dimensions", "normalize", "add_special_tokens" and
 * what concerns the service, such as "timeout_s"; those of answers are refused (docs/embedding.md).
 * With "classify": true it asks for the logits of the model's classes in place of an embedding;
 * "second_text" is where a second text begins, for models that tell both apart. */
MLCN_API int32_t mlcn_submit(mlcn_engine* engine, const char* body, size_t body_length,
                             const mlcn_submit_options* options, mlcn_request** request,
                             mlcn_error** error);

/* Ends the request soon, with MLCN_FINISH_ABORT. Nothing happens if it has ended. Takes NULL. */
MLCN_API void mlcn_request_cancel(mlcn_request* request);

/* Blocks until the final output of the request has been delivered: the callback has returned, or
 * mlcn_poll can return it. MLCN_TIMEOUT after `timeout_ms` milliseconds; MLCN_FOREVER: no limit.
 * Not in a callback, unless the request has ended. */
MLCN_API int32_t mlcn_request_wait(mlcn_request* request, int64_t timeout_ms, mlcn_error** error);

/* Its name. The text lives as long as the handle. "" for NULL. */
MLCN_API const char* mlcn_request_id(const mlcn_request* request);

/* Gives the handle back, at any time. It does not cancel the request. Takes NULL. */
MLCN_API void mlcn_request_release(mlcn_request* request);

/* ---- polling instead of callbacks ----------------------------------------------------------- */

typedef struct mlcn_outputs mlcn_outputs;

/* Takes at most `max_outputs` outputs of requests without a callback, in order. Blocks until there
 * is one, at most `timeout_ms` milliseconds (0: not at all; MLCN_FOREVER: until there is one or the
 * engine is stopped). Without an output the batch is NULL and the code MLCN_OK. Not in a callback,
 * unless `timeout_ms` is 0. */
MLCN_API int32_t mlcn_poll(mlcn_engine* engine, size_t max_outputs, int64_t timeout_ms,
                           mlcn_outputs** outputs, mlcn_error** error);
MLCN_API size_t mlcn_outputs_count(const mlcn_outputs* outputs); /* 0 for NULL */
/* Returns NULL if there is no such output. It lives as long as the batch. */
MLCN_API const mlcn_output* mlcn_outputs_at(const mlcn_outputs* outputs, size_t i);
MLCN_API void mlcn_outputs_release(mlcn_outputs* outputs); /* Takes NULL. */

/* A file descriptor for poll(2), epoll(7) and event loops: readable while mlcn_poll has outputs.
 * It belongs to the engine, which closes it when it is destroyed; do not read or close it. -1 for
 * NULL. */
MLCN_API int32_t mlcn_event_fd(mlcn_engine* engine);

/* ---- text and tokens ------------------------------------------------------------------------ */

enum { MLCN_ADD_SPECIAL_TOKENS = 1, MLCN_SKIP_SPECIAL_TOKENS = 1 };

/* The tokens of a text. With MLCN_ADD_SPECIAL_TOKENS, what the tokenizer puts around a prompt (BOS)
 * is added. MLCN_INVALID_REQUEST: the model has no tokenizer that runs without Python, and the
 * message says why. */
MLCN_API int32_t mlcn_tokenize(mlcn_engine* engine, const char* text, size_t length, uint32_t flags,
                               int32_t** tokens, size_t* num_tokens, mlcn_error** error);

/* The text of tokens. With MLCN_SKIP_SPECIAL_TOKENS, special tokens add nothing. Bytes that are
 * no UTF-8 become U+FFFD. */
MLCN_API int32_t mlcn_detokenize(mlcn_engine* engine, const int32_t* tokens, size_t num_tokens,
                                 uint32_t flags, char** text, size_t* length, mlcn_error** error);

/* The prompt that a chat becomes: `body` is the body of a chat completion, of which "messages",
 * "tools", "chat_template_kwargs" and so on count. */
MLCN_API int32_t mlcn_apply_chat_template(mlcn_engine* engine, const char* body, size_t body_length,
                                          char** prompt, size_t* length, mlcn_error** error);

/* ---- pinned prompts ------------------------------------------------------------------------- */

/* Keeps a prompt in the prefix cache until it is unpinned or another model is loaded. It must have
 * been computed before; "debug_config": {"pinned_system_prompt": true} of a request does both. Not
 * in a callback. */
MLCN_API int32_t mlcn_pin_prefix(mlcn_engine* engine, const int32_t* tokens, size_t num_tokens,
                                 int64_t* pin_id, mlcn_error** error);
/* Lets the prompt be forgotten. MLCN_INVALID_REQUEST: there is no such pin. Not in a callback. */
MLCN_API int32_t mlcn_unpin_prefix(mlcn_engine* engine, int64_t pin_id, mlcn_error** error);

/* ---- adapters (since version 1.3) ----------------------------------------------------------- */

/* Loads an adapter (LoRA), a folder with adapter_config.json and adapter_model.safetensors, until
 * it is unloaded or another model is loaded. Requests choose it with "adapter": name in their body.
 * The setting "adapters", a list of "NAME=FOLDER", loads adapters with the model. Blocks until it
 * is loaded, while requests go on. MLCN_INVALID_REQUEST: the name is empty or taken. */
MLCN_API int32_t mlcn_load_adapter(mlcn_engine* engine, const char* name, const char* path,
                                   mlcn_error** error);
/* Requests that run with the adapter finish with it; new ones are refused. MLCN_INVALID_REQUEST: no
 * adapter of this name is loaded. Does not block. */
MLCN_API int32_t mlcn_unload_adapter(mlcn_engine* engine, const char* name, mlcn_error** error);

#ifdef __cplusplus
}
#endif

#endif /* MLC_NATIVE_MLC_NATIVE_H_ */
