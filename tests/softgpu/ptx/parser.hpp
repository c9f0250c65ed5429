// PTX text to Program. One Parser reads one text (a unit) into a Program that several units may share;
// resolve() then joins what one unit declares and another defines.
#pragma once

#include <string_view>

#include "tests/softgpu/ptx/ast.hpp"

namespace softgpu::ptx {

// Appends the text's functions and variables to `program`. Throws Refusal. The instructions refer to
// the text: it must outlive the program.
void parse(std::string_view text, Program& program);

// Joins declarations with definitions over all units. Throws Refusal for a name defined twice.
void resolve(Program& program);

}  // namespace softgpu::ptx
