// The command-line tool. Exit codes: 0; 1 something failed (a check of `doctor`, a full disk, one of several traces); 2 bad
// usage or input; `run` passes the program's own.
#include "shim/cli/commands.hpp"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "shim/cli/format.hpp"
#include "shim/options/options.hpp"
#include "shim/options/spelling.hpp"

namespace {

// For the README's table, and the test that compares the two.
void add_options_table_command(CLI::App& app) {
    app.add_subcommand("options-table", "The options as a Markdown table")->group("")->callback([] {
        udnnmem::cli::write_output("", udnnmem::options_as_markdown(), false);
    });
}

// Fails for a word of `words` that looks like an option and is none of the command's, then for an option without its value: before
// what else is wrong, which may follow from it.
void check_options(const CLI::App& command, const std::vector<std::string>& words) {
    std::vector<std::string_view> names;
    for (const CLI::Option* option : command.get_options())
        for (const std::string& name : option->get_lnames()) names.push_back(name);
    std::string missing;
    for (std::size_t i = 1; i < words.size() && words[i] != "--"; ++i) {
        const std::string& word = words[i];
        if (word.size() < 2 || word[0] != '-' || word[1] == '.' || (word[1] >= '0' && word[1] <= '9')) continue;
        const bool is_long = word[1] == '-';
        const std::string name = is_long ? word.substr(0, word.find('=')) : word.substr(0, 2);  // -oFILE
        const CLI::Option* const option = command.get_option_no_throw(name);
        if (option) {
            if (option->get_items_expected_max() == 0) continue;
            const bool apart = word == name;
            if (missing.empty() && (word == name + "=" || (apart && (i + 1 == words.size() || words[i + 1].compare(0, 2, "--") == 0)))) missing = name + ": " + option->get_type_name().substr(0, option->get_type_name().find(':')) + " is missing";  // "FORMAT:{text,...}"
            if (apart) ++i;  // its value
            continue;
        }
        const auto nearest = is_long ? udnnmem::nearest_spelling(std::string_view(name).substr(2), names) : std::string_view();
        udnnmem::cli::fail("unknown option " + name + (nearest.empty() ? "" : "; did you mean --" + std::string(nearest) + "?") + " (udnnmem " + words[0] + " --help lists what there is)");
    }
    if (!missing.empty()) udnnmem::cli::fail(missing + " (udnnmem " + words[0] + " --help says more)");
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
        if (!words.empty() && words[0].compare(0, 1, "-") != 0 && known.empty()) {
            const auto commands = app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
            std::vector<std::string> names;
            for (const CLI::App* command : commands) names.push_back(command->get_name());
            const std::vector<std::string_view> candidates(names.begin(), names.end());
            const auto nearest = udnnmem::nearest_spelling(words[0], candidates);
            udnnmem::cli::fail("unknown command " + words[0] + (nearest.empty() ? "" : "; did you mean " + std::string(nearest) + "?") + " (udnnmem --help lists them)");
        }
        if (!words.empty() && words[0].compare(0, 1, "-") == 0 && words[0] != "-h" && words[0] != "--help" && words[0] != "--version") udnnmem::cli::fail("unknown option " + words[0] + " (udnnmem --help lists what there is)");
        if (!known.empty()) help = "udnnmem " + words[0] + " --help", check_options(*known[0], words);
        std::reverse(words.begin(), words.end());  // as CLI11 takes a vector
        app.parse(words);
    } catch (const CLI::RuntimeError& e) {
        return e.get_exit_code();
    } catch (const CLI::Success& e) {
        app.exit(e);
        return std::cout.flush() ? 0 : 1;
    } catch (const CLI::ParseError& e) {
        std::fprintf(stderr, "udnnmem: %s (%s lists what there is)\n", udnnmem::cli::shown(e.what()).c_str(), help.c_str());
        return 2;
    } catch (const std::bad_alloc&) {
        std::fputs("udnnmem: out of memory:", stderr);
        for (int i = 1; i < argc; ++i) std::fprintf(stderr, " %s", udnnmem::cli::shown(argv[i]).c_str());
        std::fputc('\n', stderr);
        return 1;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "udnnmem: %s\n", udnnmem::cli::shown(e.what()).c_str());
        return 1;
    }
    return 0;
}
