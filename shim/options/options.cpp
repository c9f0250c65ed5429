#include "shim/options/options.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "shim/options/pattern.hpp"
#include "shim/options/spelling.hpp"

namespace udnnmem {
namespace {

// "HOST_BUDGET" -> "--host-budget", at compile time.
template <std::size_t N>
struct Flag {
    char text[N + 2] = {};
    constexpr explicit Flag(const char (&name)[N]) {
        text[0] = text[1] = '-';
        for (std::size_t i = 0; i < N; ++i) {
            const char c = name[i];
            text[i + 2] = c == '_' ? '-' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
        }
    }
};

#define OPTION(type, field, NAME, value, otherwise, help) constexpr Flag flag_##NAME{#NAME};
#include "shim/options/options.def"
#undef OPTION

constexpr OptionRow rows[] = {
#define OPTION(type, field, NAME, value, otherwise, help) {"UDNNMEM_" #NAME, flag_##NAME.text, value, otherwise, help},
#include "shim/options/options.def"
#undef OPTION
};

constexpr std::string_view prefix = "UDNNMEM_";
constexpr Bytes least_budget(std::int64_t{64} << 10);   // of any device

std::string complaint(std::string_view where, std::string_view text, const std::string& wanted, const OptionRow& row) {
    const bool flag = where.substr(0, 2) == "--";
    std::string line(where);
    line.append(flag ? " " : "=").append(text.empty() ? "\"\"" : text).append(": expected ").append(wanted);
    line.append(flag ? "; leave it out for " : "; unset it for ").append("the default, ").append(row.otherwise);
    return line;
}

template <class T>
Expected<void> read(const OptionRow& row, std::string_view where, const char* text, T& to) {
    auto parsed = parse_value(text, to);
    if (!parsed) return tl::make_unexpected(Error{complaint(where, text, parsed.error().message, row)});
    return {};
}

// Rules that a type alone does not have.
Expected<void> check_field(const OptionRow& row, std::string_view where, const char* text) {
    const bool host = std::strcmp(row.variable, "UDNNMEM_HOST_BUDGET") == 0;
    if (!host && std::strcmp(row.variable, "UDNNMEM_BUDGET") != 0) return {};
    Size size;
    if (auto r = read(row, where, text, size); !r) return r;
    const bool absolute = size.form == Size::Form::absolute;
    const bool nothing = (absolute && size.bytes.value == 0) || (size.form == Size::Form::share && size.share <= 0);
    if (nothing && host) return {};
    if (nothing) return tl::make_unexpected(Error{complaint(where, text, "more than nothing, such as 12GiB, 60% or auto", row)});
    if (!absolute || size.bytes >= least_budget) return {};
    // A small number without its unit is bytes, which nobody means.
    const std::string number(text);
    if (number.find_first_not_of("0123456789.") == std::string::npos) return tl::make_unexpected(Error{complaint(where, text, "a unit behind it: did you mean " + number + (size.bytes.value < 1024 ? "GiB" : "MiB") + "?", row)});
    if (host) return {};
    return tl::make_unexpected(Error{complaint(where, text, "at least 64KiB, which is the least that a device maps, such as 12GiB, 60% or auto", row)});
}

const OptionRow& row_of(std::string_view variable) { return *std::ranges::find(rows, variable, &OptionRow::variable); }

Error out_of_memory() { return Error{"out of memory while reading the options"}; }

std::string last_part(std::string_view path) {
    const std::size_t slash = path.rfind('/');
    return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

// The start of a small file under /proc, to its first NUL or line end.
std::string first_word_of(const char* path) {
    char text[512];
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return {};
    const ssize_t n = ::read(file, text, sizeof text);
    ::close(file);
    std::string_view whole(text, n > 0 ? static_cast<std::size_t>(n) : 0);
    return std::string(whole.substr(0, whole.find_first_of(std::string_view("\0\n", 2))));
}

// Of "UDNNMEM_TRACE=t.%q{RANK}": a line where RANK has no value in `environment`, for processes that differ by nothing else
// then share one file.
void add_unset_variables(std::vector<std::string>& lines, std::string_view entry, const char* const* environment) {
    for (const std::string_view variable : variables_of(entry.substr(entry.find('=') + 1))) {
        bool set = false;
        for (const char* const* e = environment; *e && !set; ++e) {
            const std::string_view other(*e);
            set = other.size() > variable.size() + 1 && other.substr(0, variable.size()) == variable && other[variable.size()] == '=';
        }
        if (set) continue;
        std::string line(entry);
        line.append(": ").append(variable).append(" has no value here, so nothing stands in its place: set it, or name the file by %p (the process id)");
        lines.push_back(std::move(line));
    }
}

const char* from_environment(const char* variable) { return std::getenv(variable); }

}  // namespace

std::span<const OptionRow> option_rows() { return rows; }

Expected<Options> parse_options(const Lookup& lookup) noexcept try {
    Options options;
    const OptionRow* row = rows;
    const char* text = nullptr;
#define OPTION(type, field, NAME, value, otherwise, help)                                                       \
    if (auto r = read(*row, row->variable, otherwise, options.field); !r) return tl::make_unexpected(r.error()); \
    text = lookup(row->variable);                                                                               \
    if (text && *text) {                                                                                        \
        if (auto r = check_field(*row, row->variable, text); !r) return tl::make_unexpected(r.error());          \
        if (auto r = read(*row, row->variable, text, options.field); !r) return tl::make_unexpected(r.error());  \
    }                                                                                                           \
    ++row;
#include "shim/options/options.def"
#undef OPTION
    const OptionRow& host_budget = row_of("UDNNMEM_HOST_BUDGET");
    if (options.host_budget.form == Size::Form::automatic)
        if (auto r = read(host_budget, host_budget.variable, host_budget.otherwise, options.host_budget); !r) return tl::make_unexpected(r.error());
    return options;
} catch (const std::bad_alloc&) {
    return tl::make_unexpected(out_of_memory());
}

Expected<Options> parse_options() noexcept {
    return parse_options(from_environment);
}

bool switched_off(const Lookup& lookup) noexcept try {
    const OptionRow& row = row_of("UDNNMEM_DISABLE");
    Switch off{};
    const char* const text = lookup(row.variable);
    return text && *text && read(row, row.variable, text, off) && off;
} catch (const std::bad_alloc&) {
    return false;
}

bool switched_off() noexcept { return switched_off(from_environment); }

Expected<void> check_option(const OptionRow& row, std::string_view where, const char* text) noexcept try {
    if (auto r = check_field(row, where, text); !r) return r;
    const OptionRow* at = rows;
#define OPTION(type, field, NAME, value, otherwise, help) \
    if (at == &row) {                                     \
        type scratch{};                                   \
        return read(row, where, text, scratch);           \
    }                                                     \
    ++at;
#include "shim/options/options.def"
#undef OPTION
    return {};
} catch (const std::bad_alloc&) {
    return tl::make_unexpected(out_of_memory());
}

std::vector<std::string> unknown_options(const char* const* environment) {
    std::vector<std::string> lines;
    std::vector<std::string_view> names;
    for (const OptionRow& row : rows) names.push_back(std::string_view(row.variable).substr(prefix.size()));
    const char* const* const all = environment;
    for (; *environment; ++environment) {
        const std::string_view entry(*environment);
        const std::string_view name = entry.substr(0, entry.find('='));
        if (name.substr(0, prefix.size()) != prefix || name.substr(0, 13) == "UDNNMEM_TEST_" || name == "UDNNMEM_BUILD") continue;
        if (const auto row = std::ranges::find(rows, name, &OptionRow::variable); row != std::end(rows)) {
            if (row->value == std::string_view("PATTERN")) add_unset_variables(lines, entry, all);
            continue;
        }
        std::string line(name);
        line += " is no option of this version and was ignored";
        if (const auto nearest = nearest_spelling(name.substr(prefix.size()), names); !nearest.empty()) line.append("; did you mean ").append(prefix).append(nearest).append("?");
        lines.push_back(std::move(line));
    }
    return lines;
}

bool is_managed_process(const Options& options) {
    char executable[4096];
    const ssize_t n = ::readlink("/proc/self/exe", executable, sizeof executable);
    const std::string names[] = {last_part(std::string_view(executable, n > 0 ? static_cast<std::size_t>(n) : 0)),
                                 last_part(first_word_of("/proc/self/cmdline")), first_word_of("/proc/self/comm")};
    bool any = false;
    for (const std::string& name : names) {
        if (name.empty()) continue;
        any = true;
        if (options.only.match(name)) return true;
    }
    return !any;
}

std::string options_as_markdown() {
    std::string table = "| variable | flag of `udnnmem run` | default | meaning |\n|---|---|---|---|\n";
    for (const OptionRow& row : rows) {
        table += std::string("| `") + row.variable + "` | `" + row.flag + (*row.value ? std::string(" ") + row.value : "") + "` | `" + row.otherwise + "` | " + row.help + " |\n";
    }
    return table;
}

}  // namespace udnnmem
