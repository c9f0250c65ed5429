// Merges functions that stop threads (a barrier or a shuffle inside) into the kernel that calls them,
// so that every stop is in the kernel's own body, where a thread's registers can be saved. Registers,
// labels and local variables of the merged copy get new indices; its parameters become local memory.
#include <algorithm>
#include <unordered_map>

#include "tests/softgpu/ptx/analysis.hpp"

namespace softgpu::ptx {
namespace {

constexpr std::size_t max_instructions = 1u << 18;

// 0 unknown, 1 in progress, 2 does not stop, 3 stops.
bool stops_inside(const Program& p, std::uint32_t f, std::vector<char>& state) {
    // Depth-first with an explicit stack: hostile call chains may be as long as the text.
    struct Frame { std::uint32_t function; std::size_t at; };
    if (state[f] >= 2) return state[f] == 3;
    std::vector<Frame> stack{{f, 0}};
    state[f] = 1;
    std::vector<char> found(p.functions.size());
    while (!stack.empty()) {
        Frame& top = stack.back();
        const Function& function = p.functions[top.function];
        // Parameters in registers have no C equivalent here: such a function is merged too.
        auto in_register = [](const Function::Slot& s) { return s.is_register; };
        if (std::any_of(function.params.begin(), function.params.end(), in_register) ||
            std::any_of(function.returns.begin(), function.returns.end(), in_register))
            found[top.function] = 1;
        bool descended = false;
        for (; top.at < function.body.size() && !found[top.function]; ++top.at) {
            const Instruction& in = function.body[top.at];
            if (stops(in)) found[top.function] = 1;
            if (in.opcode != "call") continue;
            const std::uint32_t c = callee(p, in);
            if (c == no_index || !p.functions[c].defined) continue;
            if (state[c] == 3) found[top.function] = 1;
            if (state[c] == 0) {
                state[c] = 1;
                stack.push_back({c, 0});
                descended = true;
                break;
            }
        }
        if (descended) continue;
        state[top.function] = found[top.function] ? 3 : 2;
        stack.pop_back();
    }
    return state[f] == 3;
}

class Merger {
  public:
    Merger(Program& program, Function& kernel, std::vector<char>& state) : program_(program), kernel_(kernel), state_(state) {}

    // Rewrites `from`'s body into the kernel's, with `map` applied.
    struct Map {
        std::unordered_map<std::uint32_t, std::uint32_t> variables;
        std::uint32_t register_base = 0, label_base = 0, prototype_base = 0;
        std::uint32_t return_label = no_index;
    };
    void append(const std::vector<Instruction>& body, const Map& map, std::vector<std::uint32_t>& active) {
        for (const Instruction& original : body) {
            Instruction in = original;
            rename(in, map);
            if (in.opcode == "ret" && map.return_label != no_index) {
                in.opcode = "bra";
                in.modifiers.clear();
                Operand o;
                o.kind = Operand::Kind::label;
                o.index = map.return_label;
                in.operands = {o};
            }
            const std::uint32_t c = in.opcode == "call" ? callee(program_, in) : no_index;
            if (c != no_index && program_.functions[c].defined && state_[c] == 3) merge(in, c, active);
            else push(std::move(in));
        }
    }

  private:
    void push(Instruction in) {
        if (kernel_.body.size() >= max_instructions) throw Refusal(in.line, "the kernel with its functions is too large");
        kernel_.body.push_back(std::move(in));
    }
    void rename(Operand& o, const Map& map) const {
        if (o.kind == Operand::Kind::reg) o.index += map.register_base;
        if (o.kind == Operand::Kind::label) o.index += map.label_base;
        if (o.kind == Operand::Kind::prototype) o.index += map.prototype_base;
        if (o.kind == Operand::Kind::variable)
            if (auto found = map.variables.find(o.index); found != map.variables.end()) o.index = found->second;
        for (Operand& item : o.items) rename(item, map);
    }
    void rename(Instruction& in, const Map& map) const {
        if (in.label != no_index) in.label += map.label_base;
        if (in.guard != no_index) in.guard += map.register_base;
        for (Operand& o : in.operands) rename(o, map);
    }
    void merge(const Instruction& call, std::uint32_t index, std::vector<std::uint32_t>& active) {
        if (active.size() > 64 || std::find(active.begin(), active.end(), index) != active.end())
            throw Refusal(call.line, "call: " + program_.functions[index].name + " holds a barrier or warp operation and calls itself");
        const Function f = program_.functions[index];  // a copy: the program's vectors may grow below
        const bool returns = call.operands[0].kind == Operand::Kind::list;
        const Operand none;
        const Operand* arguments = nullptr;
        if (call.operands.size() > 1u + returns) arguments = &call.operands[1u + returns];
        const std::size_t given = arguments ? arguments->items.size() : 0, taken = returns ? call.operands[0].items.size() : 0;
        if (given != f.params.size() || taken != f.returns.size()) throw Refusal(call.line, "call: wrong number of arguments");

        Map map;
        map.register_base = static_cast<std::uint32_t>(kernel_.registers.size());
        map.label_base = kernel_.labels;
        map.prototype_base = static_cast<std::uint32_t>(kernel_.prototypes.size());
        kernel_.registers.insert(kernel_.registers.end(), f.registers.begin(), f.registers.end());
        if (kernel_.registers.size() > max_instructions) throw Refusal(call.line, "the kernel with its functions has too many registers");
        kernel_.prototypes.insert(kernel_.prototypes.end(), f.prototypes.begin(), f.prototypes.end());
        for (const auto& [label, list] : f.targets) {
            auto& copy = kernel_.targets[label + map.label_base];
            for (std::uint32_t l : list) copy.push_back(l + map.label_base);
        }
        kernel_.labels += f.labels;
        map.return_label = kernel_.labels++;
        for (std::uint32_t v : f.locals) {
            map.variables[v] = static_cast<std::uint32_t>(program_.variables.size());
            kernel_.locals.push_back(map.variables[v]);
            program_.variables.push_back(program_.variables[v]);
        }
        // Parameters: the caller's own variable where it passes one, else through a register.
        std::vector<Instruction> after;
        auto bind = [&](const Function::Slot& slot, const Operand& o, bool out) {
            if (!slot.is_register) {
                if (o.kind != Operand::Kind::variable || program_.variables[o.index].bytes < program_.variables[slot.index].bytes)
                    throw Refusal(call.line, "call: argument does not fit the parameter");
                map.variables[slot.index] = o.index;
                return;
            }
            Instruction move;
            move.line = call.line;
            move.guard = call.guard;
            move.guard_negated = call.guard_negated;
            move.opcode = "mov";
            const Type type = f.registers[slot.index].type;
            move.modifiers = {name_of(type == Type::pred ? Type::pred : type)};
            Operand own;
            own.kind = Operand::Kind::reg;
            own.index = slot.index + map.register_base;
            move.operands = out ? std::vector<Operand>{o, own} : std::vector<Operand>{own, o};
            if (out) after.push_back(std::move(move));
            else push(std::move(move));
        };
        Instruction skip;
        std::uint32_t past = no_index;
        if (call.guard != no_index) {  // a guarded call jumps over the merged body
            past = kernel_.labels++;
            skip.line = call.line;
            skip.opcode = "bra";
            skip.guard = call.guard;
            skip.guard_negated = !call.guard_negated;
            Operand o;
            o.kind = Operand::Kind::label;
            o.index = past;
            skip.operands = {o};
            push(std::move(skip));
        }
        for (std::size_t i = 0; i < taken; ++i) bind(f.returns[i], call.operands[0].items[i], true);
        for (std::size_t i = 0; i < given; ++i) bind(f.params[i], arguments->items[i], false);
        active.push_back(index);
        append(f.body, map, active);
        active.pop_back();
        Instruction end;
        end.line = call.line;
        end.label = map.return_label;
        push(std::move(end));
        for (Instruction& in : after) push(std::move(in));
        if (past != no_index) {
            Instruction label;
            label.line = call.line;
            label.label = past;
            push(std::move(label));
        }
    }
    Program& program_;
    Function& kernel_;
    std::vector<char>& state_;
};
}  // namespace

Function flatten(Program& program, std::uint32_t kernel) {
    std::vector<char> state(program.functions.size());
    bool any = false;
    for (const Instruction& in : program.functions[kernel].body) {
        if (in.opcode != "call") continue;
        const std::uint32_t c = callee(program, in);
        if (c != no_index && program.functions[c].defined) any |= stops_inside(program, c, state);
    }
    Function result = program.functions[kernel];
    if (!any) return result;
    std::vector<Instruction> body;
    body.swap(result.body);
    std::vector<std::uint32_t> active{kernel};
    Merger(program, result, state).append(body, {}, active);
    return result;
}

}  // namespace softgpu::ptx
