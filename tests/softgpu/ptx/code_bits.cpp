// Logic, shifts, bit fields, comparisons and selections.
#include "tests/softgpu/ptx/families.hpp"

namespace softgpu::ptx {
namespace {

void sized(const Op& op, Type t, unsigned least, unsigned most) {
    if (!is_integer(t) || size_of(t) < least || size_of(t) > most) op.refuse("." + std::string(name_of(t)) + " is not known here");
}

void logic(Coder& c, Op& op) {
    const Type type = op.take_type();
    op.expect(3, 3);
    c.count("operations", 1);
    const char* symbol = op.opcode() == "and" ? " & " : op.opcode() == "or" ? " | " : " ^ ";
    if (type != Type::pred) sized(op, type, 2, 8);
    const Type u = type == Type::pred ? type : unsigned_of(size_of(type));
    c.write(op, op[0], u, cat("(", c.read(op, op[1], u), symbol, c.read(op, op[2], u), ")"));
}

void invert(Coder& c, Op& op) {  // not, cnot
    const Type type = op.take_type();
    op.expect(2, 2);
    c.count("operations", 1);
    if (type == Type::pred && op.opcode() == "not") return c.write(op, op[0], type, "!" + c.read(op, op[1], type));
    sized(op, type, 2, 8);
    const Type u = unsigned_of(size_of(type));
    const std::string a = c.read(op, op[1], u);
    c.write(op, op[0], u, op.opcode() == "not" ? cat("(", c_type(u), ")~", a) : cat("(", c_type(u), ")(", a, " == 0)"));
}

void shift(Coder& c, Op& op) {
    const Type type = op.take_type();
    sized(op, type, 2, 8);
    op.expect(3, 3);
    c.count("operations", 1);
    const bool arithmetic = op.opcode() == "shr" && is_signed(type);
    const Type u = unsigned_of(size_of(type));
    const char* name = op.opcode() == "shl" ? "shl_" : arithmetic ? "shrs_" : "shru_";
    c.write(op, op[0], u, cat(name, bits(type), "(", c.read(op, op[1], arithmetic ? type : u), ", ", c.read(op, op[2], Type::u32), ")"));
}

void funnel(Coder& c, Op& op) {
    const int side = op.take_one({"l", "r"}), clamp = op.take_one({"wrap", "clamp"});
    const Type type = op.take_type();
    sized(op, type, 4, 4);
    if (side < 0 || clamp < 0) op.refuse("variant");
    op.expect(4, 4);
    c.count("operations", 1);
    const std::string n = c.read(op, op[3], Type::u32);
    c.write(op, op[0], Type::u32, cat("shf_", side ? "r" : "l", clamp ? "c(" : "(", c.read(op, op[1], Type::u32), ", ", c.read(op, op[2], Type::u32), ", ",
                                      clamp ? n : cat("(", n, " & 31u)"), ")"));
}

void lop3(Coder& c, Op& op) {
    const int join = op.take_one({"or", "and"});
    const Type type = op.take_type();
    sized(op, type, 4, 4);
    const std::size_t n = join < 0 ? 5 : 6;
    op.expect(n, n);
    if (op[4].kind != Operand::Kind::integer) op.refuse("the table is not a number");
    c.count("operations", 1);
    const std::string r = cat("lop3(", c.read(op, op[1], Type::u32), ", ", c.read(op, op[2], Type::u32), ", ", c.read(op, op[3], Type::u32), ", ",
                              static_cast<unsigned>(op[4].bits & 255), "u)");
    if (join < 0) return c.write(op, op[0], Type::u32, r);
    const std::string t = c.temporary();
    c.line(cat("{ const u32 ", t, " = ", r, ";"));
    if (!op[0].pair) op.refuse("a predicate is missing");
    Operand d = op[0];
    const Operand p = d.items[0];
    d.pair = false;
    d.items.clear();
    const std::string q = c.read(op, op[5], Type::pred);
    c.line(cat("const _Bool q", t, " = ", q, ";"));
    c.write(op, d, Type::u32, t);
    c.write(op, p, Type::pred, cat("((", t, " != 0) ", join ? "&" : "|", " q", t, ")"));
    c.line("}");
}

void count_bits(Coder& c, Op& op) {  // popc, clz, brev, bfind
    const bool amount = op.take("shiftamt");
    const Type type = op.take_type();
    sized(op, type, 4, 8);
    op.expect(2, 2);
    c.count("operations", 1);
    const Type u = unsigned_of(size_of(type));
    std::string a = c.read(op, op[1], u);
    if (op.opcode() == "popc") return c.write(op, op[0], Type::u32, cat("(u32)__builtin_popcountll(", a, ")"));
    if (op.opcode() == "brev") return c.write(op, op[0], u, cat("brev_", bits(type), "(", a, ")"));
    if (op.opcode() == "clz") return c.write(op, op[0], Type::u32, cat("clz_", bits(type), "(", a, ")"));
    if (is_signed(type)) a = cat("(", c_type(u), ")(", c.read(op, op[1], type), " < 0 ? ~", a, " : ", a, ")");
    const std::string r = cat("bfind_", bits(type), "(", a, ")");
    c.write(op, op[0], Type::u32, amount ? cat("(", r, " == ~0u ? ~0u : ", bits(type) - 1, "u - ", r, ")") : r);
}

void extract(Coder& c, Op& op) {
    const Type type = op.take_type();
    sized(op, type, 4, 8);
    op.expect(4, 4);
    c.count("operations", 1);
    const Type u = unsigned_of(size_of(type));
    c.write(op, op[0], u, cat("(", c_type(u), ")bfe", is_signed(type) ? "s" : "u", "(", c.read(op, op[1], u), ", ", c.read(op, op[2], Type::u32), ", ",
                              c.read(op, op[3], Type::u32), ", ", bits(type), ")"));
}

void insert(Coder& c, Op& op) {
    const Type type = op.take_type();
    sized(op, type, 4, 8);
    op.expect(5, 5);
    c.count("operations", 1);
    const Type u = unsigned_of(size_of(type));
    c.write(op, op[0], u, cat("(", c_type(u), ")bfi(", c.read(op, op[1], u), ", ", c.read(op, op[2], u), ", ", c.read(op, op[3], Type::u32), ", ",
                              c.read(op, op[4], Type::u32), ", ", bits(type), ")"));
}

void permute(Coder& c, Op& op) {
    const Type type = op.take_type();
    sized(op, type, 4, 4);
    const int mode = op.take_one({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
    op.expect(4, 4);
    c.count("operations", 1);
    const std::string arguments = cat(c.read(op, op[1], Type::u32), ", ", c.read(op, op[2], Type::u32), ", ", c.read(op, op[3], Type::u32));
    c.write(op, op[0], Type::u32, mode < 0 ? cat("prmt(", arguments, ")") : cat("prmt_mode(", arguments, ", ", mode, ")"));
}

void find_nth(Coder& c, Op& op) {
    op.take_type();
    op.expect(4, 4);
    c.write(op, op[0], Type::u32, cat("fns(", c.read(op, op[1], Type::u32), ", ", c.read(op, op[2], Type::u32), ", ", c.read(op, op[3], Type::s32), ")"));
}

void bit_mask(Coder& c, Op& op) {
    const int wrap = op.take_one({"clamp", "wrap"});
    op.take_type();
    if (wrap < 0) op.refuse("variant");
    op.expect(3, 3);
    std::string at = c.read(op, op[1], Type::u32), n = c.read(op, op[2], Type::u32);
    if (wrap) at = cat("(", at, " & 31u)"), n = cat("(", n, " & 31u)");
    c.write(op, op[0], Type::u32, cat("(", at, " > 31u ? 0u : (u32)(bits_below(", n, ") << ", at, "))"));
}

void sign_extend(Coder& c, Op& op) {  // szext
    const int wrap = op.take_one({"clamp", "wrap"});
    const Type type = op.take_type();
    if (wrap < 0 || size_of(type) != 4) op.refuse("variant");
    op.expect(3, 3);
    const std::string a = c.read(op, op[1], Type::u32), n = c.read(op, op[2], Type::u32);
    const std::string len = wrap ? cat("(", n, " & 31u)") : cat("(", n, " > 32u ? 32u : ", n, ")");
    c.write(op, op[0], Type::u32, cat("(u32)bfe", is_signed(type) ? "s(" : "u(", a, ", 0, ", len, ", 32)"));
}

void select(Coder& c, Op& op) {
    const Type type = op.take_type();
    op.expect(4, 4);
    c.count("operations", 1);
    c.write(op, op[0], type, cat("(", c.read(op, op[3], Type::pred), " ? ", c.read(op, op[1], type), " : ", c.read(op, op[2], type), ")"));
}

void select_by_sign(Coder& c, Op& op) {  // slct
    const bool ftz = op.take("ftz");
    const Type type = op.take_type(), by = op.take_type();
    if (by != Type::s32 && by != Type::f32) op.refuse("variant");
    op.expect(4, 4);
    std::string x = c.read(op, op[3], by);
    if (ftz) x = "ftz(" + x + ")";
    c.write(op, op[0], type, cat("(", x, " >= 0 ? ", c.read(op, op[1], type), " : ", c.read(op, op[2], type), ")"));
}

// setp and set: a comparison, possibly joined with a predicate.
void compare(Coder& c, Op& op) {
    const bool predicate = op.opcode() == "setp";
    const std::string_view relation = take_relation(op);
    const int join = op.take_one({"and", "or", "xor"});
    const bool ftz = op.take("ftz");
    const Type result = predicate ? Type::pred : op.take_type(), type = op.take_type();
    const std::size_t n = join < 0 ? 3 : 4;
    op.expect(n, n);
    c.count("operations", 1);
    const std::string third = join < 0 ? "" : c.read(op, op[3], Type::pred);
    const char* joins[] = {" & ", " | ", " ^ "};
    auto joined = [&](const std::string& test) { return join < 0 ? test : cat("((_Bool)", test, joins[join], "(_Bool)", third, ")"); };
    if (type == Type::f16x2 || type == Type::bf16x2) {  // one result a lane
        const char* widen = type == Type::f16x2 ? "h2f(" : "b2f(";
        const std::string a = c.read(op, op[1], type), b = c.read(op, op[2], type);
        std::string lane[2];
        for (int i = 0; i < 2; ++i) {
            const char* part = i ? " >> 16))" : "))";
            lane[i] = joined(comparison(op, relation, Type::f32, cat(widen, "(u16)(", a, part), cat(widen, "(u16)(", b, part)));
        }
        if (!predicate) {
            const bool bits_wanted = is_integer(result);
            const char* yes = bits_wanted ? "0xffff" : type == Type::f16x2 ? "0x3c00" : "0x3f80";
            return c.write(op, op[0], result, cat("pair(", lane[0], " ? ", yes, " : 0, ", lane[1], " ? ", yes, " : 0)"));
        }
        if (!op[0].pair) op.refuse("two predicates are wanted");
        Operand p = op[0];
        const Operand q = p.items[0];
        p.pair = false;
        p.items.clear();
        const std::string t = c.temporary();
        c.line(cat("{ const _Bool ", t, " = ", lane[1], ";"));
        c.write(op, p, Type::pred, lane[0]);
        c.write(op, q, Type::pred, t);
        return c.line("}");
    }
    auto value = [&](const Operand& o) {
        std::string x = c.read_float(op, o, type);
        return ftz && type == Type::f32 ? "ftz(" + x + ")" : x;
    };
    const Type compared = is_half(type) ? Type::f32 : type;
    const std::string test = comparison(op, relation, compared, value(op[1]), value(op[2]));
    if (!predicate) {
        const std::string r = joined(test);
        if (result == Type::f32) return c.write(op, op[0], result, cat("(", r, " ? 1.0f : 0.0f)"));
        if (result == Type::f16 || result == Type::bf16) return c.write(op, op[0], result, cat("(u16)(", r, result == Type::f16 ? " ? 0x3c00 : 0)" : " ? 0x3f80 : 0)"));
        if (!is_integer(result)) op.refuse("result type");
        const Type u = unsigned_of(size_of(result));
        return c.write(op, op[0], u, cat("(", c_type(u), ")(", r, " ? ~0u : 0u)"));
    }
    if (!op[0].pair) return c.write(op, op[0], Type::pred, joined(test));
    Operand p = op[0];
    const Operand q = p.items[0];
    p.pair = false;
    p.items.clear();
    const std::string t = c.temporary(), u = c.temporary();
    c.line(cat("{ const _Bool ", t, " = ", test, ", ", u, " = ", third.empty() ? "0" : third, ";"));
    const std::string rest = join < 0 ? "" : cat(joins[join], u);
    c.write(op, p, Type::pred, cat("(", t, rest, ")"));
    c.write(op, q, Type::pred, cat("((_Bool)!", t, rest, ")"));
    c.line("}");
}
}  // namespace

std::string_view take_relation(Op& op) {
    for (std::string_view r : {"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"})
        if (op.take(r)) return r;
    op.refuse("no comparison that is known");
}

std::string comparison(const Op& op, std::string_view r, Type type, const std::string& a, const std::string& b) {
    const bool real = is_float(type);
    if (!real && !is_integer(type)) op.refuse("." + std::string(name_of(type)) + " cannot be compared");
    const bool unordered = r.size() == 3 && r.back() == 'u';
    if (!real && (unordered || r == "num" || r == "nan")) op.refuse("an unordered comparison of integers");
    if (real && (r == "lo" || r == "ls" || r == "hi" || r == "hs")) op.refuse("an unsigned comparison of floats");
    if (r == "num") return cat("(", a, " == ", a, " && ", b, " == ", b, ")");
    if (r == "nan") return cat("(", a, " != ", a, " || ", b, " != ", b, ")");
    const std::string_view base = unordered ? r.substr(0, 2) : r;
    // An unordered comparison is the opposite ordered one, negated. ne is the odd one: C's != is true for NaN.
    if (real && base == "ne" && !unordered) return cat("(", a, " < ", b, " || ", a, " > ", b, ")");
    if (unordered && base == "ne") return cat("(", a, " != ", b, ")");
    if (unordered && base == "eq") return cat("(!(", a, " < ", b, ") && !(", a, " > ", b, "))");
    const char* symbol = base == "eq" ? "==" : base == "ne" ? "!=" : base == "lt" || base == "lo" ? "<" : base == "le" || base == "ls" ? "<=" : base == "gt" || base == "hi" ? ">" : ">=";
    if (unordered) symbol = base == "lt" ? ">=" : base == "le" ? ">" : base == "gt" ? "<=" : "<";
    std::string x = a, y = b;
    if (base == "lo" || base == "ls" || base == "hi" || base == "hs") {
        const auto u = c_type(unsigned_of(size_of(type)));
        x = cat("(", u, ")", a), y = cat("(", u, ")", b);
    }
    return cat(unordered ? "(!(" : "(", x, " ", symbol, " ", y, unordered ? "))" : ")");
}

const Family& bits_family() {
    static const Family family{
        {"and", logic}, {"or", logic}, {"xor", logic}, {"not", invert}, {"cnot", invert}, {"shl", shift}, {"shr", shift}, {"shf", funnel},
        {"lop3", lop3}, {"popc", count_bits}, {"clz", count_bits}, {"brev", count_bits}, {"bfind", count_bits}, {"bfe", extract}, {"bfi", insert},
        {"prmt", permute}, {"fns", find_nth}, {"bmsk", bit_mask}, {"szext", sign_extend}, {"selp", select}, {"slct", select_by_sign},
        {"setp", compare}, {"set", compare},
    };
    return family;
}

}  // namespace softgpu::ptx
