#include "shim/executor/passages.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "shim/pager/told_id.hpp"

namespace udnnmem::executor {
namespace {
constexpr int kTold = -1;   // times that a passage came that was told
}

void Passage::add(const char* name, const Seen& seen, const pager::Op& op) {
    ops.push_back({name, seen.shape, reinterpret_cast<std::uintptr_t>(op.stream), static_cast<std::uint32_t>(uses.size()), static_cast<std::uint32_t>(seen.named.size())});
    for (pager::Buffer* b : seen.named) {
        const bool over = std::find(op.overwrites.begin(), op.overwrites.end(), b) != op.overwrites.end();
        uses.push_back({b, b->id, over, b->bytes});
    }
}

void Passage::add(const Sequence& sequence, const Follower& follower, const StreamsOf& streams, std::int32_t steps) {
    for (std::int32_t k = 0; k < steps; ++k) {
        const Sequence::Step& step = sequence.steps[static_cast<std::size_t>(k)];
        const profiler::TraceOp& op = sequence.plan_trace.ops[static_cast<std::size_t>(k)];
        ops.push_back({step.name, step.shape, streams.of(step.stream), static_cast<std::uint32_t>(uses.size()), 0});
        for (std::uint32_t i = step.first; i < step.first + step.count; ++i) {
            const BufferId b(sequence.uses[i].buffer);
            const auto [buffer, id] = follower.last_bound(b.value);
            if (!buffer) continue;
            uses.push_back({buffer, id, !std::binary_search(op.reads.begin(), op.reads.end(), b), buffer->bytes});
            ++ops.back().count;
        }
    }
}

void Passage::restart(std::uint32_t newest_id) {
    ops.clear();
    uses.clear();
    newest = newest_id;
    ends = true;
}

void Passages::clear() {
    so_far_.restart(0);
    history_ = profiler::History();
    finder_.restart();
    in_history_.clear();
    searched_ = 0;
}

std::optional<profiler::Iteration> Passages::take(Passage&& passage, const std::function<bool(std::uint64_t)>& known, int times) {
    if (so_far_.ops.empty()) {
        clear();
        so_far_ = std::move(passage);
    } else {
        const auto shift = static_cast<std::uint32_t>(so_far_.uses.size());
        for (Passage::Op op : passage.ops) {
            op.first += shift;
            so_far_.ops.push_back(op);
        }
        so_far_.uses.insert(so_far_.uses.end(), passage.uses.begin(), passage.uses.end());
        so_far_.ends = passage.ends;
    }
    std::optional<profiler::Iteration> found;
    if (const auto range = period()) {
        if (!known(fingerprint(*range))) found = iteration(*range);
        if (!so_far_.ends) clear();
    }
    if (so_far_.ops.size() > most_ops || so_far_.uses.size() > most_uses) clear();
    if (!so_far_.ends || so_far_.ops.empty()) return found;
    const Range all{0, so_far_.ops.size()};
    if (!found && so_far_.ops.size() >= Sequence::fewest) {
        const std::uint64_t print = fingerprint(all);
        if (came_.size() >= most_remembered) came_.clear();
        if (int& came = came_[print]; came != kTold && !known(print) && ++came >= times) {
            found = iteration(all);
            came = kTold;
        }
    }
    clear();
    return found;
}

// The last whole period in so_far_, from where an iteration best begins.
std::optional<Passages::Range> Passages::period() {
    bool any = false;
    for (; searched_ < so_far_.ops.size(); ++searched_) {
        const Passage::Op& op = so_far_.ops[searched_];
        profiler::ObservedOp seen;
        seen.name = op.name;
        seen.shape = op.shape;
        seen.stream = op.stream;
        std::vector<profiler::Touch> more;
        for (std::uint32_t i = op.first; i < op.first + op.count; ++i) {
            const Passage::Use& use = so_far_.uses[i];
            const auto at = reinterpret_cast<std::uintptr_t>(use.buffer);
            const auto [place, fresh] = in_history_.try_emplace(use.buffer, use.id);
            if (fresh || place->second != use.id) history_.allocated(at, 1, pager::told_id(use.id).value);
            place->second = use.id;
            if (seen.count < profiler::ObservedOp::inline_touches) seen.touches[seen.count++] = {at, profiler::Mode::read_write, 1};
            else more.push_back({at, profiler::Mode::read_write, 1});
        }
        if (!more.empty()) seen.more = new std::vector(std::move(more));
        history_.add(seen);
        any |= finder_.advance();
    }
    if (!any || !finder_.period()) return std::nullopt;
    return best_begin(static_cast<std::size_t>(finder_.period()));
}

// Of the last but one period: where the fewest transient bytes are alive; of equals, at a copy from the host.
Passages::Range Passages::best_begin(std::size_t period) const {
    const std::size_t n = so_far_.ops.size(), from = n - std::min(n, 2 * period);
    std::map<std::pair<const pager::Buffer*, std::uint32_t>, std::pair<std::size_t, std::size_t>> lives;
    for (std::size_t k = from; k < n; ++k)
        for (std::uint32_t i = so_far_.ops[k].first; i < so_far_.ops[k].first + so_far_.ops[k].count; ++i) {
            const auto [life, fresh] = lives.try_emplace({so_far_.uses[i].buffer, so_far_.uses[i].id}, k, k);
            life->second.second = k;
        }
    std::vector<std::int64_t> change(period + 2, 0);
    for (const auto& [buffer, life] : lives) {
        if (life.second - life.first >= period || life.first >= from + period) continue;
        change[life.first - from + 1] += static_cast<std::int64_t>(buffer.first->capacity);
        change[std::min(life.second - from + 1, period + 1)] -= static_cast<std::int64_t>(buffer.first->capacity);
    }
    std::size_t best = from;
    std::int64_t live = 0, fewest = INT64_MAX;
    bool best_is_input = false;
    for (std::size_t k = 0; k < period && from + k + period <= n; ++k) {
        live += change[k];
        const bool input = std::strstr(so_far_.ops[from + k].name, "HtoD") != nullptr;
        if (live > fewest || (live == fewest && (best_is_input || !input))) continue;
        best = from + k;
        fewest = live;
        best_is_input = input;
    }
    return {best, best + period};
}

std::uint32_t Passages::newest_at(std::size_t op) const {
    std::uint32_t newest = so_far_.newest;
    for (std::size_t i = 0; i < (op < so_far_.ops.size() ? so_far_.ops[op].first : so_far_.uses.size()); ++i) newest = std::max(newest, so_far_.uses[i].id);
    return newest;
}

// It was there before an op that had seen ids up to `newest`, and still is.
bool Passages::lasts(const Passage::Use& use, std::uint32_t newest) const {
    return use.id <= newest && use.buffer->id == use.id && use.buffer->live;
}

std::uint64_t Passages::fingerprint(const Range& range) const {
    const std::uint32_t newest = newest_at(range.begin);
    Fingerprint print;
    for (std::size_t k = range.begin; k < range.end; ++k) {
        const Passage::Op& op = so_far_.ops[k];
        print.op(op.shape, op.count);
        for (std::uint32_t i = op.first; i < op.first + op.count; ++i) {
            const Passage::Use& use = so_far_.uses[i];
            print.use(lasts(use, newest) ? use.id + 1u : 0);
        }
    }
    return print.value();
}

profiler::Iteration Passages::iteration(const Range& range) const {
    const std::uint32_t newest = newest_at(range.begin);
    profiler::Iteration it;
    profiler::Trace& trace = it.trace;
    std::map<std::pair<const pager::Buffer*, std::uint32_t>, std::int32_t> ids;
    std::map<std::uint64_t, std::int32_t> streams;
    for (std::size_t k = range.begin; k < range.end; ++k) {
        const Passage::Op& op = so_far_.ops[k];
        profiler::TraceOp& to = trace.ops.emplace_back();
        to.index = OpIndex(static_cast<std::int32_t>(k - range.begin));
        to.name = op.name;
        to.stream = streams.try_emplace(op.stream, static_cast<std::int32_t>(streams.size())).first->second;
        profiler::Iteration::Step& step = it.steps.emplace_back();
        step = {op.name, op.shape, static_cast<std::uint32_t>(it.used.size()), op.count};
        std::size_t bytes = 0;
        const bool reads_only = std::strncmp(op.name, "cuMemcpy", 8) == 0 && std::strstr(op.name, "DtoH");   // kernels may be called anything
        for (std::uint32_t i = op.first; i < op.first + op.count; ++i) {
            const Passage::Use& use = so_far_.uses[i];
            const auto [place, fresh] = ids.try_emplace({use.buffer, use.id}, static_cast<std::int32_t>(trace.buffers.size()));
            if (fresh) {
                profiler::TraceBuffer& b = trace.buffers.emplace_back();
                b.id = BufferId(place->second);
                b.bytes = Bytes(static_cast<std::int64_t>(use.bytes));
                b.persistent = lasts(use, newest);
                b.run_id = pager::told_id(use.id).value;
                it.address.push_back(use.buffer->base);
            }
            bytes += use.bytes;
            it.used.push_back(place->second);
            if (!use.overwritten) to.reads.push_back(BufferId(place->second));
            if (!reads_only) to.writes.push_back(BufferId(place->second));
        }
        std::sort(to.reads.begin(), to.reads.end());
        std::sort(to.writes.begin(), to.writes.end());
        to.duration = price_(op.name, op.shape, bytes);
        trace.header.ideal += to.duration;
    }
    return it;
}

}  // namespace udnnmem::executor
