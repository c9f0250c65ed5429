/* A tool that NVTX_INJECTION64_PATH names, as nsys does: writes each call that reaches it as a line to NVTX_TOOL_LOG. */
#include <nvtx3/nvToolsExt.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void say(const char* format, ...) {
    static FILE* log;
    if (!log && getenv("NVTX_TOOL_LOG")) log = fopen(getenv("NVTX_TOOL_LOG"), "a");
    if (!log) return;
    va_list list;
    va_start(list, format);
    flockfile(log);
    vfprintf(log, format, list);
    fflush(log);
    funlockfile(log);
    va_end(list);
}

/* Handles are what they name; registered text is its own handle. */
static const char* domain_name(nvtxDomainHandle_t d) { return d ? (const char*)d : "default"; }
static void text(char* to, size_t size, const nvtxEventAttributes_t* e) {
    if (e->messageType == NVTX_MESSAGE_TYPE_ASCII) snprintf(to, size, "%s", e->message.ascii);
    else if (e->messageType == NVTX_MESSAGE_TYPE_UNICODE) snprintf(to, size, "%ls", e->message.unicode);
    else if (e->messageType == NVTX_MESSAGE_TYPE_REGISTERED) snprintf(to, size, "%s", (const char*)e->message.registered);
    else snprintf(to, size, "?");
}
static uint64_t next_id = 1000;
static __thread int level;

static nvtxDomainHandle_t create_a(const char* name) {
    char* kept = malloc(64);
    snprintf(kept, 64, "%s", name);
    say("domain %s\n", kept);
    return (nvtxDomainHandle_t)kept;
}
static nvtxDomainHandle_t create_w(const wchar_t* name) {
    char narrow[64];
    snprintf(narrow, sizeof narrow, "%ls", name);
    return create_a(narrow);
}
static nvtxStringHandle_t register_a(nvtxDomainHandle_t d, const char* string) {
    (void)d;
    char* kept = malloc(64);
    snprintf(kept, 64, "%s", string);
    return (nvtxStringHandle_t)kept;
}
static int push_ex(const nvtxEventAttributes_t* e) { char t[128]; text(t, sizeof t, e); say("push default %s\n", t); return level++; }
static int push_a(const char* m) { say("push default %s\n", m); return level++; }
static int push_w(const wchar_t* m) { say("push default %ls\n", m); return level++; }
static int pop(void) { say("pop default\n"); return --level; }
static nvtxRangeId_t start_a(const char* m) { const uint64_t id = __atomic_fetch_add(&next_id, 1, __ATOMIC_RELAXED); say("start default %s %llu\n", m, (unsigned long long)id); return id; }
static void end(nvtxRangeId_t id) { say("end default %llu\n", (unsigned long long)id); }
static void mark_a(const char* m) { say("mark default %s\n", m); }
static int domain_push(nvtxDomainHandle_t d, const nvtxEventAttributes_t* e) { char t[128]; text(t, sizeof t, e); say("push %s %s\n", domain_name(d), t); return level++; }
static int domain_pop(nvtxDomainHandle_t d) { say("pop %s\n", domain_name(d)); return --level; }
static nvtxRangeId_t domain_start(nvtxDomainHandle_t d, const nvtxEventAttributes_t* e) {
    char t[128];
    text(t, sizeof t, e);
    const uint64_t id = __atomic_fetch_add(&next_id, 1, __ATOMIC_RELAXED);
    say("start %s %s %llu %llu\n", domain_name(d), t, (unsigned long long)id, e->payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64 ? (unsigned long long)e->payload.ullValue : 0ull);
    return id;
}
static void domain_end(nvtxDomainHandle_t d, nvtxRangeId_t id) { say("end %s %llu\n", domain_name(d), (unsigned long long)id); }

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
    const NvtxExportTableCallbacks* callbacks = get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable core, core2;
    unsigned size, size2;
    if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &core, &size) ||
        !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &core2, &size2)) return 0;
#define SET(table, id, f) *table[id] = (NvtxFunctionPointer)f
    SET(core, NVTX_CBID_CORE_RangePushEx, push_ex);
    SET(core, NVTX_CBID_CORE_RangePushA, push_a);
    SET(core, NVTX_CBID_CORE_RangePushW, push_w);
    SET(core, NVTX_CBID_CORE_RangePop, pop);
    SET(core, NVTX_CBID_CORE_RangeStartA, start_a);
    SET(core, NVTX_CBID_CORE_RangeEnd, end);
    SET(core, NVTX_CBID_CORE_MarkA, mark_a);
    SET(core2, NVTX_CBID_CORE2_DomainCreateA, create_a);
    SET(core2, NVTX_CBID_CORE2_DomainCreateW, create_w);
    SET(core2, NVTX_CBID_CORE2_DomainRegisterStringA, register_a);
    SET(core2, NVTX_CBID_CORE2_DomainRangePushEx, domain_push);
    SET(core2, NVTX_CBID_CORE2_DomainRangePop, domain_pop);
    SET(core2, NVTX_CBID_CORE2_DomainRangeStartEx, domain_start);
    SET(core2, NVTX_CBID_CORE2_DomainRangeEnd, domain_end);
    say("client\n");
    return 1;
}
