// The subcommands of `udnnmem`: each lives in a file of its own and hangs itself into the app. To add one,
// write add_X_command() and name it in main.cpp.
//
// A command reports bad usage or input by fail() (one line, exit code 2), what failed though it was told right by
// fail_at_work() (exit code 1), and any other exit code than 0 by `throw CLI::RuntimeError(code)`.
#pragma once

#include <CLI/CLI.hpp>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "profiler/trace/error.hpp"

namespace udnnmem::cli {

// `run` ends where its program begins, which no option parser may look at: take_run_command() cuts the program
// and its arguments off `words` (what follows the tool's own name; nothing is done if they do not begin with
// "run"), to be handed to add_run_command().
std::vector<std::string> take_run_command(std::vector<std::string>& words);
void add_run_command(CLI::App& app, std::vector<std::string> program);
void add_report_command(CLI::App& app);
void add_top_command(CLI::App& app);
void add_doctor_command(CLI::App& app);
void add_plan_command(CLI::App& app);
void add_advise_command(CLI::App& app);

// Ends the tool: "udnnmem: MESSAGE" on stderr, exit code 2.
[[noreturn]] void fail(const std::string& message);
[[noreturn]] inline void fail(const Error& error) { fail(error.message); }

// The same with exit code 1: the disk is full, memory is out.
[[noreturn]] void fail_at_work(const std::string& message);

// "udnnmem: warning: MESSAGE" on stderr.
void warn(const std::string& message);

// For an option: a number from `low` to `high`, which CLI::Range takes nan for; a whole one; a file's name, or `-`.
CLI::Validator within(double low, double high);
CLI::Validator whole_within(std::int64_t low, std::int64_t high);
CLI::Validator file_name();

// How --help is laid out.
std::shared_ptr<CLI::Formatter> help_formatter();

// Whether what is written to `path` comes out at stdout: "", "-", or what stdout is itself.
bool is_stdout(const std::string& path);

// Fails, before any work, where the file `path` cannot be written, exists and `force` does not say that it may go, or is one of `inputs`.
void check_output(const std::string& path, bool force, std::span<const std::string> inputs);

// Writes what a command has made: to stdout, or to a file, whole or not at all; one that exists is replaced only
// with `force`. Fails by fail_at_work().
void write_output(const std::string& path, const std::string& text, bool force);

}  // namespace udnnmem::cli
