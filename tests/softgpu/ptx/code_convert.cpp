// mov, cvt, cvta, isspacep: values between types, addresses between spaces.
//
// A generic address is the host's own address less the view offset, for shared and local memory too, so
// a generic access needs no test of the space: device memory cannot be at those addresses.
#include "tests/softgpu/ptx/families.hpp"

namespace softgpu::ptx {
namespace {

void mov(Coder& c, Op& op) {
    const Type type = op.take_type();
    op.expect(2, 2);
    c.write(op, op[0], type, c.read(op, op[1], type));
}

// The most and least of an integer type, as C.
std::string limit(Type t, bool most) {
    const unsigned bits = 8 * size_of(t);
    if (!is_signed(t)) return most ? cat("(u64)", bits == 64 ? ~0ULL : (1ULL << bits) - 1, "ull") : "0";
    const std::uint64_t top = 1ULL << (bits - 1);
    return most ? cat("(s64)", top - 1, "ll") : cat("(-(s64)", top - 1, "ll - 1)");
}

std::string int_to_int(Coder& c, Op& op, Type to, Type from, bool sat) {
    const std::string a = c.read(op, op[1], from);
    if (!sat) return cat("(", c_type(to), ")", a);
    return cat("(", c_type(to), ")((s128)", a, " < (s128)", limit(to, false), " ? ", limit(to, false), " : (s128)", a, " > (s128)", limit(to, true), " ? ", limit(to, true), " : ", a, ")");
}

std::string rounded(const std::string& x, int mode, bool single) {
    const char* names[] = {"__builtin_rint", "__builtin_trunc", "__builtin_floor", "__builtin_ceil"};
    return cat(names[mode], single ? "f(" : "(", x, ")");
}

void cvt_pair(Coder& c, Op& op, Type to, bool relu, int mode) {  // two floats into halves, the first high
    op.expect(3, 3);
    if (op.take_type() != Type::f32 || mode < 0 || mode > 1) op.refuse("variant");
    const char* p = to == Type::f16x2 ? "h" : "b";
    auto half = [&](const Operand& o) {
        const std::string x = cat("f2", p, "_r(", c.read(op, o, Type::f32), ", ", modes[mode], ")");
        return relu ? cat(p, "_relu(", x, ")") : x;
    };
    c.write(op, op[0], Type::u32, cat("pair(", half(op[2]), ", ", half(op[1]), ")"));
}

std::string to_float(Coder& c, Op& op, Type to, Type from, int mode, int integral, bool ftz) {
    const std::string m(modes[mode < 0 ? 0 : mode]);
    if (is_integer(from)) {
        const std::string a = c.read(op, op[1], from);
        if (integral >= 0) op.refuse("rounding");
        if (to == Type::f32) return mode <= 0 ? cat("(float)", a) : cat("i2f(", a, ", ", m, ")");
        if (to == Type::f64) return mode <= 0 ? cat("(double)", a) : cat("i2d(", a, ", ", m, ")");
        if (to == Type::f16) return cat("f2h_r((double)", a, ", ", m, ")");
        return cat("f2b_r(odd_float((double)", a, "), ", m, ")");
    }
    std::string a = c.read_float(op, op[1], from);
    if (from == Type::f32 && ftz) a = "ftz(" + a + ")";
    const bool wide = from == Type::f64;
    if (integral >= 0) a = rounded(a, integral, !wide);
    if (to == Type::f64) return cat("(double)", a);
    if (to == Type::f32) {
        const std::string r = !wide ? a : mode <= 0 ? cat("(float)", a) : cat("directed(", a, ", 0, ", m, ")");
        return ftz ? "ftz(" + r + ")" : r;
    }
    if (to == from) return cat(to == Type::f16 ? "f2h(" : "f2b(", a, ")");
    if (to == Type::f16) return mode <= 0 && !wide ? cat("f2h(", a, ")") : cat("f2h_r(", a, ", ", m, ")");
    return cat("f2b_r(", wide ? "odd_float(" : "(", a, "), ", m, ")");
}

void cvt(Coder& c, Op& op) {
    const int mode = op.take_one({"rn", "rz", "rm", "rp"}), integral = op.take_one({"rni", "rzi", "rmi", "rpi"});
    const bool ftz = op.take("ftz"), sat = op.take("sat"), relu = op.take("relu");
    const Type to = op.take_type();
    c.count("operations", 1);
    if (to == Type::f16x2 || to == Type::bf16x2) {
        if (ftz || sat || integral >= 0) op.refuse("variant");
        return cvt_pair(c, op, to, relu, mode);
    }
    const Type from = op.take_type();
    op.expect(2, 2);
    auto known = [](Type t) { return is_integer(t) || is_float(t) || t == Type::f16 || t == Type::bf16; };
    if (!known(to) || !known(from)) op.refuse("these types");
    if (is_integer(to) && is_integer(from)) {
        if (mode >= 0 || integral >= 0 || relu) op.refuse("rounding of integers");
        return c.write(op, op[0], to, int_to_int(c, op, to, from, sat));
    }
    if (is_integer(to)) {
        if (integral < 0 || relu) op.refuse("a rounding to integers is wanted");
        std::string a = c.read_float(op, op[1], from);
        if (ftz && from == Type::f32) a = "ftz(" + a + ")";
        const bool wide = from == Type::f64;
        const Type t = is_signed(to) ? to : unsigned_of(size_of(to));
        return c.write(op, op[0], t, cat(wide ? "d2i_" : "f2i_", name_of(t), "(", rounded(a, integral, !wide), ")"));
    }
    std::string r = to_float(c, op, to, from, mode, integral, ftz);
    if (sat) r = cat(to == Type::f32 ? "sat_f(" : to == Type::f64 ? "sat_d(" : to == Type::f16 ? "h_sat(" : "b_sat(", r, ")");
    if (relu) {
        if (to != Type::f16 && to != Type::bf16) op.refuse(".relu");
        r = cat(to == Type::f16 ? "h_relu(" : "b_relu(", r, ")");
    }
    c.write(op, op[0], to, r);
}

Space take_space(Op& op) {
    if (op.take("global")) return Space::global;
    if (op.take("shared") || op.take("shared::cta") || op.take("shared::cluster")) return Space::shared;
    if (op.take("local")) return Space::local;
    if (op.take("const")) return Space::constant;
    if (op.take("param") || op.take("param::entry")) return Space::param;
    op.refuse("no space that is known");
}

void cvta(Coder& c, Op& op) {
    const bool to = op.take("to");
    const Space space = take_space(op);
    const Type type = op.take_type();
    op.expect(2, 2);
    if (size_of(type) != 8) op.refuse("addresses have 64 bits");
    const std::string a = c.read(op, op[1], Type::u64);
    if (space != Space::shared) return c.write(op, op[0], Type::u64, a);
    c.write(op, op[0], Type::u64, to ? cat("(", a, " + VO - (u64)SH)") : cat("((u64)SH - VO + (u32)", a, ")"));
}

void isspacep(Coder& c, Op& op) {
    const Space space = take_space(op);
    op.expect(2, 2);
    const std::string a = c.read(op, op[1], Type::u64);
    const std::string shared = cat("(", a, " + VO - (u64)SH < (1ull << 32))");
    // Local memory lies on the thread's stack or in its frame: what is neither shared nor given by the driver.
    if (space == Space::shared) return c.write(op, op[0], Type::pred, shared);
    const std::string local = cat("(", a, " + VO - (u64)T + (1ull << 20) < (1ull << 21))");
    if (space == Space::local) return c.write(op, op[0], Type::pred, cat("(", local, " && !", shared, ")"));
    if (space == Space::global) return c.write(op, op[0], Type::pred, cat("(!", shared, " && !", local, ")"));
    c.write(op, op[0], Type::pred, "0");
}

}  // namespace

const Family& convert_family() {
    static const Family family{{"mov", mov}, {"cvt", cvt}, {"cvta", cvta}, {"isspacep", isspacep}};
    return family;
}

}  // namespace softgpu::ptx
