// Branches, calls and the ends of a thread.
#include "tests/softgpu/ptx/families.hpp"

namespace softgpu::ptx {
namespace {

void branch(Coder& c, Op& op) {
    op.take("uni");
    op.expect(1, 1);
    if (op[0].kind != Operand::Kind::label) op.refuse("no label");
    c.line(cat("goto ", c.label(op[0].index), ";"));
}

void branch_indexed(Coder& c, Op& op) {
    if (!op.take("idx")) op.refuse("variant");
    op.take("uni");
    op.expect(2, 2);
    auto list = op[1].kind == Operand::Kind::label ? c.function().targets.find(op[1].index) : c.function().targets.end();
    if (list == c.function().targets.end()) op.refuse("no list of targets");
    c.line(cat("switch (", c.read(op, op[0], Type::u32), ") {"));
    for (std::size_t i = 0; i < list->second.size(); ++i) c.line(cat("case ", i, ": goto ", c.label(list->second[i]), ";"));
    c.line("default: __builtin_unreachable(); }");
}

void leave(Coder& c, Op& op) {  // ret, exit
    op.take("uni");
    op.expect(0, 0);
    if (op.opcode() == "exit" && !c.kernel()) c.line("T->gone = 1;");
    c.line(c.stopping() ? "return STOP_EXIT;" : "return;");
}

void trap(Coder& c, Op& op) {
    op.expect(0, 0);
    c.line(cat("B->trap(B, ", op.line(), ", \"trap\");"));
}

void sleep(Coder& c, Op& op) {
    op.take("u32");
    op.expect(1, 1);
    c.line(cat("B->sleep(B, ", c.read(op, op[0], Type::u32), ");"));
}

void nothing(Coder&, Op& op) {  // brkpt, pmevent, griddepcontrol, setmaxnreg: no effect here
    for (const char* m : {"u32", "mask", "wait", "launch_dependents", "inc", "dec", "sync", "aligned"}) op.take(m);
}

// Behind a call: whoever was called may have ended the thread.
void leave_with(Coder& c) {
    if (c.exits()) c.line(c.stopping() ? "if (T->gone) return STOP_EXIT;" : "if (T->gone) return;");
}

void call(Coder& c, Op& op) { c.call_function(op); }

}  // namespace

// Arguments and results go by pointer: a variable's bytes, or a temporary for a register.
void Coder::call_function(Op& op) {
    op.take("uni");
    std::size_t i = 0;
    std::vector<Operand> results, arguments;
    if (op[0].kind == Operand::Kind::list) results = op[i++].items;
    const Operand target = op[i++];
    if (i < op.count() && op[i].kind == Operand::Kind::list) arguments = op[i++].items;
    if (i < op.count()) ++i;  // a prototype or a list of targets
    op.expect(i, i);

    std::string before, after, list;
    struct Copy { std::string name; Operand o; Type type; };
    std::vector<Copy> out;
    line("{");
    auto pass = [&](const Operand& o, bool result, const Function::Slot* slot, const Function* f) {
        list += ", ";
        if (o.kind == Operand::Kind::variable) {
            if (slot && !slot->is_register && program_.variables[o.index].bytes < program_.variables[slot->index].bytes) op.refuse("an argument does not fit");
            list += cat(storage(op, o.index), " + ", static_cast<std::uint64_t>(o.offset), "ull");
            return;
        }
        // By value: as wide as the parameter.
        std::size_t bytes = 8;
        Type type = o.kind == Operand::Kind::reg ? f_.registers[o.index].type : Type::b64;
        if (slot) bytes = slot->is_register ? size_of(f->registers[slot->index].type) : program_.variables[slot->index].bytes;
        if (o.kind != Operand::Kind::reg && slot) {
            if (bytes > 8) op.refuse("an immediate for a large parameter");
            type = slot->is_register ? f->registers[slot->index].type : unsigned_of(static_cast<unsigned>(bytes));
        }
        if (size_of(type) > bytes && type != Type::pred) op.refuse("an argument does not fit");
        const std::string t = temporary();
        line(cat("u8 ", t, "[16] __attribute__((aligned(16))) = {0};"));
        if (result) out.push_back({t, o, type});
        else line(cat("*(", c_type(type), "*)", t, " = ", read(op, o, type), ";"));
        list += t;
    };
    if (target.kind == Operand::Kind::function) {
        const std::uint32_t index = callee(program_, op.instruction());
        const Function& f = program_.functions[index];
        if (is_provided(f.name) && !f.defined) {
            std::vector<std::string> values;
            for (const Operand& a : arguments) {
                if (a.kind != Operand::Kind::variable) op.refuse("argument");
                values.push_back(cat("*(u64*)(", storage(op, a.index), ")"));
            }
            if (f.name == "vprintf") {
                if (values.size() != 2 || results.size() != 1 || results[0].kind != Operand::Kind::variable) op.refuse("arguments");
                line(cat("*(u32*)(", storage(op, results[0].index), ") = B->print(B, (const char*)(", values[0], " + VO), (const u8*)(", values[1], " + VO), VO); }"));
            } else {
                if (values.empty()) op.refuse("arguments");
                line(cat("B->trap(B, ", op.line(), ", (const char*)(", values[0], " + VO)); }"));
            }
            return;
        }
        if (f.entry) op.refuse("a kernel cannot be called");
        // A declaration in another text may promise a result that the definition has not (numba's void functions): undefined.
        for (; index != target.index && results.size() > f.returns.size(); results.pop_back()) {
            const Operand& none = results.back();
            if (none.kind != Operand::Kind::variable) op.refuse("a result that the function has not");
            line(cat("__builtin_memset(", storage(op, none.index), ", 0x7f, ", program_.variables[none.index].bytes, "u);"));
        }
        if (arguments.size() != f.params.size() || results.size() != f.returns.size()) op.refuse("wrong number of arguments");
        for (std::size_t r = 0; r < results.size(); ++r) pass(results[r], true, &f.returns[r], &f);
        for (std::size_t a = 0; a < arguments.size(); ++a) pass(arguments[a], false, &f.params[a], &f);
        line(cat("fn", index, "(L, B, T", list, ");"));
        leave_with(*this);
    } else if (target.kind == Operand::Kind::reg) {
        for (const Operand& r : results) pass(r, true, nullptr, nullptr);
        for (const Operand& a : arguments) pass(a, false, nullptr, nullptr);
        const std::size_t n = results.size() + arguments.size();
        std::string type = "void (*)(const Launch*, Block*, Thread*";
        for (std::size_t k = 0; k < n; ++k) type += ", u8*";
        line(cat("void* callee = pointer_to(", read(op, target, Type::u64), ", ", n, "u);"));
        line(cat("if (!callee) B->trap(B, ", op.line(), ", \"call through a pointer that is no such function\");"));
        line(cat("((", type, "))callee)(L, B, T", list, ");"));
        leave_with(*this);
    } else {
        op.refuse("no function");
    }
    for (const Copy& copy : out) write(op, copy.o, copy.type, cat("*(", c_type(copy.type), "*)", copy.name));
    line("}");
}

const Family& control_family() {
    static const Family family{{"bra", branch}, {"brx", branch_indexed}, {"ret", leave}, {"exit", leave}, {"trap", trap}, {"brkpt", nothing},
                               {"pmevent", nothing}, {"nanosleep", sleep}, {"griddepcontrol", nothing}, {"call", call}};
    return family;
}

}  // namespace softgpu::ptx
