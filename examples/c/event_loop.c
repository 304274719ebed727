/* A host in C with an event loop of its own: one thread, epoll, no callbacks. The engine's event
 * descriptor is one of the descriptors that the loop waits for; here the others are a timer that
 * draws progress, and nothing else happens on other threads.
 *
 *   cc event_loop.c $(pkg-config --cflags --libs mlc_native_c) -o event_loop
 *   ./event_loop path/to/model "The capital of France is" "The sun is" "Once upon a time" */
#define _POSIX_C_SOURCE 200809L /* CLOCK_MONOTONIC, also with -std=c99 */
#include <mlc_native/mlc_native.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { MAX_REQUESTS = 16 };

static int report(mlcn_error* error) {
  fprintf(stderr, "%s: %s\n", mlcn_error_field(error), mlcn_error_message(error));
  mlcn_error_release(error);
  return 1;
}

/* What the loop knows of one request. */
typedef struct answer {
  char text[4096];
  size_t size;
} answer;

static void keep(answer* to, const mlcn_output* output) {
  const size_t room = sizeof(to->text) - 1 - to->size;
  const size_t size = output->text_length < room ? output->text_length : room;
  memcpy(to->text + to->size, output->text, size);
  to->size += size;
  to->text[to->size] = '\0';
}

/* Takes all outputs that are there. Returns how many requests have ended. */
static int take_outputs(mlcn_engine* engine) {
  mlcn_outputs* outputs = NULL;
  int ended = 0;
  size_t i;
  while (mlcn_poll(engine, 64, 0, &outputs, NULL) == MLCN_OK && outputs != NULL) {
    for (i = 0; i < mlcn_outputs_count(outputs); ++i) {
      const mlcn_output* output = mlcn_outputs_at(outputs, i);
      keep(output->user_data, output);
      ended += output->is_final;
    }
    mlcn_outputs_release(outputs);
  }
  return ended;
}

static void watch(int epoll, int descriptor) {
  struct epoll_event event;
  memset(&event, 0, sizeof(event));
  event.events = EPOLLIN;
  event.data.fd = descriptor;
  epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
}

static int run_loop(mlcn_engine* engine, int live) {
  const struct itimerspec every = {{0, 50000000}, {0, 50000000}};
  const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  unsigned long long ticks = 0;
  timerfd_settime(timer, 0, &every, NULL);
  watch(epoll, timer);
  watch(epoll, mlcn_event_fd(engine));
  while (live > 0) {
    struct epoll_event event;
    if (epoll_wait(epoll, &event, 1, -1) != 1) continue;
    if (event.data.fd == timer) {
      if (read(timer, &ticks, sizeof(ticks)) > 0) fprintf(stderr, "%d requests run\n", live);
    } else {
      live -= take_outputs(engine);
    }
  }
  close(epoll);
  close(timer);
  return 0;
}

int main(int argc, char** argv) {
  static answer answers[MAX_REQUESTS];
  mlcn_engine* engine = NULL;
  mlcn_error* error = NULL;
  int i;
  if (argc < 3 || argc - 2 > MAX_REQUESTS) {
    fprintf(stderr, "usage: %s MODEL PROMPT...\n", argv[0]);
    return 2;
  }
  if (mlcn_engine_create(argv[1], NULL, NULL, &engine, &error) != MLCN_OK) return report(error);
  for (i = 0; i < argc - 2; ++i) {
    mlcn_submit_options options = MLCN_SUBMIT_OPTIONS_INIT;
    mlcn_request* request = NULL;
    int32_t* tokens = NULL;
    options.user_data = &answers[i];
    if (mlcn_tokenize(engine, argv[i + 2], MLCN_NUL_TERMINATED, MLCN_ADD_SPECIAL_TOKENS, &tokens,
                      &options.num_tokens, &error) != MLCN_OK) {
      return report(error);
    }
    options.tokens = tokens;
    if (mlcn_submit(engine, "{\"temperature\": 0, \"max_tokens\": 16}", MLCN_NUL_TERMINATED,
                    &options, &request, &error) != MLCN_OK) {
      return report(error);
    }
    mlcn_free(tokens);
    mlcn_request_release(request);
  }
  run_loop(engine, argc - 2);
  for (i = 0; i < argc - 2; ++i) printf("%s%s\n", argv[i + 2], answers[i].text);
  return mlcn_engine_destroy(engine, NULL);
}
