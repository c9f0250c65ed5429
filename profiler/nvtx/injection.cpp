// Invariants
//   - A function that the other tool has filled in is called for every call of the program, with what the program gave, and
//     its answer is the program's.
//   - The tool's functions are taken to be the same for every object that uses NVTX. A slot where they are not keeps the tool's.
#include "profiler/nvtx/injection.hpp"

#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "profiler/nvtx/ranges.hpp"

namespace udnnmem::profiler::nvtx {
namespace {

constexpr const char* kPath = "NVTX_INJECTION64_PATH";
constexpr const char* kNext = "NVTX_INJECTION64_PATH_NEXT";
thread_local bool own_client = false;

// The value of a variable in `environ` itself; null: unset.
const char* value_of(const char* name) {
    const std::size_t length = std::strlen(name);
    for (char** e = environ; e && *e; ++e)
        if (std::strncmp(*e, name, length) == 0 && (*e)[length] == '=') return *e + length + 1;
    return nullptr;
}

// Null removes it. Strings and list are leaked: the environment owns them from here on.
void set(const char* name, const char* value) {
    const std::size_t length = std::strlen(name);
    std::size_t count = 0;
    while (environ && environ[count]) ++count;
    char** const list = static_cast<char**>(std::malloc((count + 2) * sizeof(char*)));
    char* const entry = value ? static_cast<char*>(std::malloc(length + std::strlen(value) + 2)) : nullptr;
    if (!list || (value && !entry)) return;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count; ++i)
        if (std::strncmp(environ[i], name, length) != 0 || environ[i][length] != '=') list[kept++] = environ[i];
    if (entry) {
        std::memcpy(entry, name, length);
        entry[length] = '=';
        std::strcpy(entry + length + 1, value);
        list[kept++] = entry;
    }
    list[kept] = nullptr;
    environ = list;
}

std::uintptr_t key(nvtxDomainHandle_t domain) { return reinterpret_cast<std::uintptr_t>(domain); }

// Text that the program registered. Leaked, as ranges are.
struct Registered {
    std::mutex mutex;
    std::unordered_map<nvtxStringHandle_t, std::string> text;
};
Registered& registered() {
    static Registered* const r = new Registered;
    return *r;
}

std::string narrow(const wchar_t* text) {
    std::string to;
    for (; text && *text; ++text) {  // UTF-8 of UTF-32, which wchar_t is here
        const auto c = static_cast<std::uint32_t>(*text);
        if (c < 0x80) to += static_cast<char>(c);
        else if (c < 0x800) to += static_cast<char>(0xc0 | c >> 6), to += static_cast<char>(0x80 | (c & 0x3f));
        else if (c < 0x10000) to += static_cast<char>(0xe0 | c >> 12), to += static_cast<char>(0x80 | (c >> 6 & 0x3f)), to += static_cast<char>(0x80 | (c & 0x3f));
        else to += static_cast<char>(0xf0 | (c >> 18 & 7)), to += static_cast<char>(0x80 | (c >> 12 & 0x3f)), to += static_cast<char>(0x80 | (c >> 6 & 0x3f)), to += static_cast<char>(0x80 | (c & 0x3f));
    }
    return to;
}
std::string text_of(const char* text) { return text ? text : ""; }
std::string text_of(const wchar_t* text) { return narrow(text); }
std::string text_of(const nvtxEventAttributes_t* e) {
    if (!e) return {};
    switch (e->messageType) {
        case NVTX_MESSAGE_TYPE_ASCII: return text_of(e->message.ascii);
        case NVTX_MESSAGE_TYPE_UNICODE: return narrow(e->message.unicode);
        case NVTX_MESSAGE_TYPE_REGISTERED: {
            Registered& r = registered();
            std::lock_guard lock(r.mutex);
            const auto found = r.text.find(e->message.registered);
            return found == r.text.end() ? std::string() : found->second;
        }
        default: return {};
    }
}

// Runs `body` unless nobody listens any more. No memory: the range has no name.
template <class Body>
void told(Body body) noexcept {
    if (!listening()) return;
    try {
        body();
    } catch (...) {
        stop_listening();
    }
}

std::atomic<std::uint64_t> own_handles{1};  // for what the program creates where no tool does

// ---- what takes the place of each function; next<F> is the tool's ---------------------------------------------------------

template <unsigned module, unsigned id>
std::atomic<NvtxFunctionPointer> next_slot{nullptr};
template <class F, unsigned module, unsigned id>
F next() {
    return reinterpret_cast<F>(next_slot<module, id>.load(std::memory_order_relaxed));
}

constexpr unsigned kCore = NVTX_CB_MODULE_CORE, kCore2 = NVTX_CB_MODULE_CORE2;
#define NEXT(module, NAME) next<nvtx##NAME##_impl_fntype, k##module, IdOf##module::NAME>()
struct IdOfCore {
    enum : unsigned { MarkEx = NVTX_CBID_CORE_MarkEx, MarkA = NVTX_CBID_CORE_MarkA, MarkW = NVTX_CBID_CORE_MarkW,
                      RangeStartEx = NVTX_CBID_CORE_RangeStartEx, RangeStartA = NVTX_CBID_CORE_RangeStartA, RangeStartW = NVTX_CBID_CORE_RangeStartW,
                      RangeEnd = NVTX_CBID_CORE_RangeEnd, RangePushEx = NVTX_CBID_CORE_RangePushEx, RangePushA = NVTX_CBID_CORE_RangePushA,
                      RangePushW = NVTX_CBID_CORE_RangePushW, RangePop = NVTX_CBID_CORE_RangePop };
};
struct IdOfCore2 {
    enum : unsigned { DomainMarkEx = NVTX_CBID_CORE2_DomainMarkEx, DomainRangeStartEx = NVTX_CBID_CORE2_DomainRangeStartEx,
                      DomainRangeEnd = NVTX_CBID_CORE2_DomainRangeEnd, DomainRangePushEx = NVTX_CBID_CORE2_DomainRangePushEx,
                      DomainRangePop = NVTX_CBID_CORE2_DomainRangePop, DomainRegisterStringA = NVTX_CBID_CORE2_DomainRegisterStringA,
                      DomainRegisterStringW = NVTX_CBID_CORE2_DomainRegisterStringW, DomainCreateA = NVTX_CBID_CORE2_DomainCreateA,
                      DomainCreateW = NVTX_CBID_CORE2_DomainCreateW };
};

template <class F, unsigned id, class Message>
void mark(Message message) {
    told([&] { marked(0, text_of(message)); });
    if (const F f = next<F, kCore, id>()) f(message);
}
template <class F, unsigned id, class Message>
int push(Message message) {
    const int level = depth(0);
    told([&] { pushed(0, text_of(message)); });
    const F f = next<F, kCore, id>();
    return f ? f(message) : level;
}
int pop() {
    const int level = popped(0);
    const auto f = NEXT(Core, RangePop);
    return f ? f() : level;
}
template <class F, unsigned id, class Message>
nvtxRangeId_t start(Message message) {
    const F f = next<F, kCore, id>();
    const nvtxRangeId_t range = f ? f(message) : own_handles.fetch_add(1);
    told([&] { started(0, range, text_of(message)); });
    return range;
}
void end(nvtxRangeId_t range) {
    ended(0, range);
    if (const auto f = NEXT(Core, RangeEnd)) f(range);
}

void domain_mark(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* e) {
    told([&] { marked(key(domain), text_of(e)); });
    if (const auto f = NEXT(Core2, DomainMarkEx)) f(domain, e);
}
int domain_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* e) {
    const int level = depth(key(domain));
    told([&] { pushed(key(domain), text_of(e)); });
    const auto f = NEXT(Core2, DomainRangePushEx);
    return f ? f(domain, e) : level;
}
int domain_pop(nvtxDomainHandle_t domain) {
    const int level = popped(key(domain));
    const auto f = NEXT(Core2, DomainRangePop);
    return f ? f(domain) : level;
}
nvtxRangeId_t domain_start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* e) {
    const auto f = NEXT(Core2, DomainRangeStartEx);
    const nvtxRangeId_t range = f ? f(domain, e) : own_handles.fetch_add(1);
    told([&] { started(key(domain), range, text_of(e)); });
    return range;
}
void domain_end(nvtxDomainHandle_t domain, nvtxRangeId_t range) {
    ended(key(domain), range);
    if (const auto f = NEXT(Core2, DomainRangeEnd)) f(domain, range);
}
template <class F, unsigned id, class Name>
nvtxDomainHandle_t domain_create(Name name) {
    const F f = next<F, kCore2, id>();
    const nvtxDomainHandle_t domain = f ? f(name) : reinterpret_cast<nvtxDomainHandle_t>(own_handles.fetch_add(1));
    told([&] { name_domain(key(domain), text_of(name)); });
    return domain;
}
template <class F, unsigned id, class Text>
nvtxStringHandle_t register_string(nvtxDomainHandle_t domain, Text text) {
    const F f = next<F, kCore2, id>();
    const nvtxStringHandle_t handle = f ? f(domain, text) : reinterpret_cast<nvtxStringHandle_t>(own_handles.fetch_add(1));
    told([&] {
        Registered& r = registered();
        std::lock_guard lock(r.mutex);
        r.text[handle] = text_of(text);
    });
    return handle;
}

// ---- filling a client's table ---------------------------------------------------------------------------------------------

struct Table {
    NvtxFunctionTable slots = nullptr;
    unsigned size = 0;
    std::vector<NvtxFunctionPointer> before;   // what they hold while nobody has filled them in: the client's own start

    Table(const NvtxExportTableCallbacks& callbacks, NvtxCallbackModule module) {
        if (!callbacks.GetModuleFunctionTable(module, &slots, &size)) size = 0;
        for (unsigned i = 0; i < size; ++i) before.push_back(slots[i] ? *slots[i] : nullptr);
    }
};

template <unsigned module, unsigned id, class F>
void wrap(const Table& table, F ours) {
    if (id >= table.size || !table.slots[id]) return;
    const NvtxFunctionPointer there = *table.slots[id] == table.before[id] ? nullptr : *table.slots[id];
    NvtxFunctionPointer known = nullptr;
    if (there && !next_slot<module, id>.compare_exchange_strong(known, there) && known != there) return;
    *table.slots[id] = reinterpret_cast<NvtxFunctionPointer>(ours);
}

void wrap_all(const Table& core, const Table& core2) {
#define TEXT(table, module, F, NAME, message) wrap<k##module, IdOf##module::NAME>(table, static_cast<nvtx##NAME##_impl_fntype>(F<nvtx##NAME##_impl_fntype, IdOf##module::NAME, message>));
    using Attributes = const nvtxEventAttributes_t*;
    TEXT(core, Core, mark, MarkEx, Attributes)
    TEXT(core, Core, mark, MarkA, const char*)
    TEXT(core, Core, mark, MarkW, const wchar_t*)
    TEXT(core, Core, push, RangePushEx, Attributes)
    TEXT(core, Core, push, RangePushA, const char*)
    TEXT(core, Core, push, RangePushW, const wchar_t*)
    TEXT(core, Core, start, RangeStartEx, Attributes)
    TEXT(core, Core, start, RangeStartA, const char*)
    TEXT(core, Core, start, RangeStartW, const wchar_t*)
    TEXT(core2, Core2, domain_create, DomainCreateA, const char*)
    TEXT(core2, Core2, domain_create, DomainCreateW, const wchar_t*)
    TEXT(core2, Core2, register_string, DomainRegisterStringA, const char*)
    TEXT(core2, Core2, register_string, DomainRegisterStringW, const wchar_t*)
#undef TEXT
    wrap<kCore, IdOfCore::RangePop>(core, pop);
    wrap<kCore, IdOfCore::RangeEnd>(core, end);
    wrap<kCore2, IdOfCore2::DomainMarkEx>(core2, domain_mark);
    wrap<kCore2, IdOfCore2::DomainRangePushEx>(core2, domain_push);
    wrap<kCore2, IdOfCore2::DomainRangePop>(core2, domain_pop);
    wrap<kCore2, IdOfCore2::DomainRangeStartEx>(core2, domain_start);
    wrap<kCore2, IdOfCore2::DomainRangeEnd>(core2, domain_end);
}

// The other tool's own entry; null: there is none.
NvtxInitializeInjectionNvtxFunc_t next_tool() noexcept {
    static const NvtxInitializeInjectionNvtxFunc_t tool = [] {
        const char* const path = value_of(kNext);
        void* const library = path && *path ? ::dlopen(path, RTLD_LAZY) : nullptr;
        return library ? reinterpret_cast<NvtxInitializeInjectionNvtxFunc_t>(::dlsym(library, "InitializeInjectionNvtx2")) : nullptr;
    }();
    return tool;
}

}  // namespace

void inject(const char* library) noexcept {
    char path[PATH_MAX];
    if (!::realpath(library, path)) return;
    const char* const there = value_of(kPath);
    if (there && std::strcmp(there, path) == 0) return;
    const char* const next = there && *there ? there : nullptr;
    if (next || value_of(kNext)) set(kNext, next);
    set(kPath, path);
}

OwnClient::OwnClient() noexcept { own_client = true; }
OwnClient::~OwnClient() { own_client = false; }

}  // namespace udnnmem::profiler::nvtx

// For each object of the process that uses NVTX, at its first call. Not 0: the table is filled in.
extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
    using namespace udnnmem::profiler::nvtx;
    const NvtxInitializeInjectionNvtxFunc_t tool = next_tool();
    const auto ask_tool = [&] { return tool && tool != InitializeInjectionNvtx2 ? tool(get_table) : 0; };
    if (own_client || !get_table || !listening()) return ask_tool();
    const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
    if (!callbacks || callbacks->struct_size < sizeof *callbacks || !callbacks->GetModuleFunctionTable) return ask_tool();
    try {
        const Table core(*callbacks, NVTX_CB_MODULE_CORE), core2(*callbacks, NVTX_CB_MODULE_CORE2);
        ask_tool();
        wrap_all(core, core2);
        return 1;
    } catch (const std::bad_alloc&) {  // before the tool was asked
        return ask_tool();
    }
}
