// The structures that translated C and the run-time share. One definition serves both: it is compiled
// here and spelt as text in front of every translated kernel (abi_text), so the two cannot differ.
#pragma once

#include <cstdint>

namespace softgpu::ptx::abi {

using u8 = std::uint8_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

// Memory that was never written holds this word throughout (spelt again in prelude.inc): NaN as f32, f64, f16 and bf16,
// an index out of every bound.
inline constexpr u32 unwritten_word = 0x7fffffffu;

#define SOFTGPU_PTX_ABI                                                                                   \
    typedef struct Launch {                                                                               \
        u64 view_offset;                                                                                  \
        const u8* params;                                                                                 \
        const u64* globals;                                                                               \
        u64 grid_workspace;                                                                               \
        u32 grid[3], block[3];                                                                            \
        u32 dynamic_shared, total_shared;                                                                 \
    } Launch;                                                                                             \
    typedef struct Block {                                                                                \
        u32 id[3], unused;                                                                                \
        u8* shared;                                                                                       \
        u64 clock, bytes_read, bytes_written, operations, unwritten;                                      \
        void (*trap)(struct Block*, u32 line, const char* why);                                           \
        void (*sleep)(struct Block*, u32 ns);                                                             \
        u32 (*print)(struct Block*, const char* format, const u8* arguments, u64 view_offset);            \
    } Block;                                                                                              \
    /* A thread that stopped says why: kind and operands; the scheduler answers in result, flag. */       \
    typedef struct Thread {                                                                               \
        u32 id[3], linear;                                                                                \
        u32 pc, kind, op, mask;                                                                           \
        u32 a, b, c, spins;                                                                               \
        u64 wide;                                                                                         \
        u32 result, flag, gone;   /* gone: it has left the kernel within a function */                    \
    } Thread;                                                                                             \
    enum { STOP_EXIT, STOP_BARRIER, STOP_WARP, STOP_SPIN };                                               \
    enum { BAR_SYNC, BAR_ARRIVE, BAR_POPC, BAR_AND, BAR_OR };                                             \
    enum {                                                                                                \
        WARP_SYNC, WARP_ACTIVE, SHFL_UP, SHFL_DOWN, SHFL_BFLY, SHFL_IDX, VOTE_ALL, VOTE_ANY, VOTE_UNI,    \
        VOTE_BALLOT, MATCH_ANY, MATCH_ALL, REDUX_ADD, REDUX_MIN, REDUX_MAX, REDUX_SMIN, REDUX_SMAX,       \
        REDUX_AND, REDUX_OR, REDUX_XOR, WARP_ELECT                                                        \
    };

SOFTGPU_PTX_ABI

#define SOFTGPU_PTX_TEXT_(...) #__VA_ARGS__
#define SOFTGPU_PTX_TEXT(...) SOFTGPU_PTX_TEXT_(__VA_ARGS__)
inline constexpr char abi_text[] = SOFTGPU_PTX_TEXT(SOFTGPU_PTX_ABI);

using BlockFunction = void(const Launch*, Block*);
using StepFunction = u32(const Launch*, Block*, Thread*);  // Thread heads the frame

}  // namespace softgpu::ptx::abi
