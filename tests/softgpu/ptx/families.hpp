// What one instruction family asks of another: opcodes such as add serve integers and floats.
#pragma once

#include "tests/softgpu/ptx/coder.hpp"

namespace softgpu::ptx {

inline constexpr std::string_view modes[] = {"RN", "RZ", "RM", "RP"};   // of rounding

// add, sub, mul, div, min, max (two operands), fma and mad (three), of f16, bf16, pairs, f32, f64.
void float_operation(Coder&, Op&, Type type);
void float_sign(Coder&, Op&, Type type);  // neg, abs

// A comparison as a _Bool expression; `relation` as in setp (eq, ltu, nan, hi...).
std::string comparison(const Op&, std::string_view relation, Type type, const std::string& a, const std::string& b);
std::string_view take_relation(Op&);

}  // namespace softgpu::ptx
