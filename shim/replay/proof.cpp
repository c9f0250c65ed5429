#include "shim/replay/proof.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace udnnmem::replay {
namespace {

// As numbers of 16, 32 and 64 bits, floating or not: not a number and little below 0; large; very negative. Seven bits of each
// half are another number each time: memory that nobody has written yet may hold what an earlier op's copy was filled with.
constexpr std::uint32_t kPatterns[] = {0xff80ff80, 0x7b007b00, 0xfb00fb00};
std::uint32_t pattern(int round, std::uint32_t number) {
    const std::uint32_t drawn = number * 2654435761u;
    return kPatterns[(round - 1) % 3] | ((drawn >> 25) % 127 + 1) | ((drawn >> 18) % 127 + 1) << 16;
}
constexpr std::size_t kWord = 8;

std::uint64_t word_at(const std::vector<char>& bytes, std::size_t at) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    return word;
}

std::size_t round_up(std::size_t bytes) { return (bytes + kWord - 1) / kWord * kWord; }

}  // namespace

CUdeviceptr KnownOp::base(std::uint32_t u) const {
    for (const Operand& o : operands)
        if (o.use == u) return word_at(launch.arguments, o.at) - o.delta;
    return 0;
}

bool KnownOp::named_alike() const {
    const auto base_by = [this](const Operand& o) { return word_at(launch.arguments, o.at) - o.delta; };
    for (std::size_t i = 0; i < operands.size(); ++i)
        for (std::size_t j = 0; j < i; ++j)
            if ((base_by(operands[i]) == base_by(operands[j])) != (operands[i].use == operands[j].use)) return false;
    return true;
}

// What differs between launches does so as a whole number: a counter's next byte changes in its time.
static void note_varying(KnownOp& op) {
    const std::size_t all = op.varies.size();
    const auto note = [&](std::size_t from, std::size_t bytes) {
        const std::size_t end = std::min(all, from + bytes);
        bool varies = false;
        for (std::size_t i = from; i < end; ++i) varies |= op.varies[i] || op.launch.arguments[i] != op.proved_with[i];
        if (varies) std::fill(op.varies.begin() + static_cast<std::ptrdiff_t>(from), op.varies.begin() + static_cast<std::ptrdiff_t>(end), 1);
    };
    for (std::size_t at = 0; at < all; at += 4) note(at, 4);
    for (const auto& [offset, size] : op.launch.parameters)
        if (size == 8) note(offset, 8);
}

Proof::Proof(OwnWork& work, Known& known) : work_(work), memory_(work.pager().answer_memory()), known_(known) {
    for (const Program::Step& step : known.program.steps) {
        first_.push_back(answers_count_);
        answers_count_ += step.movable + step.small;
    }
    std::vector<char> seen = known.program.lasts;
    for (const std::int32_t b : known.program.uses) fresh_.push_back(!std::exchange(seen[static_cast<std::size_t>(b)], true));
    known_.ops.resize(known.program.steps.size());
    tried_.resize(known_.ops.size());
    left_out_.resize(known_.ops.size());
}

void Proof::lost(CUstream stream) {
    if (state_ != kRuns) return;
    state_ = kWaits;
    give_back(stream);
}

void Proof::context_destroying(CUcontext context) {
    if (context != work_.context()) return;
    answers_ = nullptr;
    state_ = kOver;
}

// Whether the op may be tried at all, and where its arguments name buffers. Null: it may.
const char* Proof::look(std::int32_t k, const LaunchSource& source) {
    KnownOp& op = known_.ops[static_cast<std::size_t>(k)];
    op.code = source.code();   // of what is refused, too
    if (const char* why = source.refused()) return why;
    const Program::Step& step = known_.program.steps[static_cast<std::size_t>(k)];
    pager::Pager& pager = work_.pager();
    std::vector<std::pair<CUdeviceptr, std::size_t>> movable, small;   // base and bytes
    struct Seen {
        std::uint32_t at;
        bool movable;
        std::size_t index;
        std::uint64_t delta;
    };
    std::vector<Seen> seen;
    for (const auto& [offset, size] : op.launch.parameters)
        for (std::size_t at = (offset + kWord - 1) / kWord * kWord; at + kWord <= offset + size; at += kWord) {
            const std::uint64_t word = word_at(op.launch.arguments, at);
            if (source.stray(static_cast<std::uint32_t>(at))) continue;
            pager::Buffer* const b = pager.find(word);
            if (!b) {
                if (work_.is_address(word)) return "is given memory that is not managed";
                continue;
            }
            if (work_.device().holds_addresses(b, word)) return "is given memory that holds addresses";
            if (work_.device().escaped(b, word)) return "is given memory that others may write to";
            const auto given = work_.device().allocation_at(word);
            if (!given) return "is given an address in no allocation";
            auto& list = b->slab ? small : movable;
            auto found = std::find_if(list.begin(), list.end(), [&](const auto& r) { return r.first == given->base; });
            if (found == list.end()) found = list.insert(list.end(), {given->base, given->bytes});
            seen.push_back({static_cast<std::uint32_t>(at), !b->slab, static_cast<std::size_t>(found - list.begin()), word - given->base});
        }
    if (op.launch.kind == Launch::Kind::copy && seen.size() != 2) return "copies from or to the host";
    if (movable.size() != step.movable || small.size() != step.small) return "is given buffers otherwise than by its arguments";
    const std::uint64_t most = work_.device().room().movable / 2;
    std::uint64_t all = 0;
    op.uses.clear();
    op.operands.clear();
    for (std::size_t i = 0; i < movable.size() + small.size(); ++i) {
        const bool moves = i < movable.size();
        const std::size_t bytes = moves ? movable[i].second : small[i - movable.size()].second;
        op.uses.push_back({known_.program.uses[step.first + i], moves, bytes});
        all += bytes;
    }
    if (all > most) return "takes more than half of the memory";
    for (const Seen& s : seen)
        op.operands.push_back({s.at, static_cast<std::uint32_t>(s.movable ? s.index : movable.size() + s.index), s.delta});
    std::vector<char> steers(op.uses.size()), leaves_out(op.uses.size());
    for (const Operand& o : op.operands) {
        op.uses[o.use].may_write |= source.may_write(o.at);
        steers[o.use] |= source.may_steer(o.at);
        leaves_out[o.use] |= source.may_leave_out(o.at);
    }
    for (std::size_t u = 0; u < op.uses.size(); ++u) op.uses[u].filled = !leaves_out[u] && (fresh_[step.first + u] || !steers[u]);
    op.kind = op.launch.kind;
    op.inspected = source.inspected();
    op.proved = op.launch.function;
    op.proved_with = op.launch.arguments;
    op.varies.assign(op.launch.arguments.size(), 0);
    op.looked_at = true;
    return nullptr;
}

// Copies what the op names, and hashes it.
const char* Proof::prepare(std::int32_t k, const LaunchSource& source, CUstream stream) {
    KnownOp& op = known_.ops[static_cast<std::size_t>(k)];
    if (const char* why = source.tied()) return why;
    if (op.launch.kind != op.kind || op.launch.function != op.proved || op.launch.arguments.size() != op.proved_with.size()) return "is launched in another way at times";
    if (!op.named_alike() || work_.leads_elsewhere(op, source)) return "is given memory at times that it is not given at others";
    note_varying(op);
    for (std::uint32_t u = 0; u < op.uses.size(); ++u) {
        CUdeviceptr base = op.base(u), copy = 0;
        const std::size_t bytes = op.uses[u].bytes;
        if (const auto there = work_.device().allocation_at(base); !there || there->base != base || there->bytes != bytes) return "is given buffers of other sizes at times";
        if (round_ < 0) {
            if (work_.hash(base, bytes, words(answers_[first_[static_cast<std::size_t>(k)] + u].before), stream) != CUDA_SUCCESS) return "cannot be tried: the driver refuses to look at what it is given";
            continue;
        }
        if (work_.device().take_scratch(round_up(bytes), stream, copy) != CUDA_SUCCESS) return "cannot be tried: no memory for a copy of what it is given";
        copies_.push_back({base, copy});
        Answers& a = answers_[first_[static_cast<std::size_t>(k)] + u];
        if (work_.copy(copy, base, round_up(bytes), stream) != CUDA_SUCCESS || work_.hash(base, bytes, words(a.before), stream) != CUDA_SUCCESS) return "cannot be tried: the driver refuses a copy";
    }
    return nullptr;
}

// Runs the op on the copies, and hashes both.
const char* Proof::repeat(std::int32_t k, CUstream stream) {
    KnownOp& op = known_.ops[static_cast<std::size_t>(k)];
    std::vector<char> arguments = op.launch.arguments;
    for (const Operand& o : op.operands) {
        const std::uint64_t word = copies_[o.use].copy + o.delta;
        std::memcpy(arguments.data() + o.at, &word, sizeof word);
    }
    std::vector<CUdeviceptr> named;
    bool good = true;
    for (std::uint32_t u = 0; u < op.uses.size(); ++u) {
        const KnownOp::Use& use = op.uses[u];
        named.push_back(copies_[u].copy);
        good = good && work_.hash(copies_[u].address, use.bytes, words(answers_[first_[static_cast<std::size_t>(k)] + u].after), stream) == CUDA_SUCCESS;
        if (round_ > 0 && use.writes && use.filled) good = good && work_.fill(copies_[u].copy, pattern(round_, ++fills_), use.bytes, stream) == CUDA_SUCCESS;
    }
    good = good && work_.launch(op.launch, arguments, named, false, stream) == CUDA_SUCCESS;
    for (std::uint32_t u = 0; u < op.uses.size(); ++u)
        good = good && work_.hash(copies_[u].copy, op.uses[u].bytes, words(answers_[first_[static_cast<std::size_t>(k)] + u].again), stream) == CUDA_SUCCESS;
    return good ? nullptr : "cannot be tried: the driver refuses to run it again";
}

void Proof::give_back(CUstream stream) {
    const bool same = work_.pager().streams().slot(stream).life == life_;
    for (const Copy& c : copies_)
        if (same) work_.device().give_scratch(c.copy, stream);
        else work_.device().give_scratch(c.copy);
    copies_.clear();
}

void Proof::before(std::int32_t k, const LaunchSource* source, CUstream stream, bool strays) {
    if (state_ == kQueued || state_ == kOver) return;
    give_back(stream);   // of an op that was refused
    if (k == 0) {
        if (!answers_ && work_.start()) answers_ = reinterpret_cast<Answers*>(work_.answers(std::size_t{3} * std::max<std::uint32_t>(1, answers_count_)));
        state_ = answers_ && begun_rounds_++ < kMostRounds ? kRuns : kOver;
        next_ = 0;
        begun_ = false;
        streams_ = 0;
        std::fill(left_out_.begin(), left_out_.end(), false);
    }
    if (state_ != kRuns) return;
    if (k != next_ || begun_) {
        state_ = kWaits;
        return;
    }
    begun_ = true;
    life_ = work_.pager().streams().slot(stream).life;
    KnownOp& op = known_.ops[static_cast<std::size_t>(k)];
    left_out_[static_cast<std::size_t>(k)] = strays;
    if (!tries(static_cast<std::size_t>(k))) return;
    if (!source || !source->copy(op.launch)) op.refused = "is no kernel launch whose arguments are known";
    else if (!op.looked_at) op.refused = round_ < 0 ? look(k, *source) : "was not tried from the beginning";
    if (!op.refused) op.refused = prepare(k, *source, stream);
}

void Proof::after(std::int32_t k, CUstream stream) {
    if (state_ != kRuns || k != next_ || !std::exchange(begun_, false)) return;
    if (work_.pager().streams().slot(stream).life != life_) {   // two threads are in one iteration
        state_ = kWaits;
        give_back(stream);
        return;
    }
    ++next_;
    KnownOp& op = known_.ops[static_cast<std::size_t>(k)];
    if (tries(static_cast<std::size_t>(k)) && round_ >= 0) op.refused = repeat(k, stream);
    give_back(stream);
    pager::StreamTable& streams = work_.pager().streams();
    streams_ |= streams.slot(stream).bit();
    if (k + 1 != static_cast<std::int32_t>(known_.ops.size())) return;
    number_ = streams.now();
    state_ = kQueued;
}

void Proof::evaluate() {
    if (state_ != kQueued) return;
    begun_rounds_ = 0;
    for (std::size_t k = 0; k < known_.ops.size(); ++k) {
        KnownOp& op = known_.ops[k];
        if (!tries(k)) continue;
        tried_[k] = true;
        bool writes = false;
        for (std::uint32_t u = 0; u < op.uses.size() && !op.refused; ++u) {
            KnownOp::Use& use = op.uses[u];
            const Answers& a = answers_[first_[k] + u];
            const bool changed = !(a.before == a.after), same = a.again == a.after;
            if (a.before.words[2]) op.refused = "is given memory that holds addresses";
            if (a.before.words[2] || round_ < 0) continue;
            use.changed |= changed;
            if (round_ == 0) {
                use.writes = changed || use.may_write;
                if (!same) op.refused = "gives other bits when it is run again";
            } else if (!use.writes) {
                if (changed) op.refused = "writes at times what it does not write at others";
                else if (!same) op.refused = "writes what it was not seen to write";
            } else {
                if (round_ == 1) use.reads = !use.filled;
                if (!same) use.reads = true;
                if (use.reads && !use.changed) op.refused = "may write what it was not seen to write";
            }
            writes |= use.writes;
        }
        if (!op.refused && !writes && round_ >= 0) op.refused = "was not seen to write anything";
        if (!op.refused && round_ + 1 == (op.inspected ? rounds : rounds_uninspected)) op.proven = true, op.trials = op.inspected ? 0 : KnownOp::most_trials;
    }
    const auto is_any_due = [this] {
        for (std::size_t k = 0; k < known_.ops.size(); ++k)
            if (is_due(k)) return true;
        return false;
    };
    if (is_any_due() && again_++ < kMostAgain) {
        state_ = kWaits;
        return;
    }
    for (std::size_t k = 0; k < known_.ops.size(); ++k)
        if (is_due(k)) known_.ops[k].refused = why_another;
    ++round_;
    again_ = 0;
    std::fill(tried_.begin(), tried_.end(), false);
    const bool more = round_ < rounds_uninspected && is_any_due();
    state_ = round_ < rounds || more ? kWaits : kOver;
    done_ = state_ == kOver;
}

}  // namespace udnnmem::replay
