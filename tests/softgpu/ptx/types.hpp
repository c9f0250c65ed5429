// PTX's scalar types: sizes, C spellings, and their names as instruction suffixes. Every module of the
// translator speaks in these; nothing here knows an instruction.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace softgpu::ptx {

enum class Type : std::uint8_t {
    none, u8, u16, u32, u64, s8, s16, s32, s64, b8, b16, b32, b64, b128,
    f16, f16x2, bf16, bf16x2, f32, f64, pred, u16x2, s16x2
};

// Thrown inside the translator, caught in load() and link(): the text is refused.
struct Refusal : std::runtime_error {
    Refusal(unsigned line_, const std::string& what) : std::runtime_error(what), line(line_) {}
    unsigned line;
};

std::optional<Type> type_of(std::string_view suffix);  // "f32", without the dot
std::string_view name_of(Type);
unsigned size_of(Type);  // bytes; 1 for predicates
inline unsigned bits(Type t) { return 8 * size_of(t); }
bool is_signed(Type);
bool is_integer(Type);  // u, s or b of 8 to 64 bits
bool is_float(Type);    // f32 or f64
bool is_half(Type);     // f16, bf16 and their pairs: kept as bits

// The C type that a value of this type has in an expression; halves are their bits.
std::string_view c_type(Type);

// The C type of a register declared with this type (wide enough for its bits; signs do not matter).
std::string_view storage_type(Type);

Type unsigned_of(unsigned bytes);
Type signed_of(unsigned bytes);

}  // namespace softgpu::ptx
