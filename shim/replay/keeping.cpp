// Replayer: launches that are kept as the program makes them, with what they read that may change.
#include <algorithm>
#include <cstring>
#include <utility>

#include "shim/replay/replayer.hpp"

namespace udnnmem::replay {

// `op.launch` is `source`.
static bool is_the_proven_one(KnownOp& op, const LaunchSource& source) {
    if (op.launch.kind != op.kind) return false;
    if (op.launch.function == op.proved) return true;
    if (op.proved || !op.code || source.code() != op.code) return false;
    op.proved = op.launch.function;
    return true;
}

// Whether it is the op that was proven: then `op.launch` is its launch.
Replayer::Kept Replayer::compare(KnownOp& op, bool wanted, const LaunchSource& source) {
    const bool again = op.compared && source.again(op.launch);   // as a rule, where addresses repeat themselves
    if (again && !wanted) return Kept::yes;
    op.compared = again;
    if (!again && (source.tied() || !source.copy(op.launch) || !is_the_proven_one(op, source) || op.launch.arguments.size() != op.proved_with.size())) return Kept::another;
    std::vector<char>& now = op.launch.arguments;
    for (const Operand& o : op.operands) {
        CUdeviceptr word;
        std::memcpy(&word, now.data() + o.at, sizeof word);
        pager::Buffer* const b = pager_.find(word);
        const KnownOp::Use& use = op.uses[o.use];
        if (!b || b->slab == use.movable) return Kept::another;
        if (device_.escaped(b, word)) return Kept::no;
        // Of another size, or elsewhere in it, what lies behind the proven part is nobody's to copy or to compute again, and whoever frees it is not heard.
        if (use.movable ? b->base != word - o.delta || b->bytes != use.bytes : !is_whole(word - o.delta, use.bytes)) return Kept::another;
    }
    if (again) return Kept::yes;
    if (!op.named_alike() || work_.leads_elsewhere(op, source)) return Kept::another;
    // What never differed between proofs must not differ now. Code that was read says what it writes, whatever its numbers are.
    std::size_t next = 0;
    for (std::size_t i = 0; i < now.size(); ++i) {
        if (next < op.operands.size() && op.operands[next].at == i) {
            i += sizeof(CUdeviceptr) - 1;
            ++next;
        } else if (!op.varies[i] && now[i] != op.proved_with[i] && !source.stray(static_cast<std::uint32_t>(i / sizeof(CUdeviceptr) * sizeof(CUdeviceptr)))) {
            return op.inspected ? Kept::no : Kept::another;
        }
    }
    op.compared = !op.any_word_beside([this](std::uint32_t, std::uint64_t word) { return pager_.in_arena(word); });
    return Kept::yes;
}

Replayer::Kept Replayer::keep(const std::shared_ptr<Known>& known, std::int32_t k, std::uint64_t iteration, std::uint64_t number, bool wanted, const LaunchSource* source, CUstream stream) {
    std::lock_guard lock(mutex_);
    KnownOp& op = known->ops[static_cast<std::size_t>(k)];
    op.captured = 0;
    if (!op.proven) return Kept::no;   // counts as writing to whatever it names
    if (!source) return Kept::another;
    if (const Kept is = compare(op, wanted, *source); is != Kept::yes) return is;
    if (!wanted || iteration < iteration_) return Kept::no;   // another thread has begun a new one
    if (!save(known, op, stream)) return Kept::no;
    if (iteration != iteration_) freed_.clear();
    iteration_ = iteration;
    keeps_.store(true);
    op.captured = iteration;
    op.frees_then = frees_;
    op.number = number;
    return Kept::yes;
}

Replayer::Stored Replayer::is_as_stored(Known& known, std::int32_t k, const LaunchSource* source) {
    std::lock_guard lock(mutex_);
    const auto step = static_cast<std::size_t>(k);
    if (!known.unseen || known.seen[step]) return Stored::same;
    if (known.ops[step].code && (!source || source->code() != known.ops[step].code)) return std::exchange(known.others[step], true) ? Stored::changed : Stored::other;
    known.seen[step] = true;
    --known.unseen;
    return Stored::same;
}

void Replayer::forget_functions(Known& known) {
    std::lock_guard lock(mutex_);
    for (KnownOp& op : known.ops) op.proved = nullptr, op.compared = false;
}

// Whether that is an allocation. Takes the device's lock.
bool Replayer::is_whole(CUdeviceptr at, std::uint64_t bytes) {
    const auto there = device_.allocation_at(at);
    return there && there->base == at && there->bytes == bytes;
}

// Copies what the op reads and it or a later one overwrites.
bool Replayer::save(const std::shared_ptr<Known>& known, KnownOp& op, CUstream stream) {
    const Submits submits(*this);
    for (std::uint32_t u = 0; u < op.uses.size(); ++u) {
        KnownOp::Use& use = op.uses[u];
        if (!use.saved) continue;
        if (!work_.start()) return false;
        if (!use.copy) {
            std::erase_if(saved_, [&](const auto& s) {
                if (s.first.expired()) device_.give_scratch(s.second);   // replays of other streams may be reading it
                return s.first.expired();
            });
            if (device_.take_scratch(use.bytes, use.copy) != CUDA_SUCCESS) return use.copy = 0, false;
            saved_.emplace_back(known, use.copy);
        }
        // A replay may still be reading what was saved in the iteration before.
        if (follow_users(use.copy, stream) != CUDA_SUCCESS || work_.copy(use.copy, op.base(u), use.bytes, stream) != CUDA_SUCCESS) return false;
        if (++saves_ == flip_.saved && flip_one(use.copy, std::min<std::size_t>(use.bytes, 4), flip_.saved, stream) != CUDA_SUCCESS) [[unlikely]] return false;
    }
    return true;
}

}  // namespace udnnmem::replay
