#include "shim/cli/pickle.hpp"

namespace udnnmem::cli {

void Pickle::number(std::uint32_t value) {
    for (int i = 0; i < 4; ++i) bytes_ += static_cast<char>(value >> 8 * i);
}

void Pickle::text(std::string_view value) {
    if (const auto known = memo_.find(value); known != memo_.end()) {
        bytes_ += 'j';  // LONG_BINGET
        return number(known->second);
    }
    bytes_ += 'X';  // BINUNICODE
    number(static_cast<std::uint32_t>(value.size()));
    bytes_ += value;
    bytes_ += 'r';  // LONG_BINPUT
    const auto index = static_cast<std::uint32_t>(memo_.size());
    number(index);
    memo_.emplace(value, index);
}

void Pickle::integer(std::int64_t value) {
    if (value == static_cast<std::int32_t>(value)) {
        bytes_ += 'J';  // BININT
        return number(static_cast<std::uint32_t>(value));
    }
    bytes_ += "\x8a\x08";  // LONG1, two's complement
    number(static_cast<std::uint32_t>(value));
    number(static_cast<std::uint32_t>(static_cast<std::uint64_t>(value) >> 32));
}

}  // namespace udnnmem::cli
