// `udnnmem report TRACE...`: reads recorded runs and writes them in one of the formats.
#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fmt/core.h>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shim/cli/commands.hpp"
#include "shim/cli/format.hpp"
#include "shim/cli/models.hpp"
#include "shim/cli/report_formats.hpp"
#include "shim/cli/trace_input.hpp"

namespace udnnmem::cli {
namespace {

// `pytorch` is what people look for; the other name is the older one.
const std::map<std::string, std::string (*)(std::span<const Report>)> formats = {
    {"text", report_text}, {"html", report_html}, {"json", report_json}, {"csv", report_csv}, {"chrome", report_chrome}, {"torch-snapshot", report_snapshot}, {"pytorch", report_snapshot}};

constexpr const char* default_traces = "udnnmem.*.jsonl.zst";  // as options.def names them

struct ReportArguments {
    std::vector<std::string> traces;
    std::string format = "text";
    std::string output, memory, link, batches;
    bool force = false, model = false, json = false;
};

void add_models(std::vector<Report>& reports, const ReportArguments& arguments) {
    ModelOptions options;
    if (!arguments.memory.empty()) options.memory = arguments.memory;
    if (!arguments.link.empty()) {
        const auto links = parse_links(arguments.link);
        if (!links) fail(links.error());
        options.links = *links;
    }
    const auto batches = fit_batches(reports);
    if (!batches && reports.size() > 1) {
        const bool unknown = std::any_of(reports.begin(), reports.end(), [](const Report& r) { return r.run.iteration.header.batch == 0; });
        options.no_batches = unknown ? ask_for_batches(reports.size()) : "one batch size in all traces: a trace of another is needed";
    }
    for (Report& report : reports) {
        if (report.run.iteration.ops.empty()) fail(report.run.path + ": holds no iteration, so there is nothing to model");
        auto models = models_of(report.run, report.view, options, batches);
        if (!models) fail(models.error());
        report.models = std::move(*models);
    }
}

// The trace of the default name that was written last in this folder: what `udnnmem run` has just left.
std::string newest_trace() {
    std::string newest;
    timespec written{};
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(".", error)) {
        const std::string name = entry.path().filename().string();
        struct stat is {};
        if (::fnmatch(default_traces, name.c_str(), 0) != 0 || ::stat(name.c_str(), &is) != 0 || !S_ISREG(is.st_mode)) continue;
        const auto later = [](const timespec& a, const timespec& b) { return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec; };
        if (newest.empty() || later(is.st_mtim, written)) newest = name, written = is.st_mtim;
    }
    if (newest.empty()) fail(std::string("report: no TRACE is named, and no ") + default_traces + " is in this folder: udnnmem report TRACE...");
    std::fprintf(stderr, "udnnmem: reads %s, the newest %s of this folder\n", shown(newest).c_str(), default_traces);
    return newest;
}

void report(ReportArguments arguments) {
    if (arguments.json) arguments.format = "json";
    if (arguments.traces.empty()) arguments.traces.push_back(newest_trace());
    check_output(arguments.output, arguments.force, arguments.traces);
    const auto batches = parse_batches(arguments.batches, arguments.traces.size());
    if (!batches) fail(batches.error());
    std::vector<profiler::RunRecord> runs;
    for (std::size_t i = 0; i < arguments.traces.size(); ++i) {
        auto run = profiler::read_run(arguments.traces[i]);
        if (!run && arguments.traces.size() == 1) fail(run.error());
        if (!run) {  // a rank that died early keeps nobody from looking at the others, but is no success
            warn(run.error().message + "; left out");
            continue;
        }
        if (const std::string damage = damage_of(*run); !damage.empty()) warn(arguments.traces[i] + ": " + damage);
        if (!batches->empty()) run->iteration.header.batch = (*batches)[i];
        runs.push_back(std::move(*run));
    }
    if (runs.empty()) fail(fmt::format("report: none of the {} traces can be read", arguments.traces.size()));
    std::stable_sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a.header.rank < b.header.rank; });
    std::vector<Report> reports;
    for (profiler::RunRecord& run : runs) {
        Report& report = reports.emplace_back();
        report.view = view_of(run);
        report.run = std::move(run);
    }
    if (arguments.model) add_models(reports, arguments);
    if (is_stdout(arguments.output) && (formats.at(arguments.format) == report_html || formats.at(arguments.format) == report_snapshot) && ::isatty(STDOUT_FILENO))
        fail("--format " + arguments.format + " is not for a terminal: name a file with -o");
    const bool all = reports.size() == arguments.traces.size();
    write_output(arguments.output, formats.at(arguments.format)(reports), arguments.force);
    if (!all) throw CLI::RuntimeError(1);
}

}  // namespace

void add_report_command(CLI::App& app) {
    CLI::App* command = app.add_subcommand("report", "Say what recorded runs did");
    auto arguments = std::make_shared<ReportArguments>();
    command->add_option("TRACE", arguments->traces, "trace files (.jsonl or .jsonl.zst); those of several ranks make one report; - for standard input; none: the newest udnnmem.*.jsonl.zst of this folder")->check(file_name());
    CLI::Option* format = command->add_option("--format", arguments->format, "text; html, a page for a browser; json (several traces: an object a line), csv; chrome, for Perfetto and chrome://tracing; pytorch (or torch-snapshot), for pytorch.org/memory_viz")->check(CLI::IsMember(formats))->type_name("FORMAT")->capture_default_str();
    command->add_flag("--json", arguments->json, "the same as --format json")->excludes(format);
    CLI::Option* model = command->add_flag("--model", arguments->model, "with the models of compute, memory and link, and which binds where, by moves alone (several traces: one of the batch size too)");
    command->add_option("--batch", arguments->batches, "with --model: batch sizes of the traces, where they do not say")->type_name("K,K...")->needs(model);
    command->add_option("--memory", arguments->memory, "with --model: M (the run's budget): 12GiB, 50% of peak live")->type_name("M")->needs(model);
    command->add_option("--link", arguments->link, "with --model: bandwidth to the device and back (the run's own)")->type_name("GBPS[,GBPS]")->needs(model);
    command->add_option("-o,--output", arguments->output, "file to write instead of standard output")->type_name("FILE")->check(file_name());
    command->add_flag("-f,--force", arguments->force, "overwrite that file");
    command->callback([arguments] { report(*arguments); });
}

}  // namespace udnnmem::cli
