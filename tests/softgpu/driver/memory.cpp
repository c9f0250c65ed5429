// The window, its views, and the shared-memory file behind them; see memory.hpp.
#include "tests/softgpu/driver/memory.hpp"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace softgpu {

namespace {

// Header of the file: one record an exported frame, found by the descriptor's file position (vmm.cpp).
constexpr std::uint64_t header_bytes = 1 << 20;
constexpr std::uint64_t keep_resident = 256ull << 20;  // freed memory kept for re-use; more goes back to the system

struct Memory {
    std::mutex mutex;
    int fd = -1;
    std::uint64_t end = header_bytes;  // of the file
    std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> resident, punched;  // free extents: offsets by size
    std::uint64_t resident_bytes = 0;
    Address base = 0;
    std::uint64_t window = 0;
    std::map<Address, Address> taken;  // start -> end of address stretches in use
    Address next = 0;
    std::map<Address, Range> ranges;
    std::map<Address, std::uint64_t> reservations;
    std::map<Address, Address> registered;  // program's address -> window address
    std::uint64_t used[8] = {};
    bool peers[8][8] = {};  // [device][owner]
    std::uint64_t next_id = 1;
    std::mutex physical;
};
Memory& memory() {
    static auto* const m = new Memory;
    return *m;
}

void raise_to(std::atomic<std::uint64_t>& peak, std::uint64_t value) {
    std::uint64_t old = peak.load();
    while (old < value && !peak.compare_exchange_weak(old, value)) {}
}

bool exceeds_locked(std::uint64_t bytes, int device) { return bytes > options().memory || memory().used[device] > options().memory - bytes; }

void count(bool host, int device, std::int64_t bytes) {
    auto& f = figures();
    if (host) {
        raise_to(f.host_peak, f.host_bytes += static_cast<std::uint64_t>(bytes));
        return;
    }
    memory().used[device] += static_cast<std::uint64_t>(bytes);
    std::uint64_t now = f.device_bytes += static_cast<std::uint64_t>(bytes);
    raise_to(f.device_peak, now);
    if (bytes > 0 && options().assert_bytes && now > options().assert_bytes) {
        say("SOFTGPU_ASSERT_BYTES: %llu device bytes are held, %llu are allowed", (unsigned long long)now, (unsigned long long)options().assert_bytes);
        std::abort();
    }
}

void* reserve(Address at, std::uint64_t bytes, bool fixed) {
    return ::mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (fixed ? MAP_FIXED_NOREPLACE : 0), -1, 0);
}

}  // namespace

bool memory_start() {
    auto& m = memory();
    m.fd = ::memfd_create("softgpu", MFD_CLOEXEC);
    if (m.fd < 0 || ::ftruncate(m.fd, 1ll << 52) != 0) {
        say("memfd_create: %s", std::strerror(errno));
        return false;
    }
    // As large as fits: 16 TiB where the whole address space is ours to use, less under a sanitizer.
    for (std::uint64_t window = 16ull << 40; window >= 4ull << 30; window /= 2) {
        std::uint64_t all = window * static_cast<std::uint64_t>(1 + options().devices);
        void* p = all <= 0x300000000000ull ? reserve(0x200000000000ull, all, true) : MAP_FAILED;
        if (p != MAP_FAILED && reinterpret_cast<Address>(p) != 0x200000000000ull) ::munmap(p, all), p = MAP_FAILED;
        if (p == MAP_FAILED) p = reserve(0, all, false);
        if (p == MAP_FAILED) continue;
        m.base = reinterpret_cast<Address>(p);
        m.window = window;
        m.next = m.base + (1 << 21);
        return true;
    }
    say("no address space for the device: %s", std::strerror(errno));
    return false;
}

bool in_window(Address a) { return a - memory().base < memory().window; }
std::uint64_t view(int device) { return memory().window * static_cast<std::uint64_t>(device + 1); }
std::mutex& memory_mutex() { return memory().mutex; }
std::map<Address, Range>& ranges_locked() { return memory().ranges; }
std::map<Address, std::uint64_t>& reservations_locked() { return memory().reservations; }

std::uint64_t device_used(int device) {
    std::lock_guard lock(memory().physical);
    return memory().used[device];
}

bool is_reserved_locked(Address a, std::uint64_t bytes) {
    auto& r = memory().reservations;
    auto it = r.upper_bound(a);
    return it != r.begin() && (--it, a - it->first < it->second && bytes <= it->second - (a - it->first));
}

void fill_poison(const Extent& extent) {
    if (!options().strict) return;
    static const auto* const block = new std::vector<std::uint32_t>((1 << 20) / 4, poison);
    for (std::uint64_t done = 0; done < extent.bytes;) {
        auto n = ::pwrite(extent.fd, block->data(), std::min<std::uint64_t>(1 << 20, extent.bytes - done), static_cast<off_t>(extent.offset + done));
        if (n <= 0) break;
        done += static_cast<std::uint64_t>(n);
    }
}

bool hold(Frame& frame) {
    auto& m = memory();
    std::lock_guard lock(m.physical);
    if (frame.held) return true;
    if (exceeds_locked(frame.counted, frame.device)) return false;
    count(frame.host, frame.device, static_cast<std::int64_t>(frame.counted));
    return frame.held = true;
}

CUresult make_frame(std::uint64_t bytes, std::uint64_t counted, int device, bool host, std::shared_ptr<Frame>* out, bool held) {
    auto& m = memory();
    bytes = round_up(std::max<std::uint64_t>(bytes, 1), page);
    auto frame = std::make_shared<Frame>();
    {
        std::lock_guard lock(m.physical);
        if (held && !host && exceeds_locked(counted, device)) return CUDA_ERROR_OUT_OF_MEMORY;
        frame->extent = {m.fd, 0, bytes};
        if (auto& r = m.resident[bytes]; !r.empty()) {
            frame->extent.offset = r.back();
            r.pop_back();
            m.resident_bytes -= bytes;
        } else if (auto& p = m.punched[bytes]; !p.empty()) {
            frame->extent.offset = p.back();
            p.pop_back();
        } else {
            frame->extent.offset = m.end;
            m.end += bytes;
        }
        frame->device = device;
        frame->host = host;
        frame->counted = counted;
        frame->held = held;
        if (held) count(host, device, static_cast<std::int64_t>(counted));
    }
    fill_poison(frame->extent);
    *out = std::move(frame);
    return CUDA_SUCCESS;
}

namespace {
std::array<std::atomic<std::uint64_t>, 8>& taken_of_nodes() {
    static std::array<std::atomic<std::uint64_t>, 8> taken;
    return taken;
}
}  // namespace

bool is_node(int node) { return node >= 0 && node < static_cast<int>(std::clamp<std::size_t>(options().numa.size(), 1, 8)); }

bool take_node(int node, std::uint64_t bytes) {
    if (options().numa.empty()) return true;
    auto& taken = taken_of_nodes()[static_cast<std::size_t>(node)];
    if (taken.fetch_add(bytes) + bytes <= options().numa[static_cast<std::size_t>(node)]) return true;
    taken.fetch_sub(bytes);
    return false;
}

Frame::~Frame() {
    if (node >= 0) taken_of_nodes()[static_cast<std::size_t>(node)].fetch_sub(extent.bytes);
    auto& m = memory();
    if (extent.fd < 0) return;
    if (extent.fd != m.fd) {
        ::close(extent.fd);
        return;
    }
    bool punch = false;
    if (!exported) {
        std::lock_guard lock(m.physical);
        punch = m.resident_bytes + extent.bytes > keep_resident;
        if (!punch) {
            m.resident[extent.bytes].push_back(extent.offset);
            m.resident_bytes += extent.bytes;
        }
    }
    if (punch) ::fallocate(m.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(extent.offset), static_cast<off_t>(extent.bytes));
    std::lock_guard lock(m.physical);
    if (punch) m.punched[extent.bytes].push_back(extent.offset);
    if (held) count(host, device, -static_cast<std::int64_t>(counted));
}

Address take_addresses(std::uint64_t bytes, std::uint64_t align, Address hint, bool guard) {
    auto& m = memory();
    align = std::max(align, page);
    bytes = round_up(bytes, page);
    if (align & (align - 1) || bytes > m.window) return 0;
    const std::uint64_t extra = guard ? page : 0;
    const Address last = m.base + m.window;
    auto fits = [&](Address a) {  // -> 0 if free, else the end of what is in the way
        auto it = m.taken.upper_bound(a);
        if (it != m.taken.begin() && std::prev(it)->second > a) return std::prev(it)->second;
        if (it != m.taken.end() && it->first < a + bytes + extra) return it->second;
        return Address{0};
    };
    auto take = [&](Address a) {
        m.taken[a] = a + bytes + extra;
        return a;
    };
    if (hint && hint % align == 0 && in_window(hint) && hint + bytes + extra <= last && !fits(hint)) return take(hint);
    for (int round = 0; round < 2; ++round) {
        Address a = round_up(round ? m.base + (1 << 21) : m.next, align);
        while (a + bytes + extra <= last && a + bytes > a) {
            Address blocked = fits(a);
            if (!blocked) {
                m.next = a + bytes + extra;
                return take(a);
            }
            a = round_up(blocked, align);
        }
    }
    return 0;
}

void give_addresses(Address a, std::uint64_t) { memory().taken.erase(a); }

bool map_pages(Address a, std::uint64_t bytes, int device, const Extent& e, CUmemAccess_flags access) {
    if (access == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
        unmap_pages(a, bytes, device);
        return true;
    }
    int protection = access == CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ : PROT_READ | PROT_WRITE;
    Address where = device == cpu_view ? a : a + view(device);
    int populate = bytes <= 64ull << 20 && device != cpu_view ? MAP_POPULATE : 0;
    return ::mmap(reinterpret_cast<void*>(where), bytes, protection, MAP_SHARED | MAP_FIXED | populate, e.fd, static_cast<off_t>(e.offset)) != MAP_FAILED;
}

void unmap_pages(Address a, std::uint64_t bytes, int device) {
    Address where = device == cpu_view ? a : a + view(device);
    ::mmap(reinterpret_cast<void*>(where), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

namespace {
bool on_host(Kind kind) { return kind == Kind::pinned || kind == Kind::managed; }

bool map_range(const Range& r) {
    bool everywhere = on_host(r.kind) || r.kind == Kind::registered;
    for (int d = 0; d < options().devices; ++d)
        if (everywhere || d == r.device || memory().peers[d][r.device])
            if (!map_pages(r.address, r.mapped, d, r.frame->extent, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) return false;
    return !on_host(r.kind) || map_pages(r.address, r.mapped, cpu_view, r.frame->extent, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

void unmap_range(const Range& r) {
    for (int d = 0; d < options().devices; ++d) unmap_pages(r.address, r.mapped, d);
    if (on_host(r.kind)) unmap_pages(r.address, r.mapped, cpu_view);
}
}  // namespace

CUresult allocate(std::uint64_t bytes, Kind kind, CUcontext context, int device, unsigned flags, Address* out) {
    auto& m = memory();
    if (bytes > m.window) return CUDA_ERROR_OUT_OF_MEMORY;
    Range r;
    TRY(make_frame(bytes, on_host(kind) ? round_up(bytes, page) : round_up(bytes, 512), device, on_host(kind), &r.frame));
    r.bytes = bytes;
    r.mapped = r.frame->extent.bytes;
    r.kind = kind;
    r.context = context;
    r.device = device;
    r.flags = flags;
    std::lock_guard lock(m.mutex);
    // As on a card: large blocks lie on 2 MiB; small ones on their page.
    r.address = take_addresses(r.mapped, bytes >= 1 << 20 ? 2 << 20 : page, 0, true);
    if (!r.address) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!map_range(r)) {
        unmap_range(r);
        give_addresses(r.address, r.mapped);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    r.id = m.next_id++;
    *out = r.address;
    m.ranges[r.address] = std::move(r);
    return CUDA_SUCCESS;
}

CUresult release(Address a, bool (*allowed)(const Range&)) {
    auto& m = memory();
    std::shared_ptr<Frame> last;  // dies outside the lock
    std::lock_guard lock(m.mutex);
    auto it = m.ranges.find(a);
    if (it == m.ranges.end() || !allowed(it->second)) return CUDA_ERROR_INVALID_VALUE;
    unmap_range(it->second);
    give_addresses(a, it->second.mapped);
    last = std::move(it->second.frame);
    m.ranges.erase(it);
    return CUDA_SUCCESS;
}

bool peer_enabled(int device, int owner) {
    std::lock_guard lock(memory().mutex);
    return memory().peers[device][owner];
}

CUresult enable_peer(int device, int owner, bool on) {
    auto& m = memory();
    std::lock_guard lock(m.mutex);
    if (m.peers[device][owner] == on) return on ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    m.peers[device][owner] = on;
    for (auto& [a, r] : m.ranges)
        if (r.device == owner && (r.kind == Kind::linear || r.kind == Kind::global)) {
            if (on) map_pages(a, r.mapped, device, r.frame->extent, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
            else unmap_pages(a, r.mapped, device);
        }
    return CUDA_SUCCESS;
}

std::optional<Range> find_range(Address a) {
    auto& m = memory();
    if (!in_window(a)) return std::nullopt;
    std::lock_guard lock(m.mutex);
    auto it = m.ranges.upper_bound(a);
    if (it == m.ranges.begin()) return std::nullopt;
    --it;
    if (a - it->first >= std::max<std::uint64_t>(it->second.bytes, 1)) return std::nullopt;
    return it->second;
}

std::optional<Range> find_registered(const void* host, std::uint64_t bytes) {
    auto& m = memory();
    auto a = reinterpret_cast<Address>(host);
    std::lock_guard lock(m.mutex);
    auto it = m.registered.upper_bound(a);
    if (it == m.registered.begin()) return std::nullopt;
    --it;
    auto range = m.ranges.find(it->second);
    if (range == m.ranges.end() || a - it->first >= range->second.bytes || bytes > range->second.bytes - (a - it->first)) return std::nullopt;
    return range->second;
}

// The pages of the registered memory become pages of a file of their own, in place, so that the device
// can have them at a second address. They stay so after unregistering (the file lives as long as the
// program's mapping). Trap: a thread that writes to these pages while they are exchanged loses the write.
CUresult register_host(void* host, std::uint64_t bytes, unsigned flags, CUcontext context) {
    auto& m = memory();
    auto a = reinterpret_cast<Address>(host);
    if (!host || !bytes || in_window(a)) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard lock(m.mutex);
    for (auto& [start, inside] : m.registered) {
        auto& r = m.ranges[inside];
        if (a < start + r.bytes && start < a + bytes) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    const Address first = a & ~(page - 1), last = round_up(a + bytes, page);
    const std::uint64_t whole = last - first;
    int fd = ::memfd_create("softgpu-registered", MFD_CLOEXEC);
    if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    auto frame = std::make_shared<Frame>();
    frame->extent = {fd, 0, whole};
    frame->host = true;
    for (std::uint64_t done = 0; done < whole;) {
        // By the system call: a sanitiser would see what lies beside the registered bytes on their pages.
        const long n = ::syscall(SYS_pwrite64, fd, reinterpret_cast<void*>(first + done), whole - done, static_cast<off_t>(done));
        if (n <= 0) return CUDA_ERROR_INVALID_VALUE;  // not the program's memory
        done += static_cast<std::uint64_t>(n);
    }
    Range r;
    r.address = take_addresses(whole, page, 0, true);
    if (!r.address) return CUDA_ERROR_OUT_OF_MEMORY;
    if (::mmap(reinterpret_cast<void*>(first), whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        give_addresses(r.address, whole);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    r.bytes = whole;
    r.mapped = whole;
    r.kind = Kind::registered;
    r.context = context;
    r.flags = flags;
    r.host = reinterpret_cast<void*>(first);
    r.frame = std::move(frame);
    r.id = m.next_id++;
    map_range(r);
    m.registered[first] = r.address;
    m.ranges[r.address] = std::move(r);
    return CUDA_SUCCESS;
}

CUresult unregister_host(void* host) {
    auto& m = memory();
    std::lock_guard lock(m.mutex);
    auto it = m.registered.find(reinterpret_cast<Address>(host) & ~(page - 1));
    if (it == m.registered.end()) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    auto range = m.ranges.find(it->second);
    unmap_range(range->second);
    give_addresses(range->first, range->second.mapped);
    m.ranges.erase(range);
    m.registered.erase(it);
    return CUDA_SUCCESS;
}

void release_context(CUcontext context) {
    auto& m = memory();
    std::vector<std::shared_ptr<Frame>> last;
    std::lock_guard lock(m.mutex);
    for (auto it = m.ranges.begin(); it != m.ranges.end();) {
        auto& r = it->second;
        if (r.context != context || r.kind == Kind::mapping || r.kind == Kind::pool || r.kind == Kind::registered) {
            ++it;
            continue;
        }
        unmap_range(r);
        give_addresses(it->first, r.mapped);
        last.push_back(std::move(r.frame));
        it = m.ranges.erase(it);
    }
}

}  // namespace softgpu
