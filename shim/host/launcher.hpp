// What the launcher of a job (torchrun, Open MPI, MVAPICH2, MPICH and Intel MPI, SLURM) says about this process, by the
// environment that it gives each of its ranks.
#pragma once

#include <cstdint>

namespace udnnmem::host {

// Each is -1 where no launcher says it. Read from the environment now.
struct Ranks {
    std::int32_t rank = -1;         // of this process among all of the job
    std::int32_t local_rank = -1;   // among those on this machine
    std::int32_t world_size = -1;   // ranks of the job
    std::int32_t local_size = -1;   // ranks of the job on this machine
};
Ranks launched_ranks();

// Processes of one job on this machine; 1 where no launcher says it.
int ranks_here();

}  // namespace udnnmem::host
