// What a function that can fail hands back beside its result: one line for a person, naming what is
// wrong, where, and where it helps what to do. Used as tl::expected<T, Error>.
#pragma once

#include <string>

#include <tl/expected.hpp>

namespace udnnmem {

struct Error {
    std::string message;  // one line, without the program's name and without a full stop
};

template <class T>
using Expected = tl::expected<T, Error>;

}  // namespace udnnmem
