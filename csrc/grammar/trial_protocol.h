// The messages between an engine and its grammar worker (worker/main.cc) over a socket: one
// vocabulary, then one trial after the other. Both sides come from the same build. Pure, except for
// Send and Receive; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "mlc_native/grammar.h"

namespace mlc_native {

enum class TrialStatus : uint8_t {
  kReady,        // the vocabulary was understood
  kCompiled,     // the grammar can be compiled within the limits
  kRefused,      // it cannot; message says why
  kUnavailable,  // the grammar library cannot be used; message says why
};

struct TrialReply {
  TrialStatus status = TrialStatus::kRefused;
  bool forced_text_is_bounded = false;  // see forced_text.h
  std::string message;
};

// Decoding throws std::out_of_range if the bytes end too early.
std::string EncodeVocab(const GrammarVocab& vocab);
GrammarVocab DecodeVocab(std::string_view bytes);
std::string EncodeSpec(const GrammarSpec& spec);
GrammarSpec DecodeSpec(std::string_view bytes);
std::string EncodeReply(const TrialReply& reply);
TrialReply DecodeReply(std::string_view bytes);

using TrialDeadline = std::chrono::steady_clock::time_point;

enum class Transfer : uint8_t { kDone, kClosed, kTimeout };

// Waits until a message arrives or the socket closes. False if neither happens in time.
bool AwaitMessage(int socket, TrialDeadline deadline);
// Transfers one message of any size over a connected stream socket. Never raises SIGPIPE.
Transfer SendMessage(int socket, std::string_view bytes, TrialDeadline deadline);
// A message of more than max_bytes counts as closed.
Transfer ReceiveMessage(int socket, uint64_t max_bytes, TrialDeadline deadline, std::string* bytes);

}  // namespace mlc_native
