// `udnnmem doctor`: one line a check, ok/warn/fail, actual against needed, the fix. Ends with 1 when a
// check failed. Makes no CUDA call itself: trials run in child processes.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "shim/cli/commands.hpp"
#include "shim/cli/format.hpp"
#include "shim/host/host_memory.hpp"
#include "shim/host/launcher.hpp"
#include "shim/cli/installation.hpp"
#include "shim/cli/trial.hpp"
#include "shim/executor/plan_store.hpp"
#include "shim/frameworks/frameworks.hpp"
#include "shim/options/options.hpp"
#include "shim/options/pattern.hpp"

namespace udnnmem::cli {
namespace {

using Json = nlohmann::ordered_json;

class Findings {
  public:
    explicit Findings(bool json) : json_(json) {}

    // Said at once: some trials take their time.
    void add(const Finding& finding) {
        const auto at = static_cast<std::size_t>(finding.verdict);
        ++counts_[at];
        if (json_) checks_.push_back({{"verdict", names[at]}, {"text", finding.text}});
        else write_output("", fmt::format("{:<4}  {}\n", names[at], shown(finding.text)), false);
    }
    void end() const {
        if (json_) write_output("", Json{{"version", UDNNMEM_VERSION}, {"ok", counts_[0]}, {"warn", counts_[1]}, {"fail", counts_[2]}, {"checks", checks_}}.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n", false);
        else write_output("", fmt::format("{} ok, {} warn, {} fail\n", counts_[0], counts_[1], counts_[2]), false);
    }
    bool failed() const { return counts_[static_cast<int>(Verdict::fail)] > 0; }

  private:
    static constexpr const char* names[] = {"ok", "warn", "fail"};
    const bool json_;
    int counts_[3] = {};
    Json checks_ = Json::array();
};

// Whether the library can be preloaded at all: a program that has nothing to do with CUDA must not notice.
Finding check_library() {
    const auto library = find_library();
    if (!library) return {Verdict::fail, "library: " + library.error().message};
    const Finding tried = in_child([&] {
        ::setenv("LD_PRELOAD", library->c_str(), 1);
        int ends[2];
        if (::pipe(ends) != 0) return Finding{Verdict::fail, std::string("no pipe: ") + std::strerror(errno)};
        const pid_t child = ::fork();
        if (child == 0) {
            ::dup2(ends[1], STDERR_FILENO);
            ::execl("/bin/true", "true", static_cast<char*>(nullptr));
            ::_exit(127);
        }
        ::close(ends[1]);
        char said[512];
        const ssize_t n = ::read(ends[0], said, sizeof said);
        int status = 0;
        ::waitpid(child, &status, 0);
        if (status == 0 && n <= 0) return Finding{Verdict::ok, ""};
        std::string words(said, n > 0 ? static_cast<std::size_t>(n) : 0);
        words = words.substr(0, words.find('\n'));
        return Finding{Verdict::fail, fmt::format("/bin/true under it ends with status {}{}{}", status, words.empty() ? "" : ": ", words)};
    });
    if (tried.verdict != Verdict::ok) return {Verdict::fail, fmt::format("library: {} does not preload: {}: build it again for this machine", *library, tried.text)};
    return {Verdict::ok, "library: " + *library + " preloads"};
}

Finding check_memory(const Options& options) {
    const auto available = host::memory_available();
    if (!available) return {Verdict::warn, "memory: /proc/meminfo cannot be read: set UDNNMEM_HOST_BUDGET"};
    const Bytes usable = host::usable_memory().value_or(*available);
    const Bytes budget = options.host_budget.resolve(usable, usable);
    if (budget > usable)
        return {Verdict::warn, fmt::format("memory: the host budget of {} exceeds the {} available: lower UDNNMEM_HOST_BUDGET", human(budget), human(usable))};
    const int ranks = host::ranks_here();
    return {Verdict::ok, fmt::format("memory: {} available{}, host budget {}", human(*available), ranks > 1 ? fmt::format(" to {} ranks", ranks) : "", human(budget))};
}

Finding check_cgroup() {
    const auto cgroup = host::cgroup_memory();
    if (!cgroup) return {Verdict::ok, "cgroup: no memory limit"};
    const Bytes left = cgroup->limit - cgroup->used;
    const Verdict verdict = left < Bytes(std::int64_t{1} << 30) ? Verdict::warn : Verdict::ok;
    return {verdict, fmt::format("cgroup: {} of {} left ({}){}", human(left), human(cgroup->limit), cgroup->path,
                                 verdict == Verdict::warn ? ": little room for evicted buffers: raise the limit" : "")};
}

Finding check_locked_memory() {
    const auto limit = host::locked_memory_limit();
    if (!limit) return {Verdict::warn, "locked memory: the limit cannot be read"};
    if (*limit == Bytes::max()) return {Verdict::ok, "locked memory: unlimited"};
    if (::geteuid() == 0) return {Verdict::ok, fmt::format("locked memory: {}, which does not bind root", human(*limit))};
    return {Verdict::warn, fmt::format("locked memory: {} (ulimit -l); where the driver counts pinned memory against it, evictions fail: raise it to unlimited", human(*limit))};
}

Finding check_cupti() {
    // The only one that a run opens (profiler/cupti).
    constexpr const char* name = "libcupti.so.13";
    const Finding found = in_child([] {
        void* const handle = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL);
        if (!handle) return Finding{Verdict::warn, ""};
        Dl_info info{};
        if (void* const known = ::dlsym(handle, "cuptiGetVersion")) ::dladdr(known, &info);
        return Finding{Verdict::ok, info.dli_fname ? info.dli_fname : name};
    });
    if (found.verdict == Verdict::ok) return {Verdict::ok, "CUPTI: " + found.text + " found; tried while the iteration is learned, with UDNNMEM_CUPTI=1"};
    return {Verdict::ok, "CUPTI: libcupti.so.13 not found: ops are timed by event pairs while the iteration is learned"};
}

// A file that the library will write: a new one, or (`kept`) one that may be there already.
Finding check_file(const char* what, const char* variable, const Pattern& file, bool kept) {
    if (file.off()) return {Verdict::ok, fmt::format("{}: off", what)};
    const std::filesystem::path path = expand_pattern(file.text);
    std::error_code error;
    const bool exists = std::filesystem::exists(path, error);
    if (exists && std::filesystem::is_directory(path, error)) return {Verdict::warn, fmt::format("{}: {} is a directory: name a file in {}", what, path.string(), variable)};
    if (exists && !kept && !std::filesystem::is_character_file(path, error)) return {Verdict::warn, fmt::format("{}: {} exists already and is never written over, so nothing would be recorded: remove it, or name another in {} (%p is the process id)", what, path.string(), variable)};
    const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
    if (exists && ::access(path.c_str(), kept ? R_OK | W_OK : W_OK) != 0) return {Verdict::warn, fmt::format("{}: {} cannot be read and written: {}: name another file in {}, or off", what, path.string(), std::strerror(errno), variable)};
    if (!exists && ::access(folder.c_str(), W_OK | X_OK) != 0)
        return {Verdict::warn, fmt::format("{}: {} cannot be written in: {}: name another file in {}, or off", what, folder, std::strerror(errno), variable)};
    return {Verdict::ok, fmt::format("{}: {}", what, file.text)};
}

// That, and what is there must be a plan: the library neither reads nor replaces anything else.
Finding check_plan(const Options& options) {
    Finding found = check_file("plan", "UDNNMEM_PLAN", options.plan, true);
    if (found.verdict != Verdict::ok || options.plan.off()) return found;
    executor::PlanFile is{};
    const auto plans = executor::read_plans(expand_pattern(options.plan.text), is);
    if (plans || is == executor::PlanFile::none) return found;
    return {Verdict::warn, fmt::format("plan: {}{}", plans.error().message, is == executor::PlanFile::plans ? ": it will be replaced" : " in UDNNMEM_PLAN, or off")};
}

// What the library will set for the frameworks of the Python that a shell finds here.
void check_frameworks(Findings& report, const Options& options) {
    const frameworks::Lookup lookup = [](const char* variable) -> const char* { return std::getenv(variable); };
    auto python = frameworks::python_on_path("python3", lookup);
    if (!python) python = frameworks::python_on_path("python", lookup);
    if (!python) return report.add({Verdict::ok, "frameworks: no Python on PATH"});
    std::error_code error;
    const auto tool = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
    const auto installed = frameworks::distributions(frameworks::package_folders(*python, lookup));
    const auto switches = frameworks::decide(installed, lookup, frameworks::site_folder(tool.string()));
    if (switches.empty()) report.add({Verdict::ok, "frameworks: none that must be told to pass allocations through (" + python->invoked + ")"});
    for (const frameworks::Switch& s : switches) {
        const std::string name = fmt::format("frameworks: {} {}: ", s.framework, s.version);
        if (s.chosen.find("expandable_segments:True") != std::string::npos)
            report.add({Verdict::warn, name + s.chosen + " is left as it is, but hides what PyTorch allocates from us: unset it"});
        else if (!s.chosen.empty()) report.add({Verdict::ok, name + s.chosen + " is left as it is"});
        else if (options.frameworks == When::off) report.add({Verdict::ok, fmt::format("{}{}={} will not be set (UDNNMEM_FRAMEWORKS=off)", name, s.variable, s.value)});
        else report.add({Verdict::ok, fmt::format("{}{}={} will be set", name, s.variable, s.value)});
    }
}

void check_options(Findings& report, const Options*& options) {
    // One that is wrong keeps nobody from looking at what the others say.
    static Options parsed = *parse_options([](const char* variable) -> const char* {
        const char* const set = std::getenv(variable);
        const auto row = std::ranges::find(option_rows(), std::string_view(variable), &OptionRow::variable);
        return set && *set && check_option(*row, variable, set) ? set : nullptr;
    });
    options = &parsed;
    for (const OptionRow& row : option_rows()) {
        const char* const set = std::getenv(row.variable);
        if (!set || !*set) {
            report.add({Verdict::ok, fmt::format("option: {} = {} (default)", row.variable, row.otherwise)});
        } else if (const auto checked = check_option(row, row.variable, set); !checked) {
            report.add({Verdict::fail, "option: " + checked.error().message});
        } else {
            report.add({Verdict::ok, fmt::format("option: {} = {} (environment)", row.variable, set)});
        }
    }
    for (const std::string& line : unknown_options(environ)) report.add({Verdict::warn, "option: " + line});
    if (parsed.disable) report.add({Verdict::warn, "option: UDNNMEM_DISABLE is set: every program runs untouched; unset it"});
}

void doctor(bool json) {
    Findings report(json);
    const Options* options = nullptr;
    check_options(report, options);
    report.add(check_library());
    check_frameworks(report, *options);
    // From here on trials load the driver: untouched, even where this tool itself runs under the library.
    ::setenv("UDNNMEM_DISABLE", "1", 1);
    const Finding driver = in_child(try_driver);
    report.add(driver);
    if (driver.verdict == Verdict::ok) {
        const Finding device = in_child(try_device);
        report.add(device);
        if (device.verdict == Verdict::ok) {
            const int devices = count_devices();
            for (int i = 0; i < devices; ++i) {
                const auto add = [&](Finding found) {
                    if (devices > 1) found.text = fmt::format("device {}: {}", i, found.text);
                    report.add(found);
                };
                add(in_child([i] { return try_virtual_memory(i); }));
                add(in_child([i] { return try_host_frames(i); }));
                add(in_child([i] { return try_link(i); }));
                if (options->budget.form != Size::Form::automatic) add(in_child([&] { return try_budget(i, options->budget); }));
            }
        }
    }
    report.add(check_memory(*options));
    report.add(check_cgroup());
    report.add(check_locked_memory());
    report.add(check_cupti());
    report.add(check_file("trace", "UDNNMEM_TRACE", options->trace, false));
    report.add(check_plan(*options));
    report.add(check_file("messages", "UDNNMEM_DEBUG_FILE", options->debug_file, true));
    report.end();
    if (report.failed()) throw CLI::RuntimeError(1);
}

}  // namespace

void add_doctor_command(CLI::App& app) {
    CLI::App* command = app.add_subcommand("doctor", "Check driver, device, memory and options: one line each, with the fix");
    auto json = std::make_shared<bool>(false);
    command->add_flag("--json", *json, "one JSON object: how many checks are ok, warn and fail, and each with its verdict and text");
    command->footer("Ends with 1 when a check failed.");
    command->callback([json] { doctor(*json); });
}

}  // namespace udnnmem::cli
