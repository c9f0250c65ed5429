#include "profiler/recorder/recorder.hpp"

#include <algorithm>
#include <new>

#include "profiler/trace/writer/json_line.hpp"

namespace udnnmem::profiler {

Recorder::Recorder(Settings settings) : settings_(std::move(settings)), ring_(settings_.queue) {}

Recorder::~Recorder() {
    ObservedOp op;
    while (ring_.pop(op)) delete op.more;
}

void Recorder::op(ObservedOp& op) noexcept {
    op.after_gap = gap_.load(std::memory_order_relaxed) && gap_.exchange(false);
    std::uint64_t turn = 0;
    if (!ring_.push(op, turn)) {
        delete op.more;
        gap_.store(true);
        return;
    }
    if (settings_.wake && (turn + 1) % (ring_.capacity() / 4) == 0) settings_.wake();
}

void Recorder::note(std::uint64_t address, std::uint64_t bytes, bool made, std::int32_t tag) noexcept try {
    if (!on()) return;
    std::lock_guard lock(lives_mutex_);
    lives_.push_back({ring_.pushed(), address, bytes, made, tag});
} catch (const std::bad_alloc&) {
    stop();
}

void Recorder::allocated(std::uint64_t address, std::uint64_t bytes, std::int32_t tag) noexcept { note(address, bytes, true, tag); }
void Recorder::released(std::uint64_t address) noexcept { note(address, 0, false, -1); }

// The lives that came before op number `before`.
void Recorder::take_lives(std::uint64_t before) {
    std::lock_guard lock(lives_mutex_);
    while (!lives_.empty() && lives_.front().before <= before) {
        const Life& life = lives_.front();
        if (life.made) history_.allocated(life.address, life.bytes, life.tag);
        else history_.released(life.address);
        lives_.pop_front();
    }
}

void Recorder::take_ops() {
    ObservedOp op;
    while (ring_.pop(op)) {
        take_lives(taken_++);
        if (op.after_gap) {
            history_.forget_ops();
            finder_.restart();
            found_period_ = 0;
        }
        const std::int32_t timer = op.timer;
        const Position at = history_.add(op);
        if (timer >= 0) pending_.push_back({at, timer});
        if (finder_.advance() && finder_.period() > told_period_) {
            found_period_ = finder_.period();
            found_begin_ = iteration_begin(history_, found_period_);
            found_end_ = history_.end();
        }
    }
    take_lives(taken_);
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
    if (settings_.found) settings_.found(iteration);
    const Trace& trace = iteration.trace;
    JsonLine learned("learned");
    learned.add("ops", static_cast<std::int64_t>(found_period_)).add("first_op", static_cast<std::int64_t>(found_begin_)).add("ideal_ns", trace.header.ideal);
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
        text += line.finish();
    }
    return text;
}

std::string Recorder::drain(bool last) {
    if (!on()) return {};
    take_ops();
    read_timers();
    std::string text;
    if (found_period_) {
        if (pending_.empty() || pending_.front().at >= found_end_ || last) {
            text = lines();
            told_period_ = found_period_;
            found_period_ = 0;
        }
    }
    const bool searching = finder_.period() == 0;
    timing_.store(searching, std::memory_order_relaxed);
    if (!searching && !found_period_ && finder_.held() >= std::max(settings_.watched_least, settings_.watched_periods * finder_.period())) stop();
    if (history_.end() - history_.begin() >= settings_.most_ops) stop();
    if (!on() || last) {
        stop();
        if (told_period_ == 0 && history_.end() > 0) {
            JsonLine none("learned");
            none.add("ops", std::int64_t{0}).add("searched", static_cast<std::int64_t>(history_.end()));
            text += none.finish();
        }
        history_ = History();
        pending_.clear();
        if (settings_.ended) settings_.ended();
    }
    return text;
}

}  // namespace udnnmem::profiler
