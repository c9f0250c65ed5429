#include "shim/replay/replayer.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>

#include "shim/pager/told_id.hpp"

namespace udnnmem::replay {
namespace {

bool has(const std::vector<std::int32_t>& list, std::int32_t value) { return std::find(list.begin(), list.end(), value) != list.end(); }

}  // namespace

Part part_for(const Known& known, const Slice& slice, const std::vector<std::int32_t>& buffers) {
    Part part;
    // The versions that are needed, by the op that makes each (or the last one that does), and where they are read.
    constexpr std::int32_t last = -2;
    std::map<std::pair<std::int32_t, std::int32_t>, Part::Input> wanted;
    for (const std::int32_t b : buffers) wanted[{b, last}] = {-1, 0};
    const auto makes = [&](const KnownOp::Use& use, std::int32_t k) { return use.writes && (wanted.count({use.buffer, k}) || wanted.count({use.buffer, last})); };
    for (std::size_t i = slice.ops.size(); i-- > 0;) {
        const std::int32_t k = slice.ops[i];
        const KnownOp& op = known.ops[static_cast<std::size_t>(k)];
        if (std::none_of(op.uses.begin(), op.uses.end(), [&](const KnownOp::Use& use) { return makes(use, k); })) continue;
        part.ops.push_back(k);
        for (const KnownOp::Use& use : op.uses)
            if (makes(use, k)) wanted.erase({use.buffer, k}), wanted.erase({use.buffer, last});
        for (std::uint32_t u = 0; u < op.uses.size(); ++u)
            if (const KnownOp::Use& use = op.uses[u]; use.reads && !use.saved) wanted[{use.buffer, use.made_by}] = {k, u};
    }
    std::reverse(part.ops.begin(), part.ops.end());
    for (const auto& [version, input] : wanted)
        if (input.op >= 0) part.inputs.push_back(input);
    return part;
}

Replayer::Replayer(pager::Pager& pager, pager::DevicePager& device, double verify, Flip flip)
    : pager_(pager), device_(device), verify_(verify), flip_(flip), work_(pager, device) {
    pager_.set_restorer(this);
}

Replayer::~Replayer() { pager_.set_restorer(nullptr); }

// Entries whose order is void.
void Replayer::purge() {
    const auto is_void = [](const auto& e) {
        const pager::Buffer* b = e.first;
        return b->id != e.second.id || !b->live || (!b->dropped.load() && b->last_use.load() > e.second.after);
    };
    std::erase_if(entries_, is_void);
    erase_untried(is_void);
    note_any();
}

Replayer::Drop Replayer::may_drop(std::shared_ptr<Known> known, std::shared_ptr<const Slice> slice, std::int32_t logical, pager::Buffer* b, std::uint64_t used, std::uint64_t iteration, const Led& led) {
    if (!slice || !has(slice->buffers, logical)) return Drop::no;
    std::unique_lock lock(mutex_, std::defer_lock);
    while (!lock.try_lock()) {   // the caller has a lock that those want whose memory a replay may be waiting for
        if (submits_.load()) return Drop::no;
        std::this_thread::yield();
    }
    if (!work_.start()) return Drop::no;
    if (!report_) {
        report_ = work_.answers(OwnWork::report_answers);
        stopped_.store(report_);
    }
    for (Lane& lane : lanes_)
        if (!lane.done && pager_.driver().cuEventCreate(&lane.done, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return Drop::no;
    if (!report_) return Drop::no;
    purge();
    Entry entry{known, slice, logical, b->id, used, iteration, {}};
    const auto [found, fresh] = slice->parts.try_emplace(logical);
    const Part& part = found->second;
    if (fresh) found->second = part_for(*known, *slice, {logical});
    bool makes_it = false, tries = false;
    std::uint64_t frees_then = UINT64_MAX, made_then = 0, first = UINT64_MAX;
    for (const std::int32_t k : part.ops) {
        KnownOp& op = known->ops[static_cast<std::size_t>(k)];
        if (!op.proven || op.captured != iteration || !op.was_submitted(iteration)) return Drop::no;
        tries |= !known->needed && op.trials > 0;
        frees_then = std::min(frees_then, op.frees_then);
        first = std::min(first, op.number);
        for (std::uint32_t u = 0; u < op.uses.size(); ++u) {
            if (!op.uses[u].writes || op.uses[u].buffer != logical || pager_.find(op.base(u)) != b) continue;
            makes_it = true;
            made_then = std::max(made_then, op.frees_then);
        }
    }
    const auto is_led_to = [&](CUdeviceptr at) {
        const auto found = led.find(at);
        return found != led.end() && found->second > first;
    };
    if (!led.empty())   // between two of its ops, or since then
        for (const std::int32_t k : part.ops)
            for (std::uint32_t u = 0; u < known->ops[static_cast<std::size_t>(k)].uses.size(); ++u)
                if (is_led_to(known->ops[static_cast<std::size_t>(k)].base(u))) return Drop::no;
    for (const Part::Input& input : part.inputs) {
        const CUdeviceptr at = known->ops[static_cast<std::size_t>(input.op)].base(input.use);
        if (const auto freed = freed_.find(at); freed != freed_.end() && freed->second > frees_then) return Drop::no;
        if (at == b->base || known->ops[static_cast<std::size_t>(input.op)].uses[input.use].writes) return Drop::no;   // it is not what it was
        entry.inputs.push_back(at);
    }
    if (const auto freed = freed_.find(b->base); !makes_it || (freed != freed_.end() && freed->second > made_then)) return Drop::no;
    (tries ? untried_ : entries_)[b] = std::move(entry);
    any_.store(true);
    return tries ? Drop::tries : Drop::yes;
}

bool Replayer::takes_replays(CUstream stream) const {
    return work_.context() && !pager_.streams().capturing() && pager_.streams().slot(stream).context == work_.context();
}

// `work` submits to the stream that it is given: `stream`, unless nothing can be submitted there, or our own, which is waited for
// then.
template <class Work>
CUresult Replayer::on_a_stream(CUstream stream, Work work) {
    // The device may be waiting for the thread that this is: it does not wait for the device unless it must.
    if (takes_replays(stream)) return work(stream);
    return on_our_own(true, work);
}

template <class Work>
CUresult Replayer::on_our_own(bool waits, Work work) {
    const pager::Driver& d = pager_.driver();
    const pager::Relaxed relaxed(d);
    const InContext context(d, work_.context());
    CUresult result = own_ ? CUDA_SUCCESS : !work_.context() ? CUDA_ERROR_INVALID_CONTEXT : d.cuStreamCreate(&own_, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_ERROR_DEINITIALIZED) return result;   // the process is ending
    if (result != CUDA_SUCCESS) {
        pager_.fail("what was dropped cannot be computed again, for there is no stream for it (CUDA error " + std::to_string(static_cast<int>(result)) + "): the program is stopped with a CUDA error");
        return CUDA_ERROR_UNKNOWN;
    }
    result = work(own_);
    return result == CUDA_SUCCESS && waits ? d.cuStreamSynchronize(own_) : result;
}

bool Replayer::verify_now() {
    const std::uint64_t n = replays_begun_++;
    return static_cast<std::uint64_t>(static_cast<double>(n + 1) * verify_) != static_cast<std::uint64_t>(static_cast<double>(n) * verify_);
}

// Makes what the targets were, by those ops of their slice.
CUresult Replayer::run_ops(const Known& known, const std::vector<std::int32_t>& ops, Targets& targets, std::size_t lane, CUstream stream) {
    const Submits submits(*this);
    struct Scratch {
        CUdeviceptr at;
        std::size_t last;         // of the slice's ops, the last one that names it
        std::int32_t made_by;     // whose version it holds
    };
    std::unordered_map<std::int32_t, Scratch> scratch;
    CUresult result = CUDA_SUCCESS;
    std::vector<CUdeviceptr> bases, borrowed;
    const auto give_back = [&] {
        for (const CUdeviceptr at : borrowed) device_.give_scratch(at, stream);
        borrowed.clear();
    };
    for (std::size_t i = 0; i < ops.size() && result == CUDA_SUCCESS; ++i) {
        const KnownOp& op = known.ops[static_cast<std::size_t>(ops[i])];
        bases.clear();
        for (std::uint32_t u = 0; u < op.uses.size() && result == CUDA_SUCCESS; ++u) {
            const KnownOp::Use& use = op.uses[u];
            CUdeviceptr base = op.base(u);
            if (const auto target = targets.find(use.buffer); target != targets.end() && pager_.find(base) == target->second.buffer) {
                base = target->second.at;
                if (use.writes) target->second.kernel = op.launch.name, target->second.op = ops[i];
            } else if (use.saved && !use.writes) {
                base = use.copy;
            } else if (const auto other = scratch.find(use.buffer); use.writes || (other != scratch.end() && other->second.made_by == use.made_by)) {
                auto [place, fresh] = scratch.try_emplace(use.buffer, Scratch{0, i, -1});
                if (fresh) {
                    result = device_.take_scratch(use.bytes, stream, place->second.at);
                    for (std::size_t j = i; j < ops.size(); ++j)
                        for (const KnownOp::Use& later : known.ops[static_cast<std::size_t>(ops[j])].uses)
                            if (later.buffer == use.buffer) place->second.last = j;
                }
                base = place->second.at;
                if (use.writes) place->second.made_by = ops[i];
                if (use.saved && result == CUDA_SUCCESS) result = this->use(use.copy, false, lane, stream);
                if (use.saved && result == CUDA_SUCCESS) result = work_.copy(base, use.copy, use.bytes, stream);
            } else if (pager::Buffer* input = pager_.find(base); input && input->dropped.load()) {
                result = compute(input, stream);
            }
            if (result == CUDA_SUCCESS) result = this->use(base, use.writes, lane, stream);
            if (op.borrows(use) && result == CUDA_SUCCESS) {
                CUdeviceptr copy = 0;
                result = device_.take_scratch(use.bytes, stream, copy);
                if (copy) borrowed.push_back(copy);
                if (result == CUDA_SUCCESS) result = work_.copy(copy, base, use.bytes, stream, true);   // of what the slice has made, perhaps
                base = copy;
            }
            bases.push_back(base);
        }
        if (result != CUDA_SUCCESS) break;
        std::vector<char> arguments = op.launch.arguments;
        for (const Operand& o : op.operands) {
            const std::uint64_t word = bases[o.use] + o.delta;
            std::memcpy(arguments.data() + o.at, &word, sizeof word);
        }
        result = work_.launch(op.launch, arguments, bases, true, stream);
        give_back();
        std::erase_if(scratch, [&](const auto& s) {
            if (s.second.last > i || !s.second.at) return false;
            device_.give_scratch(s.second.at, stream);
            return true;
        });
    }
    give_back();
    for (const auto& [logical, s] : scratch)
        if (s.at) device_.give_scratch(s.at, stream);
    return result;
}

// Of kernels whose code was not read, if there are any.
static std::vector<std::uint64_t> codes_of(const Known& known, const std::vector<std::int32_t>& ops) {
    std::vector<std::uint64_t> all, unread;
    for (const std::int32_t k : ops) {
        const KnownOp& op = known.ops[static_cast<std::size_t>(k)];
        if (op.code) (op.inspected ? all : unread).push_back(op.code);
    }
    return unread.empty() ? all : unread;
}

CUresult Replayer::flip_one(CUdeviceptr at, std::size_t bytes, std::uint64_t nth, CUstream stream) {
    return work_.flip(at + nth * 7919 % bytes, static_cast<unsigned char>(1u << nth % 8), stream);
}

CUresult Replayer::run(const Known& known, const Slice& slice, CUstream stream) {
    const Submits submits(*this);   // comparisons, too, may wait for memory
    const std::int64_t start = pager::now_ns();
    Targets targets;
    std::vector<std::int32_t> wanted;
    for (auto it = entries_.begin(); it != entries_.end(); ++it)
        if (current(it) && it->second.known.get() == &known && it->second.slice.get() == &slice) {
            targets.emplace(it->second.logical, Target{it->first, it->first->base});
            wanted.push_back(it->second.logical);
        }
    const std::vector<std::int32_t> ops = part_for(known, slice, wanted).ops;
    // Seen from outside for as long as its work is handed over.
    const std::uint64_t shown = wanted.empty() ? 0 : pager_.sink().move_began("replay", pager::told_id(targets.begin()->second.buffer->id), Bytes(static_cast<std::int64_t>(targets.begin()->second.buffer->capacity)));
    const std::size_t lane = lane_of(stream);
    const InLane in_lane(*this, lane);
    CUresult result = run_ops(known, ops, targets, lane, stream);
    figures_.ops += ops.size();
    for (const std::int32_t k : ops) figures_.time += known.ops[static_cast<std::size_t>(k)].takes;
    for (const auto& [logical, target] : targets) {
        if (result != CUDA_SUCCESS) break;
        pager::Buffer* const b = target.buffer;
        if (figures_.replays + 1 == flip_.result) [[unlikely]] result = flip_one(b->base, b->bytes, flip_.result, stream);
        if (verify_now()) {
            const std::uint64_t which = figures_.replays + 1;
            {
                std::lock_guard lock(words_mutex_);
                if (verdicts_.size() > 4096) verdicts_.clear();
                verdicts_[which] = {"buffer " + std::to_string(b->id) + " (" + std::to_string(b->bytes) + " bytes), dropped and computed again by kernel " + target.kernel + " (op " +
                                    std::to_string(target.op) + " of the iteration), is not what it was: the program is stopped with a CUDA error rather than given wrong numbers; UDNNMEM_RECOMPUTE=off runs it without", codes_of(known, slice.parts.at(logical).ops)};
            }
            result = work_.expect(b->base, b->bytes, b->dropped_hash, report_, which, stream);
            if (result != CUDA_SUCCESS) break;
        }
        ++figures_.replays;
    }
    // Also of one that failed half-way: what was submitted will run, and what comes next of the same memory comes after it.
    if (const CUresult noted = note_replayed(lane, stream); result == CUDA_SUCCESS) result = noted;
    for (const auto& [logical, target] : targets) {
        if (result != CUDA_SUCCESS) break;
        pager::Buffer* const b = target.buffer;
        device_.restored(b);
        entries_.erase(b);
        pager_.sink().event({profiler::EventKind::replay, device_.device(), pager::told_id(b->id), Bytes(static_cast<std::int64_t>(b->capacity)), Nanoseconds(start), Nanoseconds(pager::now_ns())});
    }
    note_any();
    pager_.sink().move_ended(shown);
    return result;
}

// `b` is dropped. The entry may go while its slice is run.
CUresult Replayer::compute(pager::Buffer* b, CUstream stream) {
    const auto at = entries_.find(b);
    if (at == entries_.end() || !current(at)) {
        pager_.fail("buffer " + std::to_string(b->id) + " was dropped and nobody knows how to compute it again: the program is stopped with a CUDA error");
        return CUDA_ERROR_UNKNOWN;
    }
    const std::shared_ptr<const Known> known = at->second.known;
    const std::shared_ptr<const Slice> slice = at->second.slice;
    return run(*known, *slice, stream);
}

// What was not dropped so far is not dropped any more. Goes on to the next one.
void Replayer::call_off(Entries::iterator& at) {
    if (!at->first->dropped.load()) device_.cancel_drops(at->first);
    if (!at->first->dropped.load()) at = entries_.erase(at);
    else ++at;
}

CUresult Replayer::replay(const Slice& slice, CUstream stream) {
    std::lock_guard lock(mutex_);
    // From here on what the slice reads may go.
    for (auto it = entries_.begin(); it != entries_.end();)
        if (it->second.slice.get() == &slice) call_off(it);
        else ++it;
    if (!untried_.empty()) try_out(slice, stream);
    note_any();
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
        if (it->second.slice.get() != &slice || !current(it)) continue;
        const std::shared_ptr<const Known> known = it->second.known;
        const std::shared_ptr<const Slice> kept = it->second.slice;
        return on_a_stream(stream, [&](CUstream on) { return run(*known, *kept, on); });
    }
    return CUDA_SUCCESS;
}

CUresult Replayer::restore_readers(const std::vector<CUdeviceptr>& addresses, CUstream stream) {
    const auto is_reader = [&](const auto& e) { return std::any_of(addresses.begin(), addresses.end(), [&](CUdeviceptr at) { return reads(e.second, at); }); };
    std::lock_guard lock(mutex_);
    erase_untried(is_reader);   // a trial would compare with what it never was
    for (auto it = entries_.begin(); it != entries_.end();)
        if (is_reader(*it)) call_off(it);
        else ++it;
    note_any();
    for (CUresult result = CUDA_SUCCESS;;) {
        auto at = entries_.begin();
        while (at != entries_.end() && !(is_reader(*at) && current(at))) ++at;
        if (at == entries_.end() || result != CUDA_SUCCESS) return result;
        result = on_a_stream(stream, [&](CUstream on) { return compute(at->first, on); });
    }
}

CUresult Replayer::restore(pager::Buffer* b, CUstream stream, bool waits) {
    std::lock_guard lock(mutex_);
    if (!b->dropped.load()) return CUDA_SUCCESS;
    const auto work = [&](CUstream on) { return compute(b, on); };
    return waits ? on_our_own(true, work) : on_a_stream(stream, work);
}

CUresult Replayer::restore_all(bool waits, std::uint64_t iteration) try {
    const auto earlier = [iteration](const auto& e) { return e.second.iteration < iteration; };
    device_.cancel_drops();
    std::unique_lock lock(mutex_);
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS) {
        auto at = entries_.begin();
        while (at != entries_.end() && !(earlier(*at) && current(at))) ++at;
        if (at == entries_.end()) break;
        result = on_our_own(false, [&](CUstream on) { return compute(at->first, on); });
    }
    if (result == CUDA_SUCCESS) std::erase_if(entries_, earlier);   // orders that came before were called off
    owes_.store(result != CUDA_SUCCESS);
    erase_untried(earlier);
    note_any();
    if (!waits || result != CUDA_SUCCESS) return result;
    std::vector<CUevent> all;
    {
        std::lock_guard done(done_mutex_);
        for (const Lane& lane : lanes_)
            if (lane.runs) all.push_back(lane.done);
    }
    lock.unlock();   // they may wait for what another thread does next
    for (const CUevent done : all)
        if (result == CUDA_SUCCESS) result = pager_.driver().cuEventSynchronize(done);
    return result;
} catch (...) {
    owes_.store(true);
    throw;
}

bool Replayer::freed(CUdeviceptr address) {
    const auto is_read = [address](const auto& e) { return reads(e.second, address); };
    std::lock_guard lock(mutex_);
    freed_[address] = ++frees_;
    erase_untried(is_read);
    purge();
    if (std::any_of(entries_.begin(), entries_.end(), is_read)) return true;
    // Nobody wants what it held; computed again meanwhile, it would be so in memory that may be another's by then.
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
        if (it->first->base != address) continue;
        device_.cancel_drops(it->first);
        if (current(it)) device_.restored(it->first);
        entries_.erase(it);
        break;
    }
    note_any();
    return false;
}

void Replayer::lose_readers(CUdeviceptr address) {
    std::lock_guard lock(mutex_);
    std::erase_if(entries_, [address](const auto& e) { return reads(e.second, address); });
    note_any();
}

std::string Replayer::why_stopped() {
    const volatile std::uint64_t* const said = stopped_.load();
    const std::uint64_t which = said ? *said : 0;
    if (!which) return {};
    std::lock_guard lock(words_mutex_);
    const auto found = verdicts_.find(which);
    if (found == verdicts_.end()) return "a buffer that was computed again is not what it was: the program is stopped with a CUDA error";
    denied_.insert(found->second.codes.begin(), found->second.codes.end());
    return found->second.words;
}

void Replayer::context_destroying(CUcontext context) {
    if (context != work_.context()) return;
    std::lock_guard lock(mutex_);
    stopped_.store(nullptr);
    entries_.clear();
    untried_.clear();
    trials_.clear();
    tries_.store(false);
    any_.store(false);
    owes_.store(false);
    own_ = nullptr;
    report_ = trial_answers_ = nullptr;
    {
        std::lock_guard done(done_mutex_);
        for (std::size_t i = 0; i < lanes_.size(); ++i) lanes_[i].runs = ~std::uint64_t{0}, done_with(i);
        lanes_ = {};
        pending_.store(0);
    }
    for (const auto& [known, at] : saved_)
        if (const auto left = known.lock())
            for (KnownOp& op : left->ops)
                for (KnownOp::Use& use : op.uses) use.copy = 0;
    saved_.clear();
    work_.context_destroying(context);
}

Replayer::Figures Replayer::figures() {
    std::lock_guard lock(mutex_);
    return figures_;
}

}  // namespace udnnmem::replay
