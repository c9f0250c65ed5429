#include "shim/executor/course.hpp"

#include <algorithm>
#include <utility>

namespace udnnmem::executor {
namespace {

constexpr std::size_t kMeasured = 5;      // iterations of a way before it is judged, the first of them not counted
constexpr std::size_t kKept = 64;         // iterations whose times are kept
constexpr double kWorse = 1.02;           // a way that takes so much longer than the one before is given up

std::int64_t median(std::vector<std::int64_t> v) {
    if (v.empty()) return 0;
    std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
    return v[v.size() / 2];
}

// Of a way: its first iteration began where the way before it had left things.
std::int64_t settled(const std::vector<std::int64_t>& times) {
    return times.size() > 1 ? median({times.begin() + 1, times.end()}) : median(times);
}

}  // namespace

Course::Course(int number, Sequence&& learned, const pager::Driver& driver)
    : id(number), sequence(std::move(learned)), follower(sequence), watch(std::make_unique<WriteWatch>(driver, sequence)), ways_(1) {}

Nanoseconds Course::Way::typical() const { return Nanoseconds(settled(times[!times[1].empty()])); }

void Course::begin(std::uint64_t& last_tag) {
    if (!ways_.back().tag) ways_.back().tag = ++last_tag;
    if (!next_) return;
    Way& way = ways_.emplace_back();
    way.tag = ++last_tag;
    way.rows = std::move(next_);
    next_ = nullptr;
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

// Iterations that came after one of another course are compared with such.
Course::Judgement Course::judge() {
    if (ways_.size() < 2) return {};
    for (const int kind : {1, 0}) {
        const auto &now = ways_.back().times[kind], &then = ways_[ways_.size() - 2].times[kind];
        if (now.size() < kMeasured || then.empty() || std::exchange(ways_.back().judged[kind], true)) continue;
        const Judgement j{Nanoseconds(settled(now)), Nanoseconds(settled(then))};
        if (static_cast<double>(j.is.value) <= kWorse * static_cast<double>(j.was.value)) continue;
        ways_.pop_back();
        ++figures_.given_up;
        return j;
    }
    return {};
}

Course::Figures Course::figures() const {
    Figures f = figures_;
    f.demand = ways_.front().typical();
    const Way& way = ways_.back();
    f.by_plan = way.rows != nullptr;
    if (way.rows) {
        f.promised = way.rows->promised;
        f.planned = way.typical();
    }
    return f;
}

}  // namespace udnnmem::executor
