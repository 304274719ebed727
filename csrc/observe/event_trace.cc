#include "observe/event_trace.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
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
  explicit RequestWriter(const std::string& request_id) : request_id_(request_id) {}

  void Add(const std::string& event, int64_t ts) {
    if (event.starts_with(kStart)) {
      Begin(&NameOf(event.substr(kStart.size())), ts);
    } else if (event.starts_with(kFinish)) {
      Name& name = NameOf(event.substr(kFinish.size()));
      if (!name.open.empty()) End(&name, ts);
    } else {
      Name& name = NameOf(event);
      marks_.push_back({.name = &name, .number = name.count++, .phase = 'i', .ts = ts});
    }
  }

  // Closes what is open and returns the events row by row, separated by commas.
  std::string Finish(int64_t ts) {
    CloseOpen(ts);
    const std::vector<std::string> rows = ChooseRows();
    std::vector<std::string> written(rows.size());
    for (const Mark& mark : marks_) {
      // An instant lies in the row of the request.
      const size_t row = mark.phase == 'i' ? 0 : mark.name->row;
      std::string& text = written[row];
      if (!text.empty()) text += ',';
      text += mark.name->head + '(' + std::to_string(mark.number) + ")\",\"ph\":\"" + mark.phase +
              "\",\"ts\":" + std::to_string(mark.ts) + rows[row];
    }
    std::string all;
    for (const std::string& text : written) {
      if (!all.empty() && !text.empty()) all += ',';
      all += text;
    }
    return all;
  }

 private:
  // From the mark number `begin` to the mark number `end`.
  struct Span {
    size_t begin = 0;
    size_t end = 0;
  };

  // The events of one name.
  struct Name {
    std::string text;
    std::string head;  // up to the number
    int64_t count = 0;
    std::vector<Span> spans;   // in order of their begins
    std::vector<size_t> open;  // which of them have no end; outer ones first
    int64_t microseconds = 0;  // of all spans
    size_t row = 0;            // of the spans
  };

  struct Mark {
    Name* name = nullptr;
    int64_t number = 0;
    char phase = 'i';
    int64_t ts = 0;
  };

  Name& NameOf(const std::string& text) {
    Name*& name = by_text_[text];
    if (name == nullptr) {
      name = names_.emplace_back(std::make_unique<Name>()).get();
      name->text = text;
      name->head = "{\"name\":" + Quote(text);
      name->head.back() = ' ';  // the number goes inside the quotes
    }
    return *name;
  }

  void Begin(Name* name, int64_t ts) {
    name->open.push_back(name->spans.size());
    name->spans.push_back({.begin = marks_.size()});
    marks_.push_back({.name = name, .number = name->count++, .phase = 'B', .ts = ts});
  }

  // Requires: a span of the name is open.
  void End(Name* name, int64_t ts) {
    Span& span = name->spans[name->open.back()];
    name->open.pop_back();
    const Mark begin = marks_[span.begin];
    span.end = marks_.size();
    marks_.push_back({.name = name, .number = begin.number, .phase = 'E', .ts = ts});
    name->microseconds += ts - begin.ts;
  }

  void CloseOpen(int64_t ts) {
    std::vector<std::pair<size_t, Name*>> open;
    for (const auto& name : names_) {
      for (const size_t span : name->open) open.emplace_back(name->spans[span].begin, name.get());
    }
    std::ranges::sort(open, std::greater<>());  // inner spans end first
    for (const auto& [begin, name] : open) End(name, ts);
  }

  // Gives each name the first row in which its spans nest with those that are there, and returns
  // what the events of each row end with. Names with more time choose first.
  std::vector<std::string> ChooseRows() {
    std::vector<Name*> names;
    names.reserve(names_.size());
    for (const auto& name : names_) names.push_back(name.get());
    std::ranges::stable_sort(names, std::greater<>(), &Name::microseconds);
    std::vector<std::vector<Span>> rows(1);
    std::vector<std::string> tails = {TailOf(request_id_)};
    for (Name* name : names) {
      name->row = 0;
      while (name->row < rows.size() && !AddIfNested(name->spans, &rows[name->row])) ++name->row;
      if (name->row < rows.size()) continue;
      rows.push_back(name->spans);
      tails.push_back(TailOf(request_id_ + " (" + name->text + ')'));
    }
    return tails;
  }

  // Adds spans to those of a row unless two of them overlap without one being inside the other.
  static bool AddIfNested(const std::vector<Span>& spans, std::vector<Span>* row) {
    std::vector<Span> all;
    all.reserve(row->size() + spans.size());
    std::ranges::merge(*row, spans, std::back_inserter(all), {}, &Span::begin, &Span::begin);
    std::vector<size_t> ends;  // of the spans around the next one
    for (const Span& span : all) {
      while (!ends.empty() && ends.back() < span.begin) ends.pop_back();
      if (!ends.empty() && ends.back() < span.end) return false;
      ends.push_back(span.end);
    }
    *row = std::move(all);
    return true;
  }

  static std::string TailOf(const std::string& row) {
    return ",\"pid\":1,\"tid\":" + Quote(row) + '}';
  }

  std::string request_id_;
  std::vector<std::unique_ptr<Name>> names_;  // in order of their first events
  std::unordered_map<std::string, Name*> by_text_;
  std::vector<Mark> marks_;
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
