// Graphs: nodes of work with their dependencies, the executable form, and what stream capture adds to
// them. A graph's nodes are its own; instantiating, cloning and adding as a child copy it. The work of
// a node is shared and never changed: SetParams puts another in its place, so a launch in flight keeps
// the one it began with. A graph handle is for one thread at a time (as the header says); an executable
// graph's launches are ordered among themselves.
#pragma once

#include <unordered_map>

#include "tests/softgpu/driver/context.hpp"

namespace softgpu {
inline constexpr std::uint32_t graph_magic = 0x47525048, node_magic = 0x4e4f4445, exec_magic = 0x45584543;

// Memory of an allocation node, and of its copies in clones and executables. Its address is there from the beginning, the device's
// memory from the first upload or launch on.
struct GraphMemory {
    Address address = 0;
    std::uint64_t id = 0;
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    ~GraphMemory();
    // Takes the device's memory, the first time. False: there is not enough.
    bool hold() const;
    void launched() const;
};
// Whether that range is a graph's memory, and the graph has never run.
bool awaits_launch(std::uint64_t id);
}  // namespace softgpu

struct CUgraphNode_st {
    std::uint32_t magic = softgpu::node_magic;
    CUgraph graph = nullptr;
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    std::shared_ptr<softgpu::Work> work;  // null: empty, child, alloc, free
    CUgraph child = nullptr;
    std::shared_ptr<softgpu::GraphMemory> memory;  // alloc node
    CUdeviceptr freed = 0;                         // free node
    bool enabled = true;
    std::vector<CUgraphNode> dependencies;
};

struct CUgraph_st {
    std::uint32_t magic = softgpu::graph_magic;
    std::uint64_t id = 0;
    bool is_child = false;
    std::vector<CUgraphNode> nodes;
    std::vector<std::shared_ptr<void>> user_objects;  // references of the graph, shared with its copies
};

struct CUgraphExec_st {
    std::uint32_t magic = softgpu::exec_magic;
    CUcontext context = nullptr;
    unsigned long long flags = 0;
    CUgraph graph = nullptr;  // a copy
    struct Step {
        CUgraphNode node;  // of the copy
        std::vector<std::size_t> after;
    };
    std::vector<Step> steps;  // children expanded, in an order that respects the dependencies
    std::unordered_map<CUgraphNode, CUgraphNode> copy_of;  // the graph's node -> ours
    softgpu::OpRef last;      // under schedule_mutex
};

namespace softgpu {

inline bool valid(CUgraph g) { return g && g->magic == graph_magic; }
inline bool valid(CUgraphNode n) { return n && n->magic == node_magic; }
inline bool valid(CUgraphExec e) { return e && e->magic == exec_magic; }

// Capture. All but the first two take schedule_mutex themselves.
CUresult capture_blocks_legacy_locked(CUstream s);
CUresult capture_wait_locked(CUstream s, CUevent e);
CUresult capture_work(CUstream s, std::shared_ptr<Work> work);
CUresult capture_child(CUstream s, CUgraph graph);
CUresult capture_allocation(CUstream s, std::uint64_t bytes, CUdeviceptr* out);
CUresult capture_free(CUstream s, CUdeviceptr a);
CUresult end_capture(CUstream s, CUgraph* out);

CUgraph new_graph();
CUgraphNode new_node(CUgraph graph, CUgraphNodeType type, std::vector<CUgraphNode> dependencies);
CUgraph copy_graph(CUgraph graph, std::unordered_map<CUgraphNode, CUgraphNode>* map);
void destroy_graph(CUgraph graph);
CUgraphNodeType type_of(const Work& work);
CUresult make_allocation_node(CUgraphNode node, CUcontext context, CUDA_MEM_ALLOC_NODE_PARAMS* params);
// Makes a work for a kernel, copy, memset, host, event or memory operation node from generic parameters.
CUresult make_node_work(CUcontext context, const CUgraphNodeParams& params, std::shared_ptr<Work>* out);

}  // namespace softgpu
