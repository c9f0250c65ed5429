// atom and red: always atomic on the host too, for other streams and blocks may run beside this one.
// Also fences.
#include "tests/softgpu/ptx/families.hpp"

namespace softgpu::ptx {
namespace {

std::string_view take_operation(Op& op) {
    for (std::string_view name : {"add", "exch", "cas", "inc", "dec", "min", "max", "and", "or", "xor"})
        if (op.take(name)) return name;
    op.refuse("no operation that is known");
}

// The expression of the old value.
std::string update(Coder& c, Op& op, std::string_view operation, Type type, const std::string& p, const Operand& operand) {
    const unsigned size = size_of(type);
    const Type u = unsigned_of(size);
    auto with = [&](std::string_view builtin) {
        return cat("__atomic_", builtin, "((", c_type(u), "*)", p, ", ", c.read(op, operand, u), ", __ATOMIC_SEQ_CST)");
    };
    if (operation == "exch") {
        if (type == Type::pred || size < 4) op.refuse("this type");
        return with("exchange_n");
    }
    if (operation == "add" && (is_float(type) || is_half(type)))
        return cat("atom_add_", name_of(type), "((", c_type(type), "*)", p, ", ", c.read(op, operand, type), ")");
    if (!is_integer(type) || size < 4) op.refuse("this type");
    if (operation == "add") return with("fetch_add");
    if (operation == "and") return with("fetch_and");
    if (operation == "or") return with("fetch_or");
    if (operation == "xor") return with("fetch_xor");
    const Type t = is_signed(type) ? type : u;
    if ((operation == "inc" || operation == "dec") && t != Type::u32) op.refuse("this type");
    return cat("atom_", operation, "_", name_of(t), "((", c_type(t), "*)", p, ", ", c.read(op, operand, t), ")");
}

void atomic(Coder& c, Op& op) {
    const bool reduction = op.opcode() == "red";
    if (op.take("async")) op.refuse("asynchronous reductions");
    op.take_one({"relaxed", "acquire", "release", "acq_rel", "sc"});
    op.take_one({"cta", "cluster", "gpu", "sys"});
    Space space = Space::generic;
    if (op.take("global")) space = Space::global;
    else if (op.take("shared") || op.take("shared::cta")) space = Space::shared;
    const std::string_view operation = take_operation(op);
    op.take("noftz");
    op.take_prefix("L2::");
    const unsigned lanes = op.take_vector();
    const Type type = op.take_type();
    if (type == Type::pred || type == Type::b128) op.refuse("this type");
    const std::size_t first = reduction ? 0 : 1, sources = operation == "cas" ? 2 : 1;
    op.expect(first + 1 + sources, first + 2 + sources);
    c.count("operations", lanes);
    if (space != Space::shared) c.count("bytes_read", size_of(type) * lanes), c.count("bytes_written", size_of(type) * lanes);
    const std::string p = "(" + c.pointer(op, op[first], space, "u8") + ")";
    const bool real = is_float(type) && operation == "add";
    const Type result = real ? type : is_signed(type) ? type : unsigned_of(size_of(type));
    if (operation == "cas") {
        if (reduction || lanes != 1 || size_of(type) < 2 || is_float(type)) op.refuse("variant");
        const Type u = unsigned_of(size_of(type));
        return c.write(op, op[0], u, cat("atom_cas_b", 8 * size_of(type), "((", c_type(u), "*)", p, ", ", c.read(op, op[2], u), ", ", c.read(op, op[3], u), ")"));
    }
    if (lanes == 1) {
        const std::string old = update(c, op, operation, type, p, op[first + 1]);
        if (reduction) return c.line(cat("(void)", old, ";"));
        return c.write(op, op[0], result, old);
    }
    const Operand& values = op[first + 1];
    if (values.kind != Operand::Kind::vector || values.items.size() != lanes || (!reduction && (op[0].kind != Operand::Kind::vector || op[0].items.size() != lanes)))
        op.refuse("the vector's length");
    const std::string t = c.temporary();
    c.line(cat("{ u8* const ", t, " = ", p, ";"));
    for (unsigned i = 0; i < lanes; ++i)
        c.line(cat("const ", c_type(result), " ", t, "_", i, " = ", update(c, op, operation, type, cat("(", t, " + ", i * size_of(type), ")"), values.items[i]), ";"));
    if (!reduction)
        for (unsigned i = 0; i < lanes; ++i) c.write(op, op[0].items[i], result, cat(t, "_", i));
    c.line("}");
}

void fence(Coder& c, Op& op) {
    op.take_one({"cta", "gl", "sys", "gpu", "cluster"});
    op.take_one({"sc", "acq_rel", "acquire", "release"});
    op.take_one({"cta", "gl", "sys", "gpu", "cluster"});
    op.expect(0, 0);
    c.line("__atomic_thread_fence(__ATOMIC_SEQ_CST);");
}

}  // namespace

const Family& atomic_family() {
    static const Family family{{"atom", atomic}, {"red", atomic}, {"membar", fence}, {"fence", fence}};
    return family;
}

}  // namespace softgpu::ptx
