// Backing on CUDA's virtual memory management. Host frames are cuMemCreate allocations on the device's own NUMA node, or on others when
// that is full (asked for memory of a node the driver takes none of another), where a trial at start shows that they can be made,
// mapped for both sides and copied to and from; else pinned memory that cannot be mapped into the arena (no zero-copy landing then).
// Attributes are not trusted, the trial is.
#include "shim/pager/backing.hpp"

#include <algorithm>

namespace udnnmem::pager {
namespace {

class VmmBacking final : public Backing {
  public:
    VmmBacking(const Driver& driver, CUdevice device) : driver_(driver), device_(device) {}

    bool start(const std::vector<int>& nodes) {
        CUmemAllocationProp prop = property(Place::device);
        if (insist([&] { return driver_.cuMemGetAllocationGranularity(&granule_, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM); }) != CUDA_SUCCESS ||
            granule_ == 0 || (granule_ & (granule_ - 1)) != 0)
            return false;
        // What the program could do with memory of the driver's own it can with ours: network cards reach it, other processes map
        // it. Not every platform has either.
        int rdma = 0;
        rdma_ = driver_.cuDeviceGetAttribute(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device_) == CUDA_SUCCESS && rdma;
        exportable_ = true;
        Frame trial;
        for (bool* given_up : {&rdma_, &exportable_, static_cast<bool*>(nullptr)}) {
            const CUresult made = make(Place::device, granule_, trial);
            if (made == CUDA_SUCCESS) break;
            if (!given_up) return false;
            *given_up = false;
        }
        drop(trial);
        int own = 0;
        if (driver_.cuDeviceGetAttribute(&own, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device_) != CUDA_SUCCESS || own < 0) own = 0;
        if (nodes.empty() || std::find(nodes.begin(), nodes.end(), own) != nodes.end()) nodes_ = {own};
        for (const int n : nodes)
            if (n != own) nodes_.push_back(n);
        host_mapped_ = true;   // so that make() tries
        host_mapped_ = make(Place::host, granule_, trial) == CUDA_SUCCESS;
        if (host_mapped_) {
            bool over = true;
            host_mapped_ = can_copy(trial, over);
            if (!over) return false;
            drop(trial);
        }
        return true;
    }

    std::size_t granule() const override { return granule_; }
    bool host_frames_can_be_mapped() const override { return host_mapped_; }
    bool network_can_reach() const override { return rdma_; }

    CUresult make(Place place, std::size_t bytes, Frame& out) override {
        out = Frame{.place = place, .bytes = bytes};
        if (place == Place::host && !host_mapped_) {
            return driver_.cuMemHostAlloc(&out.cpu, bytes, CU_MEMHOSTALLOC_PORTABLE);
        }
        CUresult result = create(place, bytes, out);
        if (result != CUDA_SUCCESS) return result;
        result = insist([&] { return driver_.cuMemAddressReserve(&out.alias, bytes, 0, 0, 0); });
        if (result == CUDA_SUCCESS) {
            result = insist_ready([&] { return driver_.cuMemMap(out.alias, bytes, 0, out.handle, 0); });
            if (result == CUDA_SUCCESS) {
                result = allow(out.alias, bytes);
                if (result == CUDA_SUCCESS && place == Place::host) result = allow_cpu(out.alias, bytes, out.node);
                if (result == CUDA_SUCCESS) {
                    if (place == Place::host) out.cpu = reinterpret_cast<void*>(out.alias);
                    return CUDA_SUCCESS;
                }
                unmap(out.alias, bytes);
            }
            free_range(out.alias, bytes);
        }
        release(out.handle);
        out = Frame{};
        return result;
    }

    void drop(Frame& frame) override {
        if (frame.alias) {
            unmap(frame.alias, frame.bytes);
            free_range(frame.alias, frame.bytes);
            release(frame.handle);
        } else if (frame.cpu) {
            insist([&] { return driver_.cuMemFreeHost(frame.cpu); });
        }
        frame = Frame{};
    }

    CUresult map(CUdeviceptr at, const std::vector<Frame*>& frames) override {
        std::size_t offset = 0;
        CUresult result = CUDA_SUCCESS;
        for (Frame* frame : frames) {
            result = insist_ready([&] { return driver_.cuMemMap(at + offset, frame->bytes, 0, frame->handle, 0); });
            if (result != CUDA_SUCCESS) break;
            offset += frame->bytes;
        }
        if (result == CUDA_SUCCESS) result = allow(at, offset);
        if (result == CUDA_SUCCESS && !readers_.empty()) result = allow_again(at, offset);
        if (result != CUDA_SUCCESS && offset) unmap(at, offset);
        return result;
    }

    CUresult allow_cpu(CUdeviceptr at, const std::vector<Frame*>& frames) override {
        CUresult result = CUDA_SUCCESS;
        std::size_t begin = 0;
        for (std::size_t i = 0, end = 0; i < frames.size() && result == CUDA_SUCCESS; ++i) {
            end += frames[i]->bytes;
            if (i + 1 < frames.size() && frames[i + 1]->node == frames[i]->node) continue;
            result = allow_cpu(at + begin, end - begin, frames[i]->node);
            begin = end;
        }
        return result;
    }

    void share(CUdevice reader, bool on) override {
        CUmemAccessDesc access{};
        access.location = {CU_MEM_LOCATION_TYPE_DEVICE, reader};
        access.flags = on ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        std::erase_if(readers_, [&](const CUmemAccessDesc& d) { return d.location.id == reader; });
        readers_.push_back(access);
    }
    CUresult allow_again(CUdeviceptr at, std::size_t bytes) override {
        return insist_ready([&] { return driver_.cuMemSetAccess(at, bytes, readers_.data(), readers_.size()); });
    }

    CUresult share_frame(const Frame& frame, int& descriptor) override {
        if (!exportable_ || frame.place != Place::device || !driver_.cuMemExportToShareableHandle) return CUDA_ERROR_NOT_SUPPORTED;
        return insist([&] { return driver_.cuMemExportToShareableHandle(&descriptor, frame.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0); });
    }

    CUresult unmap(CUdeviceptr at, std::size_t bytes) override { return insist_ready([&] { return driver_.cuMemUnmap(at, bytes); }); }

    CUresult copy_out(const Frame& host, const Frame& device, Piece p, CUstream stream) override {
        return insist([&] { return driver_.cuMemcpyDtoHAsync_v2(static_cast<char*>(host.cpu) + p.host_at, device.alias + p.device_at, p.bytes, stream); });
    }
    CUresult copy_in(const Frame& device, const Frame& host, Piece p, CUstream stream) override {
        return insist([&] { return driver_.cuMemcpyHtoDAsync_v2(device.alias + p.device_at, static_cast<const char*>(host.cpu) + p.host_at, p.bytes, stream); });
    }

  private:
    // Whether the driver's copies between host and device take the host frame by its address. `over` becomes false where nobody can
    // say that the copy has ended: its two frames stay.
    bool can_copy(const Frame& host, bool& over) {
        Frame device;
        CUstream stream = nullptr;
        if (make(Place::device, host.bytes, device) != CUDA_SUCCESS) return false;
        CUresult result = insist([&] { return driver_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING); });
        if (result == CUDA_SUCCESS) {
            result = copy_in(device, host, {0, 0, host.bytes}, stream);
            over = drain(driver_, stream) || result != CUDA_SUCCESS;
            insist([&] { return driver_.cuStreamDestroy_v2(stream); });
        }
        if (over) drop(device);
        return result == CUDA_SUCCESS && over;
    }
    void free_range(CUdeviceptr at, std::size_t bytes) const { insist([&] { return driver_.cuMemAddressFree(at, bytes); }); }
    void release(CUmemGenericAllocationHandle handle) const { insist([&] { return driver_.cuMemRelease(handle); }); }
    // On the node that had memory last: looking for it may take the kernel long.
    CUresult create(Place place, std::size_t bytes, Frame& out) {
        CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
        for (std::size_t tried = 0; tried < (place == Place::host ? nodes_.size() : 1); ++tried) {
            const CUmemAllocationProp prop = property(place);
            const auto once = [&] { return driver_.cuMemCreate(&out.handle, bytes, &prop, 0); };
            result = once();
            if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY) result = once();
            if (result == CUDA_ERROR_NOT_READY) result = insist_ready(once);
            if (place == Place::host) out.node = nodes_[next_node_];
            if (result == CUDA_SUCCESS || place == Place::device) break;
            next_node_ = (next_node_ + 1) % nodes_.size();
        }
        return result;
    }
    CUmemAllocationProp property(Place place) const {
        CUmemAllocationProp prop{};
        prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        if (place == Place::device) {
            prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
            if (exportable_) prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
            prop.allocFlags.gpuDirectRDMACapable = rdma_;
        } else {
            prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
            prop.location.id = nodes_[next_node_];
        }
        return prop;
    }

    // The device's access, and apart, as the driver wants it, the CPU's.
    CUresult allow(CUdeviceptr at, std::size_t bytes) const { return allow(at, bytes, {CU_MEM_LOCATION_TYPE_DEVICE, device_}); }
    CUresult allow_cpu(CUdeviceptr at, std::size_t bytes, int node) const { return allow(at, bytes, {CU_MEM_LOCATION_TYPE_HOST_NUMA, node}); }
    CUresult allow(CUdeviceptr at, std::size_t bytes, CUmemLocation who) const {
        CUmemAccessDesc access{};
        access.location = who;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        return insist_ready([&] { return driver_.cuMemSetAccess(at, bytes, &access, 1); });
    }

    const Driver& driver_;
    CUdevice device_;
    std::vector<CUmemAccessDesc> readers_;  // other devices, with access or (once they had it) without
    std::size_t granule_ = 0;
    std::vector<int> nodes_;                // the device's own first
    std::size_t next_node_ = 0;
    bool rdma_ = false;
    bool exportable_ = false;
    bool host_mapped_ = false;
};

}  // namespace

std::unique_ptr<Backing> make_vmm_backing(const Driver& driver, CUdevice device, const std::vector<int>& nodes) {
    auto backing = std::make_unique<VmmBacking>(driver, device);
    if (!backing->start(nodes)) return nullptr;
    return backing;
}

}  // namespace udnnmem::pager
