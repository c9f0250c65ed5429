// PTX text as words: each of a set of marks on its own, what stands between blanks and marks together; comments and strings left out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace udnnmem::interpose {

class PtxWords {
  public:
    PtxWords(std::string_view text, std::string_view marks) : rest_(text), marks_(marks) {}

    // Empty: the end.
    std::string_view next() {
        skip_blanks();
        if (rest_.empty()) return {};
        std::size_t n = 1;
        if (marks_.find(rest_[0]) == std::string_view::npos)
            while (n < rest_.size() && static_cast<unsigned char>(rest_[n]) > ' ' && marks_.find(rest_[n]) == std::string_view::npos) ++n;
        const std::string_view word = rest_.substr(0, n);
        rest_.remove_prefix(n);
        return word;
    }

    void skip_line() { rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size())); }

  private:
    void skip_blanks() {
        for (;;) {
            while (!rest_.empty() && static_cast<unsigned char>(rest_[0]) <= ' ') rest_.remove_prefix(1);
            if (rest_.starts_with("//")) rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
            else if (rest_.starts_with("/*")) skip_to("*/", 2);
            else if (rest_.starts_with("\"")) skip_to("\"", 1);
            else return;
        }
    }
    // Behind `end`, which is looked for from `from` on.
    void skip_to(std::string_view end, std::size_t from) {
        const std::size_t at = rest_.find(end, from);
        rest_.remove_prefix(at == std::string_view::npos ? rest_.size() : at + end.size());
    }

    std::string_view rest_, marks_;
};

}  // namespace udnnmem::interpose
