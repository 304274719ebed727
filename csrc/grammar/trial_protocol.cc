#include "grammar/trial_protocol.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace mlc_native {
namespace {

class Writer {
 public:
  void Int(uint64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value)); }
  void Text(std::string_view text) {
    Int(text.size());
    bytes_.append(text);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  uint64_t Int() {
    uint64_t value = 0;
    std::memcpy(&value, Take(sizeof(value)).data(), sizeof(value));
    return value;
  }
  std::string Text() { return std::string(Take(Int())); }

 private:
  std::string_view Take(uint64_t size) {
    if (size > bytes_.size()) throw std::out_of_range("truncated message");
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  std::string_view bytes_;
};

// Waits until the socket can be read (POLLIN) or written (POLLOUT), or is closed.
bool WaitFor(int socket, short event, TrialDeadline deadline) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd entry{socket, event, 0};
    const int64_t timeout_ms = std::min<int64_t>(left.count(), 1 << 30);
    const int ready = poll(&entry, 1, static_cast<int>(timeout_ms));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // the transfer will tell
  }
}

// Moves `size` bytes by `transfer(offset)`, which is send or recv without blocking.
template <typename TransferSome>
Transfer MoveAll(int socket, short event, size_t size, TrialDeadline deadline,
                 TransferSome transfer) {
  for (size_t done = 0; done < size;) {
    const ssize_t moved = transfer(done);
    if (moved > 0) {
      done += static_cast<size_t>(moved);
    } else if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!WaitFor(socket, event, deadline)) return Transfer::kTimeout;
    } else if (moved == 0 || errno != EINTR) {
      return Transfer::kClosed;
    }
  }
  return Transfer::kDone;
}

Transfer SendAll(int socket, const char* data, size_t size, TrialDeadline deadline) {
  return MoveAll(socket, POLLOUT, size, deadline, [=](size_t done) {
    return send(socket, data + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT);
  });
}

Transfer ReceiveAll(int socket, char* data, size_t size, TrialDeadline deadline) {
  return MoveAll(socket, POLLIN, size, deadline,
                 [=](size_t done) { return recv(socket, data + done, size - done, MSG_DONTWAIT); });
}

}  // namespace

std::string EncodeVocab(const GrammarVocab& vocab) {
  Writer writer;
  writer.Int(static_cast<uint64_t>(vocab.vocab_size));
  writer.Int(vocab.stop_token_ids.size());
  for (int32_t id : vocab.stop_token_ids) writer.Int(static_cast<uint64_t>(id));
  writer.Int(vocab.token_bytes.size());
  for (const std::string& bytes : vocab.token_bytes) writer.Text(bytes);
  return writer.Take();
}

GrammarVocab DecodeVocab(std::string_view bytes) {
  Reader reader(bytes);
  GrammarVocab vocab;
  vocab.vocab_size = static_cast<int64_t>(reader.Int());
  for (uint64_t left = reader.Int(); left > 0; --left) {
    vocab.stop_token_ids.push_back(static_cast<int32_t>(reader.Int()));
  }
  for (uint64_t left = reader.Int(); left > 0; --left) vocab.token_bytes.push_back(reader.Text());
  return vocab;
}

std::string EncodeSpec(const GrammarSpec& spec) {
  Writer writer;
  writer.Int(static_cast<uint64_t>(spec.kind));
  writer.Int(spec.strict);
  writer.Text(spec.text);
  return writer.Take();
}

GrammarSpec DecodeSpec(std::string_view bytes) {
  Reader reader(bytes);
  GrammarSpec spec;
  spec.kind = static_cast<GrammarKind>(reader.Int());
  spec.strict = reader.Int() != 0;
  spec.text = reader.Text();
  return spec;
}

std::string EncodeReply(const TrialReply& reply) {
  Writer writer;
  writer.Int(static_cast<uint64_t>(reply.status));
  writer.Int(reply.forced_text_is_bounded);
  writer.Text(reply.message);
  return writer.Take();
}

TrialReply DecodeReply(std::string_view bytes) {
  Reader reader(bytes);
  TrialReply reply;
  reply.status = static_cast<TrialStatus>(reader.Int());
  reply.forced_text_is_bounded = reader.Int() != 0;
  reply.message = reader.Text();
  return reply;
}

bool AwaitMessage(int socket, TrialDeadline deadline) { return WaitFor(socket, POLLIN, deadline); }

Transfer SendMessage(int socket, std::string_view bytes, TrialDeadline deadline) {
  const uint64_t size = bytes.size();
  const Transfer header =
      SendAll(socket, reinterpret_cast<const char*>(&size), sizeof(size), deadline);
  return header == Transfer::kDone ? SendAll(socket, bytes.data(), bytes.size(), deadline) : header;
}

Transfer ReceiveMessage(int socket, uint64_t max_bytes, TrialDeadline deadline,
                        std::string* bytes) {
  uint64_t size = 0;
  const Transfer header =
      ReceiveAll(socket, reinterpret_cast<char*>(&size), sizeof(size), deadline);
  if (header != Transfer::kDone) return header;
  if (size > max_bytes) return Transfer::kClosed;
  bytes->resize(size);
  return ReceiveAll(socket, bytes->data(), size, deadline);
}

}  // namespace mlc_native
