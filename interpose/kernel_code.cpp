#include "interpose/internal.hpp"

#include "interpose/kernel_code.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "interpose/hazards.hpp"
#include "interpose/image_layouts.hpp"
#include "interpose/kernel_flow.hpp"
#include "interpose/machine_code.hpp"
#include "interpose/module_variables.hpp"
#include "interpose/ptx_words.hpp"

namespace udnnmem::interpose {
namespace {

constexpr std::size_t most_bytes = std::size_t{16} << 20;

bool names_place_or_time(std::string_view word) {
    for (const char* r : {"%clock", "%globaltimer", "%smid", "%nsmid", "%warpid", "%nwarpid", "%gridid", "%envreg", "%pm"})
        if (starts_with(word, r)) return true;
    return false;
}

// `call (results), target, (arguments), prototypes;`: whether the target is in a register.
bool calls_by_address(const std::vector<std::string_view>& words) {
    if (!starts_with(words[0], "call")) return false;
    int depth = 0;
    for (std::size_t i = 1; i < words.size(); ++i) {
        depth += (words[i] == "(") - (words[i] == ")");
        if (depth == 0 && words[i] != ")" && words[i] != ",") return words[i][0] == '%';
    }
    return false;
}

const char* hazard_of_opcode(std::string_view op) {
    const bool atomic = starts_with(op, "atom.") || starts_with(op, "red.");
    if (atomic)
        for (const char* type : {".f16", ".f32", ".f64", ".bf16"})
            if (contains(op, type)) return kFloatAtomic;
    // A tensor's elements are what its map says.
    if (starts_with(op, "cp.reduce.") && (contains(op, ".tensor") || contains(op, ".f16") || contains(op, ".f32") || contains(op, ".f64") || contains(op, ".bf16"))) return kFloatAtomic;
    // Loads of others' words may wait for them: a kernel that is run again alone would wait for ever.
    const bool others = contains(op, ".volatile") || (starts_with(op, "ld.") && (contains(op, ".acquire") || contains(op, ".relaxed") || contains(op, ".mmio")));
    if (others && !contains(op, ".shared") && !contains(op, ".local")) return kVolatile;
    if (starts_with(op, "multimem.")) return kVolatile;
    for (const char* start : {"tex.", "tld4.", "suld.", "sust.", "sured."})
        if (starts_with(op, start)) return kTexture;
    return nullptr;
}

// One pass over the text: variables and functions of the module, and what each body names.
class PtxScan {
  public:
    explicit PtxScan(std::string_view text) : words_(text, "()[]{},;=+|"), layouts_(parse_image(text.data(), text.size())) {}

    void run(KernelCodes& codes) {
        for (std::string_view t = next(); !t.empty(); t = next()) {
            if (t == ".entry" || t == ".func") function(t == ".entry");
            else if (t == ".global" || t == ".const") variable(t == ".global");
            else if (t == ".extern") outside_ = true;
            else if (t == ";" || t == "}") outside_ = false;
        }
        bool more = true;   // what is called counts as the caller's
        while (std::exchange(more, false))
            for (Body& b : bodies_) {
                for (const Body& called : bodies_)
                    if (!called.entry && called.names_variable && !b.names_variable && b.words.count(called.name)) more = b.names_variable = true;
                if (b.code.hazard) continue;
                for (const std::string_view word : b.words) {
                    if (variables_.count(word)) b.code.hazard = kVariable;
                    for (const Body& called : bodies_)
                        if (!called.entry && called.code.hazard && called.name == word) b.code.hazard = called.code.hazard;
                    if (outsiders_.count(word)) b.code.hazard = kCall;
                    if (b.code.hazard) break;
                }
                more |= b.code.hazard != nullptr;
            }
        for (Body& b : bodies_) {
            b.code.follows_variables |= b.names_variable && !b.understood;
            if (b.entry) codes.emplace(b.name, std::move(b.code));
        }
    }

  private:
    struct Body {
        std::string_view name;
        bool entry = false;
        KernelCode code;
        std::set<std::string_view> words;   // names, not registers
        bool understood = false;            // where its values come from
        bool names_variable = false;        // one that may hold addresses
    };

    std::string_view next() { return words_.next(); }

    void skip(std::string_view open, std::string_view close) {
        int depth = 1;
        for (std::string_view t = next(); !t.empty() && depth; t = next()) {
            depth += (t == open) - (t == close);
            if (!depth) return;
        }
    }

    // `[.align n] [.type...] name[[count]] [= ...];`, several behind commas. One that kernels may write and that lies as addresses do
    // may hold some.
    void variable(bool writable) {
        std::string_view t = next(), name;
        bool aligns = false, lies_as_addresses = false;
        for (; !t.empty() && t != ";"; t = next()) {
            if (t == "[") {
                skip("[", "]");
            } else if (t == "{") {
                skip("{", "}");
            } else if (t == "=" || t == ",") {
                take_variable(std::exchange(name, {}), writable && lies_as_addresses);
            } else if (t[0] == '.') {
                aligns = t == ".align";
                lies_as_addresses |= contains(t, "64");
            } else if (t[0] >= '0' && t[0] <= '9') {
                lies_as_addresses |= std::exchange(aligns, false) && std::strtoul(std::string(t).c_str(), nullptr, 0) >= 8;
            } else {
                name = t;
            }
        }
        take_variable(name, writable && lies_as_addresses);
        outside_ = false;
    }
    void take_variable(std::string_view name, bool may_hold_addresses) {
        if (name.empty() || never_written(name, 0)) return;
        variables_.insert(name);
        if (may_hold_addresses) holders_.insert(name);
    }

    // Behind `.entry` or `.func`: `[(result)] name [(parameters)] [directives] { body }`, or `;`
    void function(bool entry) {
        Body body;
        body.entry = entry;
        std::string_view t = next();
        if (t == "(") skip("(", ")"), t = next();
        body.name = t;
        const bool outside = std::exchange(outside_, false);
        std::vector<std::string_view> names;
        for (t = next(); !t.empty() && t != "{" && t != ";"; t = next())
            if (t == "(") names = parameter_names();
        if (t != "{") {
            if (outside) outsiders_.insert(body.name);
            return;
        }
        KernelFlow flow;
        std::vector<std::string_view> instruction;
        std::string_view guard;
        int depth = 1;
        for (t = next(); !t.empty(); t = next()) {
            // Braces of a scope come where an instruction would begin, those of a vector within one.
            if (instruction.empty() && (t == "{" || t == "}")) {
                depth += t == "{" ? 1 : -1;
                if (!depth) break;
                continue;
            }
            if (t == ";") {
                if (!instruction.empty()) {
                    if (!body.code.hazard && calls_by_address(instruction)) body.code.hazard = kCall;
                    flow.add(instruction, guard);
                }
                instruction.clear();
                guard = {};
                continue;
            }
            if (!body.code.hazard && t[0] == '%' && names_place_or_time(t)) body.code.hazard = kClock;
            if (instruction.empty() && t[0] == '@') {
                guard = t.substr(std::min(t.size(), t.find_first_not_of("@!")));
                continue;
            }
            if (instruction.empty() && t == ".loc") {   // a place in the source: it ends with its line
                words_.skip_line();
                continue;
            }
            if (instruction.empty() && t.back() == ':') {
                flow.label(t.substr(0, t.size() - 1));
                continue;
            }
            if (instruction.empty() && !body.code.hazard) body.code.hazard = hazard_of_opcode(t);
            instruction.push_back(t);
            if (t[0] == '_' || t[0] == '$' || (t[0] >= 'a' && t[0] <= 'z') || (t[0] >= 'A' && t[0] <= 'Z')) body.words.insert(t);
        }
        for (const std::string_view word : body.words)
            if (holders_.count(word)) body.names_variable = true, flow.variable(word);
        if (entry) {
            const auto layout = layouts_.find(body.name);
            const bool laid_out = layout != layouts_.end() && layout->second.size() == names.size();
            std::unordered_map<std::string_view, std::int64_t> offsets;
            for (std::size_t i = 0; laid_out && i < names.size(); ++i) offsets.emplace(names[i], layout->second[i].offset);
            body.understood = flow.solve([&](std::string_view name) {
                const auto at = offsets.find(name);
                return at == offsets.end() ? -1 : at->second;
            }, body.code);
            body.code.writes_known = body.code.writes_known && laid_out;
            if (!body.code.hazard) body.code.hazard = flow.hazard();
        }
        bodies_.push_back(std::move(body));
    }

    // Up to the closing bracket: the last word of each that is no number.
    std::vector<std::string_view> parameter_names() {
        std::vector<std::string_view> names;
        std::string_view last;
        for (std::string_view t = next(); !t.empty() && t != ")"; t = next()) {
            if (t == "[") skip("[", "]");
            else if (t == ",") names.push_back(std::exchange(last, {}));
            else if (t[0] != '.' && (t[0] < '0' || t[0] > '9')) last = t;
        }
        if (!last.empty()) names.push_back(last);
        return names;
    }

    PtxWords words_;
    const ImageLayouts layouts_;
    bool outside_ = false;   // `.extern` came before
    std::vector<Body> bodies_;
    std::set<std::string_view> variables_, holders_, outsiders_;
};

// What either may do.
void merge(KernelCodes& into, KernelCodes&& from) {
    for (auto& [name, code] : from) {
        const auto [at, fresh] = into.try_emplace(name, std::move(code));
        if (fresh) continue;
        if (!at->second.hazard) at->second.hazard = code.hazard;
        at->second.writes_known = at->second.writes_known && code.writes_known;
        at->second.follows_variables |= code.follows_variables;
        at->second.writes.merge(code.writes);   // what is known of one of them is
        at->second.steers.merge(code.steers);
        at->second.scattered.merge(code.scattered);
        at->second.images += code.images;
    }
}

struct Finder final : ImageVisitor {
    KernelCodes codes;
    void ptx(std::string_view text) override {
        KernelCodes found;
        PtxScan(text).run(found);
        merge(codes, std::move(found));
    }
    // Machine code is searched for a few instructions. A module with variables that may be written taints all its kernels, as does what
    // is said of functions that any of them may call. A kernel is what has parameters in the bank for them.
    void cubin(const unsigned char* elf, std::size_t bytes) override {
        struct Search {
            unsigned capability;
            std::map<std::string_view, const char*> functions;
            std::set<std::string_view> kernels;
        } search{compute_capability(elf, bytes), {}, {}};
        for_each_section(elf, bytes, [](void* to, std::string_view name, const unsigned char* code, std::size_t size) {
            auto& s = *static_cast<Search*>(to);
            if (starts_with(name, ".text.")) s.functions[name.substr(6)] = hazard_of_machine_code(s.capability, code, size);
            if (starts_with(name, ".nv.constant0.")) s.kernels.insert(name.substr(14));
        }, &search);
        for_each_external(elf, bytes, [](void* to, std::string_view function, std::string_view called) {
            if (called != "__assertfail") static_cast<Search*>(to)->functions[function] = kCall;   // that ends the program
        }, &search);
        const char* of_all = has_written_variables(elf, bytes) ? kVariable : nullptr;
        for (const auto& [name, hazard] : search.functions)
            if (!of_all && !search.kernels.count(name)) of_all = hazard;
        KernelCodes found;
        for (const auto& [name, hazard] : search.functions)
            if (search.kernels.count(name)) found[std::string(name)].hazard = of_all ? of_all : hazard;
        merge(codes, std::move(found));
    }
};

struct Known {
    std::mutex mutex;
    KernelCodes codes;
    std::set<std::uint64_t> images;   // each is read once
};
Known& known() {
    static Known& k = *new Known;   // never destroyed, as the caches of kernel_layouts.cpp
    return k;
}

void take(const void* image, std::size_t bytes) {
    const std::uint64_t sum = XXH3_64bits(image, bytes);
    Known& k = known();
    std::lock_guard lock(k.mutex);
    if (!k.images.insert(sum).second) return;
    KernelCodes found = read_code(image, bytes);
    for (auto& [name, code] : found) code.images = sum;
    merge(k.codes, std::move(found));
}

}  // namespace

KernelCodes read_code(const void* image, std::size_t bytes) {
    Finder finder;
    visit_image(image, bytes, finder);
    return std::move(finder.codes);
}

void note_code(const void* image) noexcept try {
    if (image == nullptr || (image = unwrapped_image(image)) == nullptr) return;
    if (const std::size_t bytes = image_bytes(image); bytes && bytes <= most_bytes) take(image, bytes);
} catch (...) {   // no memory
}

void note_code_of(const void* image, std::size_t bytes) noexcept try {
    if (image == nullptr || !bytes || bytes > most_bytes) return;
    const std::string closed(static_cast<const char*>(image), bytes);   // with a 0 behind
    take(closed.data(), closed.size());
} catch (...) {   // no memory
}

void note_code_of_file(const char* path) noexcept try {
    std::ifstream file(path ? path : "", std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (!bytes.empty() && bytes.size() <= most_bytes) take(bytes.data(), bytes.size());
} catch (...) {
}

KernelCode kernel_code(std::string_view name) noexcept {
    Known& k = known();
    std::lock_guard lock(k.mutex);
    const auto found = k.codes.find(name);
    return found == k.codes.end() ? KernelCode() : found->second;
}

bool kernel_may_write(std::string_view name, std::size_t offset) noexcept {
    Known& k = known();
    std::lock_guard lock(k.mutex);
    const auto found = k.codes.find(name);
    if (found == k.codes.end() || !found->second.images) return false;
    return !found->second.writes_known || found->second.writes.contains(static_cast<std::uint32_t>(offset / 8 * 8));
}

}  // namespace udnnmem::interpose
