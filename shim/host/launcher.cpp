#include "shim/host/launcher.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace udnnmem::host {

namespace {

struct Launcher {
    const char* rank;
    const char* local_rank;
    const char* world_size;
    const char* local_size;
};

// The innermost launcher first: torchrun may be started by srun. SLURM says the numbers of a step (what one srun started)
// and, in a batch script outside of any step, those that the job asked for.
constexpr Launcher kLaunchers[] = {
    {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"},                                                                          // torchrun
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},                      // Open MPI
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"},                          // MVAPICH2
    {"PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS"},                                                                    // MPICH, Intel MPI
    {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"},                                            // a step of SLURM
    {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"},                                                        // a job of SLURM
};

std::optional<std::int32_t> number(std::string_view text) {
    std::int32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() && value >= 0 ? std::optional(value) : std::nullopt;
}

// A number, or SLURM's list of tasks by node, "4(x2),1": the entry of this node (SLURM_NODEID), else the largest.
std::optional<std::int32_t> tasks_on_node(std::string_view list) {
    const char* const id = std::getenv("SLURM_NODEID");
    const std::int64_t node = id ? number(id).value_or(-1) : -1;
    std::int64_t first = 0;
    std::optional<std::int32_t> most;
    while (!list.empty()) {
        std::string_view entry = list.substr(0, list.find(','));
        list.remove_prefix(std::min(list.size(), entry.size() + 1));
        std::int32_t nodes = 1;
        if (const auto open = entry.find("(x"); open != entry.npos && entry.back() == ')') {
            const auto times = number(entry.substr(open + 2, entry.size() - open - 3));
            if (!times) return {};
            nodes = *times;
            entry = entry.substr(0, open);
        }
        const auto tasks = number(entry);
        if (!tasks) return {};
        if (node >= first && node < first + nodes) return tasks;
        first += nodes;
        most = std::max(most.value_or(0), *tasks);
    }
    return most;
}

// What the first launcher that gives a number says.
std::int32_t said(const char* Launcher::*variable, std::optional<std::int32_t> (*read)(std::string_view) = number) {
    for (const Launcher& launcher : kLaunchers) {
        const char* const text = std::getenv(launcher.*variable);
        if (!text) continue;
        if (const auto value = read(text)) return *value;
    }
    return -1;
}

std::int32_t local_size() { return said(&Launcher::local_size, tasks_on_node); }

}  // namespace

Ranks launched_ranks() { return {said(&Launcher::rank), said(&Launcher::local_rank), said(&Launcher::world_size), local_size()}; }

int ranks_here() { return std::max(1, local_size()); }

}  // namespace udnnmem::host
