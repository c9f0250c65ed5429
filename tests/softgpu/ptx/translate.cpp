// Lays out parameters, shared memory and globals, and frames the coder's bodies as C functions.
#include "tests/softgpu/ptx/translate.hpp"

#include <algorithm>
#include <optional>

#include "tests/softgpu/ptx/abi.hpp"
#include "tests/softgpu/ptx/analysis.hpp"
#include "tests/softgpu/ptx/coder.hpp"

namespace softgpu::ptx {
namespace {

constexpr char prelude_text[] =
#include "tests/softgpu/ptx/prelude.inc"
    ;
constexpr std::size_t max_shared = std::size_t{1} << 24;

std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

void lay_out_globals(const Program& program, const std::vector<std::uint32_t>& pointers, Layout& layout, Translation& out) {
    for (std::uint32_t i = 0; i < program.variables.size(); ++i) {
        const Variable& v = program.variables[i];
        if ((v.space != Space::global && v.space != Space::constant) || v.external) continue;
        layout.globals[i] = static_cast<std::uint32_t>(out.globals.size());
        Global g;
        g.name = v.name;
        g.bytes = v.bytes;
        g.align = v.align;
        g.constant = v.space == Space::constant;
        g.managed = v.managed;
        g.initial = v.initial;
        out.globals.push_back(std::move(g));
    }
    for (std::uint32_t i = 0; i < pointers.size(); ++i) layout.pointers[pointers[i]] = i;
    for (const auto& [variable, global] : layout.globals) {
        for (const Relocation& r : program.variables[variable].relocations) {
            GlobalPatch patch;
            patch.global = global;
            patch.offset = r.offset;
            patch.function = r.function;
            patch.addend = r.addend;
            const auto& map = r.function ? layout.pointers : layout.globals;
            std::uint32_t symbol = r.symbol;
            if (r.function && program.functions[symbol].resolved >= 0) symbol = static_cast<std::uint32_t>(program.functions[symbol].resolved);
            if (!r.function && program.variables[symbol].resolved >= 0) symbol = static_cast<std::uint32_t>(program.variables[symbol].resolved);
            auto found = map.find(symbol);
            if (found == map.end()) {
                if (r.function) continue;  // a kernel's or an absent function's address: nobody here can call it
                throw Refusal(0, "the initial value of " + program.variables[variable].name + " names a variable that is defined nowhere");
            }
            patch.target = found->second;
            out.patches.push_back(patch);
        }
    }
}

std::string function_head(const Program& program, std::uint32_t index) {
    const Function& f = program.functions[index];
    std::string head = cat("static void fn", index, "(const Launch* L, Block* B, Thread* T");
    auto add = [&](const Function::Slot& s) {
        if (s.is_register) throw Refusal(f.line, f.name + ": parameters in registers of a function that is called through a pointer");
        head += cat(", u8* v", s.index);
    };
    for (const auto& s : f.returns) add(s);
    for (const auto& s : f.params) add(s);
    return head + ")";
}

struct SharedSize {
    std::size_t fixed = 0, dynamic_at = 0;
};

SharedSize lay_out_shared(const Program& program, const std::set<std::uint32_t>& variables, Layout& layout) {
    SharedSize size;
    std::size_t align = 16;
    for (std::uint32_t v : variables) {
        const Variable& variable = program.variables[v];
        if (variable.space != Space::shared) continue;
        if (variable.bytes == 0 || variable.external) {
            align = std::max(align, variable.align);
            continue;
        }
        const std::size_t at = round_up(size.fixed, variable.align);
        layout.shared[v] = static_cast<std::uint32_t>(at);
        size.fixed = at + variable.bytes;
        if (size.fixed > max_shared) throw Refusal(0, "too much shared memory");
    }
    size.dynamic_at = round_up(size.fixed, align);
    for (std::uint32_t v : variables)
        if (program.variables[v].space == Space::shared && !layout.shared.count(v)) layout.shared[v] = static_cast<std::uint32_t>(size.dynamic_at);
    return size;
}

TranslatedKernel translate_kernel(Program& program, std::uint32_t index, const std::vector<std::uint32_t>& pointers, Layout layout, bool count_work) {
    const Function kernel = flatten(program, index);
    const Reach reached = reach(program, kernel, pointers);
    TranslatedKernel out;
    out.kernel.name = kernel.name;
    out.kernel.max_threads_per_block = kernel.max_threads;
    out.kernel.sm_version = program.sm_version;
    out.kernel.ptx_version = program.ptx_version;
    for (const Function::Slot& s : kernel.params) {
        if (s.is_register) throw Refusal(kernel.line, "a kernel's parameter in a register");
        const Variable& v = program.variables[s.index];
        const std::size_t at = round_up(out.kernel.param_bytes, v.align);
        if (at + v.bytes > 32764) throw Refusal(kernel.line, "too many parameters");
        layout.params[s.index] = static_cast<std::uint32_t>(at);
        out.kernel.params.push_back({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(v.bytes)});
        out.kernel.param_bytes = static_cast<std::uint32_t>(at + v.bytes);
    }
    const SharedSize shared = lay_out_shared(program, reached.variables, layout);
    out.kernel.static_shared_bytes = static_cast<std::uint32_t>(shared.fixed);
    out.dynamic_offset = static_cast<std::uint32_t>(shared.dynamic_at);
    std::size_t local = 0;
    for (std::uint32_t v : kernel.locals)
        if (program.variables[v].space == Space::local) local += program.variables[v].bytes;
    if (local > max_shared) throw Refusal(kernel.line, "too much local memory");
    out.kernel.local_bytes = static_cast<std::uint32_t>(local);
    out.kernel.registers = static_cast<std::uint32_t>(std::clamp<std::size_t>(kernel.registers.size() / 2, 16, 255));
    Order order;
    note_order(kernel, order);

    std::string text;
    if (reached.indirect) text += "static void* pointer_to(u64 p, u32 arity);\n";
    for (std::uint32_t f : reached.functions) text += function_head(program, f) + ";\n";
    for (std::uint32_t f : reached.functions) {
        const Function& function = program.functions[f];
        try {
            note_order(function, order);
            Coder coder(program, function, layout, false, reached.exits, count_work);
            text += function_head(program, f) + " {\nSPECIALS\n" + coder.text() + "}\n";
        } catch (const Refusal& r) {
            throw Refusal(r.line, "function " + function.name + ": " + r.what());
        }
    }
    if (reached.indirect) {
        text += "static void* pointer_to(u64 p, u32 arity) {\nswitch (p) {\n";
        for (std::uint32_t p : pointers) {
            const Function& f = program.functions[p];
            text += cat("case ", function_pointer(layout.pointers[p]), "ull: return arity == ", f.params.size() + f.returns.size(), "u ? (void*)fn", p, " : (void*)0;\n");
        }
        text += "default: return (void*)0;\n}\n}\n";
    }
    Coder coder(program, kernel, layout, true, reached.exits, count_work);
    const std::string body = coder.text();
    out.stopping = coder.stopping();
    if (out.stopping) {
        text += "typedef struct Frame { Thread thread;\n" + coder.frame_fields() + "} Frame;\n";
        text += "EXPORT const u64 softgpu_frame = (sizeof(Frame) + 63) / 64 * 64;\n";
        text += "EXPORT u32 softgpu_step(const Launch* L, Block* B, Thread* T) {\nFrame* const F = (Frame*)T;\nSPECIALS\n" + body + "}\n";
    } else {
        text += "static inline __attribute__((always_inline)) void body(const Launch* L, Block* B, Thread* T) {\nSPECIALS\n" + body + "}\n";
        text += "EXPORT void softgpu_block(const Launch* launch, Block* B) {\nconst Launch copy = *launch;\nconst Launch* const L = &copy;\n"
                "Thread thread = {{0}};\nThread* const T = &thread;\n"
                "for (u32 z = 0; z < L->block[2]; ++z) for (u32 y = 0; y < L->block[1]; ++y) for (u32 x = 0; x < L->block[0]; ++x) {\n"
                "T->id[0] = x; T->id[1] = y; T->id[2] = z; T->gone = 0;\nbody(L, B, T);\n}\n}\n";
    }
    out.text = std::move(text);
    out.kernel.has_atomics = order.float_atomics;
    out.kernel.may_race = order.blocks_meet;
    out.parallel = !order.blocks_meet;
    return out;
}

}  // namespace

std::string prelude() {
    return cat("typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;\n"
               "typedef signed char s8; typedef short s16; typedef int s32; typedef long long s64; typedef unsigned __int128 u128; typedef __int128 s128;\n"
               "#define EXPORT __attribute__((visibility(\"default\")))\n",
               abi::abi_text, "\n", prelude_text);
}

Translation translate(Program& program, bool count_work) {
    Translation out;
    Layout layout;
    const std::vector<std::uint32_t> pointers = address_taken(program);
    lay_out_globals(program, pointers, layout, out);
    const std::size_t functions = program.functions.size();
    for (std::uint32_t i = 0; i < functions; ++i) {
        if (!program.functions[i].entry || !program.functions[i].defined) continue;
        const std::string name = program.functions[i].name;
        try {
            out.kernels.push_back(translate_kernel(program, i, pointers, layout, count_work));
        } catch (const Refusal& r) {
            throw Refusal(r.line, "kernel " + name + ": " + r.what());
        }
    }
    return out;
}

}  // namespace softgpu::ptx
