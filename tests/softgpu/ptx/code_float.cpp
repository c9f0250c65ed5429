// Floating point. f32 and f64 round as the instruction says (directed modes through helpers); approximate
// instructions use the host's library, so they are deterministic and at least as exact as a card's.
#include "tests/softgpu/ptx/families.hpp"

namespace softgpu::ptx {
namespace {

// The operands of a half operation, each turned into the result's bits by `f` (also lane by lane).
void half_result(Coder& c, Op& op, Type type, std::size_t sources, const std::function<std::string(const std::vector<std::string>&)>& f) {
    std::vector<std::string> in;
    for (std::size_t i = 1; i <= sources; ++i) in.push_back(c.read(op, op[i], type));
    c.write(op, op[0], type, size_of(type) == 4 ? on_halves(in, f) : f(in));
}

void half_operation(Coder& c, Op& op, Type type) {
    const char* p = type == Type::f16 || type == Type::f16x2 ? "h_" : "b_";
    const bool ftz = op.take("ftz"), sat = op.take("sat"), relu = op.take("relu"), nan = op.take("NaN");
    const int mode = op.take_rounding();
    if (mode > 0) op.refuse("directed rounding of halves");
    std::string name(op.opcode());
    if (name == "mad") name = "fma";
    if (name == "div") op.refuse("division of halves");
    if (nan && name != "min" && name != "max") op.refuse(".NaN");
    const std::size_t sources = name == "fma" ? 3 : 2;
    op.expect(sources + 1, sources + 1);
    half_result(c, op, type, sources, [&](const std::vector<std::string>& x) {
        std::string r = cat(p, name, nan ? "_nan(" : "(");
        for (std::size_t i = 0; i < x.size(); ++i) r += cat(i ? ", " : "", ftz ? cat(p, "ftz(", x[i], ")") : x[i]);
        r += ")";
        if (ftz) r = cat(p, "ftz(", r, ")");
        if (sat) r = cat(p, "sat(", r, ")");
        if (relu) r = cat(p, "relu(", r, ")");
        return r;
    });
}
}  // namespace

void float_operation(Coder& c, Op& op, Type type) {
    if (is_half(type)) return half_operation(c, op, type);
    const bool single = type == Type::f32;
    const char* suffix = single ? "_f" : "_d";
    const bool ftz = op.take("ftz"), sat = op.take("sat"), approximate = op.take("approx") || op.take("full");
    const int mode = op.take_rounding();
    if (ftz && !single) op.refuse(".ftz is for f32");
    const std::string_view name = op.opcode();
    const bool three = name == "fma" || name == "mad";
    std::vector<std::string> x;
    const bool bounds = name == "min" || name == "max";
    op.expect(three ? 4 : 3, three || bounds ? 4 : 3);
    for (std::size_t i = 1; i < op.count(); ++i) {
        x.push_back(c.read(op, op[i], type));
        if (ftz) x.back() = "ftz(" + x.back() + ")";
    }
    std::string r;
    if (bounds) {
        if (mode >= 0 || sat) op.refuse("rounding of a minimum");
        const bool nan = op.take("NaN"), xorsign = op.take("xorsign");
        const bool abs = op.take("abs");
        if (xorsign != abs || (xorsign && (!single || x.size() != 2))) op.refuse("variant");
        const std::string function = cat(name, nan ? "_nan" : "", suffix);
        if (xorsign)
            r = cat("u2f(f2u(", function, "(__builtin_fabsf(", x[0], "), __builtin_fabsf(", x[1], "))) | ((f2u(", x[0], ") ^ f2u(", x[1], ")) & 0x80000000u))");
        else {
            r = cat(function, "(", x[0], ", ", x[1], ")");
            if (x.size() == 3) r = cat(function, "(", r, ", ", x[2], ")");
        }
    } else if (name == "rem") {
        op.refuse("a remainder of floats");
    } else if (mode > 0) {
        if (approximate) op.refuse("variant");
        const std::string_view m = modes[mode];
        if (name == "sub") r = cat("add", suffix, "(", x[0], ", -(", x[1], ")");
        else r = cat(three ? "fma" : name, suffix, "(", x[0], ", ", x[1]);
        if (three) r += ", " + x[2];
        else if (!single) r += ", 0";
        r += cat(", ", m, ")");
    } else if (three) {
        r = cat(single ? "__builtin_fmaf(" : "__builtin_fma(", x[0], ", ", x[1], ", ", x[2], ")");
    } else {
        const char* symbol = name == "add" ? " + " : name == "sub" ? " - " : name == "mul" ? " * " : " / ";
        r = cat("(", x[0], symbol, x[1], ")");
    }
    if (ftz) r = "ftz(" + r + ")";
    if (sat) r = cat("sat", suffix, "(", r, ")");
    c.write(op, op[0], type, r);
}

void float_sign(Coder& c, Op& op, Type type) {
    const bool ftz = op.take("ftz"), negate = op.opcode() == "neg";
    op.expect(2, 2);
    if (is_half(type)) {
        const char* p = type == Type::f16 || type == Type::f16x2 ? "h_" : "b_";
        return half_result(c, op, type, 1, [&](const auto& x) { return cat(p, op.opcode(), "(", ftz ? cat(p, "ftz(", x[0], ")") : x[0], ")"); });
    }
    if (ftz && type != Type::f32) op.refuse(".ftz is for f32");
    std::string a = c.read(op, op[1], type);
    if (ftz) a = "ftz(" + a + ")";
    c.write(op, op[0], type, negate ? cat("-(", a, ")") : cat(type == Type::f32 ? "__builtin_fabsf(" : "__builtin_fabs(", a, ")"));
}

namespace {

// rcp, sqrt, rsqrt, sin, cos, lg2, ex2, tanh: one operand.
void function_of_one(Coder& c, Op& op) {
    const bool approximate = op.take("approx"), ftz = op.take("ftz");
    const int mode = op.take_rounding();
    const Type type = op.take_type();
    const std::string_view name = op.opcode();
    op.expect(2, 2);
    c.count("operations", 4);
    if (is_half(type)) {
        if ((name != "ex2" && name != "tanh") || mode >= 0) op.refuse("of halves");
        const char* p = type == Type::f16 || type == Type::f16x2 ? "h_" : "b_";
        return half_result(c, op, type, 1, [&](const auto& x) { return cat(p, name, "(", x[0], ")"); });
    }
    std::string x = c.read(op, op[1], type), r;
    if (type == Type::f64) {
        // The .ftz forms are a start for Newton's steps: the low half of the result is zero.
        if (name == "rcp" && approximate && ftz) r = cat("high_word(ftz_d(1.0 / ftz_d(", x, ")))");
        else if (name == "rsqrt" && approximate) r = ftz ? cat("high_word(1.0 / __builtin_sqrt(ftz_d(", x, ")))") : cat("(1.0 / __builtin_sqrt(", x, "))");
        else if (approximate || ftz || mode < 0 || (name != "rcp" && name != "sqrt")) op.refuse("of f64");
        else if (name == "rcp") r = mode ? cat("div_d(1.0, ", x, ", 0, ", modes[mode], ")") : cat("(1.0 / ", x, ")");
        else r = mode ? cat("sqrt_d(", x, ", 0, 0, ", modes[mode], ")") : cat("__builtin_sqrt(", x, ")");
        return c.write(op, op[0], type, r);
    }
    if (type != Type::f32) op.refuse("of this type");
    if (mode >= 0 && (approximate || (name != "rcp" && name != "sqrt"))) op.refuse("rounding");
    if (ftz) x = "ftz(" + x + ")";
    if (mode > 0) r = name == "rcp" ? cat("div_f(1.0f, ", x, ", ", modes[mode], ")") : cat("sqrt_f(", x, ", ", modes[mode], ")");
    else if (name == "rcp") r = cat("(1.0f / ", x, ")");
    else if (name == "sqrt") r = cat("__builtin_sqrtf(", x, ")");
    else if (name == "rsqrt") r = cat("rsqrt_f(", x, ")");
    else if (name == "lg2") r = cat("log2f(", x, ")");
    else if (name == "ex2") r = cat("exp2f(", x, ")");
    else r = cat(name, "f(", x, ")");
    if (ftz) r = "ftz(" + r + ")";
    c.write(op, op[0], type, r);
}

void copysign(Coder& c, Op& op) {
    const Type type = op.take_type();
    if (!is_float(type)) op.refuse("of this type");
    op.expect(3, 3);
    c.write(op, op[0], type, cat(type == Type::f32 ? "__builtin_copysignf(" : "__builtin_copysign(", c.read(op, op[2], type), ", ", c.read(op, op[1], type), ")"));
}

void testp(Coder& c, Op& op) {
    const int kind = op.take_one({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
    const Type type = op.take_type();
    if (!is_float(type) || kind < 0) op.refuse("variant");
    op.expect(2, 2);
    const char* test[] = {"__builtin_isfinite", "__builtin_isinf", "!__builtin_isnan", "__builtin_isnan", "__builtin_isnormal", "SUBNORMAL"};
    const std::string x = c.read(op, op[1], type);
    if (kind == 5) return c.write(op, op[0], Type::pred, cat("(__builtin_isfinite(", x, ") && !__builtin_isnormal(", x, ") && ", x, " != 0)"));
    c.write(op, op[0], Type::pred, cat("(", test[kind], "(", x, ") != 0)"));
}

}  // namespace

const Family& float_family() {
    static const Family family{
        {"rcp", function_of_one}, {"sqrt", function_of_one}, {"rsqrt", function_of_one}, {"sin", function_of_one}, {"cos", function_of_one},
        {"lg2", function_of_one}, {"ex2", function_of_one}, {"tanh", function_of_one}, {"copysign", copysign}, {"testp", testp},
    };
    return family;
}

}  // namespace softgpu::ptx
