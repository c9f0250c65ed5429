// Control flow, liveness and memory order: see analysis.hpp.
#include "tests/softgpu/ptx/analysis.hpp"

#include <algorithm>
#include <array>

namespace softgpu::ptx {
namespace {
bool any_of(std::string_view word, std::initializer_list<std::string_view> list) {
    return std::find(list.begin(), list.end(), word) != list.end();
}
bool has(const Instruction& in, std::string_view modifier) {
    return std::find(in.modifiers.begin(), in.modifiers.end(), modifier) != in.modifiers.end();
}
void registers_of(const Operand& o, bool definition, std::vector<Access>& out) {
    if (o.kind == Operand::Kind::reg) out.push_back({o.index, definition});
    const bool inner = definition && o.kind != Operand::Kind::address;
    for (const Operand& item : o.items) registers_of(item, inner, out);
}
}  // namespace

bool stops(const Instruction& in) {
    return any_of(in.opcode, {"bar", "barrier", "shfl", "vote", "match", "activemask", "redux", "elect"});
}

std::vector<Access> accesses(const Instruction& in) {
    std::vector<Access> out;
    if (in.guard != no_index) out.push_back({in.guard, false});
    bool defines = !any_of(in.opcode, {"st", "red", "bra", "brx", "ret", "exit", "trap", "membar", "fence", "prefetch", "prefetchu",
                                       "nanosleep", "discard", "applypriority", "brkpt", "pmevent", "cp"});
    if (in.opcode == "bar" || in.opcode == "barrier") defines = has(in, "red");
    for (std::size_t i = 0; i < in.operands.size(); ++i) {
        const Operand& o = in.operands[i];
        bool definition = defines && i == 0;
        if (in.opcode == "call") definition = i == 0 && o.kind == Operand::Kind::list && in.operands.size() > 1;
        registers_of(o, definition && o.kind != Operand::Kind::address, out);
    }
    return out;
}

std::uint32_t callee(const Program& program, const Instruction& in) {
    for (const Operand& o : in.operands) {
        if (o.kind == Operand::Kind::function) {
            const Function& f = program.functions[o.index];
            if (f.defined || is_provided(f.name)) return o.index;
            if (f.resolved >= 0) return static_cast<std::uint32_t>(f.resolved);
            throw Refusal(in.line, "call: the function " + f.name + " is defined nowhere");
        }
        if (o.kind != Operand::Kind::list) return no_index;
    }
    throw Refusal(in.line, "call without a function");
}

bool is_provided(std::string_view f) { return any_of(f, {"vprintf", "__assertfail"}); }

std::vector<std::uint32_t> address_taken(const Program& program) {
    std::set<std::uint32_t> found;
    for (const Function& f : program.functions)
        for (const Instruction& in : f.body)
            for (const Operand& o : in.operands)
                if (o.kind == Operand::Kind::function && in.opcode != "call") found.insert(o.index);
    for (const Variable& v : program.variables)
        for (const Relocation& r : v.relocations)
            if (r.function) found.insert(r.symbol);
    std::vector<std::uint32_t> out;
    for (std::uint32_t f : found) {
        const Function& function = program.functions[f];
        const std::uint32_t target = function.resolved >= 0 ? static_cast<std::uint32_t>(function.resolved) : f;
        if (program.functions[target].defined && !program.functions[target].entry) out.push_back(target);
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
}

Reach reach(const Program& program, const Function& kernel, const std::vector<std::uint32_t>& pointers) {
    Reach result;
    std::set<std::uint32_t> seen;
    std::vector<std::uint32_t> work;
    auto look = [&](const Function& f) {
        for (const Instruction& in : f.body) {
            if (in.opcode == "call") {
                const std::uint32_t target = callee(program, in);
                if (target == no_index) {
                    if (!result.indirect) {
                        result.indirect = true;
                        for (std::uint32_t p : pointers)
                            if (seen.insert(p).second) work.push_back(p);
                    }
                } else if (program.functions[target].defined && seen.insert(target).second) {
                    work.push_back(target);
                }
            }
            for (const Operand& o : in.operands) {
                const Operand& base = o.kind == Operand::Kind::address ? o.items[0] : o;
                if (base.kind == Operand::Kind::variable) result.variables.insert(base.index);
            }
        }
    };
    look(kernel);
    while (!work.empty()) {
        const std::uint32_t f = work.back();
        work.pop_back();
        result.functions.push_back(f);
        look(program.functions[f]);
        for (const Instruction& in : program.functions[f].body) result.exits |= in.opcode == "exit";
    }
    std::sort(result.functions.begin(), result.functions.end());
    return result;
}

namespace {
struct Graph {
    struct Node {
        std::size_t begin = 0, end = 0;  // instructions
        std::vector<std::uint32_t> next;
    };
    std::vector<Node> nodes;
    std::vector<std::uint32_t> node_of_label;
};

bool ends_flow(const Instruction& in) {
    return in.guard == no_index && any_of(in.opcode, {"bra", "brx", "ret", "exit", "trap"});
}

Graph graph_of(const Function& f) {
    Graph g;
    g.node_of_label.assign(f.labels, no_index);
    std::vector<Graph::Node>& nodes = g.nodes;
    nodes.push_back({});
    for (std::size_t i = 0; i < f.body.size(); ++i) {
        const Instruction& in = f.body[i];
        if (in.label != no_index && nodes.back().begin != i) {
            nodes.back().end = i;
            nodes.push_back({i, i, {}});
        }
        if (in.label != no_index) g.node_of_label[in.label] = static_cast<std::uint32_t>(nodes.size() - 1);
        if (any_of(in.opcode, {"bra", "brx", "ret", "exit", "trap"})) {
            nodes.back().end = i + 1;
            nodes.push_back({i + 1, i + 1, {}});
        }
    }
    nodes.back().end = f.body.size();
    for (std::uint32_t n = 0; n < nodes.size(); ++n) {
        Graph::Node& node = nodes[n];
        const Instruction* last = node.end > node.begin ? &f.body[node.end - 1] : nullptr;
        auto to = [&](std::uint32_t label) {
            if (g.node_of_label[label] == no_index) throw Refusal(last->line, "branch to a label that is not there");
            node.next.push_back(g.node_of_label[label]);
        };
        if (last && last->opcode == "bra" && !last->operands.empty() && last->operands[0].kind == Operand::Kind::label)
            to(last->operands[0].index);
        if (last && last->opcode == "brx" && last->operands.size() == 2) {
            auto list = f.targets.find(last->operands[1].index);
            if (list != f.targets.end())
                for (std::uint32_t label : list->second) to(label);
        }
        if ((!last || !ends_flow(*last)) && n + 1 < nodes.size()) node.next.push_back(n + 1);
    }
    return g;
}
}  // namespace

std::vector<std::vector<std::uint32_t>> live_after_stops(const Function& f) {
    std::vector<std::vector<std::uint32_t>> result(f.body.size());
    const Graph g = graph_of(f);
    const std::size_t words = f.registers.size() / 64 + 1, nodes = g.nodes.size();
    if (words * nodes > (std::size_t{1} << 26)) throw Refusal(f.line, "the kernel is too large to follow its registers");
    using Set = std::vector<std::uint64_t>;
    auto bit = [](std::uint32_t r) { return 1ULL << (r & 63); };
    auto step_back = [&](const Instruction& in, auto* live) {
        const std::vector<Access> all = accesses(in);
        if (in.guard == no_index)
            for (const Access& a : all)
                if (a.definition) live[a.reg >> 6] &= ~bit(a.reg);
        for (const Access& a : all)
            if (!a.definition) live[a.reg >> 6] |= bit(a.reg);
    };
    // live_in = uses | (live_out & ~kills), from the end until nothing changes.
    std::vector<std::uint64_t> live_in(words * nodes), kill(words * nodes, ~0ULL);
    for (std::size_t n = 0; n < nodes; ++n) {
        std::uint64_t* gen = &live_in[n * words];
        std::uint64_t* keep = &kill[n * words];
        for (std::size_t i = g.nodes[n].end; i-- > g.nodes[n].begin;) {
            const Instruction& in = f.body[i];
            if (in.guard == no_index)
                for (const Access& a : accesses(in))
                    if (a.definition) keep[a.reg >> 6] &= ~bit(a.reg);
            step_back(in, gen);
        }
    }
    std::vector<std::vector<std::uint32_t>> before(nodes);
    for (std::uint32_t n = 0; n < nodes; ++n)
        for (std::uint32_t s : g.nodes[n].next) before[s].push_back(n);
    std::vector<std::uint32_t> work;
    std::vector<bool> queued(nodes, true);
    for (std::uint32_t n = 0; n < nodes; ++n) work.push_back(n);
    while (!work.empty()) {
        const std::uint32_t n = work.back();
        work.pop_back();
        queued[n] = false;
        bool changed = false;
        for (std::uint32_t s : g.nodes[n].next)
            for (std::size_t w = 0; w < words; ++w) {
                const std::uint64_t add = live_in[s * words + w] & kill[n * words + w] & ~live_in[n * words + w];
                if (add) live_in[n * words + w] |= add, changed = true;
            }
        if (changed)
            for (std::uint32_t p : before[n])
                if (!queued[p]) queued[p] = true, work.push_back(p);
    }
    const std::vector<bool> spins = spinning_branches(f);
    for (std::uint32_t n = 0; n < nodes; ++n) {
        bool needed = false;
        for (std::size_t i = g.nodes[n].begin; i < g.nodes[n].end; ++i) needed |= stops(f.body[i]) || spins[i];
        if (!needed) continue;
        Set live(words);
        for (std::uint32_t s : g.nodes[n].next)
            for (std::size_t w = 0; w < words; ++w) live[w] |= live_in[s * words + w];
        for (std::size_t i = g.nodes[n].end; i-- > g.nodes[n].begin;) {
            const Instruction& in = f.body[i];
            if (stops(in) || spins[i]) {
                Set kept = live;
                for (const Access& a : accesses(in)) {
                    if (a.definition && in.guard == no_index) kept[a.reg >> 6] &= ~bit(a.reg);
                }
                for (std::uint32_t r = 0; r < f.registers.size(); ++r)
                    if (kept[r >> 6] & bit(r)) result[i].push_back(r);
            }
            step_back(in, live.data());
        }
    }
    return result;
}

std::vector<bool> spinning_branches(const Function& f) {
    std::vector<bool> result(f.body.size());
    std::vector<std::size_t> at(f.labels, f.body.size()), volatile_until(f.body.size() + 1);
    for (std::size_t i = 0; i < f.body.size(); ++i) {
        const Instruction& in = f.body[i];
        if (in.label != no_index) at[in.label] = i;
        const bool waits = in.opcode == "atom" || (in.opcode == "ld" && (has(in, "volatile") || has(in, "relaxed") || has(in, "acquire") || has(in, "mmio"))) ||
                           in.opcode == "nanosleep";
        volatile_until[i + 1] = volatile_until[i] + waits;
        if (in.opcode == "bra" && !in.operands.empty() && in.operands[0].kind == Operand::Kind::label) {
            const std::size_t target = at[in.operands[0].index];
            result[i] = target < i && volatile_until[i] > volatile_until[target];
        }
    }
    return result;
}

void note_order(const Function& f, Order& order) {
    std::vector<bool> read(f.registers.size());
    for (const Instruction& in : f.body)
        for (const Access& a : accesses(in))
            if (!a.definition) read[a.reg] = true;
    for (const Instruction& in : f.body) {
        const bool shared = std::any_of(in.modifiers.begin(), in.modifiers.end(), [](auto m) { return m.substr(0, 6) == "shared"; });
        if (shared || has(in, "local")) continue;
        if (in.opcode == "atom" || in.opcode == "red") {
            const std::string_view type = in.modifiers.empty() ? "" : in.modifiers.back();
            const bool is_float = type.find('f') != std::string_view::npos;
            const bool commutes = has(in, "add") || has(in, "min") || has(in, "max") || has(in, "and") || has(in, "or") || has(in, "xor");
            bool used = false;
            if (in.opcode == "atom" && !in.operands.empty() && in.operands[0].kind == Operand::Kind::reg) used = read[in.operands[0].index];
            if (is_float) order.float_atomics = true;
            if (is_float || !commutes || used) order.blocks_meet = true;
        } else if ((in.opcode == "ld" || in.opcode == "st") &&
                   (has(in, "volatile") || has(in, "relaxed") || has(in, "acquire") || has(in, "release") || has(in, "mmio"))) {
            order.blocks_meet = true;
        } else if (in.opcode == "membar" || in.opcode == "fence") {
            order.blocks_meet |= !has(in, "cta");
        }
    }
}

}  // namespace softgpu::ptx
