// The entry points that take a stream (or use the default one), each written once as impl_NAME with the
// meaning of the NULL stream as its first argument; exports.cpp makes the two exported twins.
#pragma once
#include "tests/softgpu/driver/core.hpp"

#define STREAMED(name, suffix, parameters, arguments) STREAMED_1(name, parameters)
#define STREAMED_1(name, parameters) CUresult impl_##name STREAMED_OPEN parameters;
#define STREAMED_OPEN(...) (softgpu::Default, __VA_ARGS__)
#include "tests/softgpu/driver/streams.def"
#undef STREAMED
