// Of a plan file: its lines as sequences, proofs and orders (plan_store).
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>
#include <set>
#include <utility>

#include "shim/executor/plan_lines.hpp"

namespace udnnmem::executor {
namespace {

using profiler::Record;

constexpr std::int64_t kMost = std::int64_t{1} << 62;

template <std::size_t n>
bool read_word(Record& record, const char* field, const char* const (&words)[n], std::size_t& to) {
    std::string text;
    if (!record.read_text(field, text)) return false;
    for (to = 0; to < n; ++to)
        if (text == words[to]) return true;
    std::string all;
    for (const char* w : words) all += (all.empty() ? "" : ", ") + std::string(w);
    return record.fail(field, "must be one of " + all);
}

bool read_number(Record& record, const char* field, std::uint64_t& to) {
    std::string text;
    if (!record.read_text(field, text)) return false;
    char* end = nullptr;
    to = std::strtoull(text.c_str(), &end, 16);
    return (!text.empty() && !*end) || record.fail(field, "must be a hexadecimal number");
}

bool read_bytes(Record& record, const char* field, std::vector<char>& to) {
    std::string text;
    if (!record.read_text(field, text)) return false;
    if (text.size() % 2 || text.find_first_not_of("0123456789abcdef") != std::string::npos) return record.fail(field, "must be pairs of hexadecimal digits");
    to.resize(text.size() / 2);
    const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<char>(digit(text[2 * i]) * 16 + digit(text[2 * i + 1]));
    return true;
}

// Names live as long as the process, as those of loaded kernels do: what outlives a course has them too.
const char* kept_name(const std::string& name) {
    static std::mutex& mutex = *new std::mutex;
    static std::set<std::string>& names = *new std::set<std::string>;
    std::lock_guard lock(mutex);
    return names.insert(name).first->c_str();
}

}  // namespace

bool PlanReader::take(Record& record) {
    const std::string& kind = record.kind();
    if (kind == "plans") return take_plans(record);
    if (kind == "denied") return take_denied(record);
    if (kind == "course") return take_course(record);
    const bool known = kind == "buffer" || kind == "op" || kind == "proof" || kind == "replay" || kind == "order";
    if (!stored_) return !known || record.fail("kind", "comes before any course");
    if (kind == "buffer") return take_buffer(record);
    if (kind == "op") return take_op(record);
    if (kind == "proof") return take_proof(record);
    if (kind == "replay") return take_replay(record);
    if (kind == "order") return take_order(record);
    return true;
}

bool PlanReader::finish() { return end_course() && seen_; }

bool PlanReader::take_plans(Record& record) {
    seen_ = true;
    return record.read_text("device", plans.device) && record.read_text("policy", plans.policy) && record.read_integer("granule_bytes", 1, kMost, plans.granule.value) &&
           record.read_flag_or("node_by_node", false, plans.node_by_node);
}

bool PlanReader::take_denied(Record& record) {
    std::uint64_t code = 0;
    if (!read_number(record, "code", code)) return false;
    plans.denied.insert(code);
    return true;
}

bool PlanReader::take_course(Record& record) {
    if (!end_course()) return record.fail("kind", "comes after a course whose buffers live longer than its ops");
    stored_ = true;
    std::int64_t ahead = 0;
    if (!record.read_integer("promised_ns", 0, kMost, rows_.promised.value) || !record.read_integer("memory_bytes", 0, kMost, rows_.memory.value) ||
        !record.read_integer("budget_bytes", 0, kMost, rows_.budget.value) || !record.read_integer("host_bytes", 0, INT64_MAX, rows_.host.value) ||
        !record.read_integer("peak_bytes", 0, kMost, rows_.peak.value) || !record.read_integer("lookahead", 0, 64, ahead))
        return false;
    rows_.lookahead = static_cast<int>(ahead);
    if (!record.read_number_or("link_in", 0, 0, rows_.link_in) || !record.read_number_or("link_out", 0, 0, rows_.link_out) || !record.read_integers("start_ns", 0, kMost, numbers_)) return false;
    for (const std::int64_t start : numbers_) rows_.start.push_back(Nanoseconds(start));
    return record.read_flag_or("anew", false, rows_.anew);
}

bool PlanReader::take_buffer(Record& record) {
    auto& movable = course_.sequence.plan_trace.buffers;
    auto& small = course_.sequence.small.buffers;
    profiler::TraceBuffer b;
    b.id = BufferId(static_cast<std::int32_t>(movable.size() + small.size()));
    std::int64_t alloc = -1, free = -1;
    bool is_small = false;
    if (!record.read_integer("bytes", 1, kMost, b.bytes.value) || !record.read_flag_or("persistent", false, b.persistent) || !record.read_flag_or("small", false, is_small) ||
        !record.read_integer_or("alloc_op", -1, INT32_MAX, -1, alloc) || !record.read_integer_or("free_op", -1, INT32_MAX, -1, free))
        return false;
    if (!is_small && !small.empty()) return record.fail("small", "must be true: a small buffer came before");
    if (!course_.sequence.steps.empty()) return record.fail("kind", "comes after ops");
    b.alloc_op = OpIndex(static_cast<std::int32_t>(alloc));
    b.free_op = OpIndex(static_cast<std::int32_t>(free));
    (is_small ? small : movable).push_back(b);
    return true;
}

bool PlanReader::take_op(Record& record) {
    Sequence& s = course_.sequence;
    profiler::TraceOp op, as_named;
    op.index = OpIndex(static_cast<std::int32_t>(s.plan_trace.ops.size()));
    std::uint64_t shape = 0;
    std::int64_t stream = 0;
    const auto movable = static_cast<std::int64_t>(s.plan_trace.buffers.size()), all = movable + static_cast<std::int64_t>(s.small.buffers.size());
    std::vector<std::int64_t> small;
    if (!record.read_text("name", op.name) || !read_number(record, "shape", shape) || !record.read_integer("stream", 0, INT32_MAX, stream) || !read_number(record, "code", codes_.emplace_back()) ||
        !record.read_integer("duration_ns", 0, kMost, op.duration.value) || !record.read_integers("used", 0, movable - 1, numbers_) || !record.read_integers("used_small", movable, all - 1, small))
        return false;
    op.stream = static_cast<std::int32_t>(stream);
    s.steps.push_back({nullptr, shape, static_cast<std::uint32_t>(s.uses.size()), static_cast<std::uint32_t>(numbers_.size()), op.stream});
    s.program.steps.push_back({static_cast<std::uint32_t>(s.program.uses.size()), static_cast<std::uint32_t>(numbers_.size()), static_cast<std::uint32_t>(small.size())});
    for (const std::int64_t b : numbers_) s.uses.push_back({static_cast<std::int32_t>(b), 0});
    for (const auto* used : {&numbers_, &small})
        for (const std::int64_t b : *used) s.program.uses.push_back(static_cast<std::int32_t>(b));
    as_named = op;
    std::vector<BufferId> small_reads, small_writes;
    struct Set {
        const char* field;
        std::int64_t from, to;
        std::vector<BufferId>* ids;
    };
    for (const Set& set : {Set{"reads", 0, movable, &op.reads}, {"writes", 0, movable, &op.writes}, {"may_write", 0, movable, &as_named.writes},
                           {"small_reads", movable, all, &small_reads}, {"small_writes", movable, all, &small_writes}}) {
        if (!record.read_integers(set.field, set.from, set.to - 1, numbers_)) return false;
        for (const std::int64_t b : numbers_) set.ids->push_back(BufferId(static_cast<std::int32_t>(b)));
    }
    as_named.reads = op.reads;
    s.small.reads.push_back(std::move(small_reads));
    s.small.writes.push_back(std::move(small_writes));
    s.plan_trace.header.ideal += op.duration;
    s.plan_trace.ops.push_back(std::move(as_named));
    course_.seen.ops.push_back(std::move(op));
    return true;
}

bool PlanReader::take_proof(Record& record) {
    Sequence& s = course_.sequence;
    const auto steps = static_cast<std::int64_t>(s.steps.size());
    if (!course_.known) course_.known = std::make_shared<replay::Known>();
    std::vector<replay::KnownOp>& ops = course_.known->ops;
    std::int64_t k = 0;
    std::size_t kind = 0;
    replay::KnownOp op;
    if (!record.read_integer("op", 0, steps - 1, k) || !read_word(record, "runs", kRuns, kind) || !read_number(record, "code", op.code) || !read_bytes(record, "arguments", op.proved_with)) return false;
    std::int64_t trials = 0;
    if (!record.read_flag_or("inspected", true, op.inspected) || !record.read_integer_or("trials", 0, replay::KnownOp::most_trials, 0, trials)) return false;
    op.trials = static_cast<int>(trials);
    op.kind = static_cast<replay::Launch::Kind>(kind);
    op.proven = op.looked_at = true;
    const auto length = static_cast<std::int64_t>(op.proved_with.size());
    op.varies.assign(op.proved_with.size(), 0);
    if (!record.read_integers("varies", 0, length - 1, numbers_)) return false;
    for (const std::int64_t at : numbers_) op.varies[static_cast<std::size_t>(at)] = 1;
    const auto movable = static_cast<std::int64_t>(s.plan_trace.buffers.size()), all = movable + static_cast<std::int64_t>(s.small.buffers.size());
    std::vector<std::int64_t> buffers, bytes, does, made, at, use, delta;
    if (!record.read_integers("buffers", 0, all - 1, buffers) || !record.read_integers("bytes", 1, kMost, bytes) || !record.read_integers("does", 0, 7, does) || !record.read_integers("made_by", -1, k, made)) return false;
    if (bytes.size() != buffers.size() || does.size() != buffers.size() || made.size() != buffers.size()) return record.fail("buffers", "must be as many as bytes, does and made_by");
    for (std::size_t u = 0; u < buffers.size(); ++u) {
        replay::KnownOp::Use& to = op.uses.emplace_back();
        to.buffer = static_cast<std::int32_t>(buffers[u]);
        to.movable = buffers[u] < movable;
        to.bytes = static_cast<std::uint64_t>(bytes[u]);
        to.reads = does[u] & 1, to.writes = does[u] & 2, to.saved = does[u] & 4;
        to.made_by = static_cast<std::int32_t>(made[u]);
    }
    if (!record.read_integers("at", 0, length - 8, at) || !record.read_integers("use", 0, static_cast<std::int64_t>(buffers.size()) - 1, use) || !record.read_integers("delta", 0, kMost, delta)) return false;
    if (use.size() != at.size() || delta.size() != at.size()) return record.fail("at", "must be as many as use and delta");
    for (std::size_t i = 0; i < at.size(); ++i) op.operands.push_back({static_cast<std::uint32_t>(at[i]), static_cast<std::uint32_t>(use[i]), static_cast<std::uint64_t>(delta[i])});
    op.launch.arguments = op.proved_with;
    op.takes = s.plan_trace.ops[static_cast<std::size_t>(k)].duration;
    if (ops.size() <= static_cast<std::size_t>(k)) ops.resize(static_cast<std::size_t>(k) + 1);
    ops[static_cast<std::size_t>(k)] = std::move(op);
    return true;
}

bool PlanReader::take_replay(Record& record) {
    const auto steps = static_cast<std::int64_t>(course_.sequence.steps.size());
    std::int64_t before = 0;
    auto slice = std::make_shared<replay::Slice>();
    if (!record.read_integer("before_op", 0, steps, before)) return false;   // `steps`: with the iteration's end
    if (!rows_.replays.empty() && before < rows_.replays.back().before) return record.fail("before_op", "must not go back");
    if (!record.read_integers("ops", 0, steps - 1, numbers_)) return false;
    for (const std::int64_t k : numbers_) {
        if (!course_.known || static_cast<std::size_t>(k) >= course_.known->ops.size() || !course_.known->ops[static_cast<std::size_t>(k)].proven) return record.fail("ops", "must be proven");
        slice->ops.push_back(static_cast<std::int32_t>(k));
    }
    if (!record.read_integers("buffers", 0, static_cast<std::int64_t>(course_.sequence.plan_trace.buffers.size()) - 1, numbers_)) return false;
    for (const std::int64_t b : numbers_) slice->buffers.push_back(static_cast<std::int32_t>(b));
    rows_.replays.push_back({static_cast<std::int32_t>(before), std::move(slice)});
    return true;
}

bool PlanReader::take_order(Record& record) {
    std::int64_t after = 0, buffer = 0, replay = -1;
    std::size_t kind = 0;
    if (!record.read_integer("after_op", 0, static_cast<std::int64_t>(course_.sequence.steps.size()) - 1, after) || !read_word(record, "do", kOrders, kind) ||
        !record.read_integer("buffer", 0, static_cast<std::int64_t>(course_.sequence.plan_trace.buffers.size()) - 1, buffer))
        return false;
    const auto what = static_cast<pager::Order::Kind>(kind);
    if (what == pager::Order::Kind::drop && !record.read_integer("replay", 0, static_cast<std::int64_t>(rows_.replays.size()) - 1, replay)) return false;
    if (after + 1 < static_cast<std::int64_t>(rows_.begin.size())) return record.fail("after_op", "must not go back");
    while (static_cast<std::int64_t>(rows_.begin.size()) <= after) rows_.begin.push_back(static_cast<std::uint32_t>(rows_.entries.size()));
    rows_.entries.push_back({what, static_cast<std::int32_t>(buffer), static_cast<std::int32_t>(replay)});
    return true;
}

// False: its lines do not fit together.
bool PlanReader::end_course() {
    Sequence& s = course_.sequence;
    const auto steps = static_cast<std::int32_t>(s.steps.size());
    for (const auto* buffers : {&s.plan_trace.buffers, &s.small.buffers})
        for (const profiler::TraceBuffer& b : *buffers)
            if (b.alloc_op.value >= steps || b.free_op.value >= steps) return false;
    if (stored_ && !s.steps.empty()) {
        while (rows_.begin.size() <= s.steps.size()) rows_.begin.push_back(static_cast<std::uint32_t>(rows_.entries.size()));
        rows_.start.resize(s.steps.size());
        s.persistent.resize(s.plan_trace.buffers.size());
        for (std::size_t k = 0; k < s.steps.size(); ++k) s.steps[k].name = kept_name(s.plan_trace.ops[k].name);
        complete(s);
        mark_steps(rows_, s);
        index_replays(rows_, s.steps.size());
        course_.seen.header = s.plan_trace.header;
        course_.seen.buffers = s.plan_trace.buffers;
        if (course_.known) {
            course_.known->program = s.program;
            course_.known->ops.resize(s.steps.size());
            course_.known->seen.resize(s.steps.size());
            course_.known->others.resize(s.steps.size());
            course_.known->unseen = s.steps.size();
            for (std::size_t k = 0; k < s.steps.size(); ++k)
                if (replay::KnownOp& op = course_.known->ops[k]; !op.proven) op.refused = "was not proven when the plan was stored", op.code = codes_[k];
        }
        course_.rows = std::make_shared<const Rows>(std::move(rows_));
        plans.courses.push_back(std::move(course_));
    }
    course_ = StoredCourse();
    codes_.clear();
    rows_ = Rows();
    stored_ = false;
    return true;
}

}  // namespace udnnmem::executor
