// `udnnmem top [PID...]`: live figures of running processes, a row for each of their devices. Asks the processes
// themselves (shim/live); makes no CUDA call.
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "shim/cli/commands.hpp"
#include "shim/cli/format.hpp"
#include "shim/live/reader.hpp"

namespace udnnmem::cli {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::chrono::milliseconds kPatience(1000);   // with a process that does not answer

struct TopArguments {
    std::vector<int> pids;
    bool once = false, json = false;
    double interval = 1;
};

struct Column {
    std::size_t width;
    bool right;
};
constexpr std::array<Column, 13> columns = {{{8, true}, {14, false}, {4, true}, {3, true}, {10, true}, {10, true}, {10, true}, {10, true}, {12, true}, {12, true}, {7, true}, {8, true}, {10, false}}};
const std::array<std::string, columns.size()> headings = {"PID", "PROGRAM", "RANK", "DEV", "BUDGET", "RESIDENT", "LIVE", "ON HOST", "IN", "OUT", "WAITS", "OPS/s", " STATE"};
// Where a terminal is narrow: what is known from elsewhere goes first.
constexpr std::size_t first_to_go[] = {4, 2, 11, 3, 7, 12, 9, 8, 6, 10, 1, 5};
constexpr const char* nobody = "no process runs under udnnmem\n";

// What a process says: the record of the run, with its devices as a list. Null: it makes no sense.
Json read_answer(const std::string& text) {
    Json run;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        Json record = Json::parse(text.substr(at, end - at), nullptr, false);
        at = end + 1;
        if (!record.is_object() || !record.contains("kind")) return nullptr;
        const bool device = record["kind"] == "device";
        record.erase("kind");
        if (device && run.is_object()) run["devices"].push_back(std::move(record));
        else if (!device) run = std::move(record), run["devices"] = Json::array();
    }
    return run;
}

// A figure of an answer, which another version of the library may not give.
std::int64_t number(const Json& of, const char* name) {
    const auto found = of.find(name);
    return found != of.end() && found->is_number() ? found->get<std::int64_t>() : 0;
}
std::string text(const Json& of, const char* name) {
    const auto found = of.find(name);
    return found != of.end() && found->is_string() ? found->get<std::string>() : std::string();
}

class Top {
  public:
    explicit Top(const TopArguments& arguments) : arguments_(arguments) {
        for (const int pid : arguments.pids) {
            auto process = live::Process::open(pid);
            if (!process) fail(process.error());
            processes_.push_back(std::move(*process));
        }
        if (arguments.pids.empty()) look_around();
    }

    // One sample of every process, on stdout. False: none is left.
    bool sample() {
        if (arguments_.pids.empty()) look_around();
        std::erase_if(processes_, [](const live::Process& p) { return !p.running(); });
        std::string out;
        const bool screen = !arguments_.json && !arguments_.once && ::isatty(STDOUT_FILENO);
        for (live::Process& process : processes_) {
            const auto said = process.ask(kPatience);
            const Json run = said ? read_answer(*said) : Json();
            if (!run.is_object()) {
                if (!process.running()) continue;
                if (auto again = live::Process::open(process.pid())) process = std::move(*again);   // another program by exec has a page of its own
                const std::string why = said ? "gives figures that this version cannot read" : "does not answer (stopped?)";
                out += arguments_.json ? Json{{"pid", process.pid()}, {"error", why}}.dump() + "\n" : fmt::format("{:>8} {}\n", process.pid(), shown(why, room(9)));
                continue;
            }
            out += arguments_.json ? run.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n" : rows(process.pid(), run);
            before_[process.pid()] = run;
        }
        if (!arguments_.json && !out.empty()) out = line(headings) + out;
        if (processes_.empty() && arguments_.pids.empty() && !arguments_.json && (screen || !std::exchange(said_nobody_, true))) out = nobody;
        else if (!processes_.empty()) said_nobody_ = false;
        if (screen) out = "\033[H\033[J" + out;
        write_output("", out, false);
        return !processes_.empty();
    }

    bool empty() const { return processes_.empty(); }

  private:
    void look_around() {
        for (const int pid : live::find_processes()) {
            if (std::any_of(processes_.begin(), processes_.end(), [&](const live::Process& p) { return p.pid() == pid; })) continue;
            if (auto process = live::Process::open(pid)) processes_.push_back(std::move(*process));
        }
    }

    // Rates since the sample before, and since the process began at the first one.
    std::string rows(int pid, const Json& run) {
        const auto past = before_.find(pid);
        const Json nothing = Json::object();
        const Json& then = past == before_.end() || number(past->second, "wall_ns") > number(run, "wall_ns") ? nothing : past->second;
        const double ns = std::max(1.0, static_cast<double>(number(run, "wall_ns") - number(then, "wall_ns")));
        const auto rate = [&](const Json& now, const Json& old, const char* name) { return static_cast<double>(number(now, name) - number(old, name)) / ns * 1e9; };
        std::string out;
        std::size_t k = 0;
        for (const Json& d : run["devices"]) {
            const Json& old = then.contains("devices") && k < then["devices"].size() ? then["devices"][k] : nothing;
            const auto bytes = [&](const char* name) { return human(Bytes(number(d, name))); };
            const std::int64_t rank = run.contains("rank") ? number(run, "rank") : -1;
            out += line({std::to_string(pid), shown(text(run, "name"), 14), rank < 0 ? "-" : std::to_string(rank), std::to_string(number(d, "device")), bytes("budget_bytes"), bytes("resident_bytes"), bytes("live_bytes"), bytes("host_bytes"),
                         human_rate(rate(d, old, "bytes_in")), human_rate(rate(d, old, "bytes_out")), fmt::format("{:.0f} %", rate(d, old, "stall_ns") / 1e7), k == 0 ? human_count(static_cast<std::int64_t>(rate(run, then, "ops"))) : "",
                         " " + shown(text(run, "state"))});
            ++k;
        }
        if (k == 0) out += fmt::format("{:>8} {:<14} {}\n", pid, shown(text(run, "name"), 14), shown("no managed memory yet", room(24)));
        return out;
    }

    // Characters of a terminal's line from `column` on; elsewhere no limit.
    static std::size_t room(std::size_t column) {
        winsize window{};
        if (!::isatty(STDOUT_FILENO) || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col == 0) return std::string::npos;
        return std::max<std::size_t>(window.ws_col, column + 4) - column;
    }

    // The cells of all columns, less those for which the line has no room.
    static std::string line(const std::array<std::string, columns.size()>& cells) {
        std::array<bool, columns.size()> left_out{};
        const std::size_t width = room(0);
        const auto whole = [&] {
            std::size_t sum = 0;
            for (std::size_t i = 0; i < columns.size(); ++i) sum += left_out[i] ? 0 : columns[i].width + (i > 0);
            return sum;
        };
        for (const std::size_t i : first_to_go)
            if (whole() > width) left_out[i] = true;
        std::string out;
        for (std::size_t i = 0; i < columns.size(); ++i) {
            if (left_out[i]) continue;
            if (i > 0) out += ' ';
            out += columns[i].right ? fmt::format("{:>{}}", cells[i], columns[i].width) : i + 1 == columns.size() ? cells[i] : fmt::format("{:<{}}", cells[i], columns[i].width);
        }
        return out + '\n';
    }

    const TopArguments& arguments_;
    bool said_nobody_ = false;  // once, where it is no screen
    std::vector<live::Process> processes_;
    std::map<int, Json> before_;
};

void top(const TopArguments& arguments) {
    Top view(arguments);
    if (view.empty() && arguments.once) {
        if (!arguments.json) write_output("", nobody, false);
        return;
    }
    while (view.sample() || (arguments.pids.empty() && !arguments.once)) {
        if (arguments.once) return;
        ::usleep(static_cast<useconds_t>(arguments.interval * 1e6));
    }
}

}  // namespace

void add_top_command(CLI::App& app) {
    CLI::App* command = app.add_subcommand("top", "Live figures of running processes: who holds what, what moves, who waits");
    auto arguments = std::make_shared<TopArguments>();
    const auto no_pid = [](std::string& text) {
        int pid = 0;
        return CLI::detail::lexical_cast(text, pid) && pid > 0 ? std::string() : "expected a process id, is " + text;
    };
    command->add_option("PID", arguments->pids, "processes; none: all that run under udnnmem and may be looked into")->type_name("")->check(CLI::Validator(no_pid, ""));
    command->add_flag("--once", arguments->once, "one sample: rates are then those since the process began");
    command->add_flag("--json", arguments->json, "one JSON object a process and sample");
    command->add_option("--interval", arguments->interval, "time between samples")->type_name("SECONDS")->check(within(0.05, 3600.0))->capture_default_str();
    command->footer("RESIDENT is what frames hold of the device, LIVE what the program has allocated. WAITS is the share of the time that launches waited for memory, of all threads together. Ends when the processes that were named have ended, or by Ctrl-C.");
    command->callback([arguments] { top(*arguments); });
}

}  // namespace udnnmem::cli
