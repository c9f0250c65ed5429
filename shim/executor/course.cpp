#include "shim/executor/course.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "shim/executor/plan_store.hpp"
#include "shim/pager/told_id.hpp"

namespace udnnmem::executor {
namespace {

constexpr std::size_t kMeasured = 5;      // iterations of a way before it is judged, the first of them not counted
constexpr std::size_t kKept = 64;         // iterations whose times are kept
constexpr double kWorse = 1.02;           // a way that takes so much longer than the one before is given up ...
constexpr double kBetter = 0.995;         // ... and one that was to be better if it is not
constexpr double kMuchBetter = 0.95;      // what demand paging has to be for a plan to be given up after a comparison
constexpr std::size_t kCompared = 10;     // iterations of a plan before it is compared with its promise
constexpr int kImproved = 3;              // times that it is tried to improve it
constexpr double kFallsShort = 1.1;       // a plan that takes so much longer than it promised may be worse than none

std::int64_t median(std::vector<std::int64_t> v) {
    if (v.empty()) return 0;
    std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
    return v[v.size() / 2];
}

Nanoseconds longest_op(const Sequence& sequence) {
    Nanoseconds longest{0};
    for (const profiler::TraceOp& op : sequence.plan_trace.ops) longest = std::max(longest, op.duration);
    return longest;
}

std::vector<std::int64_t> times_of(const Sequence& sequence) {
    std::vector<std::int64_t> times;
    for (const profiler::TraceOp& op : sequence.plan_trace.ops) times.push_back(op.duration.value);
    return times;
}

std::vector<bool> guesses_of(const Sequence& sequence) {
    std::vector<bool> guesses;
    for (const Sequence::Step& step : sequence.steps) guesses.push_back(!step.timed);
    return guesses;
}

Bytes bytes_of(const Sequence& sequence) {
    Bytes bytes{0};
    for (const profiler::TraceBuffer& b : sequence.plan_trace.buffers) bytes += b.bytes;
    return bytes;
}

// Of a way: its first iteration began where the way before it had left things.
std::int64_t settled(const std::vector<std::int64_t>& times) {
    return times.size() > 1 ? median({times.begin() + 1, times.end()}) : median(times);
}

}  // namespace

Course::Course(int number, Sequence&& learned, pager::Pager& pager)
    : id(number), sequence(std::move(learned)), longest(longest_op(sequence)), bytes(bytes_of(sequence)), follower(sequence), memos(sequence.steps.size()), small(sequence.program), watch(std::make_unique<WriteWatch>(pager, sequence)), ways_(1), actual_(sequence.steps.size()), differed_(sequence.steps.size()), shortest_(times_of(sequence)), guessed_(guesses_of(sequence)) {}

Course::Course(int number, Sequence&& learned, profiler::Trace&& was_seen, std::shared_ptr<replay::Known> was_known, std::shared_ptr<const Rows> rows)
    : id(number), sequence(std::move(learned)), longest(longest_op(sequence)), bytes(bytes_of(sequence)), follower(sequence, true), memos(sequence.steps.size()), small(sequence.program), restored(true), stored(true), stage(Stage::planned), seen(std::move(was_seen)), known(std::move(was_known)), proven(known != nullptr),
      ways_(1), next_(std::move(rows)), actual_(sequence.steps.size()), differed_(sequence.steps.size()), shortest_(times_of(sequence)), guessed_(guesses_of(sequence)) {}

std::uint64_t Course::fingerprint() const {
    Fingerprint print;
    for (const Sequence::Step& s : sequence.steps) {
        print.op(s.shape, s.count);
        for (std::uint32_t i = s.first; i < s.first + s.count; ++i) {
            const auto b = static_cast<std::size_t>(sequence.uses[i].buffer);
            const pager::Buffer* known = sequence.lasts(b) ? follower.bound(static_cast<std::int32_t>(b)) : nullptr;
            print.use(known ? known->id + 1u : 0);
        }
    }
    return print.value();
}

std::shared_ptr<const Rows> Course::worth_storing() const {
    if (stored && next_) return next_;
    // Not a plan that rests on proofs which cannot be stored.
    const auto lasts = [this](const Rows& rows) {
        return std::all_of(rows.replays.begin(), rows.replays.end(), [this](const Rows::Replay& r) {
            return std::all_of(r.slice->ops.begin(), r.slice->ops.end(), [this](std::int32_t k) { return storable(known->ops[static_cast<std::size_t>(k)]); });
        });
    };
    const auto way = std::find_if(ways_.rbegin(), ways_.rend(), [&](const Way& w) { return w.rows ? lasts(*w.rows) : !w.trial; });
    return way->rows && (stored || way->times[0].size() + way->times[1].size() >= kMeasured) ? way->rows : nullptr;
}

bool Course::newly_worth_storing() {
    const Way& way = ways_.back();
    return way.rows && way.times[0].size() + way.times[1].size() >= kMeasured && !std::exchange(ways_.back().told, true);
}

Nanoseconds Course::Way::typical() const { return Nanoseconds(settled(times[!times[1].empty()])); }

void Course::begin(std::uint64_t& last_tag) {
    if (!ways_.back().tag) ways_.back().tag = ++last_tag;
    if (next_) {
        Way& way = ways_.emplace_back();
        way.tag = ++last_tag;
        way.rows = std::move(next_);
        way.promised = way.rows->promised;
        next_ = nullptr;
        if (!way.rows->change.empty()) change(way.rows->change, way.promised);
        measure_anew();
        differed_.assign(differed_.size(), 0);
        looked_at_ = 0;
    }
    if (rows() && !rows()->replays.empty()) find_differing();
    timed_apart_ = OpClock::apart(sequence.steps.size(), ways_.back().begun++);
}

void Course::find_differing() {
    if (++looked_at_ < kLookedAt) return;
    for (std::size_t k = 0; k < differed_.size(); ++k)
        if (2 * differed_[k] > kLookedAt) differing_.push_back(static_cast<std::int32_t>(k));
    differed_.assign(differed_.size(), 0);
    looked_at_ = 0;
}

// What ops of the way in force do: nothing that was measured so far.
void Course::measure_anew() {
    actual_.assign(actual_.size(), Actual());
    ways_.back().begun = 0;
}

// The way in force is `what` is different about it.
void Course::change(const std::string& what, Nanoseconds promised) {
    ways_.back().adaptation = static_cast<std::ptrdiff_t>(adaptations_.size());
    adaptations_.push_back({id, what, ways_[ways_.size() - 2].typical(), promised, Nanoseconds(0), false});
}

bool Course::compares_with_demand(std::uint64_t& last_tag) {
    const Way& plan = ways_.back();
    if (stage != Stage::planned || next_ || needs_drops() || knows_demand() || !plan.rows || !(plan.compared || improved >= kImproved) || plan.judged_by().size() < kCompared) return false;
    if (static_cast<double>(plan.typical().value) <= kFallsShort * static_cast<double>(plan.promised.value)) return false;
    Way& way = ways_.emplace_back();
    way.tag = ++last_tag;
    way.trial = true;
    change("none, memory paged on demand", Nanoseconds(0));
    measure_anew();
    return true;
}

void Course::plan_anew() {
    ways_.assign(1, Way());
    next_ = nullptr;
    stored = false;
    stage = Stage::fresh;
    promised = first_promised = Nanoseconds(0);
    unplanned_at = fitted = Bytes(0);
    improved = 0;
    elsewhere_for = 0;
    elsewhere_after = std::min<std::uint64_t>(2 * elsewhere_after, kKept);   // what changes all the time is not followed
    measure_anew();
}

void Course::timed(const OpClock::Timed& t) {
    if (t.tag != ways_.back().tag || static_cast<std::size_t>(t.step) >= actual_.size()) return;
    Actual& a = actual_[static_cast<std::size_t>(t.step)];
    a.since = t.since;
    a.sum += t.took;
    a.took = a.timings++ ? std::min(a.took, t.took) : t.took;
    std::int64_t& shortest = shortest_[static_cast<std::size_t>(t.step)];
    std::vector<bool>::reference guessed = guessed_[static_cast<std::size_t>(t.step)];
    shortest = guessed ? t.took.value : std::min(shortest, t.took.value);
    guessed = false;
}

Nanoseconds Course::ideal() const { return Nanoseconds(std::accumulate(shortest_.begin(), shortest_.end(), std::int64_t{0})); }
profiler::RunTimes Course::shortest() const { return {sequence.first_op, shortest_}; }

void Course::held(std::int32_t step, const pager::Buffer& b, pager::Residency found, Nanoseconds waited) {
    Actual& a = actual_[static_cast<std::size_t>(step)];
    a.held += waited;
    ++a.times;
    ++a.causes[found == pager::Residency::unbacked ? 0 : static_cast<std::size_t>(found) - 1];
    a.buffer = b.id;
}

void Course::tell_steps(std::vector<profiler::RunStep>& to) const {
    for (std::size_t k = 0; rows() && k < rows()->start.size(); ++k) {
        const Actual& a = actual_[k];
        profiler::RunStep& s = to.emplace_back();
        s.sequence = id;
        s.index = static_cast<std::int32_t>(k);
        s.name = sequence.steps[k].name;
        s.planned_start = rows()->start[k], s.start = a.since;
        s.planned = sequence.plan_trace.ops[k].duration, s.took = a.took;
        s.held = a.held;
        s.held_times = static_cast<std::int64_t>(a.times);
        if (!a.times) continue;
        s.cause = static_cast<std::int32_t>(std::max_element(std::begin(a.causes), std::end(a.causes)) - std::begin(a.causes));
        s.buffer = pager::told_id(a.buffer);
    }
}

bool Course::judgeable() const { return ways_.back().judged_by().size() >= kMeasured; }

bool Course::to_be_improved() {
    Way& way = ways_.back();
    return stage == Stage::planned && improved < kImproved && way.rows && way.judged_by().size() >= kCompared && !std::exchange(way.compared, true);
}

bool Course::measured(std::uint64_t tag, Nanoseconds took) {
    for (Way& way : ways_) {
        if (way.tag != tag / 2) continue;
        ++figures_.iterations;
        if (way.rows) ++figures_.planned_iterations;
        auto& times = way.times[tag % 2];
        times.push_back(took.value);
        if (times.size() > kKept) times.erase(times.begin() + 1);
        return true;
    }
    return false;
}

void Course::promise_again(const Rows& rows, Nanoseconds time) {
    if (ways_.back().rows.get() == &rows) ways_.back().promised = time;
}

void Course::took(Bytes peak) {
    Way& way = ways_.back();
    if (way.peaks++) way.peak = std::max(way.peak, peak);
}

// Iterations that came after one of another course are compared with such.
Course::Judgement Course::judge() {
    if (ways_.size() < 2) return {};
    for (const int kind : {1, 0}) {
        Way &way = ways_.back(), &before = ways_[ways_.size() - 2];
        const auto &now = way.times[kind], &then = before.times[kind];
        if (now.size() < kMeasured || then.empty() || std::exchange(way.judged[kind], true)) continue;
        const Nanoseconds is(settled(now)), was(settled(then));
        profiler::Adaptation* const adaptation = way.adaptation >= 0 ? &adaptations_[static_cast<std::size_t>(way.adaptation)] : nullptr;
        const bool trial = std::exchange(way.trial, false);
        const bool stays = static_cast<double>(is.value) <= (trial ? kMuchBetter : adaptation ? kBetter : kWorse) * static_cast<double>(was.value);
        if (adaptation) adaptation->measured = is, adaptation->kept = stays;
        if (trial) std::ranges::copy(way.times, ways_.front().times);
        if (trial == stays) ++figures_.given_up;
        if (!stays) {
            if (!trial) before.compared = false;
            ways_.pop_back();
            measure_anew();
        }
        if (trial && stays) return {was, is};
        if (!trial && !stays) return {is, was};
    }
    return {};
}

Course::Figures Course::figures() const {
    Figures f = figures_;
    f.demand = ways_.front().typical();
    f.by_plan = ways_.back().rows != nullptr;
    // The newest plan, or the one before it, as long as no iteration of it was timed.
    const bool timed = ways_.size() < 2 || ways_.back().typical().value > 0 || !ways_[ways_.size() - 2].rows;
    const Way& way = ways_[ways_.size() - (timed ? 1 : 2)];
    if (f.by_plan) {
        f.promised = way.promised;
        f.peak_promised = way.rows->peak, f.peak = way.peak;
        f.planned = way.typical();
    }
    return f;
}

}  // namespace udnnmem::executor
