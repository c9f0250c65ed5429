// Loads, stores, copies and hints. Accesses with an order (volatile, relaxed, acquire, release) are
// atomic in C; weak ones are plain. Cache hints have no meaning here.
#include "tests/softgpu/ptx/families.hpp"

namespace softgpu::ptx {
namespace {

struct Place {
    Space space = Space::generic;
    bool ordered = false;
};

void take_hints(Op& op) {
    for (const char* hint : {"ca", "cg", "cs", "cv", "lu", "wb", "wt", "nc", "unified", "L2::cache_hint"}) op.take(hint);
    for (int i = 0; i < 3; ++i)
        for (const char* level : {"L1::", "L2::", "L2_promotion"}) op.take_prefix(level);
}

Place take_place(Op& op) {
    Place p;
    if (op.take("weak")) {}
    if (op.take("volatile") || op.take("relaxed") || op.take("acquire") || op.take("release") || op.take("mmio")) p.ordered = true;
    op.take_one({"cta", "cluster", "gpu", "sys"});
    if (op.take("global")) p.space = Space::global;
    else if (op.take("shared") || op.take("shared::cta")) p.space = Space::shared;
    else if (op.take("local")) p.space = Space::local;
    else if (op.take("const")) p.space = Space::constant;
    else if (op.take("param") || op.take("param::entry") || op.take("param::func")) p.space = Space::param;
    take_hints(op);
    return p;
}

void access_types(const Op& op, Type type, unsigned lanes) {
    if (type == Type::pred || type == Type::b128 || size_of(type) * lanes > 32) op.refuse("of this type and length");
}

// The type in memory: halves and bits as unsigned numbers.
Type memory_type(Type t) { return is_half(t) || (is_integer(t) && !is_signed(t)) || t == Type::u16x2 || t == Type::s16x2 ? unsigned_of(size_of(t)) : t; }

// A value seen as bits, for atomic accesses.
std::string atomic_load(Type t, const std::string& p) {
    const Type u = unsigned_of(size_of(t));
    const std::string bits = cat("__atomic_load_n((", c_type(u), "*)", p, ", __ATOMIC_SEQ_CST)");
    return t == Type::f32 ? "u2f(" + bits + ")" : t == Type::f64 ? "u2d(" + bits + ")" : cat("(", c_type(t), ")", bits);
}

// Counts the words of a loaded value that look never written. Values of 1 and 2 bytes are too common to tell.
void count_unwritten(Coder& c, const Place& place, Type type, const std::string& p, unsigned lanes) {
    if (!c.counts() || size_of(type) < 4 || (place.space != Space::global && place.space != Space::generic)) return;
    c.line(cat("B->unwritten += unwritten_words((const u8*)(", p, "), ", size_of(type) * lanes, ");"));
}

void load(Coder& c, Op& op) {
    const Place place = take_place(op);
    const unsigned lanes = op.take_vector();
    const Type declared = op.take_type(), type = memory_type(declared);
    access_types(op, declared, lanes);
    op.expect(2, 3);  // a third is a cache policy
    if (place.space == Space::global || place.space == Space::generic) c.count("bytes_read", size_of(type) * lanes);
    const std::string p = c.pointer(op, op[1], place.space, c_type(type));
    count_unwritten(c, place, type, p, lanes);
    if (lanes == 1) {
        const Operand& d = op[0].kind == Operand::Kind::vector && op[0].items.size() == 1 ? op[0].items[0] : op[0];
        if (place.ordered) return c.write(op, d, type, atomic_load(type, "(" + p + ")"));
        return c.write(op, d, type, "*" + p);
    }
    if (op[0].kind != Operand::Kind::vector || op[0].items.size() != lanes) op.refuse("the vector's length");
    const std::string t = c.temporary();
    c.line(cat("{ ", c_type(type), "* const ", t, " = ", p, ";"));
    for (unsigned i = 0; i < lanes; ++i)
        c.line(cat("const ", c_type(type), " ", t, "_", i, " = ", place.ordered ? atomic_load(type, cat("(", t, " + ", i, ")")) : cat(t, "[", i, "]"), ";"));
    for (unsigned i = 0; i < lanes; ++i)
        if (op[0].items[i].kind != Operand::Kind::sink) c.write(op, op[0].items[i], type, cat(t, "_", i));
    c.line("}");
}

void store_one(Coder& c, const Place& place, Type type, const std::string& p, const std::string& value) {
    if (!place.ordered) return c.line(cat("*", p, " = ", value, ";"));
    const Type u = unsigned_of(size_of(type));
    const std::string bits = type == Type::f32 ? cat("f2u(", value, ")") : type == Type::f64 ? cat("d2u(", value, ")") : cat("(", c_type(u), ")", value);
    c.line(cat("__atomic_store_n((", c_type(u), "*)(", p, "), ", bits, ", __ATOMIC_SEQ_CST);"));
}

void store(Coder& c, Op& op) {
    const Place place = take_place(op);
    const unsigned lanes = op.take_vector();
    const Type declared = op.take_type(), type = memory_type(declared);
    access_types(op, declared, lanes);
    op.expect(2, 3);
    if (place.space == Space::constant) op.refuse("constant memory is read-only");
    if (place.space == Space::global || place.space == Space::generic) c.count("bytes_written", size_of(type) * lanes);
    const std::string p = c.pointer(op, op[0], place.space, c_type(type));
    if (lanes == 1) {
        const Operand& s = op[1].kind == Operand::Kind::vector && op[1].items.size() == 1 ? op[1].items[0] : op[1];
        return store_one(c, place, type, p, c.read(op, s, type));
    }
    if (op[1].kind != Operand::Kind::vector || op[1].items.size() != lanes) op.refuse("the vector's length");
    const std::string t = c.temporary();
    c.line(cat("{ ", c_type(type), "* const ", t, " = ", p, ";"));
    for (unsigned i = 0; i < lanes; ++i) store_one(c, place, type, cat("(", t, " + ", i, ")"), c.read(op, op[1].items[i], type));
    c.line("}");
}

void prefetch(Coder&, Op& op) {  // prefetch, prefetchu, discard, applypriority: hints
    take_place(op);
    op.take_one({"L1", "L2"});
    op.take_prefix("L2::");
    op.take("tensormap");
    op.expect(1, 2);
}

// cp.async copies at once; its groups are then always complete.
void copy_async(Coder& c, Op& op) {
    if (!op.take("async") || op.take("bulk") || op.take("mbarrier")) op.refuse("only cp.async of 4, 8 and 16 bytes is known");
    if (op.take("commit_group") || op.take("wait_all")) return op.expect(0, 0);
    if (op.take("wait_group")) return op.expect(1, 1);
    take_hints(op);
    if (!(op.take("shared") || op.take("shared::cta")) || !op.take("global")) op.refuse("only global to shared");
    op.expect(3, 5);
    const std::uint64_t size = op[2].bits;
    if (op[2].kind != Operand::Kind::integer || (size != 4 && size != 8 && size != 16)) op.refuse("size");
    const std::string to = c.pointer(op, op[0], Space::shared, "u8"), from = c.pointer(op, op[1], Space::global, "u8");
    c.count("bytes_read", size);
    if (op.count() == 3) return c.line(cat("__builtin_memcpy(", to, ", ", from, ", ", size, ");"));
    // A fourth operand: so many bytes are read, the rest is zero; or a predicate: nothing is read.
    const Operand& last = op[3];
    const bool ignore = last.kind == Operand::Kind::reg && c.register_type(last.index) == Type::pred;
    const std::string n = ignore ? cat("(", c.read(op, last, Type::pred), " ? 0u : ", size, "u)") : c.read(op, last, Type::u32);
    const std::string t = c.temporary();
    c.line(cat("{ u32 ", t, " = ", n, "; if (", t, " > ", size, "u) ", t, " = ", size, "u; __builtin_memset(", to, ", 0, ", size, "); if (", t,
               ") __builtin_memcpy(", to, ", ", from, ", ", t, "); }"));
}

}  // namespace

const Family& memory_family() {
    static const Family family{{"ld", load}, {"ldu", load}, {"st", store}, {"prefetch", prefetch}, {"prefetchu", prefetch}, {"discard", prefetch},
                               {"applypriority", prefetch}, {"cp", copy_async}};
    return family;
}

}  // namespace softgpu::ptx
