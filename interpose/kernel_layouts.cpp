// How the layout of a kernel is found: from the driver (12.4 and later), by one query a parameter until it says that
// there is no such parameter; on older drivers from the image that the kernel came from (image_layouts.hpp).
#include "interpose/kernel_layouts.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "interpose/image_layouts.hpp"
#include "interpose/kernel_code.hpp"

namespace udnnmem::interpose {

constinit std::atomic<const LayoutTable*> layout_table{nullptr};

namespace {

constexpr std::size_t max_params = 4096;
constexpr std::uint32_t max_param_bytes = 64 * 1024;

struct Birth {
    void* owner;  // CUmodule or CUlibrary
    std::string name;
};
// Never destroyed: programs call the driver from their own static destructors.
struct Cache {
    std::mutex mutex;
    std::size_t used = 0;  // keys in the table, dead ones included
    std::unordered_set<CUkernel> kernels;
    std::unordered_map<void*, Birth> births;  // kept only where the driver cannot be asked
    std::multimap<std::string, std::unique_ptr<const KernelLayout>> layouts;  // by content
    std::vector<const LayoutTable*> replaced;  // a reader may still be in one
};
Cache& cache() {
    static Cache& c = *new Cache;
    return c;
}

bool driver_can_be_asked() noexcept { return driver_has(Symbol::cuFuncGetParamInfo); }

template <class Query>
CUresult ask_params(Query query, KernelLayout& layout) {
    for (std::size_t i = 0; i < max_params; ++i) {
        std::size_t offset = 0, size = 0;
        const CUresult result = query(i, &offset, &size);
        if (result == CUDA_ERROR_INVALID_VALUE) return CUDA_SUCCESS;   // there are no more
        if (result != CUDA_SUCCESS) return result;
        if (offset > max_param_bytes || size > max_param_bytes) break;
        layout.params.push_back({static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(size)});
    }
    return CUDA_ERROR_UNKNOWN;
}

// The parameters of the handle, asked about as that kind of handle.
CUresult ask_as(bool kernel, CUfunction f, KernelLayout& layout) {
    layout.params.clear();
    if (!driver_has(kernel ? Symbol::cuKernelGetParamInfo : Symbol::cuFuncGetParamInfo)) return CUDA_ERROR_NOT_SUPPORTED;
    return ask_params([&](std::size_t i, std::size_t* o, std::size_t* s) {
        return kernel ? OWN(cuKernelGetParamInfo)(reinterpret_cast<CUkernel>(f), i, o, s) : OWN(cuFuncGetParamInfo)(f, i, o, s);
    }, layout);
}

// Sets params and known. By the header the driver has one error for an index beyond the last parameter and a handle of the other
// kind: where the answer is "none", it is believed if the handle is asked about as the other kind too, and has none as that
// either, or is no such handle. Returns whether it is a kernel, as far as that is known.
bool ask_both_ways(bool is_kernel, CUfunction f, KernelLayout& layout) {
    const CUresult first = ask_as(is_kernel, f, layout);
    layout.known = first == CUDA_SUCCESS && !layout.params.empty();
    if (layout.known) return is_kernel;
    const CUresult second = ask_as(!is_kernel, f, layout);
    layout.known = second == CUDA_SUCCESS && !layout.params.empty();
    if (layout.known) return !is_kernel;
    const auto none = [](CUresult answer) { return answer == CUDA_SUCCESS || answer == CUDA_ERROR_INVALID_HANDLE; };
    layout.known = none(first) && none(second) && (first == CUDA_SUCCESS || second == CUDA_SUCCESS);
    return first == CUDA_SUCCESS ? is_kernel : !is_kernel;
}

const char* name_of(CUfunction f, bool kernel) {
    const char* name = nullptr;
    if (kernel && driver_has(Symbol::cuKernelGetName))
        OWN(cuKernelGetName)(&name, reinterpret_cast<CUkernel>(f));
    else if (!kernel && driver_has(Symbol::cuFuncGetName))
        OWN(cuFuncGetName)(&name, f);
    return name ? name : "";
}

// The layout that every equal one shares. Its name lives in the map's key.
const KernelLayout* shared(Cache& c, KernelLayout&& layout, const std::string& name) {
    auto [from, to] = c.layouts.equal_range(name);
    for (auto it = from; it != to; ++it) {
        const KernelLayout& old = *it->second;
        const bool equal = old.known == layout.known && old.follows_variables == layout.follows_variables &&
                           std::equal(old.params.begin(), old.params.end(), layout.params.begin(), layout.params.end(),
                                      [](auto a, auto b) { return a.offset == b.offset && a.size == b.size; });
        if (equal) return &old;
    }
    for (const KernelLayout::Param& p : layout.params) layout.fingerprint = (layout.fingerprint ^ p.offset ^ std::uint64_t{p.size} << 32) * 0x9E3779B97F4A7C15ull;
    for (const char c : name) layout.fingerprint = (layout.fingerprint ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
    auto it = c.layouts.emplace(name, std::make_unique<KernelLayout>(std::move(layout)));
    const_cast<KernelLayout&>(*it->second).name = it->first.c_str();
    return it->second.get();
}

const LayoutTable* new_table(std::size_t size) {
    return new LayoutTable{size - 1, new LayoutSlot[size]};
}

void insert_into(const LayoutTable& t, CUfunction f, const KernelLayout* layout, std::size_t& used) {
    for (std::size_t i = layout_hash(f) & t.mask;; i = (i + 1) & t.mask) {
        const CUfunction key = t.slots[i].key.load(std::memory_order_relaxed);
        if (key != nullptr && key != f) continue;
        if (key == nullptr) {
            t.slots[i].key.store(f, std::memory_order_release);
            ++used;
        }
        t.slots[i].value.store(layout, std::memory_order_release);
        return;
    }
}

// Replaced tables are left to their readers: they are a geometric series, plus 32 bytes for each handle that died.
void insert(Cache& c, CUfunction f, const KernelLayout* layout) {
    const LayoutTable* t = layout_table.load(std::memory_order_relaxed);
    if (t == nullptr || c.used * 2 >= t->mask) {
        std::size_t live = 0;
        for (std::size_t i = 0; t != nullptr && i <= t->mask; ++i) live += t->slots[i].value.load() != nullptr;
        std::size_t size = 1024;
        while (size < live * 4) size *= 2;
        const LayoutTable* grown = new_table(size);
        c.used = 0;
        for (std::size_t i = 0; t != nullptr && i <= t->mask; ++i)
            if (const KernelLayout* value = t->slots[i].value.load()) insert_into(*grown, t->slots[i].key.load(), value, c.used);
        if (t != nullptr) c.replaced.push_back(t);
        layout_table.store(t = grown, std::memory_order_release);
    }
    insert_into(*t, f, layout, c.used);
}

}  // namespace

const KernelLayout* ask_layout(CUfunction f) noexcept {
    static const KernelLayout unknown;
    if (f == nullptr) return &unknown;
    Cache& c = cache();
    std::lock_guard lock(c.mutex);
    KernelLayout layout;
    std::string name;
    const bool is_kernel = c.kernels.contains(reinterpret_cast<CUkernel>(f));
    if (driver_can_be_asked()) {
        const bool as_kernel = ask_both_ways(is_kernel, f, layout);
        name = name_of(f, layout.known ? as_kernel : is_kernel);
    } else if (auto birth = c.births.find(f); birth != c.births.end()) {
        name = birth->second.name;
        layout.known = image_layout(birth->second.owner, name, layout.params);
    }
    if (!layout.known) layout.params.clear();
    for (const KernelLayout::Param& p : layout.params) layout.bytes = std::max(layout.bytes, p.offset + p.size);
    layout.words = std::all_of(layout.params.begin(), layout.params.end(), [](const KernelLayout::Param& p) { return p.size == 8 && p.offset % 8 == 0; });
    layout.follows_variables = kernel_code(name).follows_variables;
    const KernelLayout* result = shared(c, std::move(layout), name);
    insert(c, f, result);
    return result;
}

const KernelLayout* kernel_layout(CUfunction f) noexcept { return layout_of(f); }

void kernel_born(CUkernel k, CUlibrary library, const char* name) noexcept {
    Cache& c = cache();
    std::lock_guard lock(c.mutex);
    c.kernels.insert(k);
    if (!driver_can_be_asked()) c.births[k] = {library, name ? name : ""};
}

void function_born(CUfunction f, CUmodule module, const char* name) noexcept {
    Cache& c = cache();
    std::lock_guard lock(c.mutex);
    c.kernels.erase(reinterpret_cast<CUkernel>(f));
    if (!driver_can_be_asked()) c.births[f] = {module, name ? name : ""};
}

void forget_layouts() noexcept {
    Cache& c = cache();
    std::lock_guard lock(c.mutex);
    if (const LayoutTable* t = layout_table.load(std::memory_order_relaxed))
        for (std::size_t i = 0; i <= t->mask; ++i) t->slots[i].value.store(nullptr, std::memory_order_release);
}

}  // namespace udnnmem::interpose
