#include "policy/scaling.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/core.h>

namespace udnnmem::policy {
namespace {

using profiler::Phase;
using profiler::Trace;
using profiler::TraceOp;

constexpr std::int64_t start_cost = 4000;  // ns of an op that no batch shortens: the latency of a kernel

// By one run it may be known what an op does not write, by another not.
std::vector<BufferId> named(const TraceOp& op) {
    std::vector<BufferId> all;
    std::set_union(op.reads.begin(), op.reads.end(), op.writes.begin(), op.writes.end(), std::back_inserter(all));
    return all;
}

// Which buffers grow with the batch, by what they are used for.
std::vector<char> find_growing(const Trace& trace) {
    std::vector<char> grows(trace.buffers.size(), 0), gradient(trace.buffers.size(), 0);
    const auto bytes = [&](BufferId b) { return trace.buffers[static_cast<std::size_t>(b.value)].bytes; };
    const auto persistent = [&](BufferId b) { return trace.buffers[static_cast<std::size_t>(b.value)].persistent; };
    for (const TraceOp& op : trace.ops) {
        if (op.phase == Phase::forward) {
            for (const BufferId read : op.reads)
                for (const BufferId write : op.writes)
                    if (persistent(read) && !persistent(write) && bytes(read) == bytes(write)) grows[static_cast<std::size_t>(read.value)] = 1;
        }
    }
    for (const TraceOp& op : trace.ops) {
        if (op.phase != Phase::update) continue;
        for (const BufferId read : op.reads)
            for (const BufferId write : op.writes)
                if (!persistent(read) && persistent(write) && bytes(read) == bytes(write) && !grows[static_cast<std::size_t>(write.value)]) gradient[static_cast<std::size_t>(read.value)] = 1;
        // Optimisers that keep gradients in half and weights in single precision.
        for (const BufferId read : op.reads)
            for (const BufferId write : op.writes)
                if (!persistent(read) && persistent(write) && bytes(read).value * 2 == bytes(write).value) gradient[static_cast<std::size_t>(read.value)] = 1;
    }
    for (std::size_t b = 0; b < grows.size(); ++b)
        if (!trace.buffers[b].persistent && !gradient[b]) grows[b] = 1;
    return grows;
}

std::int64_t scaled(std::int64_t value, double factor) { return std::max<std::int64_t>(0, std::llround(static_cast<double>(value) * factor)); }

Trace scale_one(const Trace& trace, const std::vector<char>& grows, double factor) {
    Trace to = trace;
    for (std::size_t b = 0; b < to.buffers.size(); ++b)
        if (grows[b]) to.buffers[b].bytes = Bytes(std::max<std::int64_t>(1, scaled(trace.buffers[b].bytes.value, factor)));
    to.header.ideal = Nanoseconds();
    for (TraceOp& op : to.ops) {
        const auto any = [&](const std::vector<BufferId>& set) { return std::any_of(set.begin(), set.end(), [&](BufferId b) { return grows[static_cast<std::size_t>(b.value)]; }); };
        const bool touches = any(op.reads) || any(op.writes);
        if (touches) {
            op.workspace = Bytes(scaled(op.workspace.value, factor));
            op.flops *= factor;
            const std::int64_t fixed = std::min(op.duration.value, start_cost);
            op.duration = Nanoseconds(fixed + scaled(op.duration.value - fixed, factor));
        }
        to.header.ideal += op.duration;
    }
    return to;
}

}  // namespace

Expected<BatchModel> BatchModel::fit(std::span<const Trace> traces) {
    const auto wrong = [](std::string what) { return tl::make_unexpected(Error{std::move(what)}); };
    BatchModel model;
    for (const Trace& trace : traces) {
        if (trace.header.batch <= 0) return wrong(fmt::format("{}: its header states no batch size", trace.header.name));
        model.traces_.push_back(trace);
    }
    if (model.traces_.empty()) return wrong("no trace to scale");
    std::sort(model.traces_.begin(), model.traces_.end(), [](const Trace& a, const Trace& b) { return a.header.batch < b.header.batch; });
    const Trace& first = model.traces_.front();
    for (std::size_t i = 1; i < model.traces_.size(); ++i) {
        const Trace& other = model.traces_[i];
        if (other.header.batch == model.traces_[i - 1].header.batch) return wrong(fmt::format("{} and {} have the same batch size", model.traces_[i - 1].header.name, other.header.name));
        if (other.ops.size() != first.ops.size() || other.buffers.size() != first.buffers.size()) return wrong(fmt::format("{} and {} are not of one network: {} and {} ops, {} and {} buffers", first.header.name, other.header.name, first.ops.size(),
                                                                                                                              other.ops.size(), first.buffers.size(), other.buffers.size()));
        for (std::size_t k = 0; k < first.ops.size(); ++k)
            if (named(other.ops[k]) != named(first.ops[k]))
                return wrong(fmt::format("{} and {} are not of one network: op {} names other buffers", first.header.name, other.header.name, k));
    }
    if (model.traces_.size() == 1) model.grows_ = find_growing(first);
    return model;
}

Trace BatchModel::at(std::int64_t batch) const {
    Trace to;
    if (traces_.size() == 1) {
        to = scale_one(traces_[0], grows_, static_cast<double>(batch) / static_cast<double>(traces_[0].header.batch));
    } else {
        std::size_t upper = 1;
        while (upper + 1 < traces_.size() && traces_[upper].header.batch < batch) ++upper;
        const Trace &a = traces_[upper - 1], &b = traces_[upper];
        const double share = static_cast<double>(batch - a.header.batch) / static_cast<double>(b.header.batch - a.header.batch);
        const auto line = [&](auto from, auto until) { return std::max<std::int64_t>(0, from + std::llround(static_cast<double>(until - from) * share)); };
        to = a;
        to.header.ideal = Nanoseconds();
        for (std::size_t i = 0; i < to.buffers.size(); ++i) {
            const std::int64_t bytes = line(a.buffers[i].bytes.value, b.buffers[i].bytes.value);
            to.buffers[i].bytes = Bytes(a.buffers[i].bytes.value ? std::max<std::int64_t>(1, bytes) : bytes);
        }
        for (std::size_t k = 0; k < to.ops.size(); ++k) {
            to.ops[k].duration = Nanoseconds(line(a.ops[k].duration.value, b.ops[k].duration.value));
            to.ops[k].workspace = Bytes(line(a.ops[k].workspace.value, b.ops[k].workspace.value));
            to.header.ideal += to.ops[k].duration;
        }
    }
    to.header.name = fmt::format("{}, batch {}", traces_[0].header.name, batch);
    to.header.batch = batch;
    return to;
}

}  // namespace udnnmem::policy
