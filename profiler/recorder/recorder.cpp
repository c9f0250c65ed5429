#include "profiler/recorder/recorder.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>
#include <utility>

#include "profiler/trace/writer/json_line.hpp"

namespace udnnmem::profiler {
namespace {
constexpr std::size_t kMostMarks = 64;  // an iteration is found within so many
constexpr std::uint64_t kMostOrders = 64;   // since the last op, beyond which a wait of the host is not told: a program asks, and asks
constexpr std::size_t kMostPeriods = 64;   // whose repeats are counted
constexpr std::int64_t kPause = 1'000'000'000;  // ns without an op: a pause of the program's, beyond that

Recorder::Settings with_clock(Recorder::Settings s) {
    if (!s.now) s.now = [] { return Nanoseconds(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1)); };
    return s;
}
}  // namespace

Recorder::Recorder(Settings settings) : settings_(with_clock(std::move(settings))), ring_(settings_.queue) {}

Recorder::~Recorder() {
    ObservedOp op;
    while (ring_.pop(op)) delete op.more;
}

bool Recorder::op(ObservedOp& op) noexcept {
    op.after_gap = gap_.load(std::memory_order_relaxed) && gap_.exchange(false);
    std::uint64_t turn = 0;
    if (!push(op, turn)) {
        delete op.more;
        missed();
        return false;
    }
    newest_op_.store(turn, std::memory_order_relaxed);
    return true;
}

bool Recorder::push(const ObservedOp& record, std::uint64_t& turn) noexcept {
    if (!ring_.push(record, turn)) return false;
    if (settings_.wake && (turn + 1) % (ring_.capacity() / 4) == 0) settings_.wake();
    return true;
}

void Recorder::order(Told told, std::uint64_t stream, std::uint64_t event) noexcept {
    ObservedOp record;
    record.told = told;
    record.stream = stream;
    record.event = event;
    std::uint64_t turn = 0;
    push(record, turn);   // where there is no room the search goes on without it
}

void Recorder::host_waited(std::uint64_t stream, std::uint64_t event) noexcept {
    const std::uint64_t told = ring_.pushed(), what = stream * 0x9e3779b97f4a7c15u ^ event;
    const bool asked_before = told_until_.load(std::memory_order_relaxed) == told && told_wait_.load(std::memory_order_relaxed) == what;
    if (asked_before || told - newest_op_.load(std::memory_order_relaxed) > kMostOrders) return;
    told_until_.store(told + 1, std::memory_order_relaxed);
    told_wait_.store(what, std::memory_order_relaxed);
    order(Told::host_waited, stream, event);
}

void Recorder::note(std::uint64_t address, std::uint64_t bytes, Life::Kind kind, std::int32_t tag) noexcept try {
    if (!on()) return;
    std::lock_guard lock(lives_mutex_);
    lives_.push_back({ring_.pushed(), address, bytes, kind, tag});
} catch (const std::bad_alloc&) {
    stop();
}

void Recorder::allocated(std::uint64_t address, std::uint64_t bytes, std::int32_t tag) noexcept { note(address, bytes, Life::Kind::made, tag); }
void Recorder::released(std::uint64_t address) noexcept { note(address, 0, Life::Kind::released, -1); }
void Recorder::mark() noexcept {
    marks_told_.fetch_add(1, std::memory_order_relaxed);
    note(0, 0, Life::Kind::mark, -1);
}

// The lives that came before op number `before`.
void Recorder::take_lives(std::uint64_t before) {
    std::lock_guard lock(lives_mutex_);
    while (!lives_.empty() && lives_.front().before <= before) {
        const Life& life = lives_.front();
        switch (life.kind) {
            case Life::Kind::made: history_.allocated(life.address, life.bytes, life.tag); break;
            case Life::Kind::released: history_.released(life.address); break;
            case Life::Kind::mark:
                if (marks_.empty() || marks_.back() != history_.end()) marks_.push_back(history_.end());
                if (marks_.size() > kMostMarks) marks_.pop_front();
                break;
        }
        lives_.pop_front();
    }
}

std::string Recorder::take_ops() {
    std::string text;
    ObservedOp op;
    // No more than there are now: a program that goes on faster would have everything else wait.
    for (const std::uint64_t until = ring_.pushed(); taken_ < until && ring_.pop(op);) {
        take_lives(taken_++);
        if (op.after_gap) {
            history_.forget_ops();
            finder_.restart();
            found_period_ = 0;
        }
        switch (op.told) {
            case Told::op: break;
            case Told::event_recorded: history_.event_recorded(op.event, op.stream); continue;
            case Told::stream_waits: history_.stream_waits(op.stream, op.event); continue;
            case Told::host_waited: history_.host_waited(op.stream, op.event); continue;
        }
        const std::int32_t timer = op.timer;
        const Position at = history_.add(op);
        note_size(at);
        ops_seen_.fetch_add(1, std::memory_order_relaxed);
        if (timer >= 0) pending_.push_back({at, timer});
        if (!hears_ops()) continue;   // it was on its way when the rest began
        const bool found = finder_.advance();
        count_repeats(found);
        // What is no part of the one to come is not lost to it: the thread that tells may be late, and all of a short run told at once.
        if (found && found_period_ >= finder_.period()) read_timers(), text += tell();
        if (found && news(history_.end() - finder_.period(), finder_.period())) {
            waits_for_times_ = true;
            time_ops(true);
        }
        waits_for_times_ &= finder_.period() > 0;
        if (waits_for_times_ && timed_since(history_.end() - finder_.period())) {
            waits_for_times_ = false;
            if (marks_.empty()) find(iteration_begin(history_, finder_.period()), finder_.period());
        }
        if (!marks_.empty()) find_between_marks();
    }
    take_lives(taken_);
    looked_at_.store(taken_, std::memory_order_release);
    return text;
}

// For how long each period goes on, and again later: the iteration that is most of the run is what reports show.
void Recorder::count_repeats(bool found) {
    if (found || !finder_.period()) holds_ = nullptr;
    if (found) {
        const std::uint64_t print = print_of(history_.end() - finder_.period(), finder_.period());
        if (held_.size() < kMostPeriods || held_.contains(print)) holds_ = &*held_.try_emplace(print, 0).first, holds_->second += finder_.held();
    } else if (holds_) {
        ++holds_->second;
    }
}

// Of the ops of a period, wherever it begins.
std::uint64_t Recorder::print_of(Position begin, Position ops) const {
    std::uint64_t sum = static_cast<std::uint64_t>(ops);
    for (Position at = begin; at < begin + ops; ++at) {
        std::uint64_t h = (history_.op(at).shape ^ reinterpret_cast<std::uintptr_t>(history_.op(at).name)) * 0x9e3779b97f4a7c15u;
        sum += h ^ h >> 29;
    }
    return sum;
}

std::string Recorder::repeated_lines() const {
    std::string text;
    if (iterated_.size() < 2) return text;   // which is no question
    for (const Iterated& i : iterated_) {
        const auto held = held_.find(i.print);
        if (held != held_.end()) text += JsonLine("repeated").add("ops", static_cast<std::int64_t>(i.ops)).add("first_op", static_cast<std::int64_t>(i.begin)).add("for_ops", static_cast<std::int64_t>(held->second)).finish();
    }
    return text;
}

void Recorder::note_size(Position at) {
    const History::Op& op = history_.op(at);
    const Bytes bytes(static_cast<std::int64_t>(history_.bytes_of(op)));
    if (bytes <= largest_.bytes) return;
    std::lock_guard lock(largest_mutex_);
    largest_ = {op.name, bytes, 0};
}

Recorder::LargestOp Recorder::largest_op() const {
    std::lock_guard lock(largest_mutex_);
    LargestOp largest = largest_;
    if (!hears_ops()) largest.among = ops_seen_.load(std::memory_order_relaxed);
    return largest;
}

// While a search is young ops were timed whenever no period was known; that is enough to tell the next one at once.
bool Recorder::young() const { return history_.end() - search_begin_ < settings_.timed_ops; }
bool Recorder::timed_since(Position at) const { return young() || at >= timed_from_; }

void Recorder::time_ops(bool yes) {
    if (timing_.exchange(yes) == yes) return;
    timed_from_ = yes ? history_.end() + static_cast<Position>(ring_.pushed() - taken_) : std::numeric_limits<Position>::max();
}

// Whether that is not a part of what was told: it is longer, or of other kernels.
bool Recorder::news(Position begin, Position period) const { return period > told_period_ || !told_kernels_.most_of(history_, begin, begin + period); }

// The lines of what was found.
std::string Recorder::tell() {
    const std::string text = lines();
    told_kernels_.add(history_, found_begin_, found_begin_ + found_period_);
    if (iterated_.size() < kMostPeriods) iterated_.push_back({found_begin_, found_period_, found_print_});
    told_period_ = std::max(told_period_, std::exchange(found_period_, 0));
    told_any_ = true;
    return text;
}

void Recorder::find(Position begin, Position period) {
    found_begin_ = begin;
    found_period_ = period;
    found_print_ = holds_ ? holds_->first : 0;
    found_end_ = history_.end();
}

// The iteration that ends at the last mark is a whole number of periods long, and was seen before.
void Recorder::find_between_marks() {
    const Position period = finder_.period(), last = marks_.back();
    if (period == 0 || found_period_ || last <= history_.begin()) return;
    for (std::size_t i = marks_.size() - 1; i-- > 0;) {
        const Position length = last - marks_[i];
        if (history_.end() - marks_[i] > finder_.held()) return;
        if (length % period != 0) continue;
        if (timed_since(marks_[i]) && news(marks_[i], length)) {
            find(marks_[i], length);
            marks_serve_ = true;
        }
        return;
    }
}

void Recorder::read_timers() {
    // In order of submission, as a rule the order of completion too.
    while (!pending_.empty()) {
        Nanoseconds start{-1}, duration;
        const Reading reading = settings_.read_timer(pending_.front().timer, start, duration);
        if (reading == Reading::pending) return;
        if (reading == Reading::done) history_.set_time(pending_.front().at, start, duration);
        pending_.pop_front();
    }
}

std::string Recorder::lines() {
    const Iteration iteration = iteration_at(history_, found_begin_, found_period_);
    const std::string timed_by = settings_.timed_by ? settings_.timed_by() : "";
    if (settings_.found) settings_.found(iteration);
    const Trace& trace = iteration.trace;
    JsonLine learned("learned");
    learned.add("ops", static_cast<std::int64_t>(found_period_)).add("first_op", static_cast<std::int64_t>(found_begin_)).add("ideal_ns", trace.header.ideal);
    if (!timed_by.empty()) learned.add("timed_by", timed_by);
    std::string text = learned.finish();
    for (const TraceBuffer& buffer : trace.buffers) {
        JsonLine line("buffer");
        line.add("id", buffer.id).add("bytes", buffer.bytes).add("persistent", buffer.persistent);
        if (!buffer.persistent) line.add("alloc_op", buffer.alloc_op.value).add("free_op", buffer.free_op.value);
        if (buffer.run_id >= 0) line.add("run_id", buffer.run_id);
        text += line.finish();
    }
    for (const TraceOp& op : trace.ops) {
        JsonLine line("op");
        line.add("index", op.index.value).add("name", op.name).add("stream", op.stream).add("duration_ns", op.duration);
        if (op.start.value >= 0) line.add("start_ns", op.start);
        line.add("reads", op.reads).add("writes", op.writes);
        if (!op.waits.empty()) line.add("waits", op.waits);
        if (op.host_waited.value >= 0) line.add("host_waited", op.host_waited.value);
        if (!op.range.empty()) line.add("range", op.range);
        if (!op.call.empty()) line.add("call", op.call);
        if (op.flops > 0) line.add("flops", op.flops);
        text += line.finish();
    }
    return text;
}

// A new search. What was told before it is not compared with: ops are missing in between.
void Recorder::search(Nanoseconds now) {
    if (std::exchange(idle_, false)) {
        told_period_ = 0;
        told_kernels_.clear();
    }
    again_.store(false);
    history_.forget_ops();
    finder_.restart();
    marks_.clear();
    search_begin_ = history_.end();
    search_since_ = now;
    searched_ = Nanoseconds(0);
    time_ops(true);
    hears_ops_.store(true);
}

// Whether the search has gone on for long enough.
bool Recorder::tired() const {
    const Position looked_at = history_.end() - search_begin_;
    const bool hopeful = finder_.period() || found_period_ || finder_.nearly();
    if (history_.kept() >= settings_.most_kept) return true;
    if (!hopeful && searched_.value >= settings_.search_time.value << search_) return true;
    return looked_at >= (hopeful ? settings_.most_ops : std::min(settings_.most_ops, settings_.search_ops << search_));
}

void Recorder::rest(Nanoseconds now) {
    hears_ops_.store(false);
    time_ops(false);
    found_period_ = 0;
    waits_for_times_ = false;
    std::int64_t times = settings_.rest;
    for (int i = 0; i < search_; ++i) times *= 4;
    rest_until_ = Nanoseconds(now.value + times * (now.value - search_since_.value));
    ++search_;
    history_.forget_ops();
    finder_.restart();
    if (settings_.rests) settings_.rests();
}

// All is told.
void Recorder::finish(Nanoseconds now) {
    if (search_ + 1 >= settings_.searches || !settings_.spare || !settings_.spare()) return stop();
    rest(now);
    idle_ = true;
}

std::string Recorder::drain(bool last) {
    if (!on()) return end(), std::string();
    const Nanoseconds now = settings_.now();
    if (search_since_.value < 0) search_since_ = looked_ = now;
    const std::uint64_t before = taken_;
    std::string text = take_ops();
    // A program that waits for its user is not tired of.
    if (taken_ != before) searched_.value += std::min(now.value - looked_.value, kPause);
    looked_ = now;
    read_timers();
    if (!hears_ops() && !last) {
        if (history_.crowded()) history_.forget_ops();
        if (idle_ ? again_.load() : now.value >= rest_until_.value) search(now);
        return text;
    }
    if (found_period_ && (pending_.empty() || pending_.front().at >= found_end_ || last)) text += tell();
    const bool searching = finder_.period() == 0;
    time_ops(searching ? young() : waits_for_times_ || (!marks_.empty() && !marks_serve_));
    if (!searching && !found_period_ && !waits_for_times_ && finder_.held() >= std::max(settings_.watched_least, settings_.watched_periods * finder_.period())) {
        if (told_period_ == 0) {  // what repeats keeps to no marks
            find(iteration_begin(history_, finder_.period()), finder_.period());
            text += tell();
        }
        finish(now);
        if (on()) text += repeated_lines();
    } else if (tired()) {
        if (finder_.period() && told_period_) finish(now);
        else if (search_ + 1 < settings_.searches) rest(now);
        else stop();
    }
    if (!on() || last) {
        stop();
        text += repeated_lines();
        if (!told_any_ && history_.end() > 0) {
            JsonLine none("learned");
            none.add("ops", std::int64_t{0}).add("searched", static_cast<std::int64_t>(history_.end()));
            text += none.finish();
        }
        end();
    }
    return text;
}

void Recorder::end() noexcept {
    if (std::exchange(ended_, true)) return;
    stop();
    finder_.restart();
    history_ = History();
    pending_.clear();
    marks_.clear();
    {
        std::lock_guard lock(lives_mutex_);
        lives_.clear();
    }
    if (settings_.ended) settings_.ended();
}

}  // namespace udnnmem::profiler
