// Barriers and warp operations: the thread states its request and stops; the scheduler (schedule.cpp)
// answers once all threads that belong to it have stated theirs.
#include "tests/softgpu/ptx/families.hpp"

namespace softgpu::ptx {
namespace {

std::string full_mask(Coder& c, const Op& op, std::size_t i) { return c.read(op, op[i], Type::u32); }

// d|p: the two destinations apart.
std::pair<Operand, Operand> destinations(const Op& op) {
    Operand d = op[0], p;
    if (d.pair) {
        p = d.items[0];
        d.pair = false;
        d.items.clear();
    }
    return {d, p};
}

void barrier(Coder& c, Op& op) {
    op.take("cta");
    if (op.take("cluster")) op.refuse("clusters");
    if (op.take("warp")) {
        if (!op.take("sync")) op.refuse("variant");
        op.expect(1, 1);
        return c.stop(op, cat("T->mask = ", full_mask(c, op, 0), "; T->op = WARP_SYNC; T->kind = STOP_WARP;"));
    }
    const int kind = op.take_one({"sync", "arrive", "red"});
    if (kind < 0) op.refuse("variant");
    op.take("aligned");
    if (kind < 2) {
        op.expect(kind ? 2 : 1, 2);
        const std::string threads = op.count() > 1 ? c.read(op, op[1], Type::u32) : "0";
        return c.stop(op, cat("T->a = ", c.read(op, op[0], Type::u32), "; T->b = ", threads, "; T->op = ", kind ? "BAR_ARRIVE" : "BAR_SYNC", "; T->kind = STOP_BARRIER;"));
    }
    const int reduction = op.take_one({"popc", "and", "or"});
    const Type type = op.take_type();
    if (reduction < 0 || (reduction == 0) == (type == Type::pred)) op.refuse("variant");
    op.expect(3, 4);
    const std::string threads = op.count() > 3 ? c.read(op, op[2], Type::u32) : "0";
    const char* names[] = {"BAR_POPC", "BAR_AND", "BAR_OR"};
    c.stop(op, cat("T->a = ", c.read(op, op[1], Type::u32), "; T->b = ", threads, "; T->c = ", c.read(op, op[op.count() - 1], Type::pred), "; T->op = ",
                   names[reduction], "; T->kind = STOP_BARRIER;"));
    c.write(op, op[0], type, reduction ? "T->result != 0" : "T->result");
}

void shuffle(Coder& c, Op& op) {
    const bool sync = op.take("sync");
    const int kind = op.take_one({"up", "down", "bfly", "idx"});
    const Type type = op.take_type();
    if (kind < 0 || size_of(type) != 4) op.refuse("variant");
    op.expect(sync ? 5 : 4, sync ? 5 : 4);
    const char* names[] = {"SHFL_UP", "SHFL_DOWN", "SHFL_BFLY", "SHFL_IDX"};
    c.count("operations", 1);
    c.stop(op, cat("T->wide = ", c.read(op, op[1], Type::u32), "; T->b = ", c.read(op, op[2], Type::u32), "; T->c = ", c.read(op, op[3], Type::u32),
                   "; T->mask = ", sync ? full_mask(c, op, 4) : "0", "; T->op = ", names[kind], "; T->kind = STOP_WARP;"));
    const auto [d, p] = destinations(op);
    c.write(op, d, Type::u32, "T->result");
    if (p.kind != Operand::Kind::sink) c.write(op, p, Type::pred, "T->flag != 0");
}

void vote(Coder& c, Op& op) {
    const bool sync = op.take("sync");
    const int kind = op.take_one({"all", "any", "uni", "ballot"});
    const Type type = op.take_type();
    if (kind < 0 || (kind == 3 ? size_of(type) != 4 : type != Type::pred)) op.refuse("variant");
    op.expect(sync ? 3 : 2, sync ? 3 : 2);
    const char* names[] = {"VOTE_ALL", "VOTE_ANY", "VOTE_UNI", "VOTE_BALLOT"};
    c.count("operations", 1);
    c.stop(op, cat("T->a = ", c.read(op, op[1], Type::pred), "; T->mask = ", sync ? full_mask(c, op, 2) : "0", "; T->op = ", names[kind], "; T->kind = STOP_WARP;"));
    c.write(op, op[0], kind == 3 ? Type::u32 : Type::pred, kind == 3 ? "T->result" : "T->result != 0");
}

void match(Coder& c, Op& op) {
    const int kind = op.take_one({"any", "all"});
    if (kind < 0 || !op.take("sync")) op.refuse("variant");
    const Type type = op.take_type();
    if (size_of(type) != 4 && size_of(type) != 8) op.refuse("variant");
    op.expect(3, 3);
    c.stop(op, cat("T->wide = ", c.read(op, op[1], unsigned_of(size_of(type))), "; T->mask = ", full_mask(c, op, 2), "; T->op = ", kind ? "MATCH_ALL" : "MATCH_ANY",
                   "; T->kind = STOP_WARP;"));
    const auto [d, p] = destinations(op);
    c.write(op, d, Type::u32, "T->result");
    if (p.kind != Operand::Kind::sink) c.write(op, p, Type::pred, "T->flag != 0");
}

void reduce(Coder& c, Op& op) {  // redux
    if (!op.take("sync")) op.refuse("variant");
    const int kind = op.take_one({"add", "min", "max", "and", "or", "xor"});
    const Type type = op.take_type();
    if (kind < 0 || !is_integer(type) || size_of(type) != 4) op.refuse("variant");
    op.expect(3, 3);
    const char* names[] = {"REDUX_ADD", is_signed(type) ? "REDUX_SMIN" : "REDUX_MIN", is_signed(type) ? "REDUX_SMAX" : "REDUX_MAX", "REDUX_AND", "REDUX_OR", "REDUX_XOR"};
    c.stop(op, cat("T->a = ", c.read(op, op[1], Type::u32), "; T->mask = ", full_mask(c, op, 2), "; T->op = ", names[kind], "; T->kind = STOP_WARP;"));
    c.write(op, op[0], Type::u32, "T->result");
}

void active_mask(Coder& c, Op& op) {
    op.take_type();
    op.expect(1, 1);
    c.stop(op, "T->mask = 0; T->op = WARP_ACTIVE; T->kind = STOP_WARP;");
    c.write(op, op[0], Type::u32, "T->result");
}

void elect(Coder& c, Op& op) {
    if (!op.take("sync")) op.refuse("variant");
    op.expect(2, 2);
    c.stop(op, cat("T->mask = ", full_mask(c, op, 1), "; T->op = WARP_ELECT; T->kind = STOP_WARP;"));
    const auto [d, p] = destinations(op);
    c.write(op, d, Type::u32, "T->result");
    if (p.kind != Operand::Kind::sink) c.write(op, p, Type::pred, "T->flag != 0");
}

}  // namespace

const Family& warp_family() {
    static const Family family{{"bar", barrier}, {"barrier", barrier}, {"shfl", shuffle}, {"vote", vote}, {"match", match},
                               {"redux", reduce}, {"activemask", active_mask}, {"elect", elect}};
    return family;
}

}  // namespace softgpu::ptx
