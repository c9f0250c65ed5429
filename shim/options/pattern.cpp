#include "shim/options/pattern.hpp"

#include <unistd.h>

#include <cstdlib>

namespace udnnmem {
namespace {

// Walks a pattern: text() gets what stands for itself, each sequence its letter and (for q) its name;
// false from wrong() ends the walk.
template <class OnText, class OnSequence, class OnWrong>
void walk(std::string_view pattern, OnText on_text, OnSequence on_sequence, OnWrong on_wrong) {
    while (!pattern.empty()) {
        const std::size_t percent = pattern.find('%');
        on_text(pattern.substr(0, percent));
        if (percent == std::string_view::npos) return;
        pattern.remove_prefix(percent);
        const char letter = pattern.size() > 1 ? pattern[1] : '\0';
        std::size_t length = 2;
        std::string_view name;
        bool good = letter == 'h' || letter == 'p' || letter == '%';
        if (letter == 'q') {
            const std::size_t close = pattern.find('}');
            good = pattern.size() > 2 && pattern[2] == '{' && close != std::string_view::npos && close > 3;
            if (good) {
                name = pattern.substr(3, close - 3);
                length = close + 1;
            }
        }
        if (length > pattern.size()) length = pattern.size();
        if (good) {
            on_sequence(letter, name);
        } else if (!on_wrong(pattern.substr(0, length))) {
            return;
        }
        pattern.remove_prefix(length);
    }
}

}  // namespace

Expected<void> check_pattern(std::string_view pattern) {
    Expected<void> result;
    walk(pattern, [](std::string_view) {}, [](char, std::string_view) {},
         [&](std::string_view wrong) {
             result = tl::make_unexpected(Error{"%h (host), %p (pid), %q{VAR} (a variable) or %% where it has \"" + std::string(wrong) + "\""});
             return false;
         });
    return result;
}

std::vector<std::string_view> variables_of(std::string_view pattern) {
    std::vector<std::string_view> names;
    walk(pattern, [](std::string_view) {}, [&](char letter, std::string_view name) { if (letter == 'q') names.push_back(name); }, [](std::string_view) { return true; });
    return names;
}

bool names_process(std::string_view pattern) {
    bool does = false;
    walk(pattern, [](std::string_view) {}, [&](char letter, std::string_view) { does |= letter == 'p'; }, [](std::string_view) { return true; });
    return does;
}

std::string expand_pattern(std::string_view pattern) {
    std::string path;
    walk(pattern, [&](std::string_view text) { path += text; },
         [&](char letter, std::string_view name) {
             if (letter == '%') {
                 path += '%';
             } else if (letter == 'p') {
                 path += std::to_string(::getpid());
             } else if (letter == 'h') {
                 char host[256] = "";
                 if (::gethostname(host, sizeof host - 1) == 0) path += host;
             } else if (const char* value = std::getenv(std::string(name).c_str())) {
                 path += value;
             }
         },
         [&](std::string_view wrong) {
             path += wrong;
             return true;
         });
    return path;
}

}  // namespace udnnmem
