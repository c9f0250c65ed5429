// The scanner behind lexer.hpp.
#include "tests/softgpu/ptx/lexer.hpp"

#include <charconv>
#include <cstring>
#include <string>

#include "tests/softgpu/ptx/module.hpp"
#include "tests/softgpu/ptx/types.hpp"

namespace softgpu::ptx {
namespace {
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_name(char c) { return is_alpha(c) || is_digit(c) || c == '_' || c == '$'; }
int hex_value(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}
}  // namespace

Lexer::Lexer(std::string_view text) : text_(text) { current_ = scan(); }

Token Lexer::next() {
    Token token = current_;
    if (token.kind != Token::Kind::end) current_ = scan();
    return token;
}

void Lexer::skip_blank() {
    while (at_ < text_.size()) {
        const char c = text_[at_];
        if (c == '\n') {
            ++line_, ++at_;
        } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
            ++at_;
        } else if (text_.substr(at_, 2) == "//" || (c == '#' && (at_ == 0 || text_[at_ - 1] == '\n'))) {
            while (at_ < text_.size() && text_[at_] != '\n') ++at_;
        } else if (text_.substr(at_, 2) == "/*") {
            const std::size_t end = text_.find("*/", at_ + 2);
            if (end == std::string_view::npos) throw Refusal(line_, "comment without an end");
            for (; at_ < end + 2; ++at_) line_ += text_[at_] == '\n';
        } else {
            return;
        }
    }
}

Token Lexer::scan() {
    skip_blank();
    Token token;
    token.line = line_;
    if (at_ >= text_.size()) return token;
    const std::size_t begin = at_;
    const char c = text_[at_];
    auto finish = [&](Token::Kind kind, std::size_t from) {
        token.kind = kind;
        token.text = text_.substr(from, at_ - from);
        return token;
    };
    if (is_digit(c)) return number(begin);
    if (is_alpha(c) || c == '_' || c == '$' || c == '%') {
        ++at_;
        while (at_ < text_.size() && is_name(text_[at_])) ++at_;
        if (at_ - begin == 1 && c == '%') return finish(Token::Kind::mark, begin);
        return finish(Token::Kind::word, begin);
    }
    if (c == '.' && at_ + 1 < text_.size() && is_name(text_[at_ + 1])) {
        ++at_;
        while (at_ < text_.size()) {
            if (is_name(text_[at_])) ++at_;
            else if (text_.substr(at_, 2) == "::") at_ += 2;
            else break;
        }
        return finish(Token::Kind::dot, begin + 1);
    }
    if (c == '"') {
        const std::size_t end = text_.find_first_of("\"\n", at_ + 1);
        if (end == std::string_view::npos || text_[end] == '\n') throw Refusal(line_, "string without an end");
        at_ = end;
        finish(Token::Kind::string, begin + 1);
        ++at_;
        return token;
    }
    if (!std::strchr("{}[]()<>,;:@!|+-=&~*/", c) || c == 0) {
        const unsigned code = static_cast<unsigned char>(c);
        throw Refusal(line_, "unexpected character " + (code > 32 && code < 127 ? std::string(1, c) : "code " + std::to_string(code)));
    }
    ++at_;
    return finish(Token::Kind::mark, begin);
}

Token Lexer::number(std::size_t begin) {
    Token token;
    token.line = line_;
    auto bad = [&]() { return Refusal(line_, "malformed number"); };
    const char second = begin + 1 < text_.size() ? text_[begin + 1] : 0;
    auto radix = [&](unsigned base, std::size_t from) {
        at_ = from;
        std::uint64_t value = 0;
        std::size_t digits = 0;
        for (; at_ < text_.size(); ++at_, ++digits) {
            const int d = hex_value(text_[at_]);
            if (d < 0 || static_cast<unsigned>(d) >= base) break;
            if (value > (~0ULL - static_cast<unsigned>(d)) / base) throw bad();
            value = value * base + static_cast<unsigned>(d);
        }
        if (at_ < text_.size() && text_[at_] == 'U') ++at_;
        if (!digits || (at_ < text_.size() && is_name(text_[at_]))) throw bad();
        token.kind = Token::Kind::integer;
        token.bits = value;
    };
    auto exact = [&](Token::Kind kind, std::size_t digits) {
        at_ = begin + 2;
        for (std::size_t i = 0; i < digits; ++i, ++at_) {
            const int d = at_ < text_.size() ? hex_value(text_[at_]) : -1;
            if (d < 0) throw bad();
            token.bits = token.bits << 4 | static_cast<unsigned>(d);
        }
        token.kind = kind;
    };
    if (text_[begin] == '0' && (second == 'x' || second == 'X')) radix(16, begin + 2);
    else if (text_[begin] == '0' && (second == 'f' || second == 'F')) exact(Token::Kind::float32, 8);
    else if (text_[begin] == '0' && (second == 'd' || second == 'D')) exact(Token::Kind::float64, 16);
    else if (text_[begin] == '0' && (second == 'b' || second == 'B')) radix(2, begin + 2);
    else {
        std::size_t end = begin;
        while (end < text_.size() && is_digit(text_[end])) ++end;
        const bool fraction = end + 1 < text_.size() && text_[end] == '.' && is_digit(text_[end + 1]);
        if (fraction) {
            double value = 0;
            const char* first = text_.data() + begin;
            const auto [last, error] = std::from_chars(first, text_.data() + text_.size(), value);
            if (error != std::errc() && error != std::errc::result_out_of_range) throw bad();
            at_ = begin + static_cast<std::size_t>(last - first);
            token.kind = Token::Kind::float64;
            std::memcpy(&token.bits, &value, 8);
        } else {
            radix(text_[begin] == '0' && end > begin + 1 ? 8 : 10, begin);
        }
    }
    token.text = text_.substr(begin, at_ - begin);
    return token;
}

bool looks_like_ptx(std::string_view data) {
    std::size_t at = 0;
    for (int lines = 0; at < data.size() && lines < 1000; ++lines) {
        while (at < data.size() && (data[at] == ' ' || data[at] == '\t' || data[at] == '\r' || data[at] == '\n')) ++at;
        if (data.substr(at, 2) == "//") {
            at = data.find('\n', at);
        } else if (data.substr(at, 2) == "/*") {
            at = data.find("*/", at + 2);
            if (at != std::string_view::npos) at += 2;
        } else {
            return data.substr(at, 8) == ".version";
        }
        if (at == std::string_view::npos) return false;
    }
    return false;
}

}  // namespace softgpu::ptx
