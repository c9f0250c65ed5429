// Tables behind types.hpp.
#include "tests/softgpu/ptx/types.hpp"

#include <array>

namespace softgpu::ptx {
namespace {
struct Row {
    Type type;
    std::string_view name, c, storage;
    unsigned size;
};
constexpr std::array<Row, 23> rows{{
    {Type::none, "", "void", "void", 0},
    {Type::u8, "u8", "u8", "u16", 1},        {Type::u16, "u16", "u16", "u16", 2},
    {Type::u32, "u32", "u32", "u32", 4},     {Type::u64, "u64", "u64", "u64", 8},
    {Type::s8, "s8", "s8", "u16", 1},        {Type::s16, "s16", "s16", "u16", 2},
    {Type::s32, "s32", "s32", "u32", 4},     {Type::s64, "s64", "s64", "u64", 8},
    {Type::b8, "b8", "u8", "u16", 1},        {Type::b16, "b16", "u16", "u16", 2},
    {Type::b32, "b32", "u32", "u32", 4},     {Type::b64, "b64", "u64", "u64", 8},
    {Type::b128, "b128", "u128", "u128", 16}, {Type::f16, "f16", "u16", "u16", 2},
    {Type::f16x2, "f16x2", "u32", "u32", 4}, {Type::bf16, "bf16", "u16", "u16", 2},
    {Type::bf16x2, "bf16x2", "u32", "u32", 4}, {Type::f32, "f32", "float", "float", 4},
    {Type::f64, "f64", "double", "double", 8}, {Type::pred, "pred", "_Bool", "_Bool", 1},
    {Type::u16x2, "u16x2", "u32", "u32", 4}, {Type::s16x2, "s16x2", "u32", "u32", 4},
}};
const Row& row(Type t) { return rows[static_cast<std::size_t>(t)]; }
}  // namespace

std::optional<Type> type_of(std::string_view suffix) {
    for (const Row& r : rows)
        if (r.type != Type::none && r.name == suffix) return r.type;
    return std::nullopt;
}
std::string_view name_of(Type t) { return row(t).name; }
unsigned size_of(Type t) { return row(t).size; }
std::string_view c_type(Type t) { return row(t).c; }
std::string_view storage_type(Type t) { return row(t).storage; }
bool is_signed(Type t) { return t >= Type::s8 && t <= Type::s64; }
bool is_integer(Type t) { return t >= Type::u8 && t <= Type::b64; }
bool is_float(Type t) { return t == Type::f32 || t == Type::f64; }
bool is_half(Type t) { return t >= Type::f16 && t <= Type::bf16x2; }
Type unsigned_of(unsigned bytes) {
    return bytes == 1 ? Type::u8 : bytes == 2 ? Type::u16 : bytes == 4 ? Type::u32 : Type::u64;
}
Type signed_of(unsigned bytes) {
    return bytes == 1 ? Type::s8 : bytes == 2 ? Type::s16 : bytes == 4 ? Type::s32 : Type::s64;
}

}  // namespace softgpu::ptx
