// What must be known of a function before it can be written as C: who calls whom, where threads stop
// for each other (barriers, warp operations), which registers live across such a stop, what kinds of
// memory traffic make the order of blocks visible.
#pragma once

#include <set>
#include <vector>

#include "tests/softgpu/ptx/ast.hpp"

namespace softgpu::ptx {

// True for instructions at which a thread may have to wait for others.
bool stops(const Instruction&);

// A register operand of an instruction, as a definition or a use.
struct Access {
    std::uint32_t reg;
    bool definition;
};
std::vector<Access> accesses(const Instruction&);

// The function a call names (through declarations), or no_index for an indirect call. Throws Refusal
// if it is defined nowhere and not one of the functions that the run-time provides.
std::uint32_t callee(const Program&, const Instruction&);
bool is_provided(std::string_view function);

// The kernel with every called function that stops threads merged into it (recursion is refused).
// May add variables to the program.
Function flatten(Program&, std::uint32_t kernel);

struct Reach {
    std::vector<std::uint32_t> functions;  // called, directly or through pointers; callees first
    std::set<std::uint32_t> variables;     // named by the kernel or by these functions
    bool indirect = false;
    bool exits = false;                    // one of the functions ends the thread
};
Reach reach(const Program&, const Function& kernel, const std::vector<std::uint32_t>& address_taken);
std::vector<std::uint32_t> address_taken(const Program&);

// For each instruction that stops: the registers that are read after it before they are written.
std::vector<std::vector<std::uint32_t>> live_after_stops(const Function&);

// Backward branches of loops that may wait for another thread (they hold volatile or atomic accesses).
std::vector<bool> spinning_branches(const Function&);

struct Order {
    bool float_atomics = false;  // bits depend on the order of blocks
    bool blocks_meet = false;    // blocks may see each other's work
};
void note_order(const Function&, Order&);

}  // namespace softgpu::ptx
