// `udnnmem run [options] [--] COMMAND...`: sets the options' variables and LD_PRELOAD, and becomes the
// program, so that its exit code, its signals and its process id are its own.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "shim/cli/commands.hpp"
#include "shim/cli/installation.hpp"
#include "shim/options/options.hpp"

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

void run(const RunArguments& arguments) {
    if (arguments.command.empty()) fail("run: no command given: udnnmem run [options] [--] COMMAND...");
    const auto rows = option_rows();
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (arguments.values[i].empty()) continue;
        if (auto checked = check_option(rows[i], rows[i].flag, arguments.values[i].c_str()); !checked) fail(checked.error());
        ::setenv(rows[i].variable, arguments.values[i].c_str(), 1);
    }
    const auto options = parse_options();
    if (!options) fail(options.error());
    const auto library = find_library(options->hide_exports);
    if (!library) fail(library.error());
    if (library->find_first_of(": ") != std::string::npos)
        fail(*library + ": LD_PRELOAD cannot hold a path with a space or a colon: install udnnmem at a path without them");
    ::setenv(preload, with_library(*library).c_str(), 1);
    std::vector<char*> argv;
    for (const std::string& word : arguments.command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    ::execvp(argv[0], argv.data());
    const int reason = errno;
    std::fprintf(stderr, "udnnmem: %s: %s\n", argv[0], reason == ENOENT && !std::strchr(argv[0], '/') ? "command not found" : std::strerror(reason));
    throw CLI::RuntimeError(reason == ENOENT ? 127 : 126);  // as a shell says it
}

}  // namespace

std::vector<std::string> take_run_command(std::vector<std::string>& words) {
    if (words.empty() || words[0] != "run") return {};
    const auto takes_value = [](const std::string& word) {
        for (const OptionRow& row : option_rows())
            if (word == row.flag) return *row.value != '\0';
        return false;
    };
    std::size_t at = 1;
    while (at < words.size() && words[at] != "--" && words[at].size() > 1 && words[at][0] == '-') at += takes_value(words[at]) ? 2 : 1;
    at = std::min(at, words.size());
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
            command->add_option(row.flag, arguments->values[i], help)->type_name(row.value)->check([](const std::string& value) {
                return value.empty() ? std::string("must not be empty") : std::string();
            });
        } else {
            command->add_flag_callback(row.flag, [arguments, i] { arguments->values[i] = "1"; }, help);
        }
    }
    command->footer("The exit code is the program's own. What is not set here is taken from the environment.");
    arguments->command = std::move(program);
    command->callback([arguments] { run(*arguments); });
}

}  // namespace udnnmem::cli
