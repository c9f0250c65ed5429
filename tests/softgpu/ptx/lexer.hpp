// Splits PTX text into tokens. Hostile input is expected: every token lies inside the text, numbers
// are checked, and the end is a token of its own that can be read for ever.
#pragma once

#include <cstdint>
#include <string_view>

namespace softgpu::ptx {

struct Token {
    enum class Kind : std::uint8_t {
        end,
        word,      // name, %name, opcode without its suffixes
        dot,       // .suffix (text without the dot), including scoped::names
        integer,   // bits
        float32,   // bits in the low half
        float64,
        string,    // text without the quotes
        mark       // one character
    };
    Kind kind = Kind::end;
    unsigned line = 1;
    std::string_view text;
    std::uint64_t bits = 0;

    bool is(char c) const { return kind == Kind::mark && text[0] == c; }
    bool is_dot(std::string_view name) const { return kind == Kind::dot && text == name; }
};

class Lexer {
  public:
    explicit Lexer(std::string_view text);
    const Token& peek() const { return current_; }
    Token next();  // throws Refusal on a malformed token

  private:
    Token scan();
    void skip_blank();
    Token number(std::size_t begin);
    std::string_view text_;
    std::size_t at_ = 0;
    unsigned line_ = 1;
    Token current_;
};

}  // namespace softgpu::ptx
