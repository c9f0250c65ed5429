// What the parser makes of PTX text: a program of functions, variables and instructions, with every
// name already resolved to an index. Indices stay valid for the life of the program; nothing is
// removed. A register or label belongs to its function, a variable or function to the program.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/softgpu/ptx/types.hpp"

namespace softgpu::ptx {

enum class Space : std::uint8_t { generic, global, constant, shared, local, param };

struct Relocation {
    std::size_t offset = 0;        // in the variable's bytes; 8 bytes are written there
    bool function = false;         // symbol is a function, else a variable
    std::uint32_t symbol = 0;
    std::int64_t addend = 0;
};

struct Variable {
    std::string name;
    Space space = Space::global;
    Type type = Type::none;
    std::size_t bytes = 0;  // 0: extern array without a size (dynamic shared memory)
    std::size_t align = 1;
    bool external = false, managed = false, visible = false;
    bool returned = false;      // a function's return parameter
    std::int64_t resolved = -1;  // extern: the variable that defines it
    std::vector<std::uint8_t> initial;
    std::vector<Relocation> relocations;
};

struct Register {
    Type type = Type::none;
};

struct Operand {
    enum class Kind : std::uint8_t { sink, reg, integer, float32, float64, variable, function, special, label, vector, address, list, prototype };
    Kind kind = Kind::sink;
    bool negate = false;           // !p
    bool pair = false;             // d|p: items[0] is the second destination
    std::uint32_t index = 0;       // register, variable, function, label, special register, prototype
    std::uint64_t bits = 0;        // immediates
    std::int64_t offset = 0;       // address: base items[0], plus offset; also variable+offset
    std::vector<Operand> items;
};

constexpr std::uint32_t no_index = 0xffffffffu;

struct Instruction {
    unsigned line = 0;
    std::uint32_t label = no_index;  // not an instruction but a label, if set
    std::uint32_t guard = no_index;  // predicate register
    bool guard_negated = false;
    std::string_view opcode;
    std::vector<std::string_view> modifiers;
    std::vector<Operand> operands;
};

struct Prototype {
    std::vector<std::size_t> returns, params;  // bytes
};

struct Function {
    std::string name;
    bool entry = false, defined = false, visible = false;
    unsigned line = 0;
    std::int64_t resolved = -1;            // a declaration: the function that defines it
    // Parameters in order: variables of space param, or registers of the function.
    struct Slot { bool is_register = false; std::uint32_t index = 0; };
    std::vector<Slot> returns, params;
    std::vector<Register> registers;
    std::vector<std::uint32_t> locals;     // variables of space local or param declared inside
    std::uint32_t labels = 0;
    std::map<std::uint32_t, std::vector<std::uint32_t>> targets;
    std::vector<Prototype> prototypes;
    std::vector<Instruction> body;
    std::uint32_t max_threads = 1024;
};

struct Program {
    std::vector<Variable> variables;
    std::vector<Function> functions;
    int ptx_version = 0, sm_version = 0;
};

// Special registers, by their index in Operand::index.
struct Special {
    std::string_view name;  // with the suffix: "%tid.x"
    Type type;
    std::string_view expression;  // in translated C
};
const Special* special(std::string_view name);
const Special& special(std::uint32_t index);
std::uint32_t index_of(const Special&);

}  // namespace softgpu::ptx
