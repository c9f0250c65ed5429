// Executes PTX on the host: a module's text is translated to C, compiled (cached by content) and
// loaded; a kernel runs one launch on the calling thread. This header is all that the driver
// (tests/softgpu/driver) knows of the translator. No CUDA header, no global state but the cache folder.
//
// Address model. The program's device addresses are unreadable to the host (PROT_NONE there), as on a
// card; the same memory is mapped `view_offset` bytes higher, and translated code adds `view_offset` to
// every global or generic address that it dereferences. Whatever a kernel may reach (device memory,
// pinned and registered host memory, module globals) is mapped at address + view_offset by the driver.
// A wrong access faults (SIGSEGV) in the thread that calls run(); the driver catches it there.
//
// Shared addresses are 32-bit offsets into the block's shared memory, local ones into the thread's
// stack, as in PTX; cvta maps them into two windows of the generic space, and generic accesses tell the
// windows apart (their bounds are the translator's own).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

namespace softgpu::ptx {

// One line for the user: kernel, PTX line, instruction, and why it is refused.
struct Error {
    std::string message;
};

struct Param {
    std::uint32_t offset = 0;  // in the parameter buffer
    std::uint32_t size = 0;    // bytes
};

// A variable of the module in global (or constant) space; the driver gives it memory.
struct Global {
    std::string name;
    std::size_t bytes = 0;
    std::size_t align = 1;
    bool constant = false;               // .const
    bool managed = false;                // .attribute(.managed)
    std::vector<std::uint8_t> initial;   // `bytes` long, or empty for zeros
};

struct Dim3 {
    std::uint32_t x = 1, y = 1, z = 1;
};

struct LaunchDims {
    Dim3 grid, block;
    std::uint32_t dynamic_shared_bytes = 0;
    bool cooperative = false;
};

// What the translated code counted, for the roofline of modelled time.
struct Work {
    std::uint64_t bytes_read = 0, bytes_written = 0;  // global memory, as issued
    std::uint64_t operations = 0;                     // arithmetic instructions executed
    std::uint64_t unwritten = 0;                      // 4-byte words read that held abi::unwritten_word: as a rule memory never written
};

struct Kernel {
    std::string name;
    std::vector<Param> params;
    std::uint32_t param_bytes = 0;
    std::uint32_t static_shared_bytes = 0;
    std::uint32_t max_threads_per_block = 1024;  // less with .maxntid / .reqntid
    std::uint32_t registers = 0;                 // an estimate, for cuFuncGetAttribute
    std::uint32_t local_bytes = 0;
    bool has_atomics = false;        // floating-point atomics: block order would show in the bits
    bool may_race = false;           // blocks cannot be run in any order or in parallel without a chance to change bits
    int sm_version = 0;              // .target
    int ptx_version = 0;             // e.g. 90
};

struct Options {
    std::uint64_t view_offset = 0;
    std::string cache_folder;        // compiled modules; made if missing; "" compiles without keeping
    bool count_work = false;         // fill Work (slower)
    int workers = 2;                 // threads that may share one launch, where that cannot change bits
};

class Module {
  public:
    virtual ~Module() = default;
    virtual const std::vector<Kernel>& kernels() const = 0;
    virtual const std::vector<Global>& globals() const = 0;

    // Tells where the driver put globals()[i] (a device address). Every global before the first run().
    virtual void place_global(std::size_t i, std::uint64_t device_address) = 0;

    // Runs kernels()[k] to its end on the calling thread (and the pool's). `params` is the parameter buffer,
    // param_bytes long, laid out as Kernel::params says. A trap instruction or a refused run-time case
    // is an Error. Thread-safe between different launches. SIGSEGV of a wrong address, also one that a pool thread
    // meets, is raised on the calling thread.
    virtual tl::expected<Work, Error> run(std::size_t k, const LaunchDims& dims, const void* params) = 0;
};

// Translates and compiles. `text` need not end in NUL; trailing NULs are ignored. Never crashes on bad
// input: an Error names line and instruction. An instruction that is not known is an Error here, when
// the module is loaded.
tl::expected<std::unique_ptr<Module>, Error> load(std::string_view text, const Options& options);

// Several texts as one module (cuLink): names declared .extern in one are found in the others.
tl::expected<std::unique_ptr<Module>, Error> link(const std::vector<std::string_view>& texts, const Options& options);

// For the driver's SIGSEGV and SIGBUS handler, first thing: if the faulting thread (the caller of run() or one of
// the pool's) executes translated code, this does not return: run() stops the launch on all its threads and
// then repeats the access on its calling thread, outside of translated code, where this returns at once.
void divert_fault(void* address, bool write);

// True if `data` starts like PTX text.
bool looks_like_ptx(std::string_view data);

}  // namespace softgpu::ptx
