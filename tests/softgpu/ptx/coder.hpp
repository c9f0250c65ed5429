// Writes one function as C. Coder holds what all instruction families need (operands as C
// expressions, results, addresses, refusals); the families themselves are tables of handlers, one file
// each (code_*.cpp). A handler takes every modifier that it understands; one left over is refused, so a
// variant that nobody thought of can never be translated as something else.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tests/softgpu/ptx/analysis.hpp"
#include "tests/softgpu/ptx/ast.hpp"

namespace softgpu::ptx {

template <class... T>
std::string cat(const T&... parts) {
    std::string out;
    auto add = [&](const auto& p) {
        if constexpr (std::is_integral_v<std::decay_t<decltype(p)>>) out += std::to_string(p);
        else out += p;
    };
    (add(parts), ...);
    return out;
}

// Where a kernel's names are: the same for all functions translated with it.
struct Layout {
    std::unordered_map<std::uint32_t, std::uint32_t> shared;   // variable -> offset in shared memory
    std::unordered_map<std::uint32_t, std::uint32_t> globals;  // variable -> index in Launch::globals
    std::unordered_map<std::uint32_t, std::uint32_t> params;   // the kernel's own -> offset in the buffer
    std::unordered_map<std::uint32_t, std::uint32_t> pointers; // function -> its number as a pointer
};

class Coder;

// One instruction with its modifiers, taken one by one.
class Op {
  public:
    Op(const Instruction& in) : in_(in), taken_(in.modifiers.size()) {}
    unsigned line() const { return in_.line; }
    std::string_view opcode() const { return in_.opcode; }
    const Instruction& instruction() const { return in_; }
    std::size_t count() const { return in_.operands.size(); }
    const Operand& operator[](std::size_t i) const;      // refused if absent
    void expect(std::size_t low, std::size_t high) const;  // number of operands
    bool take(std::string_view modifier);
    // The first of the names that is there, or -1.
    int take_one(std::initializer_list<std::string_view> names);
    Type take_type();  // the first type among the modifiers; refused if none
    bool has_type() const;
    std::string_view take_prefix(std::string_view prefix);  // "L2::" and so on; empty if none
    unsigned take_vector();    // 1, 2, 4, 8
    int take_rounding();       // index into RN RZ RM RP (also rni, rzi...), or -1
    void finish() const;       // refuses what is left
    [[noreturn]] void refuse(const std::string& why) const;

  private:
    const Instruction& in_;
    std::vector<bool> taken_;
};

using Handler = void (*)(Coder&, Op&);
using Family = std::unordered_map<std::string_view, Handler>;
const Family& arithmetic_family();
const Family& bits_family();
const Family& float_family();
const Family& convert_family();
const Family& memory_family();
const Family& atomic_family();
const Family& control_family();
const Family& warp_family();

class Coder {
  public:
    // `kernel`: the function is an entry; its stops (if any) save registers in the frame.
    // `exits`: a function that it calls may end the thread.
    Coder(const Program&, const Function&, const Layout&, bool kernel, bool exits, bool count_work);

    std::string text();         // the body, without its braces
    std::string frame_fields(); // what the frame holds besides its Thread
    bool stopping() const { return stopping_; }
    bool kernel() const { return kernel_; }
    bool exits() const { return exits_; }

    // Expressions of the C type of `type` (halves as bits, predicates as _Bool).
    std::string read(const Op&, const Operand&, Type type);
    std::string read_float(const Op&, const Operand&, Type type);  // halves widened to float
    void write(const Op&, const Operand& destination, Type type, const std::string& expression);
    // What a register can hold must be as wide as `type`, at least.
    std::string pointer(const Op&, const Operand& address, Space, std::string_view c_type);
    std::string address_of(const Op&, const Operand& variable);  // as an integer
    std::string storage(const Op&, std::uint32_t variable);      // u8*: the bytes of a variable
    void line(const std::string& c) { out_ += c, out_ += '\n'; }
    std::string temporary();
    std::string label(std::uint32_t index) const { return cat("L", index); }
    // Stops the thread: `request` fills T; afterwards the scheduler's answer is in T.
    void stop(const Op&, const std::string& request);
    void count(std::string_view what, std::size_t n) { if (count_) line(cat("B->", what, " += ", n, ";")); }
    bool counts() const { return count_; }
    const Function& function() const { return f_; }
    const Program& program() const { return program_; }
    const Layout& layout() const { return layout_; }
    Type register_type(std::uint32_t r) const { return f_.registers[r].type; }
    void call_function(Op&);

  private:
    void instruction(std::size_t i);
    std::string declarations();
    std::string immediate(const Op&, const Operand&, Type type) const;
    std::string from_register(const Op&, std::uint32_t r, Type type) const;
    bool in_frame(std::uint32_t variable) const { return stopping_ && !program_.variables[variable].returned; }

    const Program& program_;
    const Function& f_;
    const Layout& layout_;
    const bool kernel_, exits_, count_;
    bool stopping_ = false;
    std::size_t current_ = 0;
    unsigned temporaries_ = 0, stops_ = 0;
    std::vector<std::vector<std::uint32_t>> live_;
    std::vector<bool> spins_, used_, saved_, slots_;
    std::string out_;
};

// A set of handlers for the same operation on the lanes of a pair: calls `f` with the lane's
// expressions, packs what it returns.
std::string on_halves(const std::vector<std::string>& operands, const std::function<std::string(const std::vector<std::string>&)>& f);

}  // namespace softgpu::ptx
