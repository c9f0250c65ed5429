// See schedule.hpp.
#include "tests/softgpu/ptx/schedule.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace softgpu::ptx {

using abi::u32;

BlockRun::BlockRun(abi::StepFunction* step, std::size_t frame_bytes, std::uint8_t* frames, const abi::Launch& launch, abi::Block& block)
    : step_(step), frame_bytes_(frame_bytes), frames_(frames), launch_(launch), block_(block),
      threads_(launch.block[0] * launch.block[1] * launch.block[2]), living_(threads_), state_(threads_, State::ready) {
    unsigned t = 0;
    for (u32 z = 0; z < launch.block[2]; ++z)
        for (u32 y = 0; y < launch.block[1]; ++y)
            for (u32 x = 0; x < launch.block[0]; ++x, ++t) {
                abi::Thread& one = thread(t);
                std::memset(&one, 0, sizeof one);
                one.id[0] = x, one.id[1] = y, one.id[2] = z, one.linear = t;
            }
}

void BlockRun::run_warp(unsigned warp) {
    const unsigned first = warp * 32, last = std::min(first + 32, threads_);
    for (;;) {
        bool stopped = false;
        for (unsigned t = first; t < last; ++t) {
            // An arrival does not stop the thread.
            while (state_[t] == State::ready) {
                abi::Thread& one = thread(t);
                switch (step_(&launch_, &block_, &one)) {
                    case abi::STOP_EXIT: state_[t] = State::done, --living_; break;
                    case abi::STOP_BARRIER: arrive(t); break;
                    case abi::STOP_WARP: state_[t] = State::warp, stopped = true; break;
                    default: state_[t] = State::spin; break;
                }
            }
            stopped |= state_[t] == State::warp;
        }
        if (!stopped || !answer_warp(warp)) return;
    }
}

void BlockRun::arrive(unsigned t) {
    abi::Thread& one = thread(t);
    Barrier& b = barriers_[one.a & 15];
    ++b.arrived;
    if (one.b) b.expected = one.b;
    b.count += one.c != 0, b.all &= one.c != 0, b.any |= one.c != 0;
    if (one.op == abi::BAR_ARRIVE) return;
    ++b.waiting;
    state_[t] = State::barrier;
}

bool BlockRun::release_barriers() {
    bool released = false;
    for (unsigned id = 0; id < 16; ++id) {
        Barrier& b = barriers_[id];
        if (!b.waiting || b.arrived < (b.expected ? b.expected : living_)) continue;
        for (unsigned t = 0; t < threads_; ++t) {
            abi::Thread& one = thread(t);
            if (state_[t] != State::barrier || (one.a & 15) != id) continue;
            one.result = one.op == abi::BAR_POPC ? b.count : one.op == abi::BAR_AND ? b.all : b.any;
            state_[t] = State::ready;
        }
        b = {};
        released = true;
    }
    return released;
}

// Answers every warp operation whose members are all there. Requests without a mask (activemask) are
// answered last, for those threads that stand at the same place while nobody else can go on.
bool BlockRun::answer_warp(unsigned warp) {
    const unsigned first = warp * 32, last = std::min(first + 32, threads_);
    u32 stopped = 0, living = 0;
    for (unsigned t = first; t < last; ++t) {
        if (state_[t] == State::warp) stopped |= 1u << (t - first);
        if (state_[t] != State::done) living |= 1u << (t - first);
    }
    bool answered = false;
    u32 left = stopped;
    while (left) {
        const unsigned lane = static_cast<unsigned>(std::countr_zero(left));
        const abi::Thread& one = thread(first + lane);
        const u32 members = one.mask & living;
        left &= ~(members | 1u << lane);
        if (!one.mask || (members & ~stopped)) continue;
        bool together = true;
        for (u32 m = members; m; m &= m - 1) {
            const abi::Thread& other = thread(first + static_cast<unsigned>(std::countr_zero(m)));
            together &= other.op == one.op && other.mask == one.mask;
        }
        if (!together) continue;
        answer(warp, members | 1u << lane);
        stopped &= ~(members | 1u << lane);
        answered = true;
    }
    if (answered) return true;
    for (left = stopped; left;) {
        const unsigned lane = static_cast<unsigned>(std::countr_zero(left));
        const abi::Thread& one = thread(first + lane);
        u32 members = 0;
        for (u32 m = left; m; m &= m - 1) {
            const unsigned l = static_cast<unsigned>(std::countr_zero(m));
            const abi::Thread& other = thread(first + l);
            if (!other.mask && other.pc == one.pc && other.op == one.op) members |= 1u << l;
        }
        left &= ~(members | 1u << lane);
        if (one.mask) continue;
        answer(warp, members);
        answered = true;
    }
    return answered;
}

void BlockRun::answer(unsigned warp, u32 members) {
    const unsigned first = warp * 32;
    abi::Thread* lanes[32];
    for (unsigned l = 0; l < 32; ++l) lanes[l] = members >> l & 1 ? &thread(first + l) : nullptr;
    const abi::Thread& one = *lanes[std::countr_zero(members)];
    const u32 op = one.op;
    u32 ballot = 0, sum = op == abi::REDUX_ADD || op == abi::REDUX_OR || op == abi::REDUX_XOR ? 0 : one.a;
    bool same = true;
    for (u32 m = members; m; m &= m - 1) {
        const unsigned l = static_cast<unsigned>(std::countr_zero(m));
        const abi::Thread& t = *lanes[l];
        if (op >= abi::VOTE_ALL && op <= abi::VOTE_BALLOT && t.a) ballot |= 1u << l;
        same &= t.wide == one.wide;
        switch (op) {
            case abi::REDUX_ADD: sum += t.a; break;
            case abi::REDUX_MIN: sum = std::min(sum, t.a); break;
            case abi::REDUX_MAX: sum = std::max(sum, t.a); break;
            case abi::REDUX_SMIN: sum = static_cast<u32>(std::min(static_cast<int>(sum), static_cast<int>(t.a))); break;
            case abi::REDUX_SMAX: sum = static_cast<u32>(std::max(static_cast<int>(sum), static_cast<int>(t.a))); break;
            case abi::REDUX_AND: sum &= t.a; break;
            case abi::REDUX_OR: sum |= t.a; break;
            case abi::REDUX_XOR: sum ^= t.a; break;
            default: break;
        }
    }
    for (u32 m = members; m; m &= m - 1) {
        const unsigned l = static_cast<unsigned>(std::countr_zero(m));
        abi::Thread& t = *lanes[l];
        switch (op) {
            case abi::SHFL_UP: case abi::SHFL_DOWN: case abi::SHFL_BFLY: case abi::SHFL_IDX: {
                const u32 segment = t.c >> 8 & 31, clamp = t.c & 31, by = t.b & 31;
                const int low = static_cast<int>(l & segment), high = static_cast<int>((l & segment) | (clamp & ~segment));
                int from = static_cast<int>(l);
                if (op == abi::SHFL_UP) from -= static_cast<int>(by);
                else if (op == abi::SHFL_DOWN) from += static_cast<int>(by);
                else if (op == abi::SHFL_BFLY) from ^= static_cast<int>(by);
                else from = low | static_cast<int>(by & ~segment);
                t.flag = op == abi::SHFL_UP ? from >= high : from <= high;
                if (!t.flag) from = static_cast<int>(l);
                // A source that takes no part leaves the thread its own value.
                t.result = static_cast<u32>(from >= 0 && from < 32 && lanes[from] ? lanes[from]->wide : t.wide);
                break;
            }
            case abi::VOTE_ALL: t.result = ballot == members; break;
            case abi::VOTE_ANY: t.result = ballot != 0; break;
            case abi::VOTE_UNI: t.result = ballot == members || ballot == 0; break;
            case abi::VOTE_BALLOT: t.result = ballot; break;
            case abi::WARP_ACTIVE: t.result = members; break;
            case abi::MATCH_ALL: t.result = same ? members : 0, t.flag = same; break;
            case abi::MATCH_ANY: {
                u32 equal = 0;
                for (u32 n = members; n; n &= n - 1) {
                    const unsigned k = static_cast<unsigned>(std::countr_zero(n));
                    if (lanes[k]->wide == t.wide) equal |= 1u << k;
                }
                t.result = equal;
                break;
            }
            case abi::WARP_ELECT: t.result = static_cast<u32>(std::countr_zero(members)), t.flag = t.result == l; break;
            case abi::WARP_SYNC: break;
            default: t.result = sum; break;
        }
        state_[first + l] = State::ready;
    }
}

BlockRun::Outcome BlockRun::advance() {
    const unsigned warps = (threads_ + 31) / 32;
    for (;;) {
        for (unsigned w = 0; w < warps; ++w) run_warp(w);
        if (!living_) return Outcome::done;
        if (release_barriers()) continue;
        bool spinning = false, ready = false;
        for (unsigned t = 0; t < threads_; ++t) {
            ready |= state_[t] == State::ready;
            if (state_[t] == State::spin) state_[t] = State::ready, spinning = true;
        }
        if (spinning) return Outcome::waiting;
        if (!ready) return Outcome::deadlock;
    }
}

std::string BlockRun::describe() const {
    unsigned barrier = 0, warp = 0;
    for (State s : state_) barrier += s == State::barrier, warp += s == State::warp;
    return "deadlock in block (" + std::to_string(block_.id[0]) + ", " + std::to_string(block_.id[1]) + ", " + std::to_string(block_.id[2]) + "): " +
           std::to_string(barrier) + " threads wait at a barrier, " + std::to_string(warp) + " in a warp operation";
}

}  // namespace softgpu::ptx
