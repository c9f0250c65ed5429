// The programme, with a step for each op, from its start to the next one's; MB and ms, for the solver's sake.
// Per buffer i and step from its first use to its last (persistent: all): r resident, h valid on the host, i in, o out; per
// step its time t. Before and after them nobody minds what a buffer holds, and it may be dropped.
//   least sum of t;  t >= d;  sum of i <= B_in t;  sum of o <= B_out t;
//   out of what the op writes only once it has ended: sum of those o <= B_out (t - d);
//   r = s where the op names the buffer;  sum of r <= M - workspace;  r' <= r + i;
//   h' <= (0 if written, else h) + o;  r + h >= s;  persistent buffers end as they began.
#include "policy/lp_bound.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "policy/compiled.hpp"

extern char** environ;

namespace udnnmem::policy {

namespace {

struct Span {
    std::int32_t first = 0, last = -1;
    bool holds(std::int32_t k) const { return first <= k && k <= last; }
};

Span span_of(const CompiledTrace& t, std::int32_t b) {
    const auto uses = t.uses[b];
    if (uses.empty()) return {};
    return t.persistent[b] ? Span{0, t.ops - 1} : Span{uses.front().op, uses.back().op};
}

bool write_programme(const CompiledTrace& t, const Machine& m, const std::string& path) {
    std::FILE* f = std::fopen(path.c_str(), "w");
    if (!f) return false;
    const double in = m.link_in * 1e-9, out = m.link_out * 1e-9;  // MB per ms
    std::vector<Span> spans;
    for (std::int32_t b = 0; b < t.buffers; ++b) spans.push_back(span_of(t, b));
    const auto live = [&](std::int32_t b, std::int32_t k) { return spans[b].holds(k); };
    const auto mb = [&](std::int32_t b) { return static_cast<double>(t.bytes[b]) * 1e-6; };
    std::fprintf(f, "Minimize\n obj:");
    for (std::int32_t k = 0; k < t.ops; ++k) std::fprintf(f, " + t%d", k);
    std::fprintf(f, "\nSubject To\n");
    for (std::int32_t k = 0; k < t.ops; ++k) {
        std::string sum_in, sum_out, sum_written, sum_held;
        bool any = false;
        for (std::int32_t b = 0; b < t.buffers; ++b) {
            if (!live(b, k)) continue;
            any = true;
            const std::string id = std::to_string(b) + "_" + std::to_string(k);
            sum_in += " + i" + id;
            sum_out += " + o" + id;
            sum_held += " + r" + id;
            bool written = false;
            for (const auto& a : t.access[k]) written |= a.buffer == b && a.dirties();
            if (written) sum_written += " + o" + id;
            std::fprintf(f, " r%s + h%s >= %.9g\n", id.c_str(), id.c_str(), mb(b));
            const bool ends = k + 1 == t.ops ? !t.persistent[b] : !live(b, k + 1);
            if (ends) continue;
            const std::string next = std::to_string(b) + "_" + std::to_string((k + 1) % t.ops);
            if (next != id) std::fprintf(f, " r%s - r%s - i%s <= 0\n", next.c_str(), id.c_str(), id.c_str());
            if (written) std::fprintf(f, " h%s - o%s <= 0\n", next.c_str(), id.c_str());
            else if (next != id) std::fprintf(f, " h%s - h%s - o%s <= 0\n", next.c_str(), id.c_str(), id.c_str());
        }
        if (!any) continue;
        std::fprintf(f, "%s - %.9g t%d <= 0\n", sum_in.c_str(), in, k);
        std::fprintf(f, "%s - %.9g t%d <= 0\n", sum_out.c_str(), out, k);
        if (!sum_written.empty()) std::fprintf(f, "%s - %.9g t%d <= %.9g\n", sum_written.c_str(), out, k, -out * static_cast<double>(t.duration[k]) * 1e-6);
        std::fprintf(f, "%s <= %.9g\n", sum_held.c_str(), static_cast<double>(m.memory.value - t.workspace[k]) * 1e-6);
    }
    std::fprintf(f, "Bounds\n");
    for (std::int32_t k = 0; k < t.ops; ++k) {
        std::fprintf(f, " t%d >= %.9g\n", k, static_cast<double>(t.duration[k]) * 1e-6);
        for (std::int32_t b = 0; b < t.buffers; ++b) {
            if (!live(b, k)) continue;
            std::fprintf(f, " 0 <= r%d_%d <= %.9g\n 0 <= h%d_%d <= %.9g\n", b, k, mb(b), b, k, mb(b));
        }
        for (const auto& a : t.access[k]) std::fprintf(f, " r%d_%d = %.9g\n", a.buffer, k, mb(a.buffer));
    }
    std::fprintf(f, "End\n");
    return std::fclose(f) == 0;
}

// True if the solver came to its end in time.
bool solve(const std::string& programme, const std::string& solution, Nanoseconds limit) {
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    const char* arguments[] = {"cbc", programme.c_str(), "solve", "solution", solution.c_str(), nullptr};
    pid_t child = 0;
    const int error = posix_spawnp(&child, "cbc", &files, nullptr, const_cast<char**>(arguments), environ);
    posix_spawn_file_actions_destroy(&files);
    if (error) return false;
    const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(limit.value);
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() > until) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            return false;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

std::optional<Nanoseconds> lp_bound(const profiler::Trace& trace, const Machine& machine, Nanoseconds limit, std::size_t most_variables) {
    const CompiledTrace t(trace);
    std::size_t variables = 0;
    for (std::int32_t b = 0; b < t.buffers; ++b) {
        const Span span = span_of(t, b);
        variables += 4 * static_cast<std::size_t>(span.last - span.first + 1);
    }
    if (t.ops == 0 || variables > most_variables) return std::nullopt;
    const char* folder = std::getenv("TMPDIR");
    std::string base = std::string(folder && *folder ? folder : "/tmp") + "/udnnmem-lp-XXXXXX";
    const int fd = mkstemp(base.data());
    if (fd < 0) return std::nullopt;
    close(fd);
    const std::string programme = base + ".lp", solution = base + ".txt";
    std::optional<Nanoseconds> bound;
    if (write_programme(t, machine, programme) && solve(programme, solution, limit)) {
        std::ifstream in(solution);
        std::string line;
        std::getline(in, line);
        const auto at = line.find("objective value");
        if (line.rfind("Optimal", 0) == 0 && at != std::string::npos)
            bound = Nanoseconds(static_cast<std::int64_t>(std::floor(std::atof(line.c_str() + at + 15) * 1e6 * (1 - 1e-6))));
    }
    for (const std::string& path : {base, programme, solution}) unlink(path.c_str());
    return bound;
}

}  // namespace udnnmem::policy
