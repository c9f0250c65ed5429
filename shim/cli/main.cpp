// The command-line tool. Exit codes: 0; 2 bad usage or input; `run` passes the program's own;
// `doctor` ends with 1 when a check failed.
#include "shim/cli/commands.hpp"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <new>

#include "shim/cli/format.hpp"
#include "shim/options/options.hpp"

namespace {

// For the README's table, and the test that compares the two.
void add_options_table_command(CLI::App& app) {
    app.add_subcommand("options-table", "The options as a Markdown table")->group("")->callback([] {
        udnnmem::cli::write_output("", udnnmem::options_as_markdown(), false);
    });
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"Trains networks that do not fit in GPU memory: pages device buffers to host memory.", "udnnmem"};
    app.require_subcommand(1);
    app.set_version_flag("--version", "udnnmem " UDNNMEM_VERSION);
    app.footer("udnnmem COMMAND --help says more.");
    app.formatter(udnnmem::cli::help_formatter());
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    std::vector<std::string> words(argv + 1, argv + argc);
    if (!words.empty() && words[0] == "help") {  // "help", "help run"
        words.erase(words.begin());
        words.resize(std::min<std::size_t>(words.size(), 1));
        words.push_back("--help");
    }
    std::string help = "udnnmem --help";
    try {
        udnnmem::cli::add_run_command(app, udnnmem::cli::take_run_command(words));
        udnnmem::cli::add_report_command(app);
        udnnmem::cli::add_plan_command(app);
        udnnmem::cli::add_advise_command(app);
        udnnmem::cli::add_top_command(app);
        udnnmem::cli::add_doctor_command(app);
        add_options_table_command(app);
        const auto known = app.get_subcommands([&](const CLI::App* command) { return !words.empty() && command->check_name(words[0]); });
        if (!words.empty() && words[0].compare(0, 1, "-") != 0 && known.empty()) udnnmem::cli::fail("unknown command " + words[0] + " (udnnmem --help lists them)");
        if (!words.empty() && words[0].compare(0, 1, "-") == 0 && words[0] != "-h" && words[0] != "--help" && words[0] != "--version") udnnmem::cli::fail("unknown option " + words[0] + " (udnnmem --help lists what there is)");
        if (!known.empty()) help = "udnnmem " + words[0] + " --help";
        std::reverse(words.begin(), words.end());  // as CLI11 takes a vector
        app.parse(words);
    } catch (const CLI::RuntimeError& e) {
        return e.get_exit_code();
    } catch (const CLI::Success& e) {
        app.exit(e);
        return std::cout.flush() ? 0 : 2;
    } catch (const CLI::ParseError& e) {
        std::fprintf(stderr, "udnnmem: %s (%s lists what there is)\n", udnnmem::cli::shown(e.what()).c_str(), help.c_str());
        return 2;
    } catch (const std::bad_alloc&) {
        std::fputs("udnnmem: out of memory:", stderr);
        for (int i = 1; i < argc; ++i) std::fprintf(stderr, " %s", udnnmem::cli::shown(argv[i]).c_str());
        std::fputc('\n', stderr);
        return 2;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "udnnmem: %s\n", udnnmem::cli::shown(e.what()).c_str());
        return 2;
    }
    return 0;
}
