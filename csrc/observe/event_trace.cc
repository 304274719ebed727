#include "observe/event_trace.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "support/error.h"
#include "support/json.h"
#include "support/mutex.h"

namespace mlc_native {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMaxCapacity = 1 << 24;
constexpr std::string_view kStart = "start ";
constexpr std::string_view kFinish = "finish ";

// Gives each distinct text a small number for as long as an event of the ring uses it. If Acquire
// throws (no memory), nothing has changed.
class InternTable {
 public:
  using Text = std::shared_ptr<const std::string>;

  int32_t Acquire(std::string_view text) {
    const auto found = ids_.find(text);
    if (found != ids_.end()) {
      ++entries_[found->second].num_uses;
      return found->second;
    }
    auto made = std::make_shared<const std::string>(text);
    if (free_ids_.empty()) AddFreeId();
    const int32_t id = free_ids_.back();
    ids_.emplace(*made, id);
    free_ids_.pop_back();
    entries_[id] = {std::move(made), 1};
    return id;
  }

  void Release(int32_t id) noexcept {
    Entry& entry = entries_[id];
    if (--entry.num_uses > 0) return;
    ids_.erase(*entry.text);
    entry.text.reset();
    free_ids_.push_back(id);  // has room for every id
  }

  // Index = id; null for ids that are not in use.
  std::vector<Text> Texts() const {
    std::vector<Text> texts;
    texts.reserve(entries_.size());
    for (const Entry& entry : entries_) texts.push_back(entry.text);
    return texts;
  }

 private:
  struct Entry {
    Text text;
    int64_t num_uses = 0;
  };

  void AddFreeId() {
    const size_t id = entries_.size();
    if (free_ids_.capacity() <= id) free_ids_.reserve(2 * id + 16);
    entries_.emplace_back();
    free_ids_.push_back(static_cast<int32_t>(id));
  }

  std::vector<Entry> entries_;
  std::vector<int32_t> free_ids_;
  std::unordered_map<std::string_view, int32_t> ids_;  // keys view the entries' texts
};

struct Event {
  int32_t request = 0;
  int32_t name = 0;
  Clock::time_point time;
};

// A consistent copy of the recorder.
struct Snapshot {
  std::vector<Event> events;  // oldest first
  std::vector<InternTable::Text> requests;
  std::vector<InternTable::Text> names;
};

// A JSON string literal.
std::string Quote(const std::string& text) {
  std::string quoted;
  AppendQuotedJson(text, &quoted);
  return quoted;
}

// Writes the events of one request; pairs starts and finishes of a name like brackets.
class RequestWriter {
 public:
  explicit RequestWriter(const std::string& request_id)
      : tail_(",\"pid\":1,\"tid\":" + Quote(request_id) + '}') {}

  void Add(const std::string& event, int64_t ts) {
    if (event.starts_with(kStart)) {
      Track& track = TrackOf(event.substr(kStart.size()));
      track.open.push_back(track.count++);
      Write(track, track.open.back(), 'B', ts);
    } else if (event.starts_with(kFinish)) {
      Track& track = TrackOf(event.substr(kFinish.size()));
      if (track.open.empty()) return;
      Write(track, track.open.back(), 'E', ts);
      track.open.pop_back();
    } else {
      Track& track = TrackOf(event);
      Write(track, track.count++, 'i', ts);
    }
  }

  // Closes what is open and hands the events over, separated by commas.
  std::string Finish(int64_t ts) {
    for (auto& [name, track] : tracks_) {
      for (; !track.open.empty(); track.open.pop_back()) Write(track, track.open.back(), 'E', ts);
    }
    return std::move(written_);
  }

 private:
  // The events of one name.
  struct Track {
    std::string head;  // up to the number
    int64_t count = 0;
    std::vector<int64_t> open;  // numbers of spans without an end
  };

  Track& TrackOf(const std::string& name) {
    Track& track = tracks_[name];
    if (track.head.empty()) {
      track.head = "{\"name\":" + Quote(name);
      track.head.back() = ' ';  // the number goes inside the quotes
    }
    return track;
  }

  void Write(const Track& track, int64_t number, char phase, int64_t ts) {
    if (!written_.empty()) written_ += ',';
    written_ += track.head + '(' + std::to_string(number) + ")\",\"ph\":\"" + phase +
                "\",\"ts\":" + std::to_string(ts) + tail_;
  }

  const std::string tail_;
  std::unordered_map<std::string, Track> tracks_;
  std::string written_;
};

}  // namespace

struct EventTraceRecorder::Impl {
  explicit Impl(int64_t capacity) : capacity(static_cast<size_t>(capacity)) {}

  void Record(std::string_view request_id, std::string_view name, Clock::time_point time) noexcept
      MLC_REQUIRES(mutex) {
    try {
      const bool grows = ring.size() < capacity;
      if (grows && ring.size() == ring.capacity()) {
        ring.reserve(std::min(capacity, 2 * ring.size() + 16));
      }
      const Event event = Acquire(request_id, name, time);
      if (grows) return ring.push_back(event);
      const Event dropped = std::exchange(ring[next], event);
      next = next + 1 == capacity ? 0 : next + 1;
      requests.Release(dropped.request);
      names.Release(dropped.name);
    } catch (const std::bad_alloc&) {  // then this one is dropped
    }
    ++num_dropped;
  }

  Event Acquire(std::string_view request_id, std::string_view name, Clock::time_point time)
      MLC_REQUIRES(mutex) {
    Event event{.request = requests.Acquire(request_id), .name = 0, .time = time};
    try {
      event.name = names.Acquire(name);
    } catch (...) {
      requests.Release(event.request);
      throw;
    }
    return event;
  }

  Snapshot Copy() const {
    const MutexLock lock(mutex);
    Snapshot snapshot;
    snapshot.events.reserve(ring.size());
    snapshot.events.insert(snapshot.events.end(), ring.begin() + static_cast<int64_t>(next),
                           ring.end());
    snapshot.events.insert(snapshot.events.end(), ring.begin(),
                           ring.begin() + static_cast<int64_t>(next));
    snapshot.requests = requests.Texts();
    snapshot.names = names.Texts();
    return snapshot;
  }

  // Times are measured on the steady clock and reported relative to the wall clock at the start, so
  // that a clock that is set while we record disorders nothing.
  int64_t WallMicroseconds(Clock::time_point time) const {
    return std::chrono::duration_cast<std::chrono::microseconds>(wall_start.time_since_epoch() +
                                                                 (time - steady_start))
        .count();
  }

  const size_t capacity;
  const std::chrono::system_clock::time_point wall_start = std::chrono::system_clock::now();
  const Clock::time_point steady_start = Clock::now();

  mutable Mutex mutex;
  std::vector<Event> ring MLC_GUARDED_BY(mutex);
  size_t next MLC_GUARDED_BY(mutex) = 0;  // the oldest event once the ring is full
  int64_t num_dropped MLC_GUARDED_BY(mutex) = 0;
  InternTable requests MLC_GUARDED_BY(mutex);
  InternTable names MLC_GUARDED_BY(mutex);
};

EventTraceRecorder::EventTraceRecorder(int64_t capacity) {
  if (capacity < 1 || capacity > kMaxCapacity) {
    throw InvalidConfig("capacity", OutOfRangeMessage("capacity", capacity, "in [1, 16777216]"));
  }
  impl_ = std::make_unique<Impl>(capacity);
}

EventTraceRecorder::~EventTraceRecorder() = default;

void EventTraceRecorder::AddEvent(std::string_view request_id, std::string_view event) noexcept {
  AddEvent(std::span(&request_id, 1), event);
}

void EventTraceRecorder::AddEvent(std::span<const std::string_view> request_ids,
                                  std::string_view event) noexcept {
  const MutexLock lock(impl_->mutex);
  const Clock::time_point now = Clock::now();  // under the lock: the ring is in order of time
  for (std::string_view request_id : request_ids) {
    impl_->Record(request_id, event, now);
  }
}

std::string EventTraceRecorder::DumpJSON() const {
  const Snapshot snapshot = impl_->Copy();
  const int64_t now = impl_->WallMicroseconds(Clock::now());
  std::vector<RequestWriter> writers;  // in order of first events
  std::vector<int32_t> writer_of(snapshot.requests.size(), -1);
  for (const Event& event : snapshot.events) {
    int32_t& writer = writer_of[event.request];
    if (writer < 0) {
      writer = static_cast<int32_t>(writers.size());
      writers.emplace_back(*snapshot.requests[event.request]);
    }
    writers[writer].Add(*snapshot.names[event.name], impl_->WallMicroseconds(event.time));
  }
  std::string all = "[";
  for (RequestWriter& writer : writers) {
    const std::string events = writer.Finish(now);
    if (!events.empty() && all.size() > 1) all += ',';
    all += events;
  }
  return all + ']';
}

int64_t EventTraceRecorder::num_dropped() const {
  const MutexLock lock(impl_->mutex);
  return impl_->num_dropped;
}

}  // namespace mlc_native
