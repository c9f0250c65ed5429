// `udnnmem report TRACE...`: reads recorded runs and writes them in one of the formats.
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shim/cli/commands.hpp"
#include "shim/cli/report_formats.hpp"

namespace udnnmem::cli {
namespace {

// `pytorch` is what people look for; the other name is the older one.
const std::map<std::string, std::string (*)(std::span<const profiler::RunRecord>)> formats = {
    {"text", report_text}, {"html", report_html}, {"json", report_json}, {"csv", report_csv}, {"chrome", report_chrome}, {"torch-snapshot", report_snapshot}, {"pytorch", report_snapshot}};

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
    if (arguments.output.empty() && (arguments.format == "html" || arguments.format == "torch-snapshot") && ::isatty(STDOUT_FILENO))
        fail("--format " + arguments.format + " is not for a terminal: name a file with -o");
    write_output(arguments.output, formats.at(arguments.format)(runs), arguments.force);
}

}  // namespace

void add_report_command(CLI::App& app) {
    CLI::App* command = app.add_subcommand("report", "Say what recorded runs did");
    auto arguments = std::make_shared<ReportArguments>();
    command->add_option("TRACE", arguments->traces, "trace files (.jsonl or .jsonl.zst)")->required();
    command->add_option("--format", arguments->format, "text; html, a page for a browser; json, csv; chrome, for Perfetto and chrome://tracing; pytorch (or torch-snapshot), for pytorch.org/memory_viz")->check(CLI::IsMember(formats))->type_name("FORMAT")->capture_default_str();
    command->add_option("-o,--output", arguments->output, "file to write instead of standard output")->type_name("FILE");
    command->add_flag("-f,--force", arguments->force, "overwrite that file");
    command->callback([arguments] { report(*arguments); });
}

}  // namespace udnnmem::cli
