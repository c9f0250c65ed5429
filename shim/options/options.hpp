// The options of the library and of `udnnmem run`, from the one table options.def: typed values for the
// preload, rows of text for the tool, its help, doctor and the README.
//
// Invariants: every row's default is read by its own type's parser; a value that cannot be read is an
// error, never silently the default; an empty variable counts as unset. Used inside the preload: no
// exceptions leave, no stream is touched, the environment is only read.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shim/options/option_types.hpp"

namespace udnnmem {

struct Options {
#define OPTION(type, field, NAME, value, otherwise, help) type field{};
#include "shim/options/options.def"
#undef OPTION
};

// One row of the table as text.
struct OptionRow {
    const char* variable;   // "UDNNMEM_HOST_BUDGET"
    const char* flag;       // "--host-budget"
    const char* value;      // what stands for its value in --help; "" for a switch
    const char* otherwise;  // default
    const char* help;
};
std::span<const OptionRow> option_rows();

// The value of an environment variable, null if it is unset (getenv's own shape).
using Lookup = std::function<const char*(const char* variable)>;

// All options; without an argument from this process' environment. Error: one line that names the variable,
// its value, what was expected and the default. Thread-safe if nobody changes the environment.
Expected<Options> parse_options(const Lookup& lookup) noexcept;
Expected<Options> parse_options() noexcept;

// Whether UDNNMEM_DISABLE says so, whatever the other options say (a wrong value of one of them is no reason to be there).
bool switched_off(const Lookup& lookup) noexcept;
bool switched_off() noexcept;

// Whether `text` would do as the value of a row. Error: as parse_options(), naming `where` ("--budget").
Expected<void> check_option(const OptionRow& row, std::string_view where, const char* text) noexcept;

// One line for each variable of `environment` ("NAME=value", null-terminated) whose name begins with
// UDNNMEM_ and is no option, with the nearest option's name, and for each %q{VAR} of an option whose variable has no value
// there. UDNNMEM_TEST_* and UDNNMEM_BUILD, which belong to the tests, are passed over.
std::vector<std::string> unknown_options(const char* const* environment);

// Whether this process is one that UDNNMEM_ONLY names: by its executable, its first argument or its
// command name (/proc/self). True where none of them can be read.
bool is_managed_process(const Options& options);

// The options as a Markdown table, as the README has it.
std::string options_as_markdown();

}  // namespace udnnmem
