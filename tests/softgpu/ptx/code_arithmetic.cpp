// Integer arithmetic, and the opcodes that integers and floats share. All integer results wrap, as in
// PTX; division by zero gives all ones instead of a trap.
#include "tests/softgpu/ptx/families.hpp"

namespace softgpu::ptx {
namespace {

bool is_floating(Type t) { return is_float(t) || is_half(t); }

void integer_only(const Op& op, Type t, unsigned least = 2) {
    if (!is_integer(t) || size_of(t) < least) op.refuse("." + std::string(name_of(t)) + " is not known here");
}

// Two 16-bit integers in 32 bits (add, min, max).
void integer_pairs(Coder& c, Op& op, Type type) {
    op.expect(3, 3);
    const char* lane = type == Type::s16x2 ? "(s16)" : "(u16)";
    const std::string a = c.read(op, op[1], Type::u32), b = c.read(op, op[2], Type::u32);
    c.write(op, op[0], Type::u32, on_halves({a, b}, [&](const auto& x) -> std::string {
        if (op.opcode() == "add") return cat("(u16)(", x[0], " + ", x[1], ")");
        const char* relation = op.opcode() == "min" ? " < " : " > ";
        return cat("(u16)(", lane, x[0], relation, lane, x[1], " ? ", x[0], " : ", x[1], ")");
    }));
}

void add_sub(Coder& c, Op& op) {
    const bool carry_out = op.take("cc"), subtract = op.opcode() == "sub";
    const Type type = op.take_type();
    c.count("operations", 1);
    if (is_floating(type)) return float_operation(c, op, type);
    if (type == Type::u16x2 || type == Type::s16x2) return integer_pairs(c, op, type);
    integer_only(op, type);
    op.expect(3, 3);
    const Type u = unsigned_of(size_of(type));
    if (carry_out) {
        integer_only(op, type, 4);
        return c.write(op, op[0], u, cat(op.opcode(), "_cc_", bits(type), "(", c.read(op, op[1], u), ", ", c.read(op, op[2], u), ", &CC)"));
    }
    if (op.take("sat")) {
        if (type != Type::s32) op.refuse(".sat is for s32 alone");
        return c.write(op, op[0], type, cat(op.opcode(), "_sat(", c.read(op, op[1], type), ", ", c.read(op, op[2], type), ")"));
    }
    c.write(op, op[0], u, cat("(", c_type(u), ")(", c.read(op, op[1], u), subtract ? " - " : " + ", c.read(op, op[2], u), ")"));
}

void add_sub_carry(Coder& c, Op& op) {  // addc, subc: the carry out is kept only with .cc, and harmless without
    const bool keep = op.take("cc");
    const Type type = op.take_type();
    integer_only(op, type, 4);
    op.expect(3, 3);
    const Type u = unsigned_of(size_of(type));
    c.count("operations", 1);
    c.line("{ u32 carry = CC;");
    c.write(op, op[0], u, cat(op.opcode(), "_", bits(type), "(", c.read(op, op[1], u), ", ", c.read(op, op[2], u), ", &carry)"));
    c.line(keep ? "CC = carry; }" : "}");
}

// The product of a and b as mul/mad.{lo,hi,wide} give it: an expression, and its type.
std::pair<std::string, Type> product(Coder& c, Op& op, Type type, int part) {
    integer_only(op, type);
    const bool sign = is_signed(type);
    const unsigned size = size_of(type);
    const Type u = unsigned_of(size), s = sign ? type : u;
    if (part == 2) {
        if (size > 4) op.refuse(".wide is for 16 and 32 bits");
        const Type wide = sign ? signed_of(2 * size) : unsigned_of(2 * size);
        return {cat("((", c_type(wide), ")", c.read(op, op[1], s), " * (", c_type(wide), ")", c.read(op, op[2], s), ")"), wide};
    }
    if (part == 1)
        return {cat("((", c_type(u), ")mulhi", sign ? "s" : "u", "_", bits(type), "(", c.read(op, op[1], s), ", ", c.read(op, op[2], s), "))"), u};
    const char* widen = size == 2 ? "(u32)" : "";
    return {cat("((", c_type(u), ")(", widen, c.read(op, op[1], u), " * ", c.read(op, op[2], u), "))"), u};
}

int take_part(Op& op) { return op.take_one({"lo", "hi", "wide"}); }

void mul(Coder& c, Op& op) {
    const int part = take_part(op);
    const Type type = op.take_type();
    c.count("operations", 1);
    if (is_floating(type)) {
        if (part >= 0) op.refuse("a part of a float product");
        return float_operation(c, op, type);
    }
    if (part < 0) op.refuse("which half of the product");
    op.expect(3, 3);
    const auto [p, t] = product(c, op, type, part);
    c.write(op, op[0], t, p);
}

void mad(Coder& c, Op& op) {
    const int part = take_part(op);
    const bool carry_out = op.take("cc"), carry_in = op.opcode() == "madc";
    const Type type = op.take_type();
    c.count("operations", 2);
    if (is_floating(type)) {
        if (part >= 0 || carry_out || carry_in) op.refuse("a part of a float product");
        return float_operation(c, op, type);
    }
    if (part < 0) op.refuse("which half of the product");
    op.expect(4, 4);
    const auto [p, t] = product(c, op, type, part);
    const Type u = unsigned_of(size_of(t));
    if (op.take("sat")) {
        if (type != Type::s32 || part != 1) op.refuse(".sat is for hi.s32 alone");
        return c.write(op, op[0], Type::s32, cat("add_sat((s32)", p, ", ", c.read(op, op[3], Type::s32), ")"));
    }
    if (carry_in || carry_out) {
        integer_only(op, t, 4);
        c.line(cat("{ u32 carry = CC;"));
        c.write(op, op[0], u, cat(carry_in ? "addc_" : "add_cc_", bits(t), "((", c_type(u), ")", p, ", ", c.read(op, op[3], u), ", &carry)"));
        return c.line(carry_out ? "CC = carry; }" : "}");
    }
    c.write(op, op[0], u, cat("(", c_type(u), ")((", c_type(u), ")", p, " + ", c.read(op, op[3], u), ")"));
}

void mul24(Coder& c, Op& op) {
    const bool accumulate = op.opcode() == "mad24";
    const int part = op.take_one({"lo", "hi"});
    const Type type = op.take_type();
    if (part < 0 || (type != Type::u32 && type != Type::s32)) op.refuse("variant");
    op.expect(3u + accumulate, 3u + accumulate);
    auto low = [&](const Operand& o) {
        const std::string x = c.read(op, o, Type::u32);
        return type == Type::s32 ? cat("((s64)(s32)(", x, " << 8) >> 8)") : cat("((u64)(", x, " & 0xffffffu))");
    };
    std::string r = cat("(u32)((", low(op[1]), " * ", low(op[2]), ")", part ? " >> 16" : "", ")");
    if (accumulate) {
        const bool saturate = op.take("sat");
        r = saturate ? cat("(u32)add_sat((s32)", r, ", ", c.read(op, op[3], Type::s32), ")") : cat(r, " + ", c.read(op, op[3], Type::u32));
    }
    c.count("operations", 1);
    c.write(op, op[0], Type::u32, r);
}

void div_rem(Coder& c, Op& op) {
    const Type type = op.take_type();
    c.count("operations", 1);
    if (is_floating(type)) return float_operation(c, op, type);
    integer_only(op, type);
    op.expect(3, 3);
    const Type t = is_signed(type) ? type : unsigned_of(size_of(type));
    c.write(op, op[0], t, cat(op.opcode(), is_signed(type) ? "s_" : "u_", bits(type), "(", c.read(op, op[1], t), ", ", c.read(op, op[2], t), ")"));
}

void min_max(Coder& c, Op& op) {
    const Type type = op.take_type();
    c.count("operations", 1);
    if (is_floating(type)) return float_operation(c, op, type);
    const bool relu = op.take("relu");
    if (!relu && (type == Type::u16x2 || type == Type::s16x2)) return integer_pairs(c, op, type);
    integer_only(op, type);
    op.expect(3, 3);
    const std::string a = c.read(op, op[1], type), b = c.read(op, op[2], type);
    std::string r = cat("(", a, op.opcode() == "min" ? " < " : " > ", b, " ? ", a, " : ", b, ")");
    if (relu) r = cat("(", r, " > 0 ? ", r, " : 0)");
    c.write(op, op[0], type, r);
}

void neg_abs(Coder& c, Op& op) {
    const Type type = op.take_type();
    c.count("operations", 1);
    if (is_floating(type)) return float_sign(c, op, type);
    integer_only(op, type);
    op.expect(2, 2);
    const Type u = unsigned_of(size_of(type));
    const std::string a = c.read(op, op[1], u);
    const std::string negated = cat("(", c_type(u), ")(0 - ", a, ")");
    c.write(op, op[0], u, op.opcode() == "neg" ? negated : cat("(", c.read(op, op[1], signed_of(size_of(type))), " < 0 ? ", negated, " : ", a, ")"));
}

void sad(Coder& c, Op& op) {
    const Type type = op.take_type();
    integer_only(op, type);
    op.expect(4, 4);
    const Type u = unsigned_of(size_of(type)), t = is_signed(type) ? type : u;
    const std::string a = c.read(op, op[1], t), b = c.read(op, op[2], t), ua = c.read(op, op[1], u), ub = c.read(op, op[2], u);
    c.count("operations", 2);
    c.write(op, op[0], u, cat("(", c_type(u), ")(", c.read(op, op[3], u), " + (", a, " < ", b, " ? ", ub, " - ", ua, " : ", ua, " - ", ub, "))"));
}

void dot(Coder& c, Op& op) {  // dp4a, dp2a
    const bool four = op.opcode() == "dp4a";
    const int half = four ? 0 : op.take_one({"lo", "hi"});
    const Type a = op.take_type(), b = op.take_type();
    if (half < 0 || size_of(a) != 4 || size_of(b) != 4) op.refuse("variant");
    op.expect(4, 4);
    c.count("operations", 8);
    c.write(op, op[0], Type::u32, cat(op.opcode(), "(", c.read(op, op[1], Type::u32), ", ", c.read(op, op[2], Type::u32), ", ",
                                      c.read(op, op[3], Type::u32), ", ", is_signed(a) ? 1 : 0, ", ", is_signed(b) ? 1 : 0, four ? ")" : half ? ", 1)" : ", 0)"));
}

}  // namespace

const Family& arithmetic_family() {
    static const Family family{
        {"add", add_sub}, {"sub", add_sub}, {"addc", add_sub_carry}, {"subc", add_sub_carry}, {"mul", mul}, {"mad", mad}, {"madc", mad},
        {"fma", mad}, {"mul24", mul24}, {"mad24", mul24}, {"div", div_rem}, {"rem", div_rem}, {"min", min_max}, {"max", min_max},
        {"neg", neg_abs}, {"abs", neg_abs}, {"sad", sad}, {"dp4a", dot}, {"dp2a", dot},
    };
    return family;
}

}  // namespace softgpu::ptx
