// A libcuda.so.1 whose functions do nothing but note that they were called, and with what: for tests of the doors,
// which must reach every entry point. Made from the table that the doors themselves are made from. Functions answer
// CUDA_SUCCESS and leave what they are given alone, except the few that a door needs an answer from.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef struct {
    const char* symbol;
    intptr_t arguments[16];  // the words that arrived, whatever their meaning
    unsigned long calls;
} FakeCall;

enum {
#define ENTRY(symbol, base, version, flavour, kind, need) index_##symbol,
#include "interpose/entry_points.def"
#undef ENTRY
    symbol_count
};
EXPORT FakeCall fake_calls[symbol_count];  // in the order of the table
EXPORT int fake_answer;                    // what the functions answer

#define WORDS                                                                                                     \
    intptr_t a, intptr_t b, intptr_t c, intptr_t d, intptr_t e, intptr_t f, intptr_t g, intptr_t h, intptr_t i,   \
        intptr_t j, intptr_t k, intptr_t l, intptr_t m, intptr_t n, intptr_t o, intptr_t p
static int note(int index, const char* symbol, const intptr_t arguments[16]) {
    FakeCall* call = &fake_calls[index];
    memcpy(call->arguments, arguments, sizeof call->arguments);
    call->symbol = symbol;
    ++call->calls;
    return fake_answer;
}

// Those with a body of their own below.
#define cuGetProcAddress generic_cuGetProcAddress
#define cuGetProcAddress_v2 generic_cuGetProcAddress_v2
#define cuFuncGetParamInfo generic_cuFuncGetParamInfo
#define cuGetExportTable generic_cuGetExportTable
#define cuKernelGetParamInfo generic_cuKernelGetParamInfo
#define ENTRY(symbol, base, version, flavour, kind, need)                                                     \
    EXPORT int symbol(WORDS) {                                                                                \
        const intptr_t arguments[16] = {a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p};                      \
        return note(index_##symbol, #symbol, arguments);                                                      \
    }
#include "interpose/entry_points.def"
#undef ENTRY
#undef cuGetProcAddress
#undef cuGetProcAddress_v2
#undef cuFuncGetParamInfo
#undef cuGetExportTable
#undef cuKernelGetParamInfo

enum { legacy, per_thread };
EXPORT int cuGetExportTable(intptr_t table, intptr_t id) {
    (void)table, (void)id;
    return 801;  // there are no private tables
}
EXPORT int cuGetProcAddress(const char*, void**, int, uint64_t);
EXPORT int cuGetProcAddress_v2(const char*, void**, int, uint64_t, int*);

// A kernel has the parameters that FAKE_PARAMS says ("8@0 8@8 4@16"), whatever the handle.
static int param_info(size_t index, size_t* offset, size_t* size) {
    const char* text = getenv("FAKE_PARAMS");
    while (text && *text) {
        char* end;
        size_t s = strtoul(text, &end, 10), o = strtoul(end + 1, &end, 10);
        if (index-- == 0) {
            *offset = o;
            *size = s;
            return 0;
        }
        text = *end ? end + 1 : end;
    }
    return 1;
}
EXPORT int cuFuncGetParamInfo(intptr_t f, size_t index, size_t* offset, size_t* size) {
    (void)f;
    return param_info(index, offset, size);
}
EXPORT int cuKernelGetParamInfo(intptr_t f, size_t index, size_t* offset, size_t* size) {
    (void)f;
    return param_info(index, offset, size);
}

static int undocumented(void) { return 0; }

// The largest version not above; a later version than the table's of any name answers with something unheard of.
static void* answer_for(const char* name, int version, uint64_t flags) {
    static const struct {
        const char *symbol, *base;
        int version, flavour;
        void* function;
    } table[] = {
#define ENTRY(symbol, base, version, flavour, kind, need) {#symbol, #base, version, flavour, (void*)&symbol},
#include "interpose/entry_points.def"
#undef ENTRY
    };
    void* found = NULL;
    int best = -1, newest = 0;
    for (size_t i = 0; i < sizeof table / sizeof *table; ++i)
        if (table[i].version > newest) newest = table[i].version;
    if (version > newest) return (void*)&undocumented;
    for (size_t i = 0; i < sizeof table / sizeof *table; ++i) {
        if (strcmp(table[i].base, name) != 0 || table[i].version > version) continue;
        if (table[i].flavour == per_thread && !(flags & 2)) continue;
        int score = table[i].version + (table[i].flavour == per_thread ? 1000000 : 0);
        if (score > best) best = score, found = table[i].function;
    }
    return found;
}

EXPORT int cuGetProcAddress(const char* name, void** out, int version, uint64_t flags) {
    *out = answer_for(name, version, flags);
    return *out ? 0 : 500;
}
EXPORT int cuGetProcAddress_v2(const char* name, void** out, int version, uint64_t flags, int* status) {
    *out = answer_for(name, version, flags);
    if (status) *status = *out ? 0 : 1;
    return *out ? 0 : 500;
}
