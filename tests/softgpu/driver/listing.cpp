#include "tests/softgpu/driver/listing.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/softgpu/driver/memory.hpp"
#include "tests/softgpu/driver/module.hpp"

namespace softgpu {

CUresult synchronise_device(int device);
Address unview(void* address, int device);

namespace {

struct Buffer {
    int number;
    std::uint64_t bytes;
};
std::mutex& mutex() {
    static auto* const m = new std::mutex;
    return *m;
}
std::map<Address, Buffer>& buffers() {
    static auto* const all = new std::map<Address, Buffer>;
    return *all;
}
int g_next = 0;

FILE* file() {
    static FILE* const f = [] {
        const char* name = std::getenv("SOFTGPU_LIST");
        FILE* opened = name && *name ? std::fopen(name, "we") : nullptr;
        if (name && *name && !opened) say("SOFTGPU_LIST=%s: cannot be written", name);
        return opened;
    }();
    return f;
}

std::map<Address, Buffer>::iterator buffer_at(Address a) {
    auto found = buffers().upper_bound(a);
    if (found == buffers().begin()) return buffers().end();
    --found;
    return a - found->first < found->second.bytes ? found : buffers().end();
}

// Body(buffer's number, its address and bytes, mode) for each that the op names.
template <class Body>
void for_each_use(const Work& work, Body body) {
    const auto name = [&](Address a, std::uint64_t written, bool reads) {
        const auto found = buffer_at(a);
        if (found == buffers().end()) return;
        const auto& [at, buffer] = *found;
        body(buffer.number, at, buffer.bytes, reads && !written ? 'r' : !reads && a == at && written >= buffer.bytes ? 'w' : 'x');
    };
    if (auto* kernel = dynamic_cast<const KernelWork*>(&work)) {
        const char* params = const_cast<KernelWork*>(kernel)->params();
        for (const auto& p : kernel->code->kernels()[kernel->function->index].params)
            for (std::uint64_t at = (p.offset + 7) / 8 * 8; at + 8 <= p.offset + p.size; at += 8) {
                Address word;
                std::memcpy(&word, params + at, 8);
                name(word, 1, true);
            }
    } else if (auto* copy = dynamic_cast<const CopyWork*>(&work)) {
        const bool linear = copy->params.Height * copy->params.Depth <= 1;
        if (!copy->source_host) name(unview(const_cast<char*>(copy->source), work.device), 0, true);
        if (!copy->destination_host) name(unview(copy->destination, work.device), linear ? copy->bytes() : 1, false);
    } else if (auto* set = dynamic_cast<const MemsetWork*>(&work)) {
        name(set->params.dst, set->params.height <= 1 ? set->params.width * set->params.elementSize : 1, false);
    }
}

std::string name_of(const Work& work) {
    if (auto* kernel = dynamic_cast<const KernelWork*>(&work)) return kernel->code->kernels()[kernel->function->index].name;
    if (auto* copy = dynamic_cast<const CopyWork*>(&work)) return copy->source_host ? "HtoD" : copy->destination_host ? "DtoH" : "DtoD";
    return "Memset";
}

}  // namespace

bool listing() {
    static const bool on = file();
    return on;
}

void list_made(Address at, std::uint64_t bytes) {
    if (!listing()) return;
    std::lock_guard lock(mutex());
    buffers()[at] = {g_next, bytes};
    std::fprintf(file(), "a %d %llu\n", g_next++, static_cast<unsigned long long>(bytes));
}

void list_freed(Address at) {
    if (!listing()) return;
    std::lock_guard lock(mutex());
    if (const auto found = buffers().find(at); found != buffers().end()) {
        std::fprintf(file(), "f %d\n", found->second.number);
        buffers().erase(found);
    }
}

void Listed::begin(CUstream stream, const std::vector<const Work*>& works) {
    if (stream->capture) return;
    works_ = works;
    device_ = stream->context->device;
    synchronise_device(device_);
    std::lock_guard lock(mutex());
    const auto contents = [&](Address at, std::uint64_t bytes) {
        const char* from = static_cast<char*>(softgpu::at(at, device_));
        return std::vector<char>(from, from + bytes);
    };
    for (const Work* work : works_) {
        for_each_use(*work, [&](int buffer, Address at, std::uint64_t bytes, char mode) {
            const auto [use, fresh] = uses_.try_emplace(buffer, Use{graph_ ? 'x' : mode, false, at, {}});
            if (!fresh && use->second.mode != mode) use->second.mode = 'x';
            use->second.led = false;
            if (fresh) use->second.before = contents(at, bytes);
        });
        if (!dynamic_cast<const KernelWork*>(work)) continue;
        std::vector<int> open;
        for_each_use(*work, [&](int buffer, Address, std::uint64_t, char) { open.push_back(buffer); });
        while (!open.empty()) {
            const std::vector<char>& table = uses_.at(open.back()).before;
            open.pop_back();
            for (std::size_t i = 0; i + 8 <= table.size(); i += 8) {
                Address word;
                std::memcpy(&word, table.data() + i, 8);
                const auto found = buffer_at(word);
                if (found == buffers().end()) continue;
                const auto [use, fresh] = uses_.try_emplace(found->second.number, Use{'x', true, found->first, {}});
                if (!fresh) continue;
                use->second.before = contents(found->first, found->second.bytes);
                open.push_back(found->second.number);
            }
        }
    }
}

void Listed::end() {
    synchronise_device(device_);
    std::lock_guard lock(mutex());
    std::fprintf(file(), "%s", (graph_ ? "g " + std::to_string(works_.size()) : "o " + name_of(*works_[0])).c_str());
    for (const auto& [buffer, use] : uses_)
        std::fprintf(file(), " %d:%c%s%s", buffer, use.mode, use.led ? "@" : "", std::memcmp(use.before.data(), softgpu::at(use.at, device_), use.before.size()) ? "*" : "");
    std::fputc('\n', file());
    for (std::size_t i = 0; graph_ && i < works_.size(); ++i) {
        std::map<int, char> modes;
        for_each_use(*works_[i], [&](int buffer, Address, std::uint64_t, char mode) {
            const auto [at, fresh] = modes.try_emplace(buffer, mode);
            if (!fresh && at->second != mode) at->second = 'x';
        });
        std::fprintf(file(), "o %s", name_of(*works_[i]).c_str());
        for (const auto& [buffer, mode] : modes) std::fprintf(file(), " %d:%c", buffer, mode);
        std::fputc('\n', file());
    }
    std::fflush(file());
}

}  // namespace softgpu
