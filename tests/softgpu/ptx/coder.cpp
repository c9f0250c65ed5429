// The parts of coder.hpp that every family shares: operands, results, addresses, stops, framing.
#include "tests/softgpu/ptx/coder.hpp"

#include <algorithm>
#include <cstring>

#include "tests/softgpu/ptx/translate.hpp"

namespace softgpu::ptx {

const Operand& Op::operator[](std::size_t i) const {
    if (i >= in_.operands.size()) refuse("too few operands");
    return in_.operands[i];
}
void Op::expect(std::size_t low, std::size_t high) const {
    if (count() < low || count() > high) refuse("wrong number of operands");
}
bool Op::take(std::string_view modifier) {
    for (std::size_t i = 0; i < taken_.size(); ++i)
        if (!taken_[i] && in_.modifiers[i] == modifier) return taken_[i] = true;
    return false;
}
int Op::take_one(std::initializer_list<std::string_view> names) {
    int index = 0;
    for (std::string_view name : names) {
        if (take(name)) return index;
        ++index;
    }
    return -1;
}
bool Op::has_type() const {
    for (std::size_t i = 0; i < taken_.size(); ++i)
        if (!taken_[i] && type_of(in_.modifiers[i])) return true;
    return false;
}
Type Op::take_type() {
    for (std::size_t i = 0; i < taken_.size(); ++i) {
        if (taken_[i]) continue;
        if (const auto type = type_of(in_.modifiers[i])) {
            taken_[i] = true;
            return *type;
        }
    }
    refuse("no type that is known");
}
std::string_view Op::take_prefix(std::string_view prefix) {
    for (std::size_t i = 0; i < taken_.size(); ++i)
        if (!taken_[i] && in_.modifiers[i].substr(0, prefix.size()) == prefix) {
            taken_[i] = true;
            return in_.modifiers[i];
        }
    return {};
}
unsigned Op::take_vector() { return take("v2") ? 2 : take("v4") ? 4 : take("v8") ? 8 : 1; }
int Op::take_rounding() {
    const int r = take_one({"rn", "rz", "rm", "rp"});
    return r >= 0 ? r : take_one({"rni", "rzi", "rmi", "rpi"});
}
void Op::finish() const {
    for (std::size_t i = 0; i < taken_.size(); ++i)
        if (!taken_[i]) refuse("." + std::string(in_.modifiers[i]) + " is not known here");
}
void Op::refuse(const std::string& why) const {
    std::string name(in_.opcode);
    for (std::string_view m : in_.modifiers) name += "." + std::string(m);
    throw Refusal(in_.line, name + ": " + why);
}

Coder::Coder(const Program& program, const Function& f, const Layout& layout, bool kernel, bool exits, bool count_work)
    : program_(program), f_(f), layout_(layout), kernel_(kernel), exits_(exits), count_(count_work) {
    used_.resize(f.registers.size());
    saved_.resize(f.registers.size());
    spins_.assign(f.body.size(), false);
    for (const Instruction& in : f.body) {
        if (!stops(in)) continue;
        if (!kernel) throw Refusal(in.line, std::string(in.opcode) + ": inside a function that is called through a pointer");
        stopping_ = true;
    }
    if (stopping_) {
        live_ = live_after_stops(f);
        spins_ = spinning_branches(f);
    }
}

std::string Coder::temporary() { return cat("t", temporaries_++); }

std::string Coder::immediate(const Op& op, const Operand& o, Type type) const {
    if (o.kind == Operand::Kind::float32 || o.kind == Operand::Kind::float64) {
        double value;
        float single;
        std::uint32_t word = static_cast<std::uint32_t>(o.bits);
        std::memcpy(&single, &word, 4);
        std::memcpy(&value, &o.bits, 8);
        if (type == Type::f32) {
            if (o.kind == Operand::Kind::float64) {
                single = static_cast<float>(value);
                std::memcpy(&word, &single, 4);
            }
            return cat("u2f(", word, "u)");
        }
        if (type == Type::f64) {
            std::uint64_t bits = o.bits;
            if (o.kind == Operand::Kind::float32) {
                value = single;
                std::memcpy(&bits, &value, 8);
            }
            return cat("u2d(", bits, "ull)");
        }
        if (size_of(type) >= 4) return cat("(", c_type(type), ")", o.bits, "ull");
        op.refuse("a float where " + std::string(name_of(type)) + " is expected");
    }
    if (type == Type::f32) return cat("u2f(", static_cast<std::uint32_t>(o.bits), "u)");
    if (type == Type::f64) return cat("u2d(", o.bits, "ull)");
    if (type == Type::pred) return o.bits ? "1" : "0";
    if (type == Type::b128) return cat("(u128)", o.bits, "ull");
    if (size_of(type) <= 4 && is_signed(type)) return cat("(", c_type(type), ")", static_cast<std::uint32_t>(o.bits), "u");
    if (size_of(type) == 8) return cat("(", c_type(type), ")", o.bits, "ull");
    return cat("(", c_type(type), ")", static_cast<std::uint32_t>(o.bits), "u");
}

std::string Coder::from_register(const Op& op, std::uint32_t r, Type type) const {
    const Type own = f_.registers[r].type;
    std::string name = cat("r", r);
    if ((own == Type::pred) != (type == Type::pred)) op.refuse("a predicate and a number do not mix");
    if (own == Type::pred) return name;
    if (size_of(own) < size_of(type) && !(size_of(own) == 2 && size_of(type) == 1)) {
        // 8-bit registers are stored in 16 bits; otherwise a narrow source is an error of the text.
        op.refuse("the register is narrower than the type");
    }
    if (type == own) return name;
    if (own == Type::f32) name = "f2u(" + name + ")";
    if (own == Type::f64) name = "d2u(" + name + ")";
    if (type == Type::f32) return cat("u2f((u32)", name, ")");
    if (type == Type::f64) return cat("u2d((u64)", name, ")");
    return cat("((", c_type(type), ")", name, ")");
}

std::string Coder::read(const Op& op, const Operand& o, Type type) {
    switch (o.kind) {
        case Operand::Kind::reg: {
            used_[o.index] = true;
            if (o.pair) op.refuse("a pair of registers is no source");
            const std::string value = from_register(op, o.index, type);
            if (!o.negate) return value;
            if (type != Type::pred) op.refuse("only a predicate can be negated");
            return "!" + value;
        }
        case Operand::Kind::integer:
        case Operand::Kind::float32:
        case Operand::Kind::float64: return immediate(op, o, type);
        case Operand::Kind::special: {
            const Special& s = special(o.index);
            if (is_float(type) || (s.type == Type::pred) != (type == Type::pred)) op.refuse("wrong type for a special register");
            return cat("((", c_type(type), ")", s.expression, ")");
        }
        case Operand::Kind::variable:
            if (!is_integer(type) || size_of(type) < 4) op.refuse("an address does not fit the type");
            return cat("((", c_type(type), ")", address_of(op, o), ")");
        case Operand::Kind::function: {
            const Function& named = program_.functions[o.index];
            const std::uint32_t target = named.resolved >= 0 ? static_cast<std::uint32_t>(named.resolved) : o.index;
            auto found = layout_.pointers.find(target);
            if (found == layout_.pointers.end() || size_of(type) != 8) op.refuse("address of this function");
            return cat("(", c_type(type), ")", function_pointer(found->second), "ull");
        }
        case Operand::Kind::vector: {
            // Packs elements into one value, the first lowest.
            const std::size_t n = o.items.size();
            if (n != 2 && n != 4 && n != 8) op.refuse("a vector of this length");
            const unsigned each = size_of(type) / static_cast<unsigned>(n);
            if (!each || type == Type::pred) op.refuse("a vector does not fit the type");
            const Type element = unsigned_of(each), whole = type == Type::b128 ? type : unsigned_of(size_of(type));
            std::string sum;
            for (std::size_t i = 0; i < n; ++i) {
                if (o.items[i].kind == Operand::Kind::vector) op.refuse("a vector in a vector");
                if (i) sum += " | ";
                sum += cat("(", c_type(whole), ")", read(op, o.items[i], element), " << ", 8 * each * i);
            }
            if (type == Type::f32) return "u2f(" + sum + ")";
            if (type == Type::f64) return "u2d(" + sum + ")";
            return cat("(", c_type(type), ")(", sum, ")");
        }
        default: op.refuse("this operand is no source");
    }
}

std::string Coder::read_float(const Op& op, const Operand& o, Type type) {
    if (type == Type::f16) return "h2f(" + read(op, o, type) + ")";
    if (type == Type::bf16) return "b2f(" + read(op, o, type) + ")";
    return read(op, o, type);
}

void Coder::write(const Op& op, const Operand& d, Type type, const std::string& expression) {
    if (d.kind == Operand::Kind::sink) return line(cat("(void)(", expression, ");"));
    if (d.kind == Operand::Kind::vector) {  // unpacks
        const std::size_t n = d.items.size();
        if (n != 2 && n != 4 && n != 8) op.refuse("a vector of this length");
        const unsigned each = size_of(type) / static_cast<unsigned>(n);
        if (!each || type == Type::pred) op.refuse("a vector does not fit the type");
        const Type whole = type == Type::b128 ? type : unsigned_of(size_of(type));
        const std::string t = temporary();
        const char* cast = type == Type::f32 ? "f2u" : type == Type::f64 ? "d2u" : "";
        line(cat("{ const ", c_type(whole), " ", t, " = ", cast, "(", expression, ");"));
        for (std::size_t i = 0; i < n; ++i) {
            if (d.items[i].kind == Operand::Kind::vector) op.refuse("a vector in a vector");
            const Type element = unsigned_of(each);
            if (d.items[i].kind != Operand::Kind::sink) write(op, d.items[i], element, cat("(", c_type(element), ")(", t, " >> ", 8 * each * i, ")"));
        }
        return line("}");
    }
    if (d.kind != Operand::Kind::reg || d.negate) op.refuse("the destination is no register");
    used_[d.index] = true;
    const Type own = f_.registers[d.index].type;
    const std::string name = cat("r", d.index);
    if ((own == Type::pred) != (type == Type::pred)) op.refuse("a predicate and a number do not mix");
    if (own == type || own == Type::pred) return line(cat(name, " = ", expression, ";"));
    if (size_of(own) < size_of(type)) op.refuse("the destination register is too narrow");
    std::string bits = type == Type::f32 ? cat("f2u(", expression, ")") : type == Type::f64 ? cat("d2u(", expression, ")") : expression;
    // Signed values extend their sign into a wider register.
    if (is_signed(type)) bits = cat("(", c_type(signed_of(std::max(2u, std::min(8u, size_of(own))))), ")(", c_type(type), ")(", bits, ")");
    else if (is_integer(type) && size_of(type) < 4) bits = cat("(", c_type(type), ")(", bits, ")");
    if (own == Type::f32) return line(cat(name, " = u2f((u32)(", bits, "));"));
    if (own == Type::f64) return line(cat(name, " = u2d((u64)(", bits, "));"));
    line(cat(name, " = (", storage_type(own), ")(", bits, ");"));
}

std::string Coder::storage(const Op& op, std::uint32_t v) {
    const Variable* variable = &program_.variables[v];
    if (variable->external && variable->resolved >= 0) {
        v = static_cast<std::uint32_t>(variable->resolved);
        variable = &program_.variables[v];
    }
    switch (variable->space) {
        case Space::global:
        case Space::constant: {
            auto found = layout_.globals.find(v);
            if (found == layout_.globals.end()) op.refuse("the variable " + variable->name + " is defined nowhere");
            return cat("((u8*)(G[", found->second, "] + VO))");
        }
        case Space::shared: {
            auto found = layout_.shared.find(v);
            if (found == layout_.shared.end()) op.refuse("the shared variable " + variable->name + " has no place");
            return cat("(SH + ", found->second, "u)");
        }
        default: break;
    }
    if (auto found = layout_.params.find(v); found != layout_.params.end()) {
        if (!kernel_) op.refuse("a kernel's parameter in a function");
        return cat("((u8*)P + ", found->second, "u)");
    }
    if (slots_.size() <= v) slots_.resize(v + 1);
    slots_[v] = true;
    return in_frame(v) && std::find(f_.locals.begin(), f_.locals.end(), v) != f_.locals.end() ? cat("F->v", v) : cat("v", v);
}

std::string Coder::address_of(const Op& op, const Operand& o) {
    if (!o.items.empty()) op.refuse("an element chosen by a register has no address here");
    const Variable& variable = program_.variables[o.index];
    std::string base;
    const Space space = variable.space;
    if (space == Space::shared) {
        auto found = layout_.shared.find(o.index);
        if (found == layout_.shared.end()) op.refuse("the shared variable " + variable.name + " has no place");
        base = cat(found->second, "ull");
    } else {
        base = cat("((u64)", storage(op, o.index), " - VO)");
    }
    return o.offset ? cat("(", base, " + ", static_cast<std::uint64_t>(o.offset), "ull)") : base;
}

std::string Coder::pointer(const Op& op, const Operand& a, Space space, std::string_view type) {
    if (a.kind == Operand::Kind::variable || (a.kind == Operand::Kind::address && a.items[0].kind == Operand::Kind::variable)) {
        const Operand& name = a.kind == Operand::Kind::variable ? a : a.items[0];
        const std::int64_t offset = static_cast<std::int64_t>(static_cast<std::uint64_t>(name.offset) + (a.kind == Operand::Kind::address ? static_cast<std::uint64_t>(a.offset) : 0));
        const Space own = program_.variables[name.index].space;
        if (space != Space::generic && own != space && !(space == Space::global && own == Space::constant))
            op.refuse("the variable " + program_.variables[name.index].name + " is in another space");
        std::string index;
        if (!name.items.empty()) {  // name[%r]: items[0] is the register, its bits an element's size
            const Operand& r = name.items[0];
            const Type t = register_type(r.index) == Type::pred ? Type::u64 : unsigned_of(size_of(register_type(r.index)));
            index = cat(" + (u64)", read(op, r, t), " * ", r.bits, "ull");
        }
        return cat("(", type, "*)(", storage(op, name.index), " + ", static_cast<std::uint64_t>(offset), "ull", index, ")");
    }
    if (a.kind != Operand::Kind::address) op.refuse("an address is expected");
    const Operand& base = a.items[0];
    const auto offset = static_cast<std::uint64_t>(a.offset);
    if (space == Space::shared) {
        const bool narrow = base.kind == Operand::Kind::reg && size_of(f_.registers[base.index].type) == 4;
        std::string at = narrow ? read(op, base, Type::u32) : "(u32)" + read(op, base, Type::u64);
        if (offset) at += cat(" + ", static_cast<std::uint32_t>(offset), "u");
        return cat("(", type, "*)(SH + (u32)(", at, "))");
    }
    if (base.kind == Operand::Kind::reg && size_of(f_.registers[base.index].type) != 8) op.refuse("the address register is not 64 bits wide");
    std::string at = read(op, base, Type::u64);
    if (offset) at += cat(" + ", offset, "ull");
    return cat("(", type, "*)(", at, " + VO)");
}

void Coder::stop(const Op& op, const std::string& request) {
    if (!stopping_) op.refuse("a thread cannot wait here");
    const unsigned number = ++stops_;
    line(request);
    for (std::uint32_t r : live_[current_]) {
        line(cat("F->r", r, " = r", r, ";"));
        saved_[r] = used_[r] = true;
    }
    line(cat("T->pc = ", number, "; return T->kind; S", number, ":;"));
    for (std::uint32_t r : live_[current_]) line(cat("r", r, " = F->r", r, ";"));
}

namespace {
const Handler* handler(std::string_view opcode) {
    for (const Family* family : {&arithmetic_family(), &bits_family(), &float_family(), &convert_family(), &memory_family(),
                                 &atomic_family(), &control_family(), &warp_family()})
        if (auto found = family->find(opcode); found != family->end()) return &found->second;
    return nullptr;
}
}  // namespace

void Coder::instruction(std::size_t i) {
    const Instruction& in = f_.body[i];
    current_ = i;
    if (in.label != no_index) return line(label(in.label) + ":;");
    Op op(in);
    const Handler* h = handler(in.opcode);
    if (!h) op.refuse("unknown instruction");
    if (in.guard != no_index) {
        used_[in.guard] = true;
        line(cat("if (", in.guard_negated ? "!r" : "r", in.guard, ") {"));
    }
    if (spins_[i]) {  // a loop that may wait for another thread lets it run now and then
        line("if (++T->spins >= 64) { T->spins = 0;");
        stop(op, "T->kind = STOP_SPIN;");
        line("}");
    }
    (*h)(*this, op);
    op.finish();
    if (in.guard != no_index) line("}");
}

std::string Coder::text() {
    for (std::size_t i = 0; i < f_.body.size(); ++i) instruction(i);
    std::string head = declarations();
    if (stopping_) {
        head += "switch (T->pc) {\n";
        for (unsigned s = 1; s <= stops_; ++s) head += cat("case ", s, ": goto S", s, ";\n");
        head += "default: break;\n}\n";
    }
    return head + out_ + (stopping_ ? "return STOP_EXIT;\n" : "return;\n");
}

std::string Coder::declarations() {
    std::string head;
    for (std::uint32_t r = 0; r < used_.size(); ++r)
        if (used_[r]) head += cat(storage_type(f_.registers[r].type), " r", r, ";\n");
    if (!stopping_)
        for (std::uint32_t v : f_.locals)
            if (v < slots_.size() && slots_[v]) {
                const Variable& variable = program_.variables[v];
                head += cat("u8 v", v, "[", std::max<std::size_t>(variable.bytes, 1), "] __attribute__((aligned(", std::max<std::size_t>(variable.align, 8), ")));\n");
            }
    return head;
}

std::string Coder::frame_fields() {
    std::string out;
    for (std::uint32_t r = 0; r < saved_.size(); ++r)
        if (saved_[r]) out += cat(storage_type(f_.registers[r].type), " r", r, ";\n");
    for (std::uint32_t v : f_.locals)
        if (v < slots_.size() && slots_[v]) {
            const Variable& variable = program_.variables[v];
            out += cat("u8 v", v, "[", std::max<std::size_t>(variable.bytes, 1), "] __attribute__((aligned(", std::max<std::size_t>(variable.align, 8), ")));\n");
        }
    return out;
}

std::string on_halves(const std::vector<std::string>& operands, const std::function<std::string(const std::vector<std::string>&)>& f) {
    std::string sides[2];
    for (unsigned side = 0; side < 2; ++side) {
        std::vector<std::string> lanes;
        for (const std::string& o : operands) lanes.push_back(side ? cat("(u16)((", o, ") >> 16)") : cat("(u16)(", o, ")"));
        sides[side] = f(lanes);
    }
    return cat("pair(", sides[0], ", ", sides[1], ")");
}

}  // namespace softgpu::ptx
