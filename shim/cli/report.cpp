// `udnnmem report TRACE...`: reads recorded runs and writes them in one of the formats.
#include <memory>
#include <string>
#include <vector>

#include "shim/cli/commands.hpp"
#include "shim/cli/report_formats.hpp"

namespace udnnmem::cli {
namespace {

struct ReportArguments {
    std::vector<std::string> traces;
    std::string format = "text";
    std::string output;
    bool force = false;
};

void report(const ReportArguments& arguments) {
    std::vector<profiler::RunRecord> runs;
    for (const std::string& path : arguments.traces) {
        auto run = profiler::read_run(path);
        if (!run) fail(run.error());
        runs.push_back(std::move(*run));
    }
    const auto make = arguments.format == "json" ? report_json : arguments.format == "csv" ? report_csv : report_text;
    write_output(arguments.output, make(runs), arguments.force);
}

}  // namespace

void add_report_command(CLI::App& app) {
    CLI::App* command = app.add_subcommand("report", "Say what recorded runs did");
    auto arguments = std::make_shared<ReportArguments>();
    command->add_option("TRACE", arguments->traces, "trace files (.jsonl or .jsonl.zst)")->required();
    command->add_option("--format", arguments->format, "how")->check(CLI::IsMember({"text", "json", "csv"}))->capture_default_str();
    command->add_option("-o,--output", arguments->output, "file to write instead of standard output")->type_name("FILE");
    command->add_flag("-f,--force", arguments->force, "overwrite that file");
    command->callback([arguments] { report(*arguments); });
}

}  // namespace udnnmem::cli
