// `udnnmem run [options] [--] COMMAND...`: sets the options' variables and LD_PRELOAD, and becomes the
// program, so that its exit code, its signals and its process id are its own.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "shim/cli/commands.hpp"
#include "shim/cli/format.hpp"
#include "shim/cli/installation.hpp"
#include "shim/options/options.hpp"
#include "shim/options/pattern.hpp"

namespace udnnmem::cli {
namespace {

constexpr const char* preload = "LD_PRELOAD";

struct RunArguments {
    std::vector<std::string> values = std::vector<std::string>(option_rows().size());
    std::vector<std::string> command;
};

// The value of LD_PRELOAD with the library first; what was there stays.
std::string with_library(const std::string& library) {
    const char* before = std::getenv(preload);
    if (!before || !*before) return library;
    const std::string list(before);
    for (std::size_t at = 0; at < list.size();) {
        const std::size_t end = std::min(list.find_first_of(": ", at), list.size());
        if (list.compare(at, end - at, library) == 0) return list;
        at = end + 1;
    }
    return library + ":" + list;
}

// As the other commands have it for what they write.
std::string short_flag(const OptionRow& row) { return std::string_view(row.variable) == "UDNNMEM_TRACE" ? "-o" : ""; }

bool names_file(const OptionRow& row) { return std::string_view(row.value) == "PATTERN"; }

// A file's pattern as it is meant here: the program may go to another folder before the library is loaded.
std::string from_here(const std::string& pattern) {
    Pattern file;
    if (const auto parsed = parse_value(pattern, file); !parsed || file.off() || pattern[0] == '/') return pattern;
    if (pattern.compare(0, 3, "%q{") == 0) {  // may begin with a folder, now or where a launcher sets it
        const std::string name = pattern.substr(3, pattern.find('}') - 3);
        const char* const value = std::getenv(name.c_str());
        if (!value || *value == '/') return pattern;
    }
    std::error_code error;
    std::string folder = std::filesystem::current_path(error).string();
    if (error) return pattern;
    for (std::size_t at = 0; (at = folder.find('%', at)) != std::string::npos; at += 2) folder.insert(at, 1, '%');
    return folder + (folder == "/" ? "" : "/") + pattern;
}

// What the environment is to have of a value that check_option() lets pass.
std::string handed_on(const OptionRow& row, const std::string& value) {
    Switch on = false;
    if (!*row.value && parse_value(value, on)) return on ? "1" : "0";
    return names_file(row) ? from_here(value) : value;
}

void run(const RunArguments& arguments) {
    if (arguments.command.empty()) fail("run: no command given: udnnmem run [options] [--] COMMAND...");
    if (arguments.command[0].empty()) fail("run: the command's name is empty: udnnmem run [options] [--] COMMAND...");
    const auto rows = option_rows();
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (arguments.values[i].empty()) continue;
        if (auto checked = check_option(rows[i], rows[i].flag, arguments.values[i].c_str()); !checked) fail(checked.error());
        ::setenv(rows[i].variable, handed_on(rows[i], arguments.values[i]).c_str(), 1);
    }
    const auto options = parse_options();
    if (!options) fail(options.error());
    const auto library = find_library(options->hide_exports);
    if (!library) fail(library.error());
    ::setenv(preload, with_library(*library).c_str(), 1);
    std::vector<char*> argv;
    for (const std::string& word : arguments.command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    ::execvp(argv[0], argv.data());
    const int reason = errno;
    std::fprintf(stderr, "udnnmem: %s: %s\n", shown(argv[0]).c_str(), reason == ENOENT && !std::strchr(argv[0], '/') ? "command not found" : std::strerror(reason));
    throw CLI::RuntimeError(reason == ENOENT ? 127 : 126);  // as a shell says it
}

}  // namespace

std::vector<std::string> take_run_command(std::vector<std::string>& words) {
    if (words.empty() || words[0] != "run") return {};
    std::size_t at = 1;
    for (; at < words.size() && words[at] != "--" && words[at].size() > 1 && words[at][0] == '-'; ++at) {
        const auto rows = option_rows();
        const bool empty = words[at].size() > 3 && words[at].back() == '=';   // "--trace="
        const std::string flag = words[at].substr(0, words[at].size() - empty);
        const auto row = std::find_if(rows.begin(), rows.end(), [&](const OptionRow& r) { return flag == r.flag || flag == short_flag(r); });
        if (row == rows.end() || (empty && !*row->value)) continue;
        const std::string next = at + 1 < words.size() && !empty ? words[at + 1] : "";
        if (!*row->value) {  // no program has such a name
            if (next == "0" || next == "1" || next == "on" || next == "off") fail(fmt::format("{0} {1}: {0} takes no value of its own: leave the {1} out, or write {0}={1}", row->flag, next));
            continue;
        }
        if (auto checked = check_option(*row, flag, ""); next.empty() && at + 1 < words.size() && !empty && !checked) fail(checked.error());
        if (next.empty() || next.compare(0, 2, "--") == 0) fail(fmt::format("{}: {} is missing; leave it out for the default, {}", flag, row->value, row->otherwise));
        ++at;
    }
    const std::size_t first = at < words.size() && words[at] == "--" ? at + 1 : at;
    std::vector<std::string> command(words.begin() + static_cast<std::ptrdiff_t>(first), words.end());
    words.resize(at);
    return command;
}

void add_run_command(CLI::App& app, std::vector<std::string> program) {
    CLI::App* command = app.add_subcommand("run", "Run a program under the library: udnnmem run [options] [--] COMMAND...");
    auto arguments = std::make_shared<RunArguments>();
    const auto rows = option_rows();
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const OptionRow& row = rows[i];
        const std::string help = std::string(row.help) + " [" + row.otherwise + "] (" + row.variable + ")";
        if (*row.value) {
            command->add_option(short_flag(row).empty() ? row.flag : short_flag(row) + "," + row.flag, arguments->values[i], help)->type_name(row.value)->check([](const std::string& value) {
                return value.empty() ? std::string("must not be empty") : std::string();
            });
        } else {
            command->add_flag(row.flag, arguments->values[i], help);
        }
    }
    command->footer("The exit code is the program's own. What is not set here is taken from the environment.");
    arguments->command = std::move(program);
    command->callback([arguments] { run(*arguments); });
}

}  // namespace udnnmem::cli
