// The handlers behind the hooks (interpose/handlers.hpp says what each is): each turns a call into buffers and asks the pager.
// What the pager does not manage is the program's own call, untouched.
#pragma once

#include <cuda.h>

#include <cstddef>

#include "interpose/handlers.hpp"

namespace udnnmem::preload::handle {

// memory.cpp
CUresult allocate(const interpose::Allocation&, interpose::Submit real) noexcept;
// Some of ours is given back to the driver, and the call, which it has refused for want of memory, made again; nothing where there is none.
void give_way(interpose::Submit again) noexcept;
CUresult take_unmanaged(CUdevice, std::size_t bytes, interpose::Submit real) noexcept;
CUresult free_now(CUdeviceptr, const char* entry_point, interpose::Submit real) noexcept;
CUresult free_async(CUdeviceptr, CUstream, const char* entry_point, interpose::Submit real) noexcept;
CUresult pool_attribute(CUmemoryPool, CUmemPool_attribute, void* value, bool set, interpose::Submit real) noexcept;
CUresult pool_trim(CUmemoryPool, std::size_t keep, interpose::Submit real) noexcept;
void unmanaged_memory(CUdeviceptr, std::size_t bytes, interpose::Outside) noexcept;
CUresult peer_access(CUcontext peer, bool on) noexcept;
bool between_devices(CUdeviceptr to, CUdeviceptr from, CUcontext& there, CUcontext& here) noexcept;
CUresult pool_access(CUdevice owner, const CUmemAccessDesc*, std::size_t count) noexcept;

// questions.cpp
CUresult memory_info(std::size_t* free, std::size_t* total, interpose::Submit real) noexcept;
CUresult total_memory(std::size_t* bytes, CUdevice, interpose::Submit real) noexcept;
CUresult address_range(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr, interpose::Submit real) noexcept;
CUresult memops_refused(CUdeviceptr, bool on, CUresult refusal) noexcept;
CUresult pointer_attribute(void* data, CUpointer_attribute, CUdeviceptr, interpose::Submit real) noexcept;
CUresult pointer_attributes(unsigned count, CUpointer_attribute*, void** data, CUdeviceptr, interpose::Submit real) noexcept;

// work.cpp
CUresult work(const interpose::Work&, interpose::Submit) noexcept;
CUresult graph_node(const interpose::Span*, std::size_t count, interpose::Submit) noexcept;

// graphs.cpp
CUresult launch_graph(CUgraphExec, const interpose::GraphExec&, CUstream, interpose::Submit) noexcept;
bool graph_destroying(CUgraphExec) noexcept;
void end_graphs() noexcept;                 // those whose end has waited for their last launch, which has completed
void graphs_end_with(CUcontext) noexcept;   // what is kept of their launches lives in the context, which ends

}  // namespace udnnmem::preload::handle
