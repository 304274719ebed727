/* A program in C with a language model inside: a chat on the terminal.
 *
 *   cc chat.c $(pkg-config --cflags --libs mlc_native_c) -o chat && ./chat path/to/model
 *
 * It keeps the conversation as the JSON text of its messages. */
#include <mlc_native/mlc_native.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A text that grows. */
typedef struct text {
  char* bytes;
  size_t size;
} text;

static void append(text* out, const char* bytes, size_t size) {
  out->bytes = realloc(out->bytes, out->size + size + 1);
  if (out->bytes == NULL) abort();
  memcpy(out->bytes + out->size, bytes, size);
  out->size += size;
  out->bytes[out->size] = '\0';
}

static void append_string(text* out, const char* string) { append(out, string, strlen(string)); }

/* Reads a line of any length, without its end. Returns 0 behind the last one. */
static int read_line(text* line) {
  int c;
  line->size = 0;
  append(line, "", 0);
  while ((c = getchar()) != EOF && c != '\n') {
    const char byte = (char)c;
    append(line, &byte, 1);
  }
  return c != EOF || line->size > 0;
}

/* Appends a JSON string literal. */
static void append_json(text* out, const char* bytes, size_t size) {
  char escaped[8];
  size_t i;
  append_string(out, "\"");
  for (i = 0; i < size; ++i) {
    const unsigned char byte = (unsigned char)bytes[i];
    if (byte == '"' || byte == '\\' || byte < 0x20) {
      snprintf(escaped, sizeof(escaped), "\\u%04x", byte);
      append_string(out, escaped);
    } else {
      append(out, bytes + i, 1);
    }
  }
  append_string(out, "\"");
}

static void append_message(text* messages, const char* role, const char* content, size_t size) {
  append_string(messages, messages->size == 0 ? "" : ", ");
  append_string(messages, "{\"role\": \"");
  append_string(messages, role);
  append_string(messages, "\", \"content\": ");
  append_json(messages, content, size);
  append_string(messages, "}");
}

/* Prints an answer as it is generated, and keeps it. Runs on a thread of the library. */
static void receive(const mlcn_output* output) {
  text* answer = output->user_data;
  append(answer, output->text, output->text_length);
  fwrite(output->text, 1, output->text_length, stdout);
  fflush(stdout);
  if (output->error_message[0] != '\0') fprintf(stderr, "%s\n", output->error_message);
}

static int report(mlcn_error* error) {
  fprintf(stderr, "%s: %s\n", mlcn_error_field(error), mlcn_error_message(error));
  mlcn_error_release(error);
  return 1;
}

/* Sends the conversation and waits for the answer. */
static int answer_turn(mlcn_engine* engine, const text* messages, text* answer) {
  mlcn_submit_options options = MLCN_SUBMIT_OPTIONS_INIT;
  mlcn_request* request = NULL;
  mlcn_error* error = NULL;
  text body = {NULL, 0};
  append_string(&body, "{\"temperature\": 0, \"max_tokens\": 256, \"messages\": [");
  append(&body, messages->bytes, messages->size);
  append_string(&body, "]}");
  options.on_output = receive;
  options.user_data = answer;
  if (mlcn_submit(engine, body.bytes, body.size, &options, &request, &error) == MLCN_OK) {
    mlcn_request_wait(request, MLCN_FOREVER, &error);
  }
  mlcn_request_release(request);
  free(body.bytes);
  return error == NULL ? 0 : report(error);
}

int main(int argc, char** argv) {
  mlcn_engine* engine = NULL;
  mlcn_error* error = NULL;
  text messages = {NULL, 0};
  text line = {NULL, 0};
  int status = 0;
  if (argc != 2) {
    fprintf(stderr, "usage: %s MODEL\n", argv[0]);
    return 2;
  }
  if (mlcn_engine_create(argv[1], NULL, NULL, &engine, &error) != MLCN_OK) return report(error);
  while (status == 0 && read_line(&line)) {
    text answer = {NULL, 0};
    append(&answer, "", 0);
    append_message(&messages, "user", line.bytes, line.size);
    status = answer_turn(engine, &messages, &answer);
    printf("\n");
    append_message(&messages, "assistant", answer.bytes, answer.size);
    free(answer.bytes);
  }
  free(messages.bytes);
  free(line.bytes);
  if (mlcn_engine_destroy(engine, &error) != MLCN_OK) return report(error);
  return status;
}
